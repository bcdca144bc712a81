#!/bin/sh
# torch 2.13.0 (CPU), flight recorder of c10d with the backend gloo.
#
# Two behaviours, seen on two ranks of one machine:
# 1. Every operation stays in state "scheduled", also long after it has finished; the times at
#    which it was seen to start and to end stay 0. Only "retired" turns true.
# 2. A reduce-scatter is recorded as gloo:all_reduce of the whole input: one entry for
#    reduce_scatter_tensor, one per rank for reduce_scatter with a list.
#
# Output seen:
#   states ['scheduled'] retired [True]
#   names ['all_reduce', 'all_reduce', 'all_reduce', 'all_reduce'] sizes [4, 8, 4, 4]
#
# Bitten: whoever takes "not completed" for "pending" as with NCCL (a healthy job looks hung on
# all ranks), and whoever looks for a reduce-scatter, or for ranks that called another operation.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "torch==2.13.0" "numpy==2.3.5"
cat > "$folder/ranks.py" <<'PYTHON'
import json, os, sys, time

os.environ["TORCH_FR_BUFFER_SIZE"] = "100"
import torch
import torch.distributed as dist

rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
dist.all_reduce(torch.ones(4))
dist.reduce_scatter_tensor(torch.ones(4), torch.ones(8))
dist.reduce_scatter(torch.ones(4), [torch.ones(4), torch.ones(4)])
time.sleep(1)
if rank == 0:
    dump = json.loads(torch._C._distributed_c10d._dump_fr_trace_json())
    entries = dump["entries"]
    states = sorted({entry["state"] for entry in entries})
    retired = sorted({entry["retired"] for entry in entries})
    names = [entry["profiling_name"].split(":")[-1] for entry in entries]
    sizes = [entry["input_sizes"][0][0] for entry in entries]
    print("states", states, "retired", retired)
    print("names", names, "sizes", sizes)
    same = (states, retired, set(names), sizes) == (["scheduled"], [True], {"all_reduce"}, [4, 8, 4, 4])
    os._exit(0 if same else 1)
time.sleep(2)
os._exit(0)
PYTHON
"$folder/venv/bin/python" "$folder/ranks.py" 1 "$folder" 2> /dev/null &
"$folder/venv/bin/python" "$folder/ranks.py" 0 "$folder" 2> "$folder/errors" || { tail -n 5 "$folder/errors"; exit 1; }
