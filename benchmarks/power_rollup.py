"""How time and memory grow with the power telemetry that is rolled up out of core.

    python benchmarks/power_rollup.py [--node-days 8 64 512] [--workers 2]

The readings are made for the purpose (synthetic): nodes of 8 GPUs at 1 Hz, a Parquet file per node
and day of 691,200 readings. The files of a day are links to one file: nodes are told apart by the
names of their files, so every one is read and rolled up as if it were its own. 4,320 node-days are
1,152 GPUs for 30 days, 3.0e9 readings. Every run is a fresh process. The table goes to the screen
and to ``benchmarks/results/power_rollup.md`` and ``.json``.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks._measure import machine
from benchmarks._table import RESULTS, Row, publish

DAY_S = 86_400
GPUS, DAYS = 8, 30
START_MS = 1_700_006_400_000
_CHILD = """
import json, re, resource, sys, time
from pathlib import Path
from workbench import load

def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024

def rolled(path, **options):
    node = re.compile(r"node[0-9]+")
    return load.power_rollup(path, period_s=600, node=node, progress=False, **options).rollup

def main():
    folder, how, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    # Imports are done before the clock starts, on each worker as well.
    if how == "dask":
        from distributed import Client, LocalCluster
        options = {"n_workers": count, "threads_per_worker": 1, "dashboard_address": None}
        with LocalCluster(**options) as cluster, Client(cluster) as client:
            client.wait_for_workers(count)
            rolled(sorted(Path(folder).iterdir())[: 2 * count], client=client)
            work = lambda: sum(client.run(time.process_time).values()) + time.process_time()
            before, began = work(), time.perf_counter()
            table = rolled(folder, client=client)
            wall, cpu = time.perf_counter() - began, work() - before
            peak = 0
    else:
        rolled(sorted(Path(folder).iterdir())[:1], processes=1)
        (before, base), began = used(), time.perf_counter()
        table = rolled(folder, processes=1)
        wall, (cpu, peak) = time.perf_counter() - began, used()
        cpu, peak = cpu - before, peak - base
    told = {"wall_s": wall, "cpu_s": cpu, "peak_mib": peak, "rows": len(table)}
    told |= {"readings": int(table["reading_count"].sum()), "energy_j": table["energy_j"].sum()}
    print(json.dumps(told))

if __name__ == "__main__":
    main()
"""
_TARGET_EXPONENT = 1.05
_TARGET_SPEEDUP, _TARGET_CPU = 1.7, 1.15


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table; return 0 even if targets are missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--node-days", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--seconds", type=int, default=DAY_S, help="readings per GPU and file")
    parser.add_argument("--workers", type=int, default=2, help="workers of Dask; 0 for none")
    parser.add_argument("--scratch", type=Path, help="where files are made; needs 100 MB")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    about = machine()
    counts = sorted(options.node_days)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.scratch) as scratch:
        folder = Path(scratch)
        (folder / "child.py").write_text(_CHILD)
        _write_days(folder, min(max(counts), DAYS), options.seconds)
        rows = _growth(folder, counts)
        if options.workers:
            rows += _cluster(folder, counts, options.workers)
    remarks = [
        "Synthetic readings of nodes of 8 GPUs at 1 Hz, a Parquet file per node and day, rolled up "
        "to 10 minutes; nodes share the bytes of a day by links. One process unless the row says "
        "otherwise; imports are not counted, memory is what the roll-up adds. The exponent is that "
        "of CPU time between the fewest and the most readings. Workers of Dask run as Dask "
        "starts them; their CPU includes the scheduler."
    ]
    publish("power_rollup", rows, about, remarks, options.out)
    return 0


def _write_days(folder: Path, days: int, seconds: int) -> None:
    draw = np.random.default_rng(7)
    second = np.arange(seconds)
    # Steps of 11 s, as in training, and noise of 10 W.
    wave = 600 + 90 * np.sign(np.sin(second * (2 * np.pi / 11)))
    for day in range(days):
        power = wave + 10 * draw.standard_normal((GPUS, seconds))
        columns = {
            "time_ms": np.tile(START_MS + (day * DAY_S + second) * 1_000, GPUS),
            "gpu": np.repeat(np.arange(GPUS, dtype=np.int32), seconds),
            "power_w": power.round().astype(np.uint16).ravel(),
        }
        pq.write_table(pa.table(columns), folder / f"day{day:02d}.parquet", compression="zstd")


def _first(folder: Path, count: int) -> Path:
    """Give a folder with links to the files of the first node-days, all days of a node first."""
    subset = folder / f"first-{count}"
    if not subset.is_dir():
        subset.mkdir()
        for number in range(count):
            node, day = divmod(number, DAYS)
            name = f"node{node:03d}-day{day:02d}.parquet"
            (subset / name).hardlink_to(folder / f"day{day:02d}.parquet")
    return subset


def _growth(folder: Path, counts: Sequence[int]) -> list[Row]:
    runs = {count: _run(folder, count, "serial", 1) for count in counts}
    rows = []
    for count, run in runs.items():
        told = f"{run['cpu_s']:.1f} CPU s, {run['peak_mib']:,.0f} MiB"
        speed = run["readings"] / run["cpu_s"] / 1e6
        what = f"roll-up of {run['readings']:,.0f} readings ({count:,} files)"
        rows.append(Row(what, told, "", speed, None, "M readings per CPU s"))
    low, high = counts[0], counts[-1]
    if low < high:
        grown = math.log(runs[high]["cpu_s"] / runs[low]["cpu_s"]) / math.log(high / low)
        what = f"exponent of CPU time, {low} to {high:,} files"
        rows.append(Row(what, "", "", grown, _TARGET_EXPONENT, "", smaller_is_better=True))
        added = (runs[high]["peak_mib"] - runs[low]["peak_mib"]) * (1 << 20)
        per_row = max(added, 0) / (runs[high]["rows"] - runs[low]["rows"])
        what = f"memory per row of the result, {low} to {high:,} files"
        rows.append(Row(what, "", "", per_row, None, "B", smaller_is_better=True))
    return rows


def _cluster(folder: Path, counts: Sequence[int], workers: int) -> list[Row]:
    count = next((count for count in counts if count >= 64), counts[-1])
    serial = _run(folder, count, "serial", 1)
    one, several = (_run(folder, count, "dask", number) for number in (1, workers))
    if serial["energy_j"] != several["energy_j"]:
        msg = f"energies differ: {serial['energy_j']!r} and {several['energy_j']!r}"
        raise RuntimeError(msg)
    told = f"{several['wall_s']:.1f} s", f"{one['wall_s']:.1f} s with one worker"
    cpu = f"{several['cpu_s']:.1f} CPU s", f"{serial['cpu_s']:.1f} CPU s in one process"
    return [
        Row(
            f"roll-up by {workers} Dask workers, {count} files", *told,
            one["wall_s"] / several["wall_s"], _TARGET_SPEEDUP,
        ),
        Row(
            f"CPU of a roll-up by {workers} Dask workers, {count} files", *cpu,
            several["cpu_s"] / serial["cpu_s"], _TARGET_CPU, smaller_is_better=True,
        ),
    ]  # fmt: skip


def _run(folder: Path, count: int, how: str, workers: int) -> dict[str, float]:
    command = [str(folder / "child.py"), str(_first(folder, count)), how, str(workers)]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    if done.returncode:
        msg = f"power_rollup failed: {done.stderr[-2000:]}"
        raise RuntimeError(msg)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


if __name__ == "__main__":
    sys.exit(main())
