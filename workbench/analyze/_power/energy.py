"""Energy of metered things in a window of time, and what is not known beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from workbench.analyze._lib.energy_curves import (
    EnergyMethod,
    Numbers,
    Signal,
    Times,
    known_up_to,
    owners,
    readings_of,
    signal,
)
from workbench.errors import WorkbenchError
from workbench.tables import (
    ENERGY,
    POWER,
    POWER_COUNTERS,
    POWER_ENTITIES,
)

_NS = 1e9


def energy(
    power: pd.DataFrame,
    *,
    method: EnergyMethod = "trapezoid",
    start_ns: int | None = None,
    end_ns: int | None = None,
    longest_gap_periods: float = 3.0,
) -> pd.DataFrame:
    """Integrate power over a window of time, never across a gap.

    Where ``covered_share`` is below 1 the energy is an interval, from ``energy_j``, what is known,
    to ``highest_j``; with ``bridged_j`` added, gaps are crossed by straight lines. The mean is
    that of the covered time.

    Parameters
    ----------
    power
        Table :data:`workbench.tables.POWER`. A reading without power is a gap, unless the
        readings on both sides of it are near enough.
    method
        ``"trapezoid"`` draws straight lines between readings. ``"mlperf"`` lets each reading
        stand for the time since the one before, as the rules of MLPerf Training do.
    start_ns, end_ns
        The window, ns on the clock of the readings; by default from the first reading of any
        entity to the last of any, the same for all. A segment that an edge cuts counts in part.
    longest_gap_periods
        Longest time between two readings that counts as known, in median periods of the
        entity.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.ENERGY`, one row per entity.

    Raises
    ------
    ValueError
        If the table or the window is empty, or an option is out of its range.

    Notes
    -----
    Of readings ``p[i]`` at ``t[i]`` with ``dt[i] = t[i] - t[i-1]``, over those with
    ``dt[i] <= longest_gap_periods * median(dt)``: trapezoid
    ``sum (p[i-1] + p[i]) / 2 * dt[i]``, mlperf ``sum p[i] * dt[i]``.

    References
    ----------
    MLCommons, training_policies, power_measurement.adoc (right rectangle).

    Examples
    --------
    >>> readings = pd.DataFrame(
    ...     {"time_ns": [0, 10**9, 2 * 10**9], "entity": ["gpu0"] * 3, "power_w": [100, 300, 300.0]}
    ... ).astype({"entity": "category"})
    >>> energy(readings)["energy_j"].item(), energy(readings, method="mlperf")["energy_j"].item()
    (500.0, 600.0)
    """
    if method not in ("trapezoid", "mlperf"):
        msg = f"method is {method!r}, but only 'trapezoid' and 'mlperf' integrate power"
        raise ValueError(msg)
    readings = signal(power, longest_gap_periods=longest_gap_periods)
    start, end = window(readings.earliest_ns, readings.latest_ns, start_ns, end_ns)
    energy_j, covered_s = integrated(readings, (start, end), method)
    # Joined across all gaps of one entity, never from one entity to the next.
    own = np.diff(owners(readings), prepend=-1) == 0
    whole_j, _ = integrated(replace(readings, joined=own), (start, end), method)
    powers = pd.Series(readings.power_w).groupby(owners(readings)).max()
    highest_w: Numbers = np.asarray(powers.reindex(range(len(readings.names))), dtype=np.float64)
    return energy_rows(
        readings,
        method=method,
        window_ns=(start, end),
        metered=Known(energy_j, covered_s, np.maximum(whole_j - energy_j, 0), highest_w),
        reset_count=np.zeros(len(readings.names), dtype=np.int64),
    )


class Known(NamedTuple):
    """Measured energy of each entity in a window, and bounds of the rest."""

    energy_j: Numbers
    covered_s: Numbers
    bridged_j: Numbers
    highest_w: Numbers


def integrated(
    readings: Signal, window_ns: tuple[int, int], method: EnergyMethod
) -> tuple[Numbers, Numbers]:
    at = np.array(window_ns, dtype=np.int64)
    blocks = [
        (np.diff(energy_j)[:, 0], np.diff(covered_ns)[:, 0] / _NS)
        for _, energy_j, covered_ns in known_up_to(readings, at, method=method)
    ]
    energy_j, covered_s = (np.concatenate(column) for column in zip(*blocks, strict=True))
    return energy_j, covered_s


def window(
    earliest_ns: int, latest_ns: int, start_ns: int | None, end_ns: int | None
) -> tuple[int, int]:
    """Return the window as requested, or that of the readings; refuse an empty one."""
    start = earliest_ns if start_ns is None else int(start_ns)
    end = latest_ns if end_ns is None else int(end_ns)
    if end <= start:
        msg = (
            f"the window from {start} ns to {end} ns is empty; the readings reach from "
            f"{earliest_ns} ns to {latest_ns} ns"
        )
        raise ValueError(msg)
    return start, end


def energy_rows(
    readings: Signal, *, method: str, window_ns: tuple[int, int], metered: Known, reset_count: Times
) -> pd.DataFrame:
    start, end = window_ns
    # Sums of segments may exceed the window by their rounding.
    covered = np.clip(metered.covered_s, 0, (end - start) / _NS)
    unknown = (end - start) / _NS - covered
    drawn = np.where(covered > 0, np.maximum(metered.energy_j, 0), np.nan)
    first, last = readings.first[:-1], readings.first[1:]
    has_any = last > first
    # A stamp behind the last one, for entities without any reading; it becomes missing.
    stamps = np.append(readings.time_ns, 0)
    ends = [pd.array(np.clip(stamps[at], start, end), dtype="Int64") for at in (first, last - 1)]
    for column in ends:
        column[~has_any] = pd.NA
    inside = owners(readings)[(readings.time_ns >= start) & (readings.time_ns <= end)]
    return ENERGY.of(
        {
            "entity": readings.names.to_numpy(),
            "method": method,
            "start_ns": start,
            "end_ns": end,
            "energy_j": drawn,
            "bridged_j": np.where(has_any, metered.bridged_j, np.nan),
            "highest_j": np.nan_to_num(drawn)
            + np.where(unknown > 0, unknown * metered.highest_w, np.where(has_any, 0, np.nan)),
            "mean_w": drawn / np.where(covered > 0, covered, 1),
            "covered_share": covered / ((end - start) / _NS),
            "unknown_s": unknown,
            "reading_count": np.bincount(inside, minlength=len(readings.names)),
            "reset_count": reset_count,
            "first_ns": ends[0],
            "last_ns": ends[1],
        }
    )


# Energy from counters of energy: differences, with resets as new beginnings.


def energy_from_counter(
    counters: pd.DataFrame,
    *,
    start_ns: int | None = None,
    end_ns: int | None = None,
    longest_gap_periods: float = 3.0,
) -> pd.DataFrame:
    """Work out energy as differences of a counter; a fall of the counter is a reset.

    A counter goes on counting while nobody reads it, so its differences are right across gaps.
    What was counted around a reset is lost, and that time is unknown.

    Parameters
    ----------
    counters
        Table :data:`workbench.tables.POWER_COUNTERS`.
    start_ns, end_ns
        As for :func:`workbench.analyze.energy`; a difference that an edge cuts counts in
        proportion to time.
    longest_gap_periods
        A difference over more median periods than this is not divided: where an edge of the
        window cuts it, its time is unknown.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.ENERGY`, one row per entity, with ``method`` counter and
        the resets in ``reset_count``. ``highest_j`` is missing where time is unknown.

    Raises
    ------
    ValueError
        If the table or the window is empty, or an option is out of its range.

    Notes
    -----
    ``sum (E[i] - E[i-1])`` over differences of 0 or more. A counter that was reset and has
    passed its old value before it is read again looks like one that was not.

    Examples
    --------
    >>> readings = pd.DataFrame(
    ...     {"time_ns": [0, 10**9, 2 * 10**9], "entity": ["gpu0"] * 3, "energy_j": [900, 990, 40.0]}
    ... ).astype({"entity": "category"})
    >>> energy_from_counter(readings)[["energy_j", "covered_share", "reset_count"]].values.tolist()
    [[90.0, 0.5, 1.0]]
    """
    POWER_COUNTERS.check(counters)
    readings = readings_of(
        counters, value="energy_j", longest_gap_periods=longest_gap_periods, keep="last"
    )
    start, end = window(readings.earliest_ns, readings.latest_ns, start_ns, end_ns)
    rising, is_reset = _as_rate(readings, np.array([start, end]))
    resets = is_reset & (readings.time_ns > start) & (readings.time_ns <= end)
    energy_j, covered_s = integrated(rising, (start, end), "mlperf")
    return energy_rows(
        readings,
        method="counter",
        window_ns=(start, end),
        # A counter counts across gaps; what a reset lost, nobody knows.
        metered=Known(
            energy_j, covered_s, np.zeros(len(readings.names)), np.full(len(readings.names), np.nan)
        ),
        reset_count=np.bincount(owners(readings)[resets], minlength=len(readings.names)),
    )


def _as_rate(readings: Signal, edges_ns: np.ndarray) -> tuple[Signal, np.ndarray]:
    # A fall of the counter is a reset: what was counted around it is lost.
    owner = owners(readings)
    own = np.r_[False, np.diff(owner) == 0] if len(owner) else np.zeros(0, dtype=bool)
    rise: Numbers = np.diff(readings.power_w, prepend=0.0)
    step_ns = np.diff(readings.time_ns, prepend=0)
    earlier_ns = readings.time_ns - step_ns
    cut = np.zeros(len(owner), dtype=bool)
    for edge in edges_ns:
        # A difference across an edge of the window counts in part only if it is short.
        cut |= (earlier_ns < edge) & (edge < readings.time_ns)
    is_known = own & (rise >= 0) & (step_ns > 0) & (readings.joined | ~cut)
    rate = np.where(is_known, rise, 0) / np.where(is_known, step_ns / _NS, 1)
    return replace(readings, power_w=rate, joined=is_known), own & (rise < 0)


# Overhead per GPU: what a node draws beside its GPUs, where both have meters.

# AC, which the site pays for, before DC; `unknown` is a meter of a node whose side is not told.
_NODE, _GPU = ("node_ac", "node_dc", "unknown"), ("gpu", "module")


def overhead_w_measured(power: pd.DataFrame, entities: pd.DataFrame) -> float:
    """Measure the power per GPU that a node draws beside its GPUs: CPUs, fans, network, losses.

    Parameters
    ----------
    power
        Table :data:`workbench.tables.POWER`.
    entities
        Table :data:`workbench.tables.POWER_ENTITIES` of the same load.

    Returns
    -------
    float
        Watts per GPU, over all nodes with a meter of their own and meters of their GPUs.

    Raises
    ------
    WorkbenchError
        If no node has both, or nodes show less than their GPUs, so that meters disagree.

    Notes
    -----
    For every such node the mean power of node and GPUs over the time in which all of them
    read; the sum of the differences divided by the number of GPU meters. A GPU without a meter
    counts as overhead, and a meter at the AC side adds the losses of the power supplies.

    Examples
    --------
    >>> overhead_w_measured(POWER.empty(), POWER_ENTITIES.empty())
    Traceback (most recent call last):
    ...
    workbench.errors.WorkbenchError: no node has a meter of its own and meters of its GPUs
    """
    POWER.check(power)
    POWER_ENTITIES.check(entities)
    usable = entities[(entities["reading_count"] > 1) & (entities["clock"] == "epoch")]
    beside_w, count = 0.0, 0
    for _, meters in usable[usable["node"].notna()].groupby("node"):
        gpus = meters[meters["scope"].isin(_GPU)]
        nodes = meters[meters["scope"].isin(_NODE) & meters["device"].isna()]
        # Both sides of one node are the same power, metered twice.
        nodes = nodes.sort_values("scope", key=lambda scopes: scopes.map(_NODE.index)).head(1)
        both = pd.concat([nodes, gpus])
        begin, end = both["first_ns"].max(), both["last_ns"].min()
        if nodes.empty or gpus.empty or not begin < end:
            continue
        rows = power[power["entity"].isin(both["entity"])]
        mean = energy(rows, start_ns=int(begin), end_ns=int(end)).set_index("entity")["mean_w"]
        if mean.reindex(both["entity"]).isna().any():
            continue
        beside_w += float(mean[nodes["entity"]].sum() - mean[gpus["entity"]].sum())
        count += len(gpus)
    if not count:
        msg = "no node has a meter of its own and meters of its GPUs"
        raise WorkbenchError(msg)
    if beside_w < 0:
        msg = (
            f"nodes show {-beside_w / count:,.3g} W per GPU less than their GPUs, which cannot be: "
            "compare scope, unit and time zone of the two logs"
        )
        raise WorkbenchError(msg)
    return beside_w / count
