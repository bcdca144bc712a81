"""Which failures are counted, what is left out, and the time at which they struck."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from workbench._follow_ons import KERNEL_KINDS
from workbench._incidents import at_once
from workbench.errors import WorkbenchError
from workbench.tables import FAILURES, Table

LEFT_OUT = ("info", "planned", "follow-on")
NS_PER_H = 3.6e12
_MOST_AT_ONCE, _AT_ONCE_S = 3, 10.0


class Clock(NamedTuple):
    """A time scale on which instants can be compared."""

    name: str
    source: str
    """The file whose own clock it is; empty for wall time."""


def needed(failures: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Return the failures, or raise if one of the columns does not fit the table."""
    some = {name: FAILURES.columns[name] for name in columns}
    return Table(FAILURES.name, FAILURES.meaning, some).check(failures)


def counted(
    failures: pd.DataFrame, leave_out: Sequence[str]
) -> tuple[pd.DataFrame, dict[str, int]]:
    """Return the failures that count, and how many were left out by the first reason that fits."""
    needed(failures, "category", "severity")
    if isinstance(leave_out, str):
        msg = f"leave_out={leave_out!r} is a text; pass a tuple of categories or severities"
        raise WorkbenchError(msg)
    left: dict[str, int] = {}
    keep = np.ones(len(failures), dtype=bool)
    for reason in leave_out:
        hit = ((failures["category"] == reason) | (failures["severity"] == reason)).to_numpy(bool)
        if count := int((hit & keep).sum()):
            left[reason] = count
        keep &= ~hit
    return failures[keep], left


def reporters(kinds: pd.Series) -> pd.Series:
    """Give who reported: the kinds of errors that a kernel logs come from one."""
    return kinds.where(~kinds.isin(KERNEL_KINDS), "kernel")


def several_reporters(failures: pd.DataFrame) -> list[str]:
    """Doubt counts of rows that the kernel, the scheduler and the job may all have reported."""
    if "kind" not in failures:
        return []
    kinds = reporters(failures["kind"]).value_counts()
    if len(kinds) < 2:
        return []
    found = ", ".join(f"{kind} {count:,}" for kind, count in kinds.items())
    return [
        f"reported by several ({found}): one failure may be counted more than once; choose with "
        "analyze.reported_by"
    ]


def doubtful_counts(failures: pd.DataFrame) -> list[str]:
    """Say why some failures that count may be fewer than their rows."""
    return [*several_reporters(failures), *_many_at_once(failures)]


def _many_at_once(failures: pd.DataFrame) -> list[str]:
    """Doubt counts of incidents that begin within seconds, on whatever hosts and jobs."""
    if not {"kind", "clock", "start_ns", "category", "severity"} <= set(failures):
        return []
    count = int(at_once(failures, most=_MOST_AT_ONCE, within_s=_AT_ONCE_S).sum())
    if not count:
        return []
    return [
        f"{count:,} of {len(failures):,} begin within {_AT_ONCE_S:g} s of "
        f"{_MOST_AT_ONCE} or more others: one failure, of a switch or a power feed say, may be "
        "counted more than once"
    ]


def with_value(
    failures: pd.DataFrame, column: str, reason: str, left: dict[str, int]
) -> pd.DataFrame:
    """Keep the failures that have a value in a column; the others are counted in ``left``."""
    known = failures[column].notna().to_numpy()
    if count := int((~known).sum()):
        left[reason] = count
    return failures[known]


def timed(failures: pd.DataFrame, left: dict[str, int]) -> pd.DataFrame:
    """Keep the failures whose time is known, all on one clock; the others are counted.

    Raises
    ------
    WorkbenchError
        If no failure has a time, or their clocks cannot be compared.
    """
    needed(failures, "start_ns", "clock", "source")
    known = (failures["start_ns"].notna() & (failures["clock"] != "none")).to_numpy(bool)
    if len(failures) and not known.any():
        msg = (
            f"none of the {len(failures):,} failures has a time (clock is none), and this "
            "needs to know when they struck; load logs that record it"
        )
        raise WorkbenchError(msg)
    if count := int((~known).sum()):
        left["no time"] = count
    clock_of(failures[known])
    return failures[known]


def clock_of(failures: pd.DataFrame) -> Clock | None:
    """Return the one clock of the failures, None for none; refuse clocks that do not compare."""
    own = failures["clock"] == "own"
    sources = sorted(failures.loc[own, "source"].astype(str).unique())
    clocks = [Clock("own", name) for name in sources]
    clocks += [Clock("epoch", "")] if (~own).any() else []
    if len(clocks) > 1:
        msg = (
            f"the failures are on {len(clocks)} clocks that cannot be compared: "
            f"{', '.join(f'{c.name} {c.source}'.strip() for c in clocks[:4])}. Load the logs with "
            "their time zone or boot time, or pass the failures of one clock"
        )
        raise WorkbenchError(msg)
    return clocks[0] if clocks else None


def poisson_interval(
    count: NDArray[Any], confidence_share: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the exact interval of Poisson means; from 0 where nothing was counted."""
    rest = (1 - confidence_share) / 2
    low = np.where(count > 0, stats.chi2.ppf(rest, 2 * np.maximum(count, 1)) / 2, 0.0)
    return low, stats.chi2.ppf(1 - rest, 2 * count + 2) / 2
