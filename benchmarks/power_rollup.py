"""How long a roll-up of power telemetry takes, against DuckDB alone.

    python benchmarks/power_rollup.py [--node-days 8 144] [--rounds N]

The readings are made for the purpose (synthetic): nodes of 8 GPUs at 1 Hz, a Parquet file per node
and day of 691,200 readings. The files of a day are links to one file: nodes are told apart by the
names of their files, so every one is read and rolled up as if it were its own. 144 node-days are
99,532,800 readings. Every run is a fresh process, and the tools take turns. DuckDB alone is the
query that a user would write for the same cells: count, mean, extremes, and energy by straight
lines between readings at most 3 s apart. The table goes to the screen and to
``benchmarks/results/power_rollup.md`` and ``.json``.
"""

from __future__ import annotations

import argparse
import json
import statistics
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

ROOT = Path(__file__).resolve().parents[1]
DAY_S = 86_400
GPUS, DAYS = 8, 30
START_MS = 1_700_006_400_000
# Who writes it for one folder reads the node from the name of the file, as an integer.
_QUERY = """
WITH readings AS (
    SELECT CAST(parse_filename(filename)[5:7] AS INTEGER) AS node, gpu, time_ms AS t,
    CAST(power_w AS DOUBLE) AS w FROM read_parquet('{}/*.parquet', filename = true)
), steps AS (
    SELECT *, lag(t) OVER before AS t0, lag(w) OVER before AS w0 FROM readings
    WINDOW before AS (PARTITION BY node, gpu ORDER BY t)
), parts AS (
    SELECT node, gpu, t // 600000 AS cell, w, CASE WHEN t - t0 BETWEEN 1 AND 3000 THEN
    (w - (w - w0) * (t - greatest(t0, t // 600000 * 600000)) / (t - t0) / 2)
    * (t - greatest(t0, t // 600000 * 600000)) / 1e3 END AS energy FROM steps
    UNION ALL
    SELECT node, gpu, t0 // 600000, NULL,
    (w0 + (w - w0) * (t // 600000 * 600000 - t0) / (t - t0) / 2)
    * (t // 600000 * 600000 - t0) / 1e3
    FROM steps WHERE t - t0 <= 3000 AND t0 // 600000 < t // 600000
)
SELECT node, gpu, cell, count(w) AS readings, avg(w) AS mean_w, min(w) AS min_w, max(w) AS max_w,
sum(energy) AS energy_j FROM parts GROUP BY node, gpu, cell ORDER BY node, gpu, cell
"""
_OURS = """
import re, sys, json
from benchmarks._child import measured
import duckdb
from workbench import load
load.power_rollup
folder, node = sys.argv[1], re.compile(r"node[0-9]+")
table, cost = measured(lambda: load.power_rollup(folder, period_s=600, node=node).rollup)
told = {"readings": int(table["reading_count"].sum()), "energy_j": float(table["energy_j"].sum())}
print(json.dumps(cost | told))
"""
_THEIRS = """
import sys, json
from benchmarks._child import measured
import duckdb
connection = duckdb.connect()
connection.execute("SET enable_progress_bar = false")
connection.execute("SET temp_directory = '%s'" % sys.argv[1])
table, cost = measured(lambda: connection.sql(sys.argv[2]).df())
told = {"readings": int(table["readings"].sum()), "energy_j": float(table["energy_j"].sum())}
print(json.dumps(cost | told))
"""
_TARGET_RATIO = 1.2


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table; return 0 even if targets are missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--node-days", type=int, nargs="+", default=[8, 144])
    parser.add_argument("--seconds", type=int, default=DAY_S, help="readings per GPU and file")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--scratch", type=Path, help="where files are made; needs 100 MB, and "
                        "what does not fit into memory")  # fmt: skip
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    about = machine()
    counts = sorted(options.node_days)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.scratch) as scratch:
        folder = Path(scratch)
        _write_days(folder, min(max(counts), DAYS), options.seconds)
        rows = [_row(folder, count, options.rounds) for count in counts]
    remarks = [
        "Synthetic readings of nodes of 8 GPUs at 1 Hz, a Parquet file per node and day, rolled up "
        f"to 10 minutes; nodes share the bytes of a day by links. Medians of {options.rounds} "
        "rounds; every run is a fresh process, imports are not counted, the tools take turns and "
        "the ratio is the median of theirs. DuckDB alone is the query that a user would write for "
        "the same cells; the workbench also counts what cannot be a reading and those that "
        "occur again, and returns deviations and the share of time that is known."
    ]
    publish("power_rollup", rows, about, remarks, options.out)
    return 0


def _row(folder: Path, count: int, rounds: int) -> Row:
    files = _first(folder, count)
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(_run(_OURS, str(files)))
        theirs.append(_run(_THEIRS, str(folder / "spill"), _QUERY.format(files)))
        here, there = ours[-1], theirs[-1]
        is_same = np.isclose(here["energy_j"], there["energy_j"], rtol=1e-9)
        if here["readings"] != there["readings"] or not is_same:
            msg = f"the tools disagree: {here} here, {there} there"
            raise RuntimeError(msg)
    ratio = statistics.median(a["wall_s"] / b["wall_s"] for a, b in zip(ours, theirs, strict=True))
    what = f"roll-up of {ours[0]['readings']:,.0f} readings ({count:,} files)"
    return Row(what, _said(ours), f"{_said(theirs)}, DuckDB", ratio, _TARGET_RATIO,
               smaller_is_better=True)  # fmt: skip


def _said(costs: Sequence[dict[str, float]]) -> str:
    wall, cpu, peak = (statistics.median(cost[what] for cost in costs)
                       for what in ("wall_s", "cpu_s", "peak_mib"))  # fmt: skip
    return f"{wall:.2f} s (CPU {cpu:.2f}, {peak:,.0f} MiB)"


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


def _run(code: str, *arguments: str) -> dict[str, float]:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        msg = f"power_rollup failed: {done.stderr[-2000:]}"
        raise RuntimeError(msg)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


if __name__ == "__main__":
    sys.exit(main())
