"""Names the layers of small models of many architectures, in one process.

Reads a JSON list of {"config", "args", "num_layers"} on stdin and prints a list
of {"layers", "warnings", "step"} or {"fatal"}.
"""

import json
import os
import sys
import tempfile

import probe
import probe_layers


def look(case):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(case["config"], file)
        model = probe.Model({
            "model": case.get("model") or folder, "device": "cpu", "dtype": "fp32", "clock": "cpu", "threads": 1,
            "num_layers": case.get("num_layers", 0), "args": case.get("args"), "cuda_graphs": True,
        }, lambda event: None)
    layers = probe_layers.time_layers(model, 8, 4, 1, 1, 2)
    again = probe_layers.time_layers(model, 1, 4, 2, 1, 2)
    if [l["name"] for l in again] != [l["name"] for l in layers]:
        raise AssertionError("the layers changed")
    step = model.step(2, 8, 3, 1, 2)
    prompt, token = model.tokens(2, 8), model.tokens(2, 1)
    caches = model.cache(9), model.transformers.DynamicCache(config=model.config)
    passes = [[model.forward(t, c).logits for t in (prompt, token)] for c in caches]
    same = all(model.torch.allclose(a, b, atol=1e-4) for a, b in zip(*passes))
    cached = model.filled_cache(1, 4, 1)
    # Steps that are repeated, as from a CUDA graph, attend over the same tokens.
    held = []
    try:
        room = model.cache(8)
        model.forward(model.tokens(2, 5), room)
        step_again = model.held(token, room, 5, 7)
        for _ in range(3):
            held.append(bool(model.torch.isfinite(step_again().logits).all()) and int(room.get_seq_length()))
    except ValueError:
        held = "refused"
    return {
        "layers": [l["name"] for l in layers], "attention": [l["name"] for l in layers if l["attention"]],
        "blocks": len(probe_layers.Plan(model).blocks), "context": int(cached.get_seq_length()),
        "same": same, "held": str(held),
        "samples": [len(step["prefill_s"]), [len(d) for d in step["decode_s"]]], "warnings": [w for w in model.warnings if "without marks" not in w],
    }


def main():
    out = []
    for case in json.load(sys.stdin):
        try:
            out.append(look(case))
        except probe.Fatal as err:
            out.append({"fatal": err.reason, "message": str(err), "hint": err.hint})
    print(json.dumps(out))


main()
