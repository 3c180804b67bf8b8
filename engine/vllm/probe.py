"""Times single steps of vLLM inside this process.

Speaks the probe protocol of llmprof: one JSON object a line, requests on stdin,
events on stdout. Arguments: lowest and highest token id, then vLLM's own engine
arguments. Everything that anybody else prints goes to stderr.
"""

import json
import os
import random
import sys
import time

events = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)


def emit(event, **fields):
    fields["event"] = event
    events.write(json.dumps(fields) + "\n")
    events.flush()


class Fatal(Exception):
    def __init__(self, reason, message, hint=""):
        super().__init__(message)
        self.reason, self.hint = reason, hint


class Failed(Exception):
    def __init__(self, reason, message):
        super().__init__(message)
        self.reason = reason


def out_of_memory(error):
    text = (type(error).__name__ + " " + str(error)).lower()
    return isinstance(error, MemoryError) or "out of memory" in text or "outofmemory" in text or "bad_alloc" in text


def start_error(error):
    """Tells why the engine did not start by what it said."""
    text = type(error).__name__ + ": " + str(error)
    if out_of_memory(error):
        return Fatal("oom", text)
    for words, reason, hint in (
        ("No common block size", "block-size", "leave the block size to the engine; on a CPU 32, 64 and 128 work"),
        ("maximum model length is", "length", "shorter input and output, or more memory for the KV cache"),
        ("less than desired", "memory", "free the device, or take a smaller share of it: --gpu-memory-utilization"),
        ("No available memory", "memory", "a larger share of the device: --gpu-memory-utilization; or fewer layers"),
        ("Model architectures", "model-unsupported", ""),
        ("config.json", "model-missing", ""),
        ("Repo id", "model-missing", ""),
        ("Failed to infer device", "no-device", ""),
        ("No CUDA GPUs", "no-device", ""),
        ("Permission denied", "permission-denied", ""),
    ):
        if words in text:
            return Fatal(reason, text[:2000], hint)
    return Fatal("start", text[:2000])


def num_layers(model):
    """The number of decoder blocks that a configuration of vLLM's names; 0 for none."""
    try:
        return int(model.get_total_num_hidden_layers())
    except AttributeError:  # releases before it
        return getattr(model.hf_text_config, "num_hidden_layers", None) or 0


def running(config):
    """The deployment as vLLM has configured itself."""
    model, parallel = config.model_config, config.parallel_config
    out = {
        "dtype": str(model.dtype).replace("torch.", ""),
        "quantization": model.quantization or "",
        "tensor_parallel_size": parallel.tensor_parallel_size,
        "pipeline_parallel_size": parallel.pipeline_parallel_size,
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        "weights": "random" if str(getattr(config.load_config, "load_format", "")).endswith("dummy") else "loaded",
    }
    cache = str(getattr(config.cache_config, "cache_dtype", "auto"))
    if cache != "auto":
        out["kv_cache_dtype"] = cache
    if config.device_config.device_type != "cpu":  # which sizes its cache otherwise
        out["gpu_memory_utilization"] = config.cache_config.gpu_memory_utilization
    return out


class Engine:
    def __init__(self, request, low, high, argv):
        try:
            import vllm
            from vllm import EngineArgs, LLMEngine, SamplingParams
        except ModuleNotFoundError as error:
            hint = sys.executable + " -m pip install vllm, or name another Python: --program PATH or $LLMPROF_PYTHON"
            raise Fatal("engine-missing", "%s (%s)" % (error, sys.executable), hint)
        try:
            from vllm.utils.argparse_utils import FlexibleArgumentParser
        except ImportError:
            from vllm.utils import FlexibleArgumentParser
        self.params = SamplingParams
        parser = FlexibleArgumentParser()
        EngineArgs.add_cli_args(parser)
        try:
            args = EngineArgs.from_cli_args(parser.parse_args(argv))
        except SystemExit:
            raise Fatal("arguments", "vLLM does not take these arguments: " + " ".join(argv))
        try:
            self.engine = LLMEngine.from_engine_args(args)
        except Exception as error:
            raise start_error(error)
        config = self.engine.vllm_config
        self.cache, self.scheduler = config.cache_config, config.scheduler_config
        self.model_len = config.model_config.max_model_len
        self.layers = num_layers(config.model_config)
        # Ranks are processes of their own, with threads of their own.
        self.alone = config.parallel_config.world_size == 1
        self.running = running(config)
        self.blocks = self.cache.num_gpu_blocks or 0
        self.clock = request.get("clock") or "wall"
        self.now = time.process_time if self.clock == "cpu" else time.perf_counter
        self.low, self.high = low, high
        self.random = random.Random(request.get("seed", 0))
        self.count = 0
        self.version = vllm.__version__

    def ready(self):
        import torch

        name = "process_time" if self.clock == "cpu" else "perf_counter"
        block = self.cache.block_size
        cache_bytes = getattr(self.cache, "kv_cache_memory_bytes", None) or 0
        tokens = self.blocks * block
        memory = []
        if tokens:
            memory.append({"part": "kv-cache", "bytes": cache_bytes, "tokens": tokens, "blocks": self.blocks, "block_size": block})
        device, threads = "cpu", torch.get_num_threads() if self.alone else 0
        if torch.cuda.is_available():
            device, threads = torch.cuda.get_device_name(0), 0
        emit(
            "ready", schema="llmprof/probe", version=1, engine="vllm", engine_version=self.version,
            libraries={"torch": torch.__version__, "python": sys.version.split()[0]},
            device=device, device_count=1 if self.alone else self.running["tensor_parallel_size"] * self.running["pipeline_parallel_size"], clock=self.clock, timer="python time." + name,
            timer_resolution_s=time.get_clock_info(name).resolution,
            max_model_len=self.model_len, max_total_tokens=tokens, max_batch=self.scheduler.max_num_seqs,
            num_layers=self.layers, threads=threads, block_size=block, memory=memory, **self.running,
            warnings=["times hold vLLM's scheduling and output processing beside the execution of the step"],
        )

    def step(self):
        """Runs one step; its time and how many tokens each request has now."""
        begin = self.now()
        outputs = self.engine.step()
        took = self.now() - begin
        return took, [len(o.outputs[0].token_ids) for o in outputs]

    def drain(self, ids):
        self.engine.abort_request(ids)
        for _ in range(100):
            if not self.engine.has_unfinished_requests():
                return
            self.engine.step()

    def run(self, batch, length, output):
        """One run: the time of the prefill and those of the decode steps."""
        ids = []
        params = self.params(max_tokens=output, min_tokens=output, ignore_eos=True, temperature=0, detokenize=False)
        try:
            for _ in range(batch):
                self.count += 1
                ids.append(str(self.count))
                prompt = [self.random.randrange(self.low, self.high) for _ in range(length)]
                self.engine.add_request(ids[-1], {"prompt_token_ids": prompt}, params)
            times = []
            for made in range(1, output + 1):
                took, counts = self.step()
                if counts != [made] * batch:
                    raise Failed("exception", "step %d gave the requests %s tokens, want %d each" % (made, counts[:8], made))
                times.append(took)
        except BaseException:
            self.drain(ids)
            raise
        return times[0], times[1:]

    def measure(self, request):
        batch, length, output = (int(request.get(k) or 0) for k in ("batch_size", "input_len", "output_len"))
        output = max(output, 1)
        if batch < 1 or length < 1:
            raise Failed("exception", "batch %d x %d: want 1 or more of each" % (batch, length))
        block = self.cache.block_size
        blocks = -(-(length + output) // block) * batch
        if length + output > self.model_len or batch > self.scheduler.max_num_seqs:
            raise Failed("skipped_due_to_limits", "longer than a sequence or a batch may be")
        if batch * length > self.scheduler.max_num_batched_tokens or self.blocks and blocks > self.blocks:
            raise Failed("skipped_due_to_limits", "more tokens than a step or the cache may hold")
        prefill, decode = [], []
        for run in range(int(request.get("warmup") or 0) + max(int(request.get("runs") or 0), 1)):
            if run == int(request.get("warmup") or 0):
                emit("mark", name="warm")
            first, rest = self.run(batch, length, output)
            if run >= int(request.get("warmup") or 0):
                prefill.append(first)
                decode.append(rest)
        emit("step", id=request["id"], prefill_s=prefill, decode_s=decode)


def serve(low, high, argv):
    engine = None
    for line in sys.stdin:
        line = line.strip()
        if not line:
            continue
        request = json.loads(line)
        op = request.get("op")
        if op == "close":
            return
        if op == "open":
            if request.get("schema") != "llmprof/probe" or request.get("version") != 1:
                raise Fatal("version", "this probe speaks llmprof/probe 1, not %s %s" % (request.get("schema"), request.get("version")))
            engine = Engine(request, low, high, argv)
            engine.ready()
            continue
        if engine is None:
            raise Fatal("protocol", "a task before open")
        try:
            if op != "step":
                raise Failed("exception", "vLLM in process measures steps only")
            engine.measure(request)
        except Failed as error:
            emit("failed", id=request.get("id", 0), reason=error.reason, message=str(error))
        except Exception as error:
            reason = "oom" if out_of_memory(error) else "runtime_error"
            emit("failed", id=request.get("id", 0), reason=reason, message=type(error).__name__ + ": " + str(error)[:2000])


if __name__ == "__main__":
    try:
        serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
    except Fatal as error:
        emit("fatal", reason=error.reason, message=str(error), hint=error.hint)
    except Exception as error:
        emit("fatal", reason="probe", message=type(error).__name__ + ": " + str(error)[:2000])
    # Engines leave threads behind that need not be waited for.
    sys.stderr.flush()
    os._exit(0)
