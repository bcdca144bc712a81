"""How long the kernel takes to answer a control, explorer by explorer.

    python benchmarks/explorers.py [NOTEBOOK ...] [--moves N]

Every notebook runs in a real kernel on the data that ``workbench report`` would take; then each
control of each explorer is moved to its next value, and the time from the change to the figure
that is handed to JupyterLab is taken. The table goes to the screen and to
``benchmarks/results/explorers.md`` and ``.json``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import nbformat
from nbformat.v4 import new_code_cell

from benchmarks._measure import machine
from benchmarks._table import RESULTS, Row, publish
from workbench.share import _execute

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
# A hand on a slider feels an answer of a tenth of a second as immediate.
TARGET_MS = 100.0
# Runs as the last cell: what a notebook showed is in Out of its kernel.
_MOVE = """
import json, time
import numpy as np
from workbench.explore import Explorer

def moved(control):
    if not hasattr(control, "options"):
        control.value = not control.value
    elif isinstance(control.index, tuple):
        start, end = control.index
        last = len(control.options) - 1
        control.index = (start, end - 1) if start < end else (start, last)
    else:
        control.index = (control.index + 1) % len(control.options)

def costs(explorer):
    rows = []
    for control in explorer.controls.values():
        for _ in range({moves}):
            wall, cpu = time.perf_counter(), time.process_time()
            moved(control)
            rows.append((1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - cpu)))
    return np.percentile(rows, [50, 95], axis=0).tolist() + [len(rows)]

print(json.dumps([costs(each) for each in Out.values() if isinstance(each, Explorer)]))
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table; return 0 even if targets are missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("notebooks", type=Path, nargs="*", help="all by default")
    parser.add_argument("--moves", type=int, default=10, help="per control")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    about = machine()
    paths = options.notebooks or sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
    rows = [row for path in paths for row in _rows(path, options.moves)]
    remarks = [
        f"Every control of an explorer moved {options.moves} times, one after the other, in the "
        "kernel of its notebook. Wall time is that of a hand on the control; the CPU time of the "
        "kernel beside it is the same on a busy machine. Drawing in the browser comes on top.",
    ]
    publish("explorers", rows, about, remarks, options.out)
    return 0


def _rows(path: Path, moves: int) -> Iterator[Row]:
    """Measure the explorers of a notebook, in their order."""
    notebook: Any = nbformat.read(path, as_version=4)
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    names = re.findall(r"\bexplore\.(\w+)\(", code)
    notebook.cells.append(new_code_cell(_MOVE.replace("{moves}", str(moves))))
    _execute.execute(notebook, path, timeout_s=900, show_progress=False)
    measured = json.loads(notebook.cells[-1].outputs[-1].text)
    for name, (median, slow, count) in zip(names, measured, strict=True):
        yield Row(
            f"{path.stem}: {name}",
            f"median {median[0]:.0f} ms (CPU {median[1]:.0f}), p95 {slow[0]:.0f} ms",
            "",
            slow[1],
            TARGET_MS,
            "ms",
            smaller_is_better=True,
            note=f"p95 of the CPU time, {count} moves",
        )


if __name__ == "__main__":
    sys.exit(main())
