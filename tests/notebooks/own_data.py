"""Small files of every kind that a notebook takes, of a job that nobody published."""

import json

import numpy as np
import pandas as pd

from data import make
from workbench import load
from workbench.load._imbalance.job_operations import COLUMNS


def trace(folder):
    rows = [
        {"ph": "X", "pid": 1, "tid": 1, "cat": "user_annotation", "ts": 1_000 * n, "dur": 990,
         "name": f"ProfilerStep#{n}"} for n in range(4)
    ]  # fmt: skip
    for n in range(4):
        call = {"ph": "X", "pid": 1, "tid": 1, "cat": "cuda_runtime", "dur": 5}
        kernel = {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "dur": 613, "name": "resnet"}
        link = {"correlation": n + 1, "stream": 7, "device": 0}
        rows += [
            {**call, "name": "cudaLaunchKernel", "ts": 1_000 * n + 20, "args": link},
            {**kernel, "ts": 1_000 * n + 30, "args": link},
        ]
    about = {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}}
    (folder / "trace.json").write_text(json.dumps({**about, "traceEvents": rows}))
    return folder / "trace.json", {}


def job(folder):
    rows = make.pipeline_job({"slow worker": 1.7}, seed=3, shape=(4, 2, 4, 6)).operations
    # Recorded are steps 0, 1, 4 and 5, the first and the last of them not whole.
    step = rows["step"].rank(method="dense").astype(int) - 1
    rows = rows.assign(step=step)[~step.isin([2, 3])].sort_values("step", kind="stable").iloc[1:-1]
    written = rows.assign(start_ns=rows["start_ns"] / 1e9, dur_ns=rows["dur_ns"] / 1e9)
    written = written.rename(columns=COLUMNS)
    written.to_parquet(folder / "job.parquet")
    return folder / "job.parquet", {}


def failures(folder):
    line = "2026-03-01T1{}:00+00:00 {} kernel: [  100.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=1"
    said = [("0:00", "gpu-a"), ("0:20", "gpu-b"), ("0:59", "gpu-a")]
    (folder / "kern.log").write_text("".join(line.format(*each) + "\n" for each in said))
    return folder / "kern.log", {}


def injections(folder):
    text = "run,part,b,wrong,nan\n" + "".join(f"{n},p{n % 2},30,{n % 3},0\n" for n in range(40))
    (folder / "r.csv").write_text(text)
    columns = {"exp_id": "run", "layer": "part", "bit": "b", "sdc_count": "wrong"}
    campaign = {"tool": "own", "dtype": "fp32", "input_count": 13}
    found = load.injection_records(
        folder / "r.csv", columns=columns | {"due_count": "nan"}, campaign=campaign
    )
    return load.write(found, folder / "campaign"), {}


def power(folder):
    failures(folder)
    second = np.arange(600)
    stamps = pd.to_datetime(second * 10**9 + 1_772_359_200 * 10**9, utc=True)
    watts = {"gpu-a": 777 + 55 * np.sin(second / 7), "gpu-b": 601 + 0 * second}
    table = pd.concat(
        pd.DataFrame({"time": stamps, "node": node, "power_w": each})
        for node, each in watts.items()
    )
    table.to_csv(folder / "power.csv", index=False)
    return folder, {"tz": "UTC"}


MAKERS = {"traces": trace, "job operations": job, "failure logs": failures,
          "injections": injections, "power logs": power}  # fmt: skip
