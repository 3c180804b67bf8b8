"""Records the schedules of scenarios from vLLM's own scheduler.

Each argument is a file in the text form of package sim/scenario. Prints "vllm"
and the release first, then for each file "file NAME" and its schedule, which ends
with "stalled" where requests would wait for ever. vLLM's scheduler runs as it is,
without a model and a device: a fake runner gives one token to every request whose
tokens are all computed. The installed release decides, whatever a scenario names.
"""

import dataclasses
import hashlib
import inspect
import logging
import sys

import torch
import vllm
from vllm.sampling_params import SamplingParams
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

UNLIMITED = 1 << 29
STOP = -1  # the token that ends a request
SPAN = 1 << 32  # tokens that each owner has to itself
STALLED = 50  # passes in a row without a token


def read(path):
    """The settings of a scenario, and name and settings of its requests."""
    config, requests = {}, []
    with open(path) as text:
        for line in text:
            words = line.split(" #")[0].split()
            settings = dict(word.split("=", 1) for word in words if "=" in word)
            if words[:1] == ["expect"]:
                break
            if words[:1] == ["config"]:
                config = settings
            elif words[:1] == ["req"]:
                requests.append((words[1], settings))
    return config, requests


class Settings:
    """Settings by name; what was not given is None."""

    def __init__(self, **given):
        self.__dict__.update(given)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def vllm_config(c):
    """What the scheduler asks its configuration for."""
    length, budget = int(c["max_model_len"]), int(c["max_num_batched_tokens"])
    overlaps = c.get("async", "0") == "1"
    return Settings(
        scheduler_config=Settings(
            max_num_seqs=int(c["max_num_seqs"]),
            max_num_batched_tokens=budget,
            max_num_scheduled_tokens=int(c.get("max_num_scheduled_tokens", 0)) or None,
            max_model_len=length,
            policy=c.get("policy", "fcfs"),
            enable_chunked_prefill=c.get("chunked", "1") == "1",
            chunked_prefill_enabled=c.get("chunked", "1") == "1",
            long_prefill_token_threshold=int(c.get("threshold", 0)),
            scheduler_reserve_full_isl=c.get("reserve_full_isl", "1") == "1",
            watermark=float(c.get("watermark", 0)),
            async_scheduling=overlaps,
            prefill_schedule_interval=1,
        ),
        model_config=Settings(max_model_len=length, runner_type="generate"),
        cache_config=Settings(
            block_size=int(c["block_size"]),
            num_gpu_blocks=int(c["num_blocks"]),
            enable_prefix_caching=c.get("prefix_caching", "1") == "1",
        ),
        parallel_config=Settings(
            pipeline_parallel_size=1,
            data_parallel_size=1,
            data_parallel_rank=0,
            data_parallel_index=0,
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
        ),
        observability_config=Settings(),
        aux_output_config=Settings(),
        ec_manager_config=Settings(get_encoder_cache_manager_obj=lambda: None),
        max_concurrent_batches=2 if overlaps else 1,
        max_in_flight_tokens=2 * budget if overlaps else budget,
        num_speculative_tokens=0,
        num_lookahead_tokens=0,
        num_prefill_lookahead_tokens=0,
    )


class NoGrammar:
    """Stands for the manager of structured output: nothing is constrained."""

    def accept_tokens(self, *_, **__):
        return True

    def should_advance(self, *_, **__):  # releases before 0.32
        return False


class Tokens(list):
    """The tokens of a request: a list, in some releases an array."""

    def tolist(self):
        return list(self)


def take(function, **given):
    """Calls with those of the arguments that this release knows."""
    known = inspect.signature(function).parameters
    return function(**{name: value for name, value in given.items() if name in known})


def runner_output(names, sampled):
    given = {"req_ids": names, "req_id_to_index": {n: i for i, n in enumerate(names)}, "sampled_token_ids": sampled}
    for field in dataclasses.fields(ModelRunnerOutput):
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            given.setdefault(field.name, {} if "dict" in field.name else None)
    return ModelRunnerOutput(**given)


def digest(content):
    return hashlib.sha256(repr(content).encode()).digest()


def listed(names):
    return ",".join(names) or "-"


def counted(pairs):
    return ",".join(f"{name}:{n}" for name, n in pairs) or "-"


class Recorder:
    """One run of the scheduler, pass after pass."""

    def __init__(self, config, requests):
        self.block_size = int(config["block_size"])
        self.overlaps = config.get("async", "0") == "1"
        self.owners = [name for name, _ in requests]
        self.groups = {}
        self.block_names = {}
        self.steps = self.preemptions = self.hit_tokens = self.evictions = 0
        kind = take(
            FullAttentionSpec,
            block_size=self.block_size,
            num_kv_heads=1,
            head_size=1,
            dtype=torch.float32,
            use_mla=False,
        )
        groups = [KVCacheGroupSpec(["layer"], kind)]
        self.scheduler = (AsyncScheduler if self.overlaps else Scheduler)(
            vllm_config=vllm_config(config),
            kv_cache_config=KVCacheConfig(int(config["num_blocks"]), kv_cache_tensors=[], kv_cache_groups=groups),
            structured_output_manager=NoGrammar(),
            block_size=self.block_size,
        )
        self.pool = self.scheduler.kv_cache_manager.block_pool
        kv_cache_utils.init_none_hash(digest)
        hasher = None
        if config.get("prefix_caching", "1") == "1":
            hasher = kv_cache_utils.get_request_block_hasher(self.block_size, self.name_block)
        self.arrivals, self.requests, self.lengths = [], {}, {}
        for i, (name, q) in enumerate(requests):
            self.add(i, name, q, hasher)
        self.arrivals.sort(key=lambda arrival: arrival[0])
        self.watch()

    def add(self, i, name, q, hasher):
        """Makes a request. A token is the number of its owner and its position."""
        prompt, output, shared = int(q["prompt"]), int(q["output"]), int(q.get("shared", 0))
        stops = q.get("stop", "len") == "eos"
        group = i
        if shared and (group := self.groups.setdefault(q["group"], len(self.owners))) == len(self.owners):
            self.owners.append(q["group"])
        request = take(
            Request,
            request_id=name,
            prompt_token_ids=[(group if at < shared else i) * SPAN + at for at in range(prompt)],
            sampling_params=SamplingParams(max_tokens=UNLIMITED if stops else output, stop_token_ids=[STOP]),
            pooling_params=None,
            eos_token_id=None,
            arrival_time=int(q["arrival"]) + i * 1e-6,
            priority=int(q.get("priority", 0)),
            block_hasher=hasher,
        )
        self.requests[name], self.lengths[name] = request, (i, prompt, output if stops else None)
        self.arrivals.append((int(q["arrival"]), request))

    def name_block(self, content):
        """Hashes a block (the parent's hash, the tokens, further keys) and keeps its name."""
        owner, last = divmod(content[1][-1], SPAN)
        key = digest(content)
        self.block_names[key] = f"{self.owners[owner]}#{last // self.block_size}"
        return key

    def watch(self):
        """Notes during a pass who is preempted, what is evicted and who will sample."""
        manager = self.scheduler.kv_cache_manager
        free, evict, after = manager.free, self.pool._maybe_evict_cached_block, self.scheduler._update_after_schedule
        self.preempted = None

        def note_preempted(request, *args, **kwargs):
            if self.preempted is not None:
                self.preempted.append(request.request_id)
            return free(request, *args, **kwargs)

        def note_evicted(block, *args, **kwargs):
            had = block.block_hash
            result = evict(block, *args, **kwargs)
            if had is not None and block.block_hash is None:
                self.evicted.append(self.block_names[kv_cache_utils.get_block_hash(had)])
            return result

        def note_sampling(plan, *args, **kwargs):
            for name, tokens in plan.num_scheduled_tokens.items():
                r = self.requests[name]
                if r.num_computed_tokens + tokens == r.num_tokens + r.num_output_placeholders:
                    self.sampling.add(name)
            return after(plan, *args, **kwargs)

        manager.free, self.pool._maybe_evict_cached_block = note_preempted, note_evicted
        self.scheduler._update_after_schedule = note_sampling

    def run(self):
        step = quiet = 0
        flying = None  # the step that runs while a pass is made
        while quiet < STALLED:
            step += 1
            if not self.scheduler.get_num_unfinished_requests() and flying is None:
                if not self.arrivals:
                    yield (
                        f"end steps={self.steps} preemptions={self.preemptions}"
                        f" hit_tokens={self.hit_tokens} evictions={self.evictions}"
                    )
                    return
                step = max(step, self.arrivals[0][0])
            while self.arrivals and self.arrivals[0][0] <= step:
                self.scheduler.add_request(self.arrivals.pop(0)[1])
            decided, planned = self.plan()
            done, flying = (flying, planned) if self.overlaps else (planned, None)
            self.steps += 1
            quiet = 0 if planned or done else quiet + 1
            yield f"step {step} {decided} {self.apply(done)}"
        yield "stalled"

    def plan(self):
        """Makes a pass; gives what it decided, and its plan unless that is empty."""
        ran = {r.request_id for r in self.scheduler.running}
        self.preempted, self.evicted, self.sampling = [], [], set()
        plan = self.scheduler.schedule()
        preempted, self.preempted = self.preempted, None
        tokens = plan.num_scheduled_tokens
        hits = [(name, self.requests[name].num_computed_tokens - tokens[name]) for name in tokens if name not in ran]
        queues = ("skipped_waiting", "kv_holding_waiting", "waiting")
        waiting = [r.request_id for queue in queues for r in getattr(self.scheduler, queue, ())]
        self.preemptions += len(preempted)
        self.hit_tokens += sum(found for _, found in hits)
        self.evictions += len(self.evicted)
        decided = (
            f"sched={counted(tokens.items())} hit={counted(hits)} preempt={listed(preempted)}"
            f" evict={listed(self.evicted)} run={listed(r.request_id for r in self.scheduler.running)}"
            f" wait={listed(waiting)} free={self.pool.get_num_free_blocks()}"
        )
        return decided, (plan, self.sampling) if tokens else None

    def apply(self, done):
        """Gives the scheduler the results of a step."""
        out, finished = [], []
        if done is not None:
            plan, sampling = done
            names = list(plan.num_scheduled_tokens)
            alive = [(n, self.requests[n].num_output_tokens) for n in names if not self.requests[n].is_finished()]
            sampled = [Tokens([self.token(n)] if n in sampling else []) for n in names]
            self.scheduler.update_from_output(plan, runner_output(names, sampled))
            now = [(n, had, self.requests[n]) for n, had in alive]
            out = [(n, r.num_output_tokens) for n, had, r in now if r.num_output_tokens > had]
            finished = [n for n, _, r in now if r.is_finished()]
        return f"out={counted(out)} finish={listed(finished)} end_free={self.pool.get_num_free_blocks()}"

    def token(self, name):
        """The next token of a request."""
        owner, prompt, stop = self.lengths[name]
        at = self.requests[name].num_output_tokens
        return STOP if at + 1 == stop else owner * SPAN + prompt + at


def main():
    logging.disable(logging.WARNING)
    print("vllm", vllm.__version__)
    for path in sys.argv[1:]:
        print("file", path)
        for line in Recorder(*read(path)).run():
            print(line)


main()
