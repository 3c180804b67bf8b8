"""Times the layers of a decoder one by one.

Marks are set around the calls of one decoder block's modules, and of what
stands before and after the blocks, while whole forward passes run. Names follow
the modules' places in the block and their classes, never the model's name.
Rotary embedding and attention are functions, not modules: they are wrapped
where the modelling code looks them up.
"""

from __future__ import annotations

import collections
import contextlib
import re
import statistics
import sys
from typing import Any, Callable, Dict, Iterable, Iterator, List, Tuple

# What models call the same thing, by the place in the block.
ATTENTION_NAMES = {
    "out_proj": "o_proj", "dense": "o_proj", "c_proj": "o_proj", "o_proj": "o_proj", "wo": "o_proj",
    "c_attn": "qkv_proj", "query_key_value": "qkv_proj", "W_pack": "qkv_proj", "Wqkv": "qkv_proj", "wqkv": "qkv_proj",
    "wq": "q_proj", "wk": "k_proj", "wv": "v_proj",
}
FEED_FORWARD_NAMES = {
    "c_fc": "fc1", "c_proj": "fc2", "dense_h_to_4h": "fc1", "dense_4h_to_h": "fc2",
    "activation_fn": "act_fn", "act": "act_fn", "router": "gate",
}
# Architectures whose profiles hold the three parts of attention.
SPLIT_ATTENTION = ("OPTForCausalLM",)


def time_layers(model: Any, tokens: int, context: int, sequences: int, warmup: int, runs: int) -> List[dict]:
    """Times every layer over whole forward passes; one sample a pass."""
    model.check(tokens + context)
    plan = Plan(model)
    recorder = ProfilerRecorder(model) if model.by_profiler() else MarkRecorder(model)
    inputs = model.tokens(sequences, tokens)
    cache = model.filled_cache(sequences, context, tokens)

    def rewind() -> None:
        nonlocal cache
        cache = model.rewound(cache, sequences, context, tokens)

    def work() -> None:
        model.forward(inputs, cache)

    samples: Dict[str, List[float]] = collections.OrderedDict()
    with plan.watched(recorder):
        for times in recorder.passes(work, rewind, warmup, runs):
            for name, t in plan.complete(times).items():
                samples.setdefault(name, []).append(t)
    whole = []
    for _ in range(min(warmup, 1) + min(runs, WHOLE_PASSES)):
        whole.append(model.timer.time(work))
        rewind()
    compare(model, plan, samples, statistics.median(whole[min(warmup, 1) :]), f"{sequences} x {tokens} tokens after {context}")
    if plan.rotary and "rope" not in samples:
        model.warn("rope is missing: the rotary embedding of this model is no function of its own")
    return [
        {
            "name": name,
            "per_sequence": name == "lm_head" and bool(model.keep),
            "attention": name in plan.attention_parts,
            "samples_s": times,
        }
        for name, times in samples.items()
        if len(times) == runs
    ]


# Passes without any mark, to hold the layers against.
WHOLE_PASSES = 5


def compare(model: Any, plan: "Plan", samples: Dict[str, List[float]], whole: float, shape: str) -> None:
    """Warns where the layers take longer than the pass that they are parts of."""
    if not plan.alike:
        return
    outer = {name for name, _ in plan.outer}
    times = {name: statistics.median(t) for name, t in samples.items()}
    total = sum(t * (1 if name in outer else len(plan.blocks)) for name, t in times.items())
    if total > 1.05 * whole:  # what is less is scatter
        model.warn(
            f"{shape}: the layers take {1e3 * total:.4g} ms together, a whole pass without marks {1e3 * whole:.4g} ms: "
            "the time of setting marks is among theirs"
        )


class MarkRecorder:
    """Times spans by marks of the model's clock."""

    def __init__(self, model: Any):
        self.timer = model.timer
        self.spans: List[Tuple[str, Any, Any]] = []
        if model.device.type == "cuda":
            model.warn("layers are timed by marks around their modules: a small one shows the time that the host takes to launch it")

    def begin(self, name: str) -> Any:
        return self.timer.mark()

    def end(self, name: str, begun: Any) -> None:
        self.spans.append((name, begun, self.timer.mark()))

    def passes(self, work: Callable[[], Any], rewind: Callable[[], Any], warmup: int, runs: int) -> Iterator[Dict[str, float]]:
        """Does the work again and again; yields the time of each name, in order."""
        for run in range(warmup + runs):
            self.spans.clear()
            self.timer.sync()
            work()
            self.timer.sync()
            rewind()
            if run < warmup:
                continue
            times: Dict[str, float] = {}
            for name, begin, end in self.spans:
                times[name] = times.get(name, 0.0) + self.timer.seconds(begin, end)
            yield times


class ProfilerRecorder:
    """Times spans by the kernels that torch.profiler sees in them."""

    # Passes under one start of the profiler, whose events wait in memory.
    TOGETHER = 10

    def __init__(self, model: Any):
        self.model, self.torch, self.timer = model, model.torch, model.timer
        self.cuda = model.device.type == "cuda"
        self.run = 0
        if self.cuda and self.timer.clock != "device":
            raise ValueError("--profiler reads the device's clock: measure with clock device")

    def begin(self, name: str) -> Any:
        span = self.torch.profiler.record_function(f"{SPAN}{self.run}:{name}")
        span.__enter__()
        return span

    def end(self, name: str, begun: Any) -> None:
        begun.__exit__(None, None, None)

    def passes(self, work: Callable[[], Any], rewind: Callable[[], Any], warmup: int, runs: int) -> Iterator[Dict[str, float]]:
        activity = self.torch.profiler.ProfilerActivity
        activities = [activity.CPU] + [activity.CUDA] * self.cuda
        for _ in range(warmup):
            work()
            rewind()
        while runs > 0:
            count = min(runs, self.TOGETHER)
            runs -= count
            with self.torch.profiler.profile(activities=activities) as profiler:
                for self.run in range(count):
                    work()
                    self.timer.sync()
                    rewind()
            yield from self.times(profiler.events(), count)

    def times(self, events: Iterable[Any], count: int) -> List[Dict[str, float]]:
        """The time of each name in each pass, in the order of the names' first spans."""
        found: List[Dict[str, float]] = [{} for _ in range(count)]
        spans = [e for e in events if e.name.startswith(SPAN) and "CPU" in str(e.device_type)]
        for e in sorted(spans, key=lambda e: e.time_range.start):
            run, name = e.name[len(SPAN) :].split(":", 1)
            taken = kernel_time(e) if self.cuda else e.cpu_time_total
            times = found[int(run)]
            times[name] = times.get(name, 0.0) + taken / 1e6
        if not any(t > 0 for times in found for t in times.values()):
            raise RuntimeError("torch.profiler sees no kernels here: time layers by events instead, with the argument --events")
        idle = sorted({name for times in found for name, t in times.items() if t <= 0})
        if idle:
            self.model.warn(f"{', '.join(idle)}: no kernel ran in some passes, so that there is no time to record")
        return [{name: t for name, t in times.items() if t > 0} for times in found]


# What the names of our spans begin with.
SPAN = "llmprof:"


def kernel_time(event: Any) -> float:
    """The microseconds of all kernels that were launched in a span.

    On the device's side the profiler repeats our spans, gaps between kernels
    included; these are left out.
    """
    own = sum(k.duration for k in event.kernels if not k.name.startswith(SPAN))
    return own + sum(kernel_time(child) for child in event.cpu_children)


class Plan:
    """What of a model is timed, and under which names."""

    def __init__(self, model: Any):
        self.model = model
        whole = model.module
        self.decoder = whole.get_decoder() if hasattr(whole, "get_decoder") else whole.base_model
        self.blocks = find_blocks(self.decoder, model.config.num_hidden_layers)
        self.block, self.alike = common_block(model, self.blocks)
        children = list(self.block.children())
        self.attention = next((m for m in children if "attention" in type(m).__name__.lower()), None)
        self.eager = getattr(model.config, "_attn_implementation", "") == "eager"
        architectures = getattr(model.config, "architectures", None) or []
        self.split = self.eager and any(a in SPLIT_ATTENTION for a in architectures)
        self.attention_parts = ("qk_matmul", "softmax", "sv_matmul") if self.split else ("attn",)
        self.rotary = any("Rotary" in type(m).__name__ for m in self.decoder.modules())
        self.inside = False  # the watched block runs
        self.outer = list(self._outer())
        self.modules = self.outer + list(self._inner())

    def _outer(self) -> Iterator[Tuple[str, Any]]:
        """What runs once a pass."""
        yield "embedding", self.model.module.get_input_embeddings()
        for name, child in self.decoder.named_children():
            kind = type(child).__name__
            if child is self.blocks or child is self.model.module.get_input_embeddings():
                continue
            if "Norm" in kind:
                yield "final_layernorm", child
            elif "Rotary" in kind or "Embedding" in kind:
                yield "position_embedding", child
            elif any(True for _ in child.parameters()):
                yield name, child
        head = self.model.module.get_output_embeddings()
        if head is not None:
            yield "lm_head", head

    def _inner(self) -> Iterator[Tuple[str, Any]]:
        """What runs in the block: modules with weights of their own, and leaves."""
        norms = [m for _, m in self.block.named_children() if "Norm" in type(m).__name__]
        in_attention = set(self.attention.modules()) if self.attention is not None else set()
        taken: List[str] = []
        for path, module in self.block.named_modules():
            if not path or any(path.startswith(t + ".") for t in taken):
                continue
            own = any(True for _ in module.parameters(recurse=False))
            if not own and any(True for _ in module.children()):
                continue
            kind = type(module).__name__
            if "Dropout" in kind or kind == "Identity":
                continue
            taken.append(path)
            if module in norms and len(norms) == 2:
                yield ("input_layernorm", "post_layernorm")[norms.index(module)], module
            else:
                yield layer_name(path, module in in_attention), module

    @contextlib.contextmanager
    def watched(self, recorder: Any) -> Iterator[None]:
        """Sets marks around everything in the plan while it is entered."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._flagged())
            if self.attention is not None:
                stack.enter_context(hooked(recorder, "self_attn", self.attention))
            for name, module in self.modules:
                stack.enter_context(hooked(recorder, name, module))
            stack.enter_context(self._functions(recorder))
            yield

    @contextlib.contextmanager
    def _flagged(self) -> Iterator[None]:
        def enter(*_: Any) -> None:
            self.inside = True

        def leave(*_: Any) -> None:
            self.inside = False

        handles = [self.block.register_forward_pre_hook(enter), self.block.register_forward_hook(leave)]
        try:
            yield
        finally:
            self.inside = False
            for h in handles:
                h.remove()

    def _timed(self, recorder: Any, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with marks around it where the watched block calls it."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self.inside:
                return function(*args, **kwargs)
            begun = recorder.begin(name)
            out = function(*args, **kwargs)
            recorder.end(name, begun)
            return out

        return call

    @contextlib.contextmanager
    def _functions(self, recorder: Any) -> Iterator[None]:
        """Wraps rotary embedding and attention in the modelling code."""
        owner = sys.modules[type(self.attention or self.block).__module__]
        with contextlib.ExitStack() as stack:
            for name in dir(owner):
                if re.match(r"apply_.*rot", name) and callable(getattr(owner, name)):
                    timed = self._timed(recorder, "rope", getattr(owner, name))
                    stack.enter_context(replaced(owner, name, timed))
            wrap = self._split(recorder) if self.split else lambda f: self._timed(recorder, "attn", f)
            interface = getattr(owner, "ALL_ATTENTION_FUNCTIONS", None)
            chosen = getattr(self.model.config, "_attn_implementation", "")
            if hasattr(owner, "eager_attention_forward"):
                stack.enter_context(replaced(owner, "eager_attention_forward", wrap(owner.eager_attention_forward)))
            if interface is not None and chosen in interface:
                original = interface[chosen]
                interface[chosen] = wrap(original)
                stack.callback(interface.__setitem__, chosen, original)
            yield

    def _split(self, recorder: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Times the two products and the softmax of eager attention apart."""
        torch = self.model.torch

        def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                if not self.inside:
                    return function(*args, **kwargs)
                products = iter(("qk_matmul", "sv_matmul"))
                matmul, softmax = torch.matmul, torch.nn.functional.softmax

                def product(*a: Any, **k: Any) -> Any:
                    return self._timed(recorder, next(products, "matmul"), matmul)(*a, **k)

                timed_softmax = self._timed(recorder, "softmax", softmax)
                with replaced(torch, "matmul", product), replaced(torch.nn.functional, "softmax", timed_softmax):
                    return function(*args, **kwargs)

            return call

        return wrap

    def complete(self, times: Dict[str, float]) -> Dict[str, float]:
        """Drops the whole attention module, or keeps what is left of it as
        attn where attention could not be timed by itself."""
        whole = times.pop("self_attn", None)
        if whole is None or any(part in times for part in self.attention_parts):
            return times
        children = {n for n, m in self.modules if m in set(self.attention.modules())} | {"rope"}
        rest = whole - sum(times.get(n, 0.0) for n in children)
        if rest > 0:
            self.model.warn("attn is its module's time less its parts': the attention function cannot be timed by itself")
            times["attn"] = rest
        return times


@contextlib.contextmanager
def hooked(recorder: Any, name: str, module: Any) -> Iterator[None]:
    """Sets marks around the calls of a module."""
    begun: List[Any] = []

    def before(*_: Any) -> None:
        begun.append(recorder.begin(name))

    def after(*_: Any) -> None:
        recorder.end(name, begun.pop())

    handles = [module.register_forward_pre_hook(before), module.register_forward_hook(after)]
    try:
        yield
    finally:
        for h in handles:
            h.remove()


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


def find_blocks(decoder: Any, layers: int) -> Any:
    """The list of decoder blocks."""
    for module in decoder.modules():
        if type(module).__name__ == "ModuleList" and len(module) == layers:
            return module
    raise ValueError(f"{type(decoder).__name__} holds no list of {layers} blocks to time the layers of")


def common_block(model: Any, blocks: Any) -> Tuple[Any, bool]:
    """The first block of the most frequent kind, and whether there is no other."""
    kinds = [tuple((p, type(m).__name__) for p, m in b.named_modules()) for b in blocks]
    (kind, count), *rest = collections.Counter(kinds).most_common()
    if rest:
        model.warn(f"blocks differ: the layers of the kind that {count} of {len(kinds)} blocks have are timed")
    return blocks[kinds.index(kind)], not rest


def layer_name(path: str, in_attention: bool) -> str:
    """The name of a module by its path in the block.

    The name of the container goes; of a further nesting, as in experts, the
    path stays without its numbers.
    """
    parts = [p for p in path.split(".") if not p.isdigit()]
    leaf = parts[-1]
    inner = parts[1:-1]  # between the container and the leaf
    leaf = (ATTENTION_NAMES if in_attention else FEED_FORWARD_NAMES).get(leaf, leaf)
    if not inner:
        return leaf
    return ".".join("expert" if p == "experts" else p for p in inner) + "." + leaf
