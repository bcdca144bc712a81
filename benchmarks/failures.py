"""How fast failures are found in kernel logs, and how little memory a large one takes.

    python benchmarks/failures.py [--rounds N] [--lines N] [--large-gb N] [--fleet-gb N ...]

The logs are written for the purpose: ordinary kernel lines with one Xid in a thousand, and a
storm in which every line is one. The peer is what a script would do: one regular expression
on every line, matches into a list. Medians of the rounds, after one that is not counted; the
large log is loaded in a process of its own. The fleet is one log of 100 MB under the names of many
nodes (hard links, so little disk is used and files are in memory), loaded in fresh processes, and
on two Dask workers. The table goes to the screen and to
``benchmarks/results/failures.md`` and ``.json``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks._measure import machine, read_once
from benchmarks._table import RESULTS, Row, publish
from workbench import analyze, load

_NOISE = (
    "eth0: renamed from veth{:d}",
    "NFS: Registering the id_resolver key type {:02d}",
    'audit: type=1400 audit(1740327858.{:03d}:123): apparmor="ALLOWED" operation="open"',
    "docker0: port {:d}(veth1) entered blocking state",
    "NVRM:      0    103  GSP_RM_ALLOC  0x{:016x} 0x0000000000000004 0x00062ed1a6bd61fa  y",
    "CPU: 17 PID: {:d} Comm: python3 Tainted: P OE 5.15.0-112-generic #122-Ubuntu",
)
_XID = "NVRM: Xid (PCI:0000:{}:00): {}, pid={}, name=python3, Graphics SM Warp Exception on (GPC 8)"
_PATTERN = re.compile(
    r"^kern  :\w+ *: (\S+) .*NVRM: Xid \((?:PCI:)?([0-9a-f:.]+)\): (\d+)(?:, (.*))?$"
)
_PEAK = """
import sys, json
from benchmarks._child import measured
from workbench import load
log, cost = measured(lambda: load.failures(sys.argv[1], node="a", progress=False))
print(json.dumps(cost | {"lines": int(log.failures["line_count"].sum())}))
"""
_FLEET = """
import json, re, resource, sys, time
from benchmarks._child import measured
from workbench import load

def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def loaded(client=None, path=sys.argv[1]):
    return load.failures(path, node=re.compile("node[0-9]+"), client=client, progress=False)

def main():
    workers = int(sys.argv[2])
    if not workers:
        log, cost = measured(loaded)
    else:
        from distributed import Client, LocalCluster
        with LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as local:
            with Client(local) as client:
                client.wait_for_workers(workers)
                # Each worker imports the package before the clock starts.
                client.run(load.failures, sys.argv[3], node="a", progress=False)
                work = lambda: sum(client.run(time.process_time).values())
                before = work()
                log, cost = measured(lambda: loaded(client))
                cost["cpu_s"] = work() - before
                cost["peak_mib"] = max(client.run(peak_mib).values())
    read = log.quality.query("finding == 'read' and what == 'lines'")["count"].sum()
    print(json.dumps(cost | {"lines": int(read), "incidents": len(log.failures)}))

if __name__ == "__main__":
    main()
"""
_NODE_MB, _FLEET_MIB, _TARGET_EXPONENT = 100, 512, 1.05


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table; return 0 even if targets are missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--large-gb", type=float, default=2)
    parser.add_argument("--fleet-gb", type=float, nargs="*", default=[0.5, 2, 8])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    about = machine()
    with tempfile.TemporaryDirectory() as folder:
        rows = list(_rows(Path(folder), options.lines, options.rounds))
        rows.append(_large(Path(folder) / "usual.log", options.large_gb * 1e9))
        rows += _fleet(Path(folder), sorted(options.fleet_gb))
    remarks = [
        f"Medians of {options.rounds} rounds in one process, after one that is not counted; files "
        "are in memory. Peaks are resident memory above that after the imports; those of Dask are "
        "the whole of a worker. The logs of the fleet are synthetic, one line in 10,000 an Xid; "
        "1 TB is 10,000 of them, extrapolated in proportion from the largest that was measured.",
    ]
    publish("failures", rows, about, remarks, options.out)
    return 0


def _rows(folder: Path, lines: int, rounds: int) -> Iterator[Row]:
    usual = _write(folder / "usual.log", lines, xid_share=0.001)
    yield from _against_a_regex(usual, lines, rounds)
    yield _packed(usual, lines, rounds)
    storm = _write(folder / "storm.log", lines // 10, xid_share=1)
    seconds = _seconds(lambda: _load(storm), rounds)
    what = f"load, every line an Xid ({lines // 10:,} lines)"
    yield Row(what, f"{seconds:.2f} s", "", lines / 10 / seconds / 1e3, unit="k lines/s")
    raw = load.failures(storm, node="a", window_s=0, progress=False).failures
    seconds = _seconds(lambda: analyze.incidents(raw, window_s=60), rounds)
    what = f"fold again by another window ({len(raw):,} lines)"
    yield Row(what, f"{seconds:.2f} s", "", len(raw) / seconds / 1e6, unit="M lines/s")


def _against_a_regex(path: Path, lines: int, rounds: int) -> Iterator[Row]:
    ours, theirs = [], []
    for _ in range(rounds):  # in turns: the machine's speed moves
        ours.append(_seconds(lambda: _load(path), 1))
        theirs.append(_seconds(lambda: _with_a_regex(path), 1))
    seconds, plain = statistics.median(ours), statistics.median(theirs)
    ratio = statistics.median(them / us for us, them in zip(ours, theirs, strict=True))
    size = path.stat().st_size / 1e6
    what = f"load, one line in a thousand an Xid ({lines:,} lines, {size:.0f} MB)"
    said = f"{seconds:.2f} s, {lines / seconds / 1e6:.2f} M lines/s"
    yield Row(what, said, "", seconds, 2, "s", smaller_is_better=True)
    regex = f"{plain:.2f} s, a regular expression on every line"
    yield Row("the same against a regular expression", said, regex, ratio)


def _packed(path: Path, lines: int, rounds: int) -> Row:
    packed = path.with_suffix(".log.gz")
    with path.open("rb") as plain, gzip.open(packed, "wb", compresslevel=6) as file:
        shutil.copyfileobj(plain, file)
    seconds = _seconds(lambda: _load(packed), rounds)
    what = f"load, gzipped ({packed.stat().st_size / 1e6:.0f} MB)"
    return Row(what, f"{seconds:.2f} s", "", lines / seconds / 1e6, unit="M lines/s")


def _large(path: Path, size_bytes: float) -> Row:
    """Load one large log in a fresh process."""
    large = path.with_name("large.log")
    with large.open("wb") as file:
        for _ in range(math.ceil(size_bytes / path.stat().st_size)):
            with path.open("rb") as part:
                shutil.copyfileobj(part, file, 1 << 20)
    read_once(large)
    command = [sys.executable, "-c", _PEAK, str(large)]
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    cost = json.loads(done.stdout)
    size = large.stat().st_size / 1e9
    what = f"peak of loading {size:.1f} GB ({cost['lines']:,} Xid lines)"
    peak = cost["peak_mib"] / 1024
    return Row(what, f"{cost['wall_s']:.1f} s", "", peak, 0.5, "GB", smaller_is_better=True)


def _fleet(folder: Path, sizes_gb: Sequence[float]) -> Iterator[Row]:
    """Load the logs of more and more nodes."""
    if not sizes_gb:
        return
    log = folder / "node.log"
    lines = _write(log, 10_000, xid_share=0).read_bytes().splitlines(keepends=True)
    xids = _write(log, 100, xid_share=1).read_bytes().splitlines(keepends=True)
    with log.open("wb") as file:
        for number in range(_NODE_MB * 1_000_000 // sum(map(len, lines))):
            file.writelines([*lines, xids[number % len(xids)]])
    runs = {}
    for size_gb in sizes_gb:
        count = max(round(size_gb * 1000 / _NODE_MB), 1)
        runs[size_gb] = run = _child(_FLEET, _linked(log, count), 0)
        what = f"peak, logs of {count:,} nodes ({size_gb:g} GB, {run['incidents']:,} incidents)"
        cost = f"{run['cpu_s']:.1f} CPU s, {run['lines'] / run['cpu_s'] / 1e6:.2f} M lines/s"
        yield Row(what, cost, "", run["peak_mib"], _FLEET_MIB, "MiB", smaller_is_better=True)
    low, high = sizes_gb[0], sizes_gb[-1]
    if low < high:
        grown = math.log(runs[high]["cpu_s"] / runs[low]["cpu_s"]) / math.log(high / low)
        what = f"exponent of CPU time, {low:g} to {high:g} GB"
        yield Row(what, "", "", grown, _TARGET_EXPONENT, "", smaller_is_better=True)
    hours = runs[high]["cpu_s"] * 1000 / high / 3600
    yield Row("1 TB (10,000 nodes), extrapolated", "", "", hours, unit="CPU h")
    middle = sizes_gb[len(sizes_gb) // 2]
    count = max(round(middle * 1000 / _NODE_MB), 1)
    spread = _child(_FLEET, _linked(log, count), 2, folder / "usual.log")
    told = f"{spread['wall_s']:.1f} s, {spread['cpu_s']:.1f} CPU s"
    alone = f"{runs[middle]['wall_s']:.1f} s, {runs[middle]['cpu_s']:.1f} CPU s in one process"
    peak = spread["peak_mib"]
    what = f"peak of a worker, two Dask workers, {middle:g} GB"
    yield Row(what, told, alone, peak, _FLEET_MIB, "MiB", smaller_is_better=True)


def _linked(log: Path, count: int) -> Path:
    folder = log.parent / f"nodes-{count}"
    folder.mkdir(exist_ok=True)
    for number in range(count):
        path = folder / f"node{number:05d}.log"
        if not path.exists():
            path.hardlink_to(log)
    return folder


def _child(code: str, path: Path, *more: object) -> dict[str, float]:
    root = Path(__file__).resolve().parents[1]
    script = path.parent / "child.py"  # workers start by importing it
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script), str(path), *map(str, more)],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    run: dict[str, float] = json.loads(done.stdout)
    return run


def _load(path: Path) -> int:
    return len(load.failures(path, node="a", progress=False).failures)


def _with_a_regex(path: Path) -> int:
    with path.open(encoding="utf-8", errors="replace") as file:
        return len([found.groups() for line in file if (found := _PATTERN.match(line))])


def _seconds(action: Callable[[], object], rounds: int) -> float:
    action()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _write(path: Path, lines: int, *, xid_share: float) -> Path:
    """Write a log as ``dmesg --decode --time-format iso`` prints it, over 23 days."""
    draw = random.Random(7)
    apart_s = 23 * 86_400 / lines
    with path.open("w", encoding="ascii") as file:
        for number in range(lines):
            day, second = divmod(int(number * apart_s), 86_400)
            clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
            stamp = f"2025-03-{day + 1:02d}T{clock},{number % 1_000_000:06d}+00:00"
            if draw.random() < xid_share:
                bus, code = draw.choice(("1b", "3b", "9d", "df")), draw.choice((13, 31, 43, 79, 94))
                message = _XID.format(bus, code, number)
            else:
                message = draw.choice(_NOISE).format(number % 1_000)
            file.write(f"kern  :warn  : {stamp} {message}\n")
    return path


if __name__ == "__main__":
    sys.exit(main())
