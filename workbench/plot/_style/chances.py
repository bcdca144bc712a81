"""Probabilities on an axis: per cent, logarithmic over decades, zero as a place of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.plot._style.bars import log_ticks

Floats = npt.NDArray[np.float64]
# Values that differ by more are placed on a logarithmic axis.
_DECADE = 10
# An interval that reaches further down than this share of its estimate ends at the edge.
_DEEPEST = 1 / 20
PVF_TITLE = "PVF: faulty inferences that go wrong"


def chance(share: float) -> str:
    """Write a probability as per cent, however small it is."""
    value = 100 * float(share)
    if not np.isfinite(value):
        return "unknown"
    # Rounding must not turn nearly all into all.
    if value >= 99.95 and share < 1:
        return "> 99.9 %"
    text = np.format_float_positional(value, precision=3, fractional=False, trim="-")
    return f"{text} %"


def chances(low: float, high: float) -> str:
    if np.isnan(float(low)) or np.isnan(float(high)):
        return "no interval"
    return f"{chance(low).removesuffix(' %')} to {chance(high)}"


def numbers(values: Any) -> Floats:
    """Return a column as floats that may be written to, with NaN where it is missing."""
    floats: Floats = np.array(pd.Series(values).astype("float64"), dtype=np.float64)
    return floats


@dataclass(frozen=True, eq=False)
class Chances:
    """An axis of probabilities: where each is placed, in per cent."""

    is_log: bool
    floor: float
    top: float
    has_zero: bool

    def place(self, shares: Any) -> Floats:
        """Return places in per cent; what is below the axis stands on its lower edge."""
        return np.maximum(100 * numbers(shares), self.floor)

    def whiskers(self, rows: pd.DataFrame, colour: str) -> dict[str, Any]:
        """Describe the intervals of some rows as error bars; none where an end is missing."""
        at = self.place(rows["pvf"])
        above, below = (self.place(rows[end].fillna(rows["pvf"])) for end in ("high", "low"))
        return {
            "type": "data", "thickness": 1, "width": 3, "color": colour,
            "array": np.nan_to_num(above - at), "arrayminus": np.nan_to_num(at - below),
        }  # fmt: skip

    def axis(self, title: str = PVF_TITLE) -> dict[str, Any]:
        """Describe the axis, so that ``0`` stands where zeros are placed."""
        if not self.is_log:
            room = 0.04 * self.top
            return {"title": f"{title} [%]", "range": [-room, self.top + 2 * room]}
        look = log_ticks(np.array([self.floor * (2 if self.has_zero else 1), self.top]))
        values = look["tickvals"]
        words = [np.format_float_positional(tick, trim="-", precision=12) for tick in values]
        kept = [at for at, tick in enumerate(values) if tick >= 1.5 * self.floor]
        if self.has_zero:
            values = [self.floor, *(values[at] for at in kept)]
            words = ["0", *(words[at] for at in kept)]
        low, high = np.log10([self.floor, self.top])
        room = max(0.03 * (high - low), 0.04)
        return {
            "title": f"{title} [%, logarithmic]",
            "type": "log",
            "range": [float(low - room), float(high + 2 * room)],
            "tickvals": values,
            "ticktext": words,
        }


def axis_of(estimates: Any, low: Any = (), high: Any = ()) -> Chances:
    """Choose the axis for probabilities, 0 and missing ones among them, and their intervals."""
    values = numbers(estimates)
    known = values[values > 0]
    # Zeros have no place on a logarithmic axis; they get one of their own, labelled 0.
    ends = np.r_[known, _positive(high)]
    has_zero = bool((values == 0).any())
    if not len(ends):
        return Chances(is_log=False, floor=0.0, top=1.0, has_zero=has_zero)
    lowest = numbers(low) if len(numbers(low)) == len(values) else values
    below = np.fmax(lowest, _DEEPEST * values)
    ends = np.r_[ends, below[below > 0]]
    is_log = bool(ends.max() / (known.min() if len(known) else ends.min()) > _DECADE)
    # With zeros there is room below the smallest value, so that none looks like a zero.
    floor = 100 * ends.min() / (3 if has_zero else 1.3) if is_log else 0.0
    return Chances(
        is_log=is_log, floor=float(floor), top=float(100 * ends.max()), has_zero=has_zero
    )


def row_with(rows: pd.DataFrame, column: str, *, largest: bool = True) -> pd.Series:
    """Return the first row with the largest, or smallest, known value of a column."""
    values = numbers(rows[column])
    return rows.iloc[int(np.nanargmax(values) if largest else np.nanargmin(values))]


def _positive(values: Any) -> Floats:
    known = numbers(values)
    return known[known > 0]


def segments(low: Any, high: Any, at: Sequence[float] | Floats) -> tuple[list[Any], list[Any]]:
    """Return many separate lines from low to high as one broken line: lengths, and places."""
    along: list[Any] = []
    across: list[Any] = []
    for first, last, place in zip(numbers(low), numbers(high), at, strict=True):
        if np.isnan(first) or np.isnan(last):
            continue
        along += [first, last, None]
        across += [place, place, None]
    return along, across
