"""Readings of a power meter beside a trace, with known powers of its kinds of kernels."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.numbers import not_negative, positive, whole_number
from workbench.errors import WorkbenchError
from workbench.tables import EVENTS, POWER

_SECOND = 1_000_000_000


def kernel_power(
    events: pd.DataFrame,
    power_w: Mapping[str, float],
    *,
    idle_w: float = 90.0,
    average_s: float = 0.02,
    noise_w: float = 5.0,
    seed: int = 7,
) -> pd.DataFrame:
    """Make the readings of the power meter of a GPU whose kinds of kernels draw known powers.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS` of one GPU.
    power_w
        Power above idle of each kind of GPU work, or of kernels of a name, in W: the truth to find.
        What runs at once adds up; what is not named draws nothing. A name goes before its kind.
    idle_w
        Power without work, in W.
    average_s
        Time that a reading averages, and the time from one to the next, in s.
    noise_w
        Standard deviation of the noise of a reading, in W.
    seed
        Seed of the noise.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER`: ``time_ns``, ``entity`` (one) and ``power_w``.
        Synthetic.

    Raises
    ------
    WorkbenchError
        If there is no GPU work, or a number is not in its range.

    Examples
    --------
    >>> kernel_power(EVENTS.empty(), {"compute": 300.0})
    Traceback (most recent call last):
        ...
    workbench.errors.WorkbenchError: the events have no GPU work, so there is nothing to meter
    """
    EVENTS.check(events)
    work = events[events["kind"].notna()]
    if work.empty:
        msg = "the events have no GPU work, so there is nothing to meter"
        raise WorkbenchError(msg)
    period = max(round(positive("average_s", average_s) * _SECOND), 1)
    start, end = work["start_ns"].to_numpy(), (work["start_ns"] + work["dur_ns"]).to_numpy()
    stamps = np.arange(start.min(), end.max() + 1, period, dtype=np.int64)
    watts = np.full(len(stamps) - 1, not_negative("idle_w", idle_w))
    names = work["name"].astype(str)
    label = names.where(names.isin([*power_w]), work["kind"].astype(str))
    for kind, power in power_w.items():
        of_kind = (label == kind).to_numpy()
        busy = _busy_until(start[of_kind], end[of_kind], stamps)
        watts += not_negative(f"power_w[{kind!r}]", power) * np.diff(busy) / period
    rng = np.random.default_rng(whole_number("seed", seed, least=0))
    watts += rng.normal(0, not_negative("noise_w", noise_w), len(watts))
    table = {"time_ns": stamps[1:], "power_w": np.maximum(watts, 0.0)}
    entity = pd.Categorical(["gpu0"] * len(watts))
    return POWER.of(pd.DataFrame(table).assign(entity=entity)[["time_ns", "entity", "power_w"]])


def _busy_until(
    start: NDArray[np.int64], end: NDArray[np.int64], stamps: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the time that intervals cover before some moments; what overlaps counts once."""
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    before = np.append(start[:1], np.maximum(reach[:-1], start[1:]))
    total = np.append(0, np.maximum(reach - before, 0).cumsum())
    place = start.searchsorted(stamps)
    beyond = np.append(stamps[0], reach)[place] - stamps
    return np.asarray(total[place] - np.maximum(beyond, 0))
