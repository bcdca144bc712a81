"""How fast a log of nvidia-smi is loaded.

    python benchmarks/power.py [--lines N] [--rounds N]

The readings are made for the purpose (synthetic), in a temporary folder, which is deleted; the file
is in memory. The table goes to the screen and to ``benchmarks/results/power.md`` and ``.json``.
Roll-ups are measured by ``benchmarks/power_rollup.py``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pandas as pd

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks._measure import machine, read_once
from benchmarks._table import RESULTS, Row, publish
from workbench import load


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table; return 0 even if targets are missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--lines", type=int, default=2_000_000, help="lines of nvidia-smi")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scratch", type=Path, help="where files are made; needs 200 MB")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the table")
    options = parser.parse_args(arguments)
    about = machine()
    with tempfile.TemporaryDirectory(prefix="bench-power-", dir=options.scratch) as name:
        rows = list(_nvidia_smi(Path(name), options.lines, options.rounds))
    remark = f"Median of {options.rounds} rounds on synthetic readings; the file is in memory."
    publish("power", rows, about, [remark], options.out)
    return 0


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
