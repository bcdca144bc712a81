"""Small pictures beside findings, each drawn from the tables that its rule read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from workbench.plot._style.html import number, rect, safe_html
from workbench.plot._style.style import colour
from workbench.plot._style.text import duration, percent, plural, short

Tables = Mapping[str, pd.DataFrame]
_WIDTH, _HEIGHT, _PLOT = 220, 78, 58
# More bars than this are lines of a pixel; more points than this do not fit the width.
_MOST_BARS, _MOST_LABELS, _MOST_POINTS = 48, 16, 110
_HIGHLIGHT = "more"


class _Bars(NamedTuple):
    """Bars of one column: which table and column, the colour, the words, ns per unit."""

    table: str
    column: str
    meaning: str
    words: str
    is_time: bool = False
    unit: str = ""
    name: str = ""  # column that names the bars; else the index does


def thumbnail(row: pd.Series, tables: Tables) -> str:
    """Draw the picture of a finding; empty if its rule has none or its table is missing.

    Parameters
    ----------
    row
        A row of :data:`workbench.tables.FINDINGS`.
    tables
        The tables of :class:`workbench.tables.Findings`; ``job.steps`` besides, the steps of the
        job log, lets slow steps be drawn.
    """
    draw = _PICTURES.get(str(row["rule"]))
    return draw(row, tables) if draw else ""


def _bars_of(bars: _Bars, row: pd.Series, tables: Tables) -> str:
    table = tables.get(bars.table)
    if table is None or not {bars.column, *filter(None, [bars.name])} <= {*table.columns}:
        return ""
    # Of many hosts the first ones; ranks and GPUs keep their order.
    table = table.nlargest(_MOST_BARS, bars.column) if bars.name == "node" else table
    index = table[bars.name] if bars.name else table.index.to_series()
    values = table[bars.column].astype("Float64").fillna(0).to_numpy(dtype=float)
    if not 2 <= len(values) <= _MOST_BARS:
        return ""
    top = float(values.max())
    if top <= 0:
        return ""
    width = _WIDTH / len(values)
    named = [_is_named(str(name), row) for name in index]
    drawn = []
    for place, (value, name) in enumerate(zip(values, index, strict=True)):
        height = _PLOT * max(float(value), 0.0) / top
        meaning = _HIGHLIGHT if named[place] and not all(named) else bars.meaning
        left = f"{place * width + 0.1 * width:.1f}"
        drawn.append(rect(meaning, left, _PLOT - height, f"{0.8 * width:.1f}", height))
        if len(values) <= _MOST_LABELS and len(str(name)) <= 3:
            drawn.append(_label(str(name), (place + 0.5) * width))
    largest = duration(top) if bars.is_time else f"{number(top)} {bars.unit}".strip()
    return _picture("".join(drawn), f"{bars.words}, at most {largest}")


def _is_named(name: str, row: pd.Series) -> bool:
    """Return whether the place of a finding begins with a rank, or names a host or a meter."""
    where = str(row["where"])
    if name.isdecimal():
        return re.match(rf"rank {name}\b", where) is not None
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", where) is not None


def _straggler(row: pd.Series, tables: Tables) -> str:
    """Show what makes a rank late: its kernels, or the time for which its GPU has no work."""
    column, meaning, words = ("idle_ns", "idle", "idle time by rank")
    if "compute" in str(row["finding"]):
        column, meaning, words = ("compute_ns", "compute", "compute time by rank")
    return _bars_of(_Bars("traces.by_rank", column, meaning, words, is_time=True), row, tables)


def _states(highlighted: Sequence[str], _row: pd.Series, tables: Tables) -> str:
    """Show the states of a job as one bar, those of the finding marked by a line below."""
    table = tables.get("fleet.states")
    if table is None or not len(table):
        return ""
    drawn, start = [], 0.0
    for state, share in table["time_share"].fillna(0).items():
        width = _WIDTH * float(share)
        drawn.append(rect(str(state), f"{start:.1f}", 2, f"{width:.1f}", 28))
        if state in highlighted:
            drawn.append(rect("ink", f"{start:.1f}", 34, f"{max(width, 1):.1f}", 4))
        start += width
    rows = table[table.index.isin(highlighted)]
    share, total_s = float(rows["time_share"].sum()), float(table["time_s"].sum())
    words = f"{' and '.join(map(str, rows.index))}: {percent(share)} of {duration(total_s * 1e9)}"
    return _picture("".join(drawn), words, height=42)


def _steps(row: pd.Series, tables: Tables) -> str:
    """Draw how long each step took: by the log of the job, else by the traces."""
    if str(row["domain"]) == "fleet":
        steps = tables.get("job.steps")
        lengths = None if steps is None else steps["end_ns"] - steps["start_ns"]
    else:
        periods = tables.get("traces.periods")
        lengths = None if periods is None else periods.groupby("step")["period_ns"].max()
    return "" if lengths is None else _line(lengths.dropna(), "longest step")


def _failures(_row: pd.Series, tables: Tables) -> str:
    """Draw the number of failures up to a time."""
    counted = tables.get("failures.counted")
    if counted is None or len(counted) < 3:
        return ""
    times = np.sort(counted["start_ns"].dropna().to_numpy(dtype=np.int64))
    at = np.linspace(times[0], times[-1], _MOST_POINTS)
    count = np.searchsorted(times, at, side="right")
    return _curve(count.astype(float), f"{plural(len(times), 'failure')} over time")


def _line(lengths: pd.Series, words: str) -> str:
    values = lengths.to_numpy(dtype=float)
    if len(values) < 3:
        return ""
    # The longest of each group of steps: a mean would hide the steps that the finding is about.
    groups = np.array_split(values, min(len(values), _MOST_POINTS))
    return _curve(np.array([group.max() for group in groups]), f"{words} {duration(values.max())}")


def _curve(values: np.ndarray, words: str) -> str:
    top = float(values.max()) or 1.0
    across = np.linspace(0, _WIDTH, len(values))
    points = " ".join(
        f"{x:.1f},{2 + (_PLOT - 2) * (1 - y / top):.1f}"
        for x, y in zip(across, values, strict=True)
    )
    line = f'<polyline class="s-ink" fill="none" stroke="{colour("ink")}" stroke-width="1.5"'
    return _picture(f'{line} points="{points}"/>', words)


def _label(text: str, middle: float) -> str:
    return f'<text x="{middle:.1f}" y="{_PLOT + 13}" text-anchor="middle">{safe_html(text)}</text>'


def _picture(drawn: str, words: str, height: int = _HEIGHT) -> str:
    told = safe_html(short(words, 60))
    box = f'viewBox="0 0 {_WIDTH} {height}" width="100%"'
    return f'<svg {box} role="img" aria-label="{told}">{drawn}</svg><span>{told}</span>'


_EXPOSED = _Bars(
    "traces.by_rank", "exposed_communication_ns", "communication",
    "exposed communication by rank", is_time=True,
)  # fmt: skip
_IDLE = _Bars("traces.by_rank", "idle_ns", "idle", "idle time by rank", is_time=True)
_FAILURES = _Bars("failures.nodes", "failure_count", "neutral", "failures by node", name="node")
_PVF = _Bars("pvf.by_component", "pvf", "neutral", "PVF by component", name="component")
_POWER = _Bars("power.by_gpu", "power_w", "neutral", "mean power by GPU", unit="W")
_LIMIT = _Bars("power.by_gpu", "limit_w", "neutral", "power limit by GPU", unit="W")
_HEAT = _Bars("power.by_gpu", "temperature_c", "neutral", "temperature by GPU", unit="°C")
_PICTURES: dict[str, Callable[[pd.Series, Tables], str]] = {
    "interruption": partial(_states, ("restart", "lost steps")),
    "initialisation": partial(_states, ("initialisation",)),
    "checkpoint_time": partial(_states, ("checkpoint",)),
    "evaluation_time": partial(_states, ("evaluation",)),
    "repeated_work": partial(_states, ("lost steps",)),
    "time_not_told": partial(_states, ("not told",)),
    "slower_steps": _steps,
    "outlier_steps": _steps,
    "uneven_steps": _steps,
    "first_step": _steps,
    "straggler": _straggler,
    "exposed_communication": partial(_bars_of, _EXPOSED),
    "host_bound": partial(_bars_of, _IDLE),
    "tiny_kernels": partial(_bars_of, _IDLE),
    "data_loader": partial(_bars_of, _IDLE),
    "long_pauses": partial(_bars_of, _IDLE),
    "synchronising_calls": partial(_bars_of, _IDLE),
    "lemon_node": partial(_bars_of, _FAILURES),
    "fabric_errors": partial(_bars_of, _FAILURES),
    "vulnerable_component": partial(_bars_of, _PVF),
    "failures_increase": _failures,
    "failure_bursts": _failures,
    "odd_gpu": partial(_bars_of, _POWER),
    "unequal_limits": partial(_bars_of, _LIMIT),
    "hot_gpu": partial(_bars_of, _HEAT),
}
