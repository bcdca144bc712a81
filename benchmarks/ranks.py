"""How time and memory grow with the ranks of a job that is analysed rank by rank.

    python benchmarks/ranks.py [--ranks 8 64 512] [--size-mb 15] [--workers 2]

A real step of 8 ranks is repeated until every file has the wished size, and packed with gzip;
further ranks are copies of the 8 with numbers, groups, times and names of kernels of their own.
Every run is a fresh process; ``--ranks 8 64 512 1000`` takes 2 GB of disk and ten minutes. The
table goes to the screen and to ``benchmarks/results/ranks.md`` and ``.json``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks._measure import machine
from benchmarks._table import RESULTS, Row, publish
from benchmarks.diagnose import ARCHIVE, MB, SET, make_job
from workbench import datasets

_CHILD = """
import json, math, resource, sys, time
from workbench import analyze, load

def used(who):
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024

# One process in every case, so that memory and CPU time are those of the work.
import workbench._shared.rank_sets
workbench._shared.rank_sets._PARALLEL_FROM_S = math.inf

ANALYSES = [analyze.time_breakdown, analyze.communication_overlap, analyze.idle_time,
            analyze.kernels, analyze.collective_waits]

REST_S = 4

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def main():
    folder, how, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    began, costs = time.perf_counter(), {}
    files = load.rank_files(folder)
    if how == "dask":
        from distributed import Client, LocalCluster
        with LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None) as cluster:
            with Client(cluster) as client:
                client.wait_for_workers(count)
                # Each worker imports the package and its compiled code before the clock starts.
                analyze.by_rank(files[:2 * count], ANALYSES, client=client, progress=False)
                clocks = lambda: (
                    time.perf_counter(), sum(client.run(time.process_time).values()),
                    time.process_time(), time.thread_time(), sum(client.run(faults).values()),
                )
                before = clocks()
                time.sleep(REST_S)
                rested = clocks()
                tables = analyze.by_rank(files, ANALYSES, client=client, progress=False)
                after = clocks()
                rest, run = ([end - start for start, end in zip(*pair)]
                             for pair in ((before, rested), (rested, after)))
                wall, cpu, _, serial, faulted = run
                # Heartbeats and the profiler go by the clock, not by the work.
                beats = [spent * wall / rest[0] for spent in rest]
                costs = {"task_cpu_s": cpu - beats[1], "client_cpu_s": run[2] - beats[2] - serial,
                         "serial_cpu_s": serial, "faults": faulted}
                peak = max(client.run(lambda: used(resource.RUSAGE_SELF)[1]).values())
    elif how == "findings":
        analyze.findings(files[:2])
        (before, _), began = used(resource.RUSAGE_SELF), time.perf_counter()
        whole = None if count else load.traces(folder, progress=False)
        tables = analyze.findings(files if whole is None else whole).tables
        wall = time.perf_counter() - began
        cpu, peak = used(resource.RUSAGE_SELF)
        cpu -= before
    else:
        analyze.by_rank(files[:2], ANALYSES, processes=1, progress=False)
        (before, _), began = used(resource.RUSAGE_SELF), time.perf_counter()
        tables = analyze.by_rank(files, ANALYSES, processes=1, progress=False)
        wall = time.perf_counter() - began
        cpu, peak = used(resource.RUSAGE_SELF)
        cpu -= before
    rows = {name: len(table) for name, table in tables.items()}
    print(json.dumps({"wall_s": wall, "cpu_s": cpu, "peak_mib": peak, "rows": rows} | costs))

if __name__ == "__main__":
    main()
"""
_TARGET_EXPONENT, _TARGET_MIB = 1.05, 1024
_LARGE = 100
_TARGET_SPEEDUP, _TARGET_CPU = 1.7, 1.15


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table; return 0 even if targets are missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--size-mb", type=float, default=15.0, help="size of the file of a rank")
    parser.add_argument("--workers", type=int, default=2, help="workers of Dask; 0 for none")
    parser.add_argument("--archive", type=Path, help=f"archive of the ranks (from {SET})")
    parser.add_argument("--scratch", type=Path, help="where files are made; 2 MB per rank")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    about = machine()
    archive = options.archive or datasets.path(SET) / ARCHIVE
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.scratch) as scratch:
        folder = _packed_job(archive, Path(scratch), max(options.ranks), options.size_mb)
        rows = _growth(folder, sorted(options.ranks), options.size_mb)
        rows += _findings(folder, sorted(options.ranks))
        if options.workers:
            rows += _cluster(folder, sorted(options.ranks), options.workers)
    remarks = [
        "Time breakdown, overlap, idle time, kernels and waits in collectives, rank by rank, in "
        "one process unless the row says otherwise; imports are not counted. Files are gzipped "
        f"JSON of about {options.size_mb:g} MB unpacked: a real step of 8 ranks repeated, and "
        "beyond 8 ranks the same with numbers, groups, times and names of kernels of their own. "
        "The exponent is the slope of CPU time over ranks, both logarithmic, through all rows. "
        "Workers of Dask run as Dask starts "
        "them; their CPU time is without the scheduler. Their heartbeats and profiler, which go by "
        "the clock, are measured at rest and taken off where the row says so; where others work "
        "they are fewer, so the truth lies between the two rows. The speed-up of an "
        "idle machine is told from CPU times: that of the tasks is shared by the workers, that of "
        "the client's main thread (sending, reduce) comes on top, and all of it is shared by the "
        "cores. Processes without Dask that know nothing of each other tell how much more the "
        "cores and the memory of this machine give to several than to one. "
        "Findings go through all rules of all domains."
    ]
    publish("ranks", rows, about, remarks, options.out)
    return 0


def _packed_job(archive: Path, scratch: Path, count: int, size_mb: float) -> Path:
    folder = make_job(archive, scratch, count, int(size_mb * MB), pack=True)
    (scratch / "child.py").write_text(_CHILD)
    return folder


def _growth(folder: Path, counts: Sequence[int], size_mb: float) -> list[Row]:
    runs = _measured(folder, counts)
    rows = []
    for count, run in runs.items():
        cost = f"{run['cpu_s']:.1f} CPU s, {run['wall_s']:.1f} s"
        what = f"peak memory, {count:,} ranks ({size_mb:g} MB each)"
        rows.append(
            Row(what, cost, "", run["peak_mib"], _TARGET_MIB, "MiB", smaller_is_better=True)
        )
    if len(counts) > 1:
        costs = [runs[count]["cpu_s"] for count in counts]
        grown, _ = statistics.linear_regression(*(list(map(math.log, x)) for x in (counts, costs)))
        what = f"exponent of CPU time, {counts[0]} to {counts[-1]:,} ranks"
        rows.append(Row(what, "", "", grown, _TARGET_EXPONENT, "", smaller_is_better=True))
    return rows


def _measured(folder: Path, counts: Sequence[int]) -> dict[int, dict[str, float]]:
    """Run every count; the small ones around each large one, because the machine's speed drifts."""
    small = [count for count in counts if count < _LARGE]
    order = small + [one for count in counts if count >= _LARGE for one in (count, *small)]
    runs: dict[int, list[dict[str, float]]] = {count: [] for count in counts}
    for count in order:
        runs[count].append(_run(_first(folder, count), "serial", 1))
    return {
        count: sorted(of_count, key=lambda run: run["cpu_s"])[len(of_count) // 2]
        for count, of_count in runs.items()
    }


def _cluster(folder: Path, counts: Sequence[int], workers: int) -> list[Row]:
    count = next((count for count in counts if count >= 64), counts[-1])
    part = _first(folder, count)
    serial = _run(part, "serial", 1)
    one, several = (_run(part, "dask", number) for number in (1, workers))
    told = f"{several['wall_s']:.1f} s", f"{one['wall_s']:.1f} s with one worker"
    cpu = f"{several['cpu_s']:.1f} CPU s", f"{serial['cpu_s']:.1f} CPU s in one process"
    tasks = f"{several['task_cpu_s']:.1f} CPU s", cpu[1]
    parts = [f"{several[name]:.2f}" for name in ("task_cpu_s", "client_cpu_s", "serial_cpu_s")]
    shares = f"tasks {parts[0]}, event loop and scheduler {parts[1]}, main thread {parts[2]} CPU s"
    ideal = [_idle_wall_s(run, number) for run, number in ((one, 1), (several, workers))]
    with ThreadPoolExecutor(workers) as pool:
        apart = list(pool.map(lambda _: _run(part, "serial", 1), range(workers)))
    slowest = max(run["wall_s"] for run in apart)
    return [
        Row(
            f"{workers} Dask workers, {count} ranks", *told, one["wall_s"] / several["wall_s"],
            _TARGET_SPEEDUP,
        ),
        Row(
            f"{workers} processes without Dask, the same {count} ranks each", f"{slowest:.1f} s",
            f"{serial['wall_s']:.1f} s alone", workers * serial["wall_s"] / slowest,
        ),
        Row(
            f"the same on an idle machine, from CPU times, {count} ranks", shares, "",
            ideal[0] / ideal[1], _TARGET_SPEEDUP,
        ),
        Row(
            f"CPU of {workers} Dask workers, {count} ranks", *cpu,
            several["cpu_s"] / serial["cpu_s"], _TARGET_CPU, smaller_is_better=True,
        ),
        Row(
            f"the same without what goes by the clock, {count} ranks", *tasks,
            several["task_cpu_s"] / serial["cpu_s"], _TARGET_CPU, smaller_is_better=True,
        ),
        Row(
            f"page faults of {workers} Dask workers per rank, {count} ranks",
            f"{several['faults'] / count:,.0f}", "",
        ),
    ]  # fmt: skip


def _idle_wall_s(run: dict[str, float], workers: int) -> float:
    """Tell how long a run would take on this machine if nothing else ran."""
    tasks, client, serial = (run[name] for name in ("task_cpu_s", "client_cpu_s", "serial_cpu_s"))
    return serial + max(tasks / workers, (tasks + client) / (os.cpu_count() or 1))


def _findings(folder: Path, counts: Sequence[int]) -> list[Row]:
    """Compare findings of ranks one after the other with those of a load of all."""
    count = next((count for count in counts if count >= 64), counts[-1])
    part = _first(folder, count)
    whole, each = (_run(part, "findings", number) for number in (0, 1))
    memory = f"{each['peak_mib']:,.0f} MiB", f"{whole['peak_mib']:,.0f} MiB of a whole load"
    cpu = f"{each['cpu_s']:.1f} CPU s", f"{whole['cpu_s']:.1f} CPU s of a whole load"
    return [
        Row(
            f"peak memory of findings, {count} ranks", *memory,
            each["peak_mib"] / whole["peak_mib"], 0.5, smaller_is_better=True,
        ),
        Row(
            f"CPU of findings, {count} ranks", *cpu, each["cpu_s"] / whole["cpu_s"], None,
            smaller_is_better=True,
        ),
    ]  # fmt: skip


def _first(folder: Path, count: int) -> Path:
    """Give a folder with links to the files of the first ranks."""
    part = folder.parent / f"first-{count}"
    if not part.is_dir():
        part.mkdir()
        for rank in range(count):
            name = f"rank{rank}.pt.trace.json.gz"
            (part / name).hardlink_to(folder / name)
    return part


def _run(folder: Path, how: str, workers: int) -> dict[str, float]:
    command = [sys.executable, str(folder.parent / "child.py"), str(folder), how, str(workers)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        msg = f"by_rank failed: {done.stderr[-2000:]}"
        raise RuntimeError(msg)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


if __name__ == "__main__":
    sys.exit(main())
