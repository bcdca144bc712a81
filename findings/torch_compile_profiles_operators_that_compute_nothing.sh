#!/usr/bin/env bash
# torch 2.13.0 on CPU, torch.profiler around the first call of a compiled model.
#
# While torch.compile traces a model, it calls every operator several times with fake tensors:
# once to record the graph, again to collect metadata, to trace the joint graph and to propagate
# shapes. The profiler records each of these calls as an ordinary operator (category cpu_op), with
# the shapes and element types of real inputs and durations up to thousands of times those of the
# real call. No field of the event marks them; only the spans around them, whose names end in
# "(dynamo_timed)", tell them apart. A model with two products of matrices, called once, had:
#
#   first call:  34 calls of aten::mm or aten::addmm, 32 of them inside of the compiler
#   second call: 2 calls, 0 of them inside of the compiler
#
# Bitten is whoever sums a trace by operator: counts, host time and operations (FLOP) of a window
# that holds a compilation, or a recompilation in the middle of a run, are too large by a multiple.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install --quiet torch==2.13.0 numpy
cat > profiled.py <<'PYTHON'
import json

import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
compiled = torch.compile(model, backend="aot_eager")
batch = torch.randn(32, 64)
counts = []
for name in ("first", "second"):
    with torch.profiler.profile(record_shapes=True) as profile:
        compiled(batch)
    profile.export_chrome_trace("trace.json")
    with open("trace.json") as file:
        rows = [row for row in json.load(file)["traceEvents"] if row.get("cat") == "cpu_op"]
    phases = [row for row in rows if row["name"].endswith("(dynamo_timed)")]
    calls = [row for row in rows if row["name"] in ("aten::mm", "aten::addmm")]
    inside = sum(
        any(p["tid"] == c["tid"] and p["ts"] <= c["ts"] < p["ts"] + p["dur"] for p in phases)
        for c in calls
    )
    counts.append((len(calls), inside))
    print(f"{name} call: {len(calls)} calls of aten::mm or aten::addmm, "
          f"{inside} of them inside of the compiler")
raise SystemExit(counts != [(33, 29), (2, 0)])
PYTHON
env/bin/python profiled.py 2> errors.txt || { cat errors.txt; exit 1; }
