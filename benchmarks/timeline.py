"""What drawing a window of a timeline costs, beside handing every event to the browser.

    python benchmarks/timeline.py [--rounds N] [--most N]

Processor time, median of the rounds, after one that is not counted. Made events on eight streams,
one in ten thousand of them long. The peer draws one WebGL point per event with plotly, which a zoom
needs not do again, but whose browser holds them all. The table goes to the screen and to
``benchmarks/results/timeline.md`` and ``.json``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import plotly.io as pio

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks._measure import machine, seconds
from benchmarks._table import RESULTS, Row, publish
from workbench.plot._style.lanes import indexed, merged

MARKS = 5_000
# Zooming has to pay beside handing everything over once.
TARGET = 0.25


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table; return 0 even if targets are missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--most", type=int, default=10_000_000, help="events to go up to")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    counts = [count for count in (1_000_000, 10_000_000) if count <= options.most]
    rows = [_row(count, options.rounds) for count in counts or [options.most]]
    remarks = [
        f"At most {MARKS:,} rectangles of the whole trace; a narrower window takes less. The index "
        "is sorted once, when the timeline is opened. The figure around the rectangles costs some "
        "tens of ms more, whatever the number of events."
    ]
    publish("timeline", rows, machine(), remarks, options.out)
    return 0


def _row(count: int, rounds: int) -> Row:
    rng = np.random.default_rng(1)
    start = np.sort(rng.integers(0, count * 5_000, count))
    length = rng.integers(500, 4_000, count)
    length[::10_000] *= 300
    lane, kind = rng.integers(0, 8, count), rng.choice([0, 0, 0, 1, 2], count)
    columns = {"lane": lane, "kind": kind, "start_ns": start, "end_ns": start + length}
    index = indexed(pd.DataFrame(columns).assign(row=np.arange(count)))
    window = {"start_ns": 0, "end_ns": count * 5_000, "limit": MARKS}
    ours, peer = seconds(
        lambda: merged(index, **window),
        lambda: pio.to_json(go.Figure(go.Scattergl(x=start, y=lane, mode="markers"))),
        rounds=rounds,
    )
    what = f"whole trace of {count:,} events"
    words = f"{1e3 * ours:.1f} ms", f"{1e3 * peer:.1f} ms, plotly scattergl of every event"
    return Row(what, *words, ours / peer, TARGET, smaller_is_better=True)


if __name__ == "__main__":
    raise SystemExit(main())
