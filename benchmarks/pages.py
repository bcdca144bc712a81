"""CPU time of reports, and when their first page can be opened, against another tree.

    python benchmarks/pages.py --before TREE [--rounds N] [--only diagnose first all]

TREE is a checkout of the version to compare with, its compiled modules built in place
(``python hatch_build.py``). Both run with the Python that runs this, one after the other, so that
a ratio holds on a busy machine, too. CPU time is that of the command and all its children. The
table goes to the screen and to ``benchmarks/results/pages.md`` and ``.json``.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks._measure import machine
from benchmarks._table import RESULTS, Row, publish
from benchmarks.diagnose import ARCHIVE, MB, SET, make_job
from workbench import datasets

HERE = Path(__file__).resolve().parents[1]
_ANSWERED = (0, 1)
# Ratio of CPU time, by what is measured.
TARGETS = {"diagnose": 0.5, "first": 0.4, "all": 0.35}
_FIRST_PAGE_S, _NOTEBOOK_S = 6.0, 12.0
_NAMES = {
    "diagnose": "diagnose 8 ranks (15 MB each)",
    "first": "report --data of 8 ranks, notebook 01",
    "all": "report, all pages of the bundled job",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table; return 0 even if targets are missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--before", type=Path, help="tree to compare with; none: no ratios")
    parser.add_argument("--only", nargs="+", choices=list(TARGETS), default=list(TARGETS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    about = machine()
    archive = datasets.path(SET) / ARCHIVE
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        scratch = Path(name)
        with tarfile.open(archive) as packed:
            packed.extractall(scratch / "ranks", filter="data")
        job = make_job(archive, scratch, 8, int(15 * MB)) if "diagnose" in options.only else scratch
        commands = {
            "diagnose": ["diagnose", str(job)],
            "first": ["report", "--data", str(scratch / "ranks"), "01_traces.ipynb"],
            "all": ["report"],
        }
        rows = [
            row for name in options.only for row in _rows(name, commands[name], scratch, options)
        ]
    remarks = [f"Medians of {options.rounds} runs of the command, imports included."]
    publish("pages", rows, about, remarks, options.out)
    return 0


def _rows(name: str, command: list[str], scratch: Path, options: argparse.Namespace) -> list[Row]:
    trees = [HERE, *([options.before.resolve()] if options.before else [])]
    costs: dict[Path, list[tuple[float, float, float]]] = {tree: [] for tree in trees}
    for tree in trees:
        _run(tree, command, scratch / "site")  # compiles where nothing is compiled yet
    for _ in range(options.rounds):
        for tree in trees:
            costs[tree].append(_run(tree, command, scratch / "site"))
    medians = {
        tree: [statistics.median(c) for c in zip(*costs[tree], strict=True)] for tree in trees
    }
    texts = [f"CPU {cpu_s:.1f} s, {wall_s:.1f} s" for cpu_s, wall_s, _ in medians.values()]
    cpu_s, wall_s, first_s = medians[HERE]
    ratio = cpu_s / medians[trees[1]][0] if options.before else None
    rows = [
        Row(
            _NAMES[name], texts[0], "".join(texts[1:]), ratio, TARGETS[name], smaller_is_better=True
        )
    ]
    if name == "first":
        rows.append(Row("until its end", f"{wall_s:.1f} s", "", wall_s, _NOTEBOOK_S, "s", True))
    if name != "diagnose":
        words = f"{first_s:.1f} s"
        rows.append(Row("until its first page", words, "", first_s, _FIRST_PAGE_S, "s", True))
    return rows


def _run(tree: Path, command: list[str], site: Path) -> tuple[float, float, float]:
    """Run a command of a tree; return its CPU and wall time, and when the first page was there."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    words = [*command, "--out", str(site)] if command[0] == "report" else command
    old = site / "index.html"
    old_id = old.stat().st_ino if old.exists() else None
    running = subprocess.Popen(
        [sys.executable, "-m", "workbench.cli", *words],
        env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": ""},
        cwd=site.parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    first_s = None
    while running.poll() is None:
        if first_s is None and old.exists() and old.stat().st_ino != old_id:
            first_s = time.perf_counter() - began
        time.sleep(0.05)
    wall_s = time.perf_counter() - began
    if running.returncode not in _ANSWERED:
        msg = f"{tree}: {' '.join(command)} exits with {running.returncode}"
        raise RuntimeError(msg)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu_s, wall_s, wall_s if first_s is None else first_s


if __name__ == "__main__":
    sys.exit(main())
