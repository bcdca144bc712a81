"""How fast the power of a fleet is added up and read, against DuckDB.

    python benchmarks/power.py [--gpus N] [--hours N] [--rounds N] [--no-peer]

The readings are made for the purpose (synthetic): 1,152 GPUs for one day at 1 Hz, 99.5 million
in 24 Parquet files, in order of GPU and time, once as float32 and once as uint16. They are
written to a temporary folder, which is deleted. Every measurement is a process of its own, the
tools take turns, and files are in memory. DuckDB has an environment of its own beside this one.
The table goes to the screen and to ``benchmarks/results/power.md`` and ``.json``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks._measure import machine, read_once
from benchmarks._table import RESULTS, Row, publish
from workbench import load

ROOT = Path(__file__).resolve().parents[1]
START_MS = 1_700_006_400_000
HOUR_S = 3_600
_PEER_FOLDER = ROOT / ".venv-duckdb"
_PEER_NEEDS = "duckdb>=1.2,<3\nnumpy"
_OURS = """
import json, sys
from benchmarks._child import measured
from workbench import load
# The package imports a function when it is asked for, and imports do not count.
total, rollup = load.power_fleet_total, load.power_rollup
work = {"total": lambda: total(sys.argv[2], progress=False),
        "rollup": lambda: rollup(sys.argv[2], processes=1, progress=False).rollup}
table, cost = measured(work[sys.argv[1]])
seen = float(table["power_w"].sum()) if sys.argv[1] == "total" else len(table)
print(json.dumps(cost | {"seen": seen}))
"""
# Whole numbers are divided as they are, and nothing but three columns is read.
_QUERIES = {
    "total": "select time_ms // 1000 as t, sum(power_w) as w, count(*) as n "
    "from read_parquet('{}/*.parquet') group by t order by t",
    "rollup": "select gpu, time_ms // 60000 as t, count(*) as n, avg(power_w) as w, min(power_w), "
    "max(power_w), var_pop(power_w) * count(*) from read_parquet('{}/*.parquet') "
    "group by gpu, t order by gpu, t",
}
_THEIRS = """
import json, sys, time
import duckdb
connection = duckdb.connect()
connection.execute("set enable_progress_bar = false")
began = time.perf_counter(), time.process_time()
found = connection.execute(sys.argv[2]).fetchnumpy()
cost = {"wall_s": time.perf_counter() - began[0], "cpu_s": time.process_time() - began[1]}
seen = float(found["w"].sum()) if sys.argv[1] == "total" else len(found["n"])
print(json.dumps(cost | {"seen": seen}))
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table; return 0 even if targets are missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--gpus", type=int, default=1_152)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--lines", type=int, default=2_000_000, help="lines of nvidia-smi")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-peer", action="store_true", help="measure the workbench only")
    parser.add_argument("--scratch", type=Path, help="where files are made; needs 1 GB")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the table")
    options = parser.parse_args(arguments)
    about = machine()
    python = None if options.no_peer else peer()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="bench-power-", dir=options.scratch) as name:
        folder = Path(name)
        for kind in ("float32", "uint16"):
            files = write_fleet(folder / kind, options.gpus, options.hours, kind)
            rows += _fleet(files, kind, options, python)
        rows += _nvidia_smi(folder, options.lines, options.rounds)
    publish("power", rows, about, [_remark(options, python)], options.out)
    return 0


def _remark(options: argparse.Namespace, python: Path | None) -> str:
    peer_said = "" if python is None else f" The peer is DuckDB {_peer_version(python)}."
    return (
        f"Medians of {options.rounds} rounds on synthetic readings; every measurement is a fresh "
        "process, the tools take turns in each round and the ratio is the median of theirs; files "
        "are in memory. Time counts from after the imports; the peak is resident memory above "
        f"that, of all threads.{peer_said}"
    )


def peer() -> Path:
    """Return the interpreter of DuckDB, installed from PyPI if it is not yet.

    It has an environment of its own, since nothing else here needs it.

    Raises
    ------
    RuntimeError
        If it cannot be installed; holds the end of pip's error output.
    """
    python, ready = _PEER_FOLDER / "bin" / "python", _PEER_FOLDER / "ready"
    if not ready.is_file() or ready.read_text(encoding="ascii") != _PEER_NEEDS:
        print(f"installing DuckDB into {_PEER_FOLDER.name}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(_PEER_FOLDER)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command = [*pip, *_PEER_NEEDS.split("\n")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            msg = f"cannot install DuckDB; --no-peer measures without it:\n{done.stderr[-2000:]}"
            raise RuntimeError(msg)
        ready.write_text(_PEER_NEEDS, encoding="ascii")
    return python


def _peer_version(python: Path) -> str:
    command = [str(python), "-c", "import duckdb; print(duckdb.__version__)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def write_fleet(folder: Path, gpus: int, hours: int, kind: str) -> Path:
    """Write made-up readings of a fleet, a file per hour, in order of GPU and time."""
    folder.mkdir()
    draw = np.random.default_rng(7)
    seconds = np.arange(HOUR_S)
    for hour in range(hours):
        # Steps of 11 s, as in training, and noise of 10 W.
        wave = (600 + 90 * np.sign(np.sin((seconds + hour * HOUR_S) * (2 * np.pi / 11)))).astype(
            np.float32
        )
        power = wave + 10 * draw.standard_normal((gpus, HOUR_S), dtype=np.float32)
        times = START_MS + (hour * HOUR_S + seconds) * 1_000
        table = pa.table(
            {
                "time_ms": np.tile(times, gpus),
                "gpu": np.repeat(np.arange(gpus, dtype=np.int32), HOUR_S),
                "power_w": power.ravel().round().astype(kind)
                if kind == "uint16"
                else power.ravel(),
            }
        )
        path = folder / f"hour{hour:02d}.parquet"
        pq.write_table(table, path, compression="zstd")
        read_once(path)
    return folder


def _fleet(
    files: Path, kind: str, options: argparse.Namespace, python: Path | None
) -> Iterator[Row]:
    count = options.gpus * options.hours * HOUR_S
    for what, words, target in (
        ("total", "fleet total per second", 1.2),
        ("rollup", "roll-up to 1 min", None),
    ):
        ours, theirs = [], []
        for _ in range(options.rounds):
            ours.append(_child([sys.executable, "-c", _OURS, what, str(files)]))
            if python is not None:
                query = _QUERIES[what].format(files)
                theirs.append(_child([str(python), "-c", _THEIRS, what, query]))
        title = f"{words}, {count:,} readings, {kind} ({_size(files):.0f} MB)"
        said = _said(ours)
        if theirs:
            _refuse_other_results(ours[-1]["seen"], theirs[-1]["seen"])
            pairs = zip(ours, theirs, strict=True)
            ratio = statistics.median(us["wall_s"] / them["wall_s"] for us, them in pairs)
            yield Row(
                title, said, f"{_said(theirs)}, DuckDB", ratio, target, smaller_is_better=True
            )
        else:
            yield Row(title, said, "", count / _median(ours, "wall_s") / 1e6, unit="M readings/s")
        peak = max(each["peak_mib"] for each in ours) / 1024
        limit = 1.0 if what == "total" else None
        yield Row(f"its peak memory, {kind}", "", "", peak, limit, "GB", smaller_is_better=True)


def _refuse_other_results(ours: float, theirs: float) -> None:
    # DuckDB adds float32 in another order.
    if not np.isclose(ours, theirs, rtol=1e-9):
        msg = f"the tools disagree: {ours!r} here, {theirs!r} there"
        raise RuntimeError(msg)


def _said(costs: Sequence[dict[str, Any]]) -> str:
    return f"{_median(costs, 'wall_s'):.2f} s (CPU {_median(costs, 'cpu_s'):.2f})"


def _median(costs: Sequence[dict[str, Any]], what: str) -> float:
    return statistics.median(each[what] for each in costs)


def _size(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.iterdir()) / 1e6


def _child(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        msg = f"a measured process failed:\n{done.stderr[-2000:]}"
        raise RuntimeError(msg)
    cost: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return cost


def _nvidia_smi(folder: Path, lines: int, rounds: int) -> Iterator[Row]:
    path = folder / "nvidia_smi.csv"
    stamps = pd.date_range("2025-01-01", periods=-(-lines // 8), freq="100ms")
    texts = stamps.strftime("%Y/%m/%d %H:%M:%S.%f").str.slice(0, 23)
    with path.open("w", encoding="ascii") as file:
        file.write("timestamp, index, power.draw [W], utilization.gpu [%], memory.used [MiB]\n")
        for number, text in enumerate(texts):
            file.writelines(
                f"{text}, {gpu}, {500 + (number * 7 + gpu) % 199}.{number % 100:02d} W, 100 %, "
                "71234 MiB\n"
                for gpu in range(8)
            )
    read_once(path)
    count = 8 * len(texts)
    seconds = _seconds(lambda: load.power(path, tz="UTC", node="a", progress=False), rounds)
    what = f"load nvidia-smi CSV ({count:,} lines, {path.stat().st_size / 1e6:.0f} MB)"
    yield Row(what, f"{seconds:.2f} s", "", count / seconds / 1e6, 0.8, "M lines/s")


def _seconds(action: Callable[[], object], rounds: int) -> float:
    action()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())
