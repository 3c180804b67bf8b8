"""Feeds events of a GPU's profile, as torch.profiler gives them, to the recorder.

Prints the times in seconds of each pass, the warnings, and what becomes of a
profile without kernels.
"""

import json
import types

import probe_layers


def event(name, start, kernels=(), children=(), device="DeviceType.CPU"):
    return types.SimpleNamespace(
        name=name, time_range=types.SimpleNamespace(start=start), device_type=device, cpu_time_total=1e6,
        kernels=[types.SimpleNamespace(name=n, duration=d) for n, d in kernels], cpu_children=list(children),
    )


class Model:
    torch, timer, device = None, types.SimpleNamespace(clock="device"), types.SimpleNamespace(type="cuda")

    def __init__(self):
        self.warnings = []
        self.warn = self.warnings.append


model = Model()
recorder = probe_layers.ProfilerRecorder(model)
linear = event("aten::linear", 12, [("memset", 5)], [event("aten::addmm", 13, [("gemm", 40), ("splitk", 10)])])
events = [
    # Our span, repeated on the device's side with the gaps between its kernels.
    event("llmprof:0:q_proj", 11, [("llmprof:0:q_proj", 900)], [linear]),
    event("llmprof:0:q_proj", 500, device="DeviceType.CUDA"),
    event("llmprof:0:rope", 10, [], [event("aten::mul", 10, [("mul", 2)])]),
    event("llmprof:1:rope", 30, [], [event("aten::mul", 30, [("mul", 3)])]),
    event("llmprof:1:rope", 40, [], [event("aten::mul", 40, [("mul", 4)])]),
    event("llmprof:1:q_proj", 31),
    event("aten::copy_", 50, [("copy", 77)]),
]
out = {"passes": recorder.times(events, 2), "warnings": model.warnings}
try:
    recorder.times([event("llmprof:0:q_proj", 11)], 1)
except RuntimeError as err:
    out["none"] = str(err)
print(json.dumps(out))
