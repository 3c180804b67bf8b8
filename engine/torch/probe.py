"""Times a Hugging Face decoder with torch, for llmprof.

Requests come as JSON lines on stdin, events go as JSON lines to stdout; the
protocol is described in llmprof's engine/probe.go. The model is built from its
configuration alone, with random weights, unless real ones are asked for.
Nothing but torch and transformers is needed. The process ends when its stdin
does, in the middle of a forward pass if need be.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import inspect
import json
import os
import platform
import queue
import re
import subprocess
import sys
import threading
import time
import traceback
from typing import Any, Callable, Iterator, List, Optional, Tuple

import probe_cache
import probe_layers

SCHEMA = "llmprof/probe"
VERSION = 1

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


class Fatal(Exception):
    """Why the probe cannot measure at all."""

    def __init__(self, reason: str, message: str, hint: str = ""):
        super().__init__(message)
        self.reason, self.hint = reason, hint


class Skipped(Exception):
    """A task beyond the model's limits."""


class Channel:
    """The two ends of the protocol.

    What libraries print to stdout goes to stderr, so that it cannot break a
    line of the protocol.
    """

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        self._requests: "queue.Queue[dict]" = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin.buffer:
            if line.strip():
                self._requests.put(json.loads(line))
        os._exit(0)  # whoever asked is gone

    def next(self) -> dict:
        return self._requests.get()

    def emit(self, event: str, **fields: Any) -> None:
        self._out.write(json.dumps({"event": event, **fields}, allow_nan=False) + "\n")
        self._out.flush()


class Timer:
    """Marks points in time on one clock: wall, cpu or device.

    Marks on the device's clock are read when the device has come to them, so
    setting one costs no waiting; the other clocks wait for the device first.
    """

    short = 0  # times that were too short to see, since they were told

    def __init__(self, torch: Any, device: Any, clock: str):
        self.torch, self.device = torch, device
        self.clock = clock or ("device" if device.type == "cuda" else "wall")
        if self.clock == "device" and device.type != "cuda":
            text = f"clock device: {device.type} has no timer of its own"
            raise Fatal("no-device", text, "time with clock wall or cpu")
        if self.clock not in ("wall", "cpu", "device"):
            raise Fatal("bad-request", f"unknown clock {clock!r}")
        self.name, source = {
            "wall": ("time.perf_counter_ns", "perf_counter"),
            "cpu": ("time.process_time_ns", "process_time"),
            "device": ("torch.cuda.Event", ""),
        }[self.clock]
        # The driver's documentation states half a microsecond for events.
        self.resolution = time.get_clock_info(source).resolution if source else 0.5e-6

    def sync(self) -> None:
        if self.device.type != "cpu":
            getattr(self.torch, self.device.type).synchronize()

    def mark(self) -> Any:
        if self.clock == "device":
            event = self.torch.cuda.Event(enable_timing=True)
            event.record()
            return event
        self.sync()
        return time.perf_counter_ns() if self.clock == "wall" else time.process_time_ns()

    def seconds(self, begin: Any, end: Any) -> float:
        """The time between two marks; the device has passed both."""
        taken = begin.elapsed_time(end) / 1e3 if self.clock == "device" else (end - begin) / 1e9
        if taken >= self.resolution:
            return taken
        self.short += 1
        return self.resolution  # what is too short to see took some time all the same

    def news(self) -> List[str]:
        """A warning where times were too short to see since the last one."""
        short, self.short = self.short, 0
        if not short:
            return []
        return [f"{short} times were shorter than the timer's step and stand as one step of {self.resolution:g} s"]

    def time(self, work: Callable[[], Any]) -> float:
        self.sync()
        begin = self.mark()
        work()
        end = self.mark()
        self.sync()
        return self.seconds(begin, end)


def import_library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as err:
        hint = f"{sys.executable} -m pip install torch transformers, or name another Python: --program PATH or $LLMPROF_PYTHON"
        raise Fatal("engine-missing", f"{err} ({sys.executable})", hint)


def check_folder(name: str) -> None:
    if os.path.isdir(name) and not os.path.isfile(os.path.join(name, "config.json")):
        hint = "name the folder of a Hugging Face checkpoint, or a hub id"
        raise Fatal("model-missing", f"folder {name} holds no config.json", hint)


def pick_device(torch: Any, name: str) -> Any:
    """The device of a name; the best there is for none."""
    name = name or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
        if device.type == "cuda":
            torch.cuda.set_device(device)
    except (RuntimeError, AssertionError, AttributeError, NotImplementedError) as err:
        hint = "choose another device, or install a torch build that knows it"
        raise Fatal("no-device", f"device {name}: {first_line(err)}", hint)
    return device


def first_line(err: BaseException) -> str:
    text = str(err).strip()
    return text.splitlines()[0] if text else type(err).__name__


def out_of_memory(torch: Any, err: BaseException) -> bool:
    if isinstance(err, (MemoryError, getattr(torch.cuda, "OutOfMemoryError", MemoryError))):
        return True
    text = str(err).lower()
    words = ("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory")
    return isinstance(err, RuntimeError) and any(w in text for w in words)


class Model:
    """A decoder on a device, ready to run forward passes."""

    def __init__(self, request: dict, tell: Callable[[str], None]):
        self.tell = tell
        self.args = parse_args(request.get("args") or [])
        self.warnings: List[str] = []
        self.told = 0
        check_folder(request["model"])
        self.torch = import_library("torch")  # takes seconds, as the next does
        if request.get("threads"):
            self.torch.set_num_threads(request["threads"])
        self.torch.manual_seed(request.get("seed", 0))
        self.device = pick_device(self.torch, request.get("device", ""))
        self.timer = Timer(self.torch, self.device, request.get("clock", ""))
        self.transformers = import_library("transformers")
        self.transformers.logging.set_verbosity_error()
        self.transformers.logging.disable_progress_bar()
        self.config = self._config(request["model"])
        self.dtype_name, self.dtype = self._dtype(request.get("dtype", ""))
        self._cut(request.get("num_layers", 0))
        self.graphs = bool(request.get("cuda_graphs")) and self.device.type == "cuda"
        if request.get("cuda_graphs") and not self.graphs:
            self.warn("CUDA graphs need a CUDA device: decode steps run without them")
        self.torch.zeros(1, device=self.device)  # the device is up
        self.tell("started")
        self.weights = "loaded" if request.get("load_weights") else "random"
        self.module = self._build(request)
        self.tell("loaded")
        self.config = self.module.config.get_text_config()  # loading weights copies it
        parameters = inspect.signature(self.module.forward).parameters
        self.keep = next((k for k in ("logits_to_keep", "num_logits_to_keep") if k in parameters), "")
        if not self.keep:
            self.warn("the model computes the logits of all tokens, not of each prompt's last alone")
        self.max_len = getattr(self.config, "max_position_embeddings", None) or 0
        if request.get("max_model_len"):
            self.max_len = min(self.max_len or request["max_model_len"], request["max_model_len"])
        self.forward(self.tokens(1, 1), self.cache(2))  # what cannot run at all shows here

    def warm(self) -> None:
        """Says that the warm-up runs of a task are over."""
        self.tell("warm")
        if self.device.type == "cuda":
            self.torch.cuda.reset_peak_memory_stats(self.device)

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)
            print("warning:", text, file=sys.stderr)

    def news(self) -> List[str]:
        """The warnings that were not told yet."""
        new, self.told = self.warnings[self.told :], len(self.warnings)
        return new + self.timer.news()

    def _config(self, name: str) -> Any:
        asked = (os.environ.get(v, "").upper() for v in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
        self.offline = any(value in ("1", "ON", "YES", "TRUE") for value in asked)
        try:
            config = self.transformers.AutoConfig.from_pretrained(
                name, local_files_only=self.offline, trust_remote_code=self.args.trust_remote_code
            )
        except Exception as err:  # each release of the hub's library has errors of its own
            raise model_fault(name, err)
        text = config.get_text_config()
        if text is not config:
            self.warn("only the text decoder of the model is measured")
            if not getattr(text, "architectures", None):
                text.architectures = getattr(config, "architectures", None)
        return text

    def _dtype(self, name: str) -> Tuple[str, Any]:
        if name and name not in DTYPES:
            text = f"dtype {name}: torch measures fp32, bf16 and fp16 here"
            raise Fatal("model-unsupported", text, "measure other formats with the vllm engine")
        if not name:
            own = getattr(self.config, "dtype", None) or getattr(self.config, "torch_dtype", None)
            own = str(own).replace("torch.", "")
            fallback = "bf16" if self.device.type == "cuda" else "fp32"
            name = next((short for short, long in DTYPES.items() if long == own), fallback)
        return name, getattr(self.torch, DTYPES[name])

    def _cut(self, layers: int) -> None:
        """Cuts the configuration to the model's first layers."""
        whole = self.config.num_hidden_layers
        if not 0 < layers < whole:
            return
        for key, value in list(vars(self.config).items()):
            if isinstance(value, (list, tuple)) and len(value) == whole:
                setattr(self.config, key, value[:layers])  # one entry a layer
        self.config.num_hidden_layers = layers

    def _build(self, request: dict) -> Any:
        options = {
            self._dtype_key(): self.dtype,
            "attn_implementation": self.args.attn,
            "trust_remote_code": self.args.trust_remote_code,
        }
        quantized = getattr(self.config, "quantization_config", None)
        if quantized is not None and not request.get("load_weights"):
            self.warn("the checkpoint is quantised, the measured weights are not")
            delattr(self.config, "quantization_config")
        try:
            try:
                return self._instance(request, options)
            except ValueError as err:
                if self.args.attn == "eager" or not re.search("attn|attention", str(err), re.IGNORECASE):
                    raise
                self.warn(f"the model has no {self.args.attn} attention: eager is used")
                return self._instance(request, {**options, "attn_implementation": "eager"})
        except Fatal:
            raise
        except Exception as err:
            if out_of_memory(self.torch, err):
                raise Fatal("oom", first_line(err), "cut the model with fewer layers, or use a larger device")
            raise model_fault(request["model"], err)

    def _instance(self, request: dict, options: dict) -> Any:
        auto = self.transformers.AutoModelForCausalLM
        if request.get("load_weights"):
            source = {"config": self.config, "local_files_only": self.offline}
            module = auto.from_pretrained(request["model"], **source, **options).to(self.device)
        else:
            with self.torch.device(self.device), uninitialised(self.torch, self.transformers):
                module = auto.from_config(self.config, **options)
            module.tie_weights()
            fill(self.torch, module)
        return module.eval().requires_grad_(False)

    def _dtype_key(self) -> str:
        major, minor = (int(n) for n in self.transformers.__version__.split(".")[:2])
        return "dtype" if (major, minor) >= (4, 56) else "torch_dtype"

    def tokens(self, batch: int, length: int) -> Any:
        return self.torch.randint(0, self.config.vocab_size, (batch, length), device=self.device)

    def forward(self, tokens: Any, cache: Any) -> Any:
        """One pass over new tokens; logits of each sequence's last alone."""
        keep = {self.keep: 1} if self.keep else {}
        with self.torch.inference_mode():
            return self.module(input_ids=tokens, past_key_values=cache, use_cache=True, **keep)

    def cache(self, length: int) -> Any:
        """An empty KV cache with room for length tokens of each sequence.

        Keys and values are written in place and attention sees the tokens that
        are there, as in a serving engine: a cache that grows would copy itself
        in every step, a static one would attend over its empty part.
        """
        utils = self.transformers.cache_utils
        try:
            cache = utils.DynamicCache(config=self.config)
            own = probe_cache.reserved_layer(utils)
            plain = [type(layer) is utils.DynamicLayer for layer in cache.layers]
            cache.layers = [own(length) if p else layer for p, layer in zip(plain, cache.layers)]
            if others := plain.count(False):
                self.warn(f"{others} layers keep a KV cache of transformers' own, which may copy itself in a step")
            return cache
        except (AttributeError, TypeError):
            self.warn("this release of transformers grows its KV cache by copying it in each step")
            return utils.DynamicCache()

    def check(self, length: int) -> None:
        if self.max_len and length > self.max_len:
            raise Skipped(f"{length} tokens are more than the model's {self.max_len}")

    def step(self, batch: int, inputs: int, outputs: int, warmup: int, runs: int) -> dict:
        """Times prefill and decode steps of one shape."""
        self.check(inputs + outputs)
        prompt, token = self.tokens(batch, inputs), self.tokens(batch, 1)
        prefill, decode = [], []
        cache = None
        for run in range(warmup + runs):
            if run == warmup:
                self.warm()
            cache = self.rewound(cache, batch, 0, inputs + outputs)
            first = self.timer.time(lambda: self.forward(prompt, cache))
            one = self._decoder(token, cache, inputs, outputs)
            rest = [self.timer.time(one) for _ in range(outputs - 1)]
            if run >= warmup:
                prefill.append(first)
                decode.append(rest)
            del one
        memory = self.held_memory(cache)
        return {"prefill_s": prefill, "decode_s": decode if outputs > 1 else [], "memory": memory}

    def held_memory(self, cache: Any) -> List[dict]:
        """What a task held beside the weights: its KV cache, and on a GPU the peak of everything else."""
        held = [t for layer in getattr(cache, "layers", []) for t in probe_cache.tensors(layer)]
        size = sum(t.numel() * t.element_size() for t in held)
        memory = [{"part": "kv-cache", "bytes": size}] if size else []
        if self.device.type == "cuda":
            peak = self.torch.cuda.max_memory_allocated(self.device) - weights_bytes(self.module) - size
            if peak > 0:
                memory.append({"part": "activation", "bytes": peak})
        return memory

    def _decoder(self, token: Any, cache: Any, inputs: int, outputs: int) -> Callable[[], Any]:
        """What runs one decode step: a forward pass, or the replay of a graph."""
        if self.graphs and outputs > 1:
            try:
                return self._capture(token, cache, inputs, outputs)
            except Exception as err:
                if out_of_memory(self.torch, err):
                    raise
                self.graphs = False
                self.warn(f"CUDA graphs could not be captured, decode steps run without them: {first_line(err)}")
        return lambda: self.forward(token, cache)

    def _capture(self, token: Any, cache: Any, inputs: int, outputs: int) -> Callable[[], Any]:
        """Captures one decode step over the mean context of them all.

        A graph repeats what was captured: every replay attends over the same
        tokens, so they have to be as many as the point is recorded for.
        """
        torch, trial = self.torch, 3
        held = self.held(token, cache, inputs, inputs + outputs // 2)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(trial):
                held()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            held()
        return graph.replay

    def held(self, token: Any, cache: Any, filled: int, attended: int) -> Callable[[], Any]:
        """A decode step that attends over the same number of tokens, its own
        among them, however often it runs. The cache holds the filled ones."""
        if not all(isinstance(layer, probe_cache.Reserved) for layer in getattr(cache, "layers", [None])):
            raise ValueError("layers of this model keep a KV cache that no step can be repeated on")
        with self.torch.inference_mode():
            for layer in cache.layers:
                layer.stuff(filled, attended)

        def step() -> Any:
            for layer in cache.layers:
                layer.cut(attended - 1)
            return self.forward(token, cache)

        return step

    def rewound(self, cache: Any, sequences: int, context: int, length: int) -> Any:
        """A used cache as it was before, or a new one for what cannot forget."""
        layers = getattr(cache, "layers", [])
        if not layers or not all(isinstance(layer, probe_cache.Reserved) for layer in layers):
            return self.filled_cache(sequences, context, length)
        for layer in layers:
            layer.cut(context)
        return cache

    def filled_cache(self, sequences: int, context: int, length: int) -> Any:
        """A cache that holds context random tokens of each sequence."""
        cache = self.cache(context + length)
        if context == 0:
            return cache
        if not all(isinstance(layer, probe_cache.Reserved) for layer in getattr(cache, "layers", [None])):
            self.forward(self.tokens(sequences, context), cache)  # the model knows how to fill it
            return cache
        sample = self.cache(1)
        self.forward(self.tokens(sequences, 1), sample)
        for own, other in zip(cache.layers, sample.layers):
            own.fill(other.keys, other.values, context)
        return cache

    def by_profiler(self) -> bool:
        """Whether layers are timed by their kernels.

        On a GPU events around a small layer time the host that launches it, not
        the device that waits.
        """
        if self.args.profiler or self.args.events:
            return self.args.profiler
        return self.device.type == "cuda" and self.timer.clock == "device"

    def facts(self) -> dict:
        torch = self.torch
        libraries = {
            "torch": torch.__version__,
            "transformers": self.transformers.__version__,
            "python": platform.python_version(),
        }
        facts: dict = {
            "schema": SCHEMA,
            "version": VERSION,
            "engine": "torch",
            "engine_version": torch.__version__,
            "device": self.device.type,
            "device_count": 1,
            "clock": self.timer.clock,
            "timer": self.timer.name + (", layers: torch.profiler" if self.by_profiler() else ""),
            "timer_resolution_s": self.timer.resolution,
            "dtype": self.dtype_name,
            "weights": self.weights,
            "tensor_parallel_size": 1,
            "pipeline_parallel_size": 1,
            "max_model_len": self.max_len,
            "num_layers": getattr(self.config, "num_hidden_layers", None) or 0,
            "weights_bytes": weights_bytes(self.module),
            "warnings": self.news(),
        }
        if self.device.type == "cuda":
            libraries["cuda"] = torch.version.cuda or ""
            libraries["hip"] = torch.version.hip or ""
            facts["device"] = torch.cuda.get_device_name(self.device)
            facts["driver"] = driver_version()
            facts["max_total_tokens"] = self._room()
        elif self.device.type == "cpu":
            facts["device"] = cpu_name()
            facts["threads"] = torch.get_num_threads()
        facts["libraries"] = {k: v for k, v in libraries.items() if v}
        return facts

    def _room(self) -> int:
        """An estimate of the tokens whose keys and values free memory holds."""
        cache = self.cache(1)
        self.forward(self.tokens(1, 1), cache)
        held = [t for layer in getattr(cache, "layers", []) for t in (layer.keys, layer.values)]
        size = sum(t.numel() * t.element_size() for t in held if t is not None)
        self.torch.cuda.empty_cache()
        free, _ = self.torch.cuda.mem_get_info(self.device)
        return int(0.9 * free // size) if size else 0


def model_fault(name: str, err: BaseException) -> Fatal:
    """Says why a model could not be had."""
    text = f"{name}: {first_line(err)}"
    words = f"{type(err).__name__} {err}".lower()
    if "gated" in words or "401" in words or "403" in words:
        return Fatal("permission-denied", text, "ask for access on the model's page and set HF_TOKEN")
    if isinstance(err, OSError):
        hint = "name a folder with a config.json or a hub id; offline, only what the cache holds is found"
        return Fatal("model-missing", text, hint)
    if isinstance(err, ImportError):
        return Fatal("engine-missing", text, f"{sys.executable} -m pip install the library that is named")
    hint = f"{sys.executable} -m pip install --upgrade transformers"
    if "trust_remote_code" in words:
        hint = "the argument --trust-remote-code runs the model's own code"
    return Fatal("model-unsupported", text, hint)


@contextlib.contextmanager
def uninitialised(torch: Any, transformers: Any) -> Iterator[None]:
    """Builds modules without the slow initialisation of their weights."""
    init = torch.nn.init
    slow = [n for n in dir(init) if n.endswith("_") and not n.startswith("_")]
    saved = {n: getattr(init, n) for n in slow}
    base = transformers.PreTrainedModel
    init_weights = base.init_weights
    try:
        for n in slow:
            setattr(init, n, lambda tensor, *args, **kwargs: tensor)
        base.init_weights = lambda self, *args, **kwargs: None
        yield
    finally:
        for n, function in saved.items():
            setattr(init, n, function)
        base.init_weights = init_weights


def fill(torch: Any, module: Any) -> None:
    """Gives random values to matrices, ones and zeros to norms and biases."""
    with torch.no_grad():
        for name, p in module.named_parameters():
            if p.dim() > 1:
                p.uniform_(-0.035, 0.035)
            else:
                p.fill_(0.0 if name.endswith("bias") else 1.0)


def weights_bytes(module: Any) -> int:
    """The bytes of all parameters; tied ones count once."""
    return sum(p.numel() * p.element_size() for p in module.parameters())


def driver_version() -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return ""


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            for line in info:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def parse_args(args: List[str]) -> argparse.Namespace:
    def refuse(message: str) -> None:
        raise Fatal("bad-request", f"arguments of the torch engine: {message}")

    parser = argparse.ArgumentParser(prog="torch", add_help=False, allow_abbrev=False)
    parser.error = refuse  # type: ignore[assignment,method-assign]
    parser.add_argument("--attn", default="sdpa", help="attention implementation of transformers")
    parser.add_argument("--trust-remote-code", action="store_true")
    layers = parser.add_mutually_exclusive_group()
    layers.add_argument("--profiler", action="store_true", help="time layers by the kernels that torch.profiler sees")
    layers.add_argument("--events", action="store_true", help="time layers by marks around their modules")
    return parser.parse_args(args)


def run_task(channel: Channel, model: Model, request: dict) -> None:
    """Answers one task, whatever becomes of it."""
    torch, id = model.torch, request.get("id", 0)
    failed: Optional[Tuple[str, str]] = None
    try:
        gc.collect()
        gc.disable()  # no collection in the middle of a sample
        repeat = {"warmup": request.get("warmup", 0), "runs": request["runs"]}
        if request["op"] == "step":
            answer = model.step(request["batch_size"], request["input_len"], request["output_len"], **repeat)
        else:
            shape = (request["tokens"], request.get("context", 0), request.get("sequences", 1))
            answer = {"layers": probe_layers.time_layers(model, *shape, **repeat)}
        channel.emit(request["op"], id=id, warnings=model.news(), **answer)
    except Skipped as err:
        failed = ("skipped_due_to_limits", str(err))
    except Exception as err:
        kind = "runtime_error" if isinstance(err, RuntimeError) else "exception"
        if out_of_memory(torch, err):
            kind = "oom"
        failed = (kind, f"{type(err).__name__}: {first_line(err)}")
    finally:
        gc.enable()
    if failed:
        # Outside the except clause, where the traceback no longer holds tensors.
        gc.collect()
        if model.device.type == "cuda":
            torch.cuda.empty_cache()
        channel.emit("failed", id=id, reason=failed[0], message=failed[1])


def main() -> None:
    channel = Channel()
    try:
        request = channel.next()
        if request.get("op") == "close":
            return
        if request.get("schema") != SCHEMA or request.get("version") != VERSION:
            raise Fatal("bad-request", f"this probe speaks {SCHEMA} version {VERSION}")
        model = Model(request, lambda moment: channel.emit("mark", name=moment))
        channel.emit("ready", **model.facts())
    except Fatal as err:
        channel.emit("fatal", engine="torch", reason=err.reason, message=str(err), hint=err.hint)
        return
    except Exception as err:
        traceback.print_exc()
        reason = "oom" if "out of memory" in str(err).lower() else "model-unsupported"
        channel.emit("fatal", engine="torch", reason=reason, message=f"{type(err).__name__}: {first_line(err)}")
        return
    while True:
        request = channel.next()
        if request.get("op") == "close":
            return
        run_task(channel, model, request)


if __name__ == "__main__":
    main()
    sys.stderr.flush()
    os._exit(0)  # the thread that reads stdin lets no interpreter end in peace
