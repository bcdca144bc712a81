"""Power of many meters on one grid of time, and their sum."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.numbers import positive
from workbench.analyze._lib.energy_curves import (
    BESIDE,
    EnergyCurves,
    Numbers,
    Signal,
    Times,
    known_up_to,
    refuse_double_counting,
    refuse_metered_twice,
    signal,
    tracks_of,
)
from workbench.analyze._power.energy import window
from workbench.errors import WorkbenchError
from workbench.tables import POWER, POWER_ENTITIES, POWER_GRID, POWER_TOTALS

_NS = 1e9
# Rows of about 30 bytes: more would not fit a laptop, and most often a clock is wrong.
_MOST_ROWS = 200_000_000
# A share that is a quotient must not miss its limit by its rounding.
_SLACK = 1e-9


def power_grid(
    power: pd.DataFrame,
    *,
    period_s: float,
    start_ns: int | None = None,
    end_ns: int | None = None,
    longest_gap_periods: float = 3.0,
    least_covered_share: float = 0.5,
) -> pd.DataFrame:
    """Bring the readings of all entities to one grid of time, without losing energy.

    A cell is the time-weighted mean of the straight lines between readings, so the energy of the
    cells is that of the readings. A cell that readings cover too little is missing.

    Parameters
    ----------
    power
        Table :data:`workbench.tables.POWER`.
    period_s
        Length of a cell, in s.
    start_ns, end_ns
        Start of the first cell, and what no cell reaches beyond, ns on the clock of the
        readings. By default cells begin at whole multiples of the period, so that separate
        grids of one period fit each other, and hold all readings.
    longest_gap_periods
        As for :func:`workbench.analyze.energy`.
    least_covered_share
        Smallest share of a cell that readings must cover for it to have a value.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_GRID`: ``time_ns`` (start of the cell), ``entity``,
        ``power_w``, ``covered_share`` and ``meter_period_s``, every entity with all cells.

    Raises
    ------
    ValueError
        If there is nothing to show or too much, or an option is out of its range.

    Notes
    -----
    A cell [a, b) has the value (E(b) - E(a)) / (C(b) - C(a)), with E the energy and C the
    covered time up to an instant.

    Examples
    --------
    >>> readings = pd.DataFrame(
    ...     {"time_ns": [0, 10**9, 2 * 10**9], "entity": ["gpu0"] * 3, "power_w": [100, 300, 300.0]}
    ... ).astype({"entity": "category"})
    >>> power_grid(readings, period_s=1)["power_w"].tolist()
    [200.0, 300.0]
    """
    check_share(least_covered_share)
    readings = signal(power, longest_gap_periods=longest_gap_periods)
    edges = edges_of(readings, period_s, start_ns, end_ns)
    if (len(edges) - 1) * len(readings.names) > _MOST_ROWS:
        raise _too_many(len(edges) - 1, readings)
    rows = len(readings.names) * (len(edges) - 1)
    value, share = np.empty(rows), np.empty(rows)
    cell_count = len(edges) - 1
    for block, energy_j, covered_ns in known_up_to(readings, edges):
        at = slice(block.start * cell_count, block.stop * cell_count)
        power_w, covered = cells_of(energy_j, covered_ns, int(edges[1] - edges[0]))
        value[at], share[at] = power_w.ravel(), covered.ravel()
    value[is_unknown(share, least_covered_share)] = np.nan
    codes = np.repeat(np.arange(len(readings.names)), cell_count)
    table = pd.DataFrame({
        "time_ns": np.tile(edges[:-1], len(readings.names)),
        "entity": pd.Categorical.from_codes(codes, categories=readings.names), "power_w": value,
        "covered_share": share, "meter_period_s": np.repeat(readings.period_s, cell_count),
    })  # fmt: skip
    return POWER_GRID.check(table)


def check_share(least_covered_share: float) -> None:
    if not 0 <= least_covered_share <= 1:
        msg = f"least_covered_share is a share from 0 to 1; got {least_covered_share!r}"
        raise ValueError(msg)


def edges_of(readings: Signal, period_s: float, start_ns: int | None, end_ns: int | None) -> Times:
    """Return the edges of the cells; refuse an empty grid and one that fits no memory."""
    if not period_s > 0 or np.isinf(period_s) or round(period_s * _NS) < 1:
        msg = f"period_s must be a time of 1 ns or more, in s; got {period_s!r}"
        raise ValueError(msg)
    period = round(period_s * _NS)
    start, end = window(readings.earliest_ns, readings.latest_ns, start_ns, end_ns)
    if start_ns is None:
        start = start // period * period
    if end_ns is None:
        end = start + -(-(end - start) // period) * period
    count = (end - start) // period
    if count < 1:
        msg = f"no cell of {period_s:g} s fits into the {(end - start) / _NS:g} s of the window"
        raise ValueError(msg)
    if count > _MOST_ROWS:
        raise _too_many(count, readings)
    return start + period * np.arange(count + 1, dtype=np.int64)


def _too_many(count: int, readings: Signal) -> ValueError:
    span_s = (readings.latest_ns - readings.earliest_ns) / _NS
    return ValueError(
        f"{count:,} cells of {len(readings.names):,} entities are too many; the readings span "
        f"{span_s:,.0f} s. Pass a longer period_s, start_ns and end_ns, or entities of one clock"
    )


def cells_of(energy_j: Numbers, covered_ns: Times, width_ns: int) -> tuple[Numbers, Numbers]:
    drawn, covered = np.diff(energy_j), np.diff(covered_ns)
    # Differences of cumulated energy can fall just below 0 by rounding.
    mean = np.maximum(drawn, 0) / (np.where(covered > 0, covered, 1) / _NS)
    # What they hold below a microwatt is rounding alone, and would be a swing of constant power.
    return mean.round(6), covered / width_ns


def is_unknown(covered_share: Numbers, least_covered_share: float) -> NDArray[np.bool_]:
    # A cell without any reading stays unknown, even where a share of 0 is enough.
    least = max(least_covered_share - _SLACK, np.nextafter(0, 1))
    unknown: NDArray[np.bool_] = covered_share < least
    return unknown


def power_totals(
    grid: pd.DataFrame, *, entities: pd.DataFrame | None = None, least_covered_share: float = 1.0
) -> pd.DataFrame:
    """Sum the power of many entities, cell by cell, and tell how many the sum holds.

    A sum that misses a meter looks like a dip. So by default a cell has a sum only if all
    entities have a value there; lower ``least_covered_share`` and the sum is that of the known.

    Parameters
    ----------
    grid
        Table :data:`workbench.tables.POWER_GRID` of one call of
        :func:`workbench.analyze.power_grid`.
    entities
        Rows of table :data:`workbench.tables.POWER_ENTITIES` to sum, e.g.
        ``entities[entities.scope == "node_ac"]``; those that the grid lacks are expected and
        unknown. By default all of the grid.
    least_covered_share
        Smallest share of the expected entities that must have a value.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_TOTALS`: ``time_ns``, ``power_w``,
        ``entity_count``, ``expected_count``, ``covered_share``, ``meter_period_s``, one row
        per cell.

    Raises
    ------
    ValueError
        If ``least_covered_share`` is not a share.
    WorkbenchError
        If there is nothing to sum, the cells differ between entities, or one entity holds
        another.

    Examples
    --------
    >>> readings = pd.DataFrame(
    ...     {"time_ns": [0, 10**9] * 2, "entity": list("aabb"), "power_w": [100.0, 300, 50, 50]}
    ... ).astype({"entity": "category"})
    >>> power_totals(power_grid(readings, period_s=1))["power_w"].tolist()
    [250.0]
    """
    POWER_GRID.check(grid)
    check_share(least_covered_share)
    grid = grid.assign(entity=grid["entity"].cat.remove_unused_categories())
    expected = refuse_double_counting(grid["entity"].cat.categories, entities)
    if entities is not None:
        grid = grid[grid["entity"].isin(expected)]
    times, wide = by_entity(grid)
    _refuse_one_feed(grid, times, wide)
    power_w, count = np.nansum(wide, axis=0), (~np.isnan(wide)).sum(axis=0)
    share = count / len(expected)
    is_known = (share >= least_covered_share - _SLACK) & (count > 0)
    table = pd.DataFrame({
        "time_ns": times, "power_w": np.where(is_known, power_w, np.nan), "entity_count": count,
        "expected_count": len(expected), "covered_share": share,
    })  # fmt: skip
    if "meter_period_s" in grid:
        table["meter_period_s"] = grid["meter_period_s"].max()
    return POWER_TOTALS.of(table)


def _refuse_one_feed(grid: pd.DataFrame, times: Times, wide: Numbers) -> None:
    """Refuse cells of two meters that bear one name and read one feed."""
    names = map(str, grid["entity"].to_numpy()[:: len(times)])
    is_known = ~np.isnan(wide)
    refuse_metered_twice(
        {
            name: (times[valid], row[valid])
            for name, row, valid in zip(names, wide, is_known, strict=True)
        }
    )


def by_entity(grid: pd.DataFrame, column: str = "power_w") -> tuple[Times, Numbers]:
    if grid.empty:
        msg = "there is no power to sum; none of the entities is in the grid"
        raise WorkbenchError(msg)
    codes = grid["entity"].cat.codes.to_numpy()
    time = grid["time_ns"].to_numpy()
    entity_count = len(np.unique(codes))
    times = time[: len(grid) // entity_count]
    # The reshaping needs the same cells for every entity, in the order of the grid.
    if len(grid) != entity_count * len(times) or (
        (time.reshape(entity_count, -1) != times).any()
        or (codes.reshape(entity_count, -1) != codes[:: len(times), None]).any()
    ):
        msg = (
            "the entities have different cells; make one grid of all of them with "
            "analyze.power_grid, and filter whole entities only"
        )
        raise WorkbenchError(msg)
    return times, grid[column].to_numpy(dtype=np.float64).reshape(entity_count, -1)


# The readings of one scope: what may be summed to the power of a job.

# Where a job's power is best metered: whole nodes first, then what lies inside or around them.
_IN_HOSTS = ("node_ac", "node_dc", "unknown", "module", "gpu")
_ORDER = (*_IN_HOSTS, "rack", "pdu", "row", "facility")


def power_of_scope(
    power: pd.DataFrame, entities: pd.DataFrame, *, scope: str | Sequence[str] | None = None
) -> pd.DataFrame:
    """Keep the readings of one scope, so that nothing is summed twice.

    A GPU is part of its node, and a node of its rack: the energy of a job is the sum over one of
    these levels. Whole nodes say most about what a job draws.

    Parameters
    ----------
    power
        Table :data:`workbench.tables.POWER`.
    entities
        Table :data:`workbench.tables.POWER_ENTITIES` of the same load.
    scope
        Scope to keep; if None, the first there is of whole nodes (AC, DC, not told), modules
        and GPUs, among those that meter the most hosts, or else of what feeds several nodes.
        Several that lie beside each other are kept together: ``("cpu", "gpu", "memory")`` are
        parts of a node that add up.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER`: ``time_ns``, ``entity``, ``power_w``.
        A meter that never reads is expected, and has a row without power.
        ``attrs["scope"]`` names the scope, ``attrs["left_out"]`` counts the entities of others.
        Without any entity the table is empty.

    Raises
    ------
    WorkbenchError
        If there are entities, but none of that scope has readings on wall time (estimates and
        meters with a clock of their own cannot be laid beside a job log), several scopes may
        hold each other, or two meters of that scope read one host, e.g. AC and DC.

    Examples
    --------
    >>> power_of_scope(POWER.empty(), POWER_ENTITIES.empty()).empty
    True
    """
    POWER.check(power)
    POWER_ENTITIES.check(entities)
    if entities.empty and scope is None:
        return POWER.empty()
    timed = entities[(entities["clock"] == "epoch") & (entities["reading_count"] > 1)]
    scopes = timed["scope"].unique().tolist()
    ordered = [name for name in (*_ORDER, *sorted(scopes)) if name in scopes]
    hosts = {name: _host_count(timed[timed["scope"] == name]) for name in _IN_HOSTS}
    most = [name for name in ordered if hosts.get(name, 0) == max(hosts.values())]
    wanted = _several(scope) or [*(most or ordered)][:1]
    if not wanted or not set(wanted) <= set(scopes):
        result = entities["scope"].value_counts(sort=False).to_dict()
        words = ", ".join(f"{count} {name}" for name, count in result.items()) or "none at all"
        text = "no power readings" if scope is None else f"no power readings of scope {scope!r}"
        msg = f"{text} on wall time; found {words}"
        raise WorkbenchError(msg)
    is_silent = (entities["reading_count"] == 0) & (entities["clock"] == "epoch")
    expected = entities[(entities["entity"].isin(timed["entity"]) | is_silent)]
    names = expected.loc[expected["scope"].isin(wanted), "entity"]
    kept = _with_silent(power[power["entity"].isin(names)], names)
    refuse_metered_twice(tracks_of(signal(kept, longest_gap_periods=3.0)))
    remaining = entities.loc[~entities["entity"].isin(names), "scope"].value_counts(sort=False)
    kept.attrs = {
        "scope": " + ".join(wanted),
        "left_out": {str(k): int(v) for k, v in remaining.items()},
    }
    return POWER.check(kept)


def _several(scope: str | Sequence[str] | None) -> list[str]:
    if scope is None:
        return []
    wanted = [scope] if isinstance(scope, str) else list(dict.fromkeys(scope))
    if len(wanted) > 1 and not any(set(wanted) <= beside for beside in BESIDE):
        sets = " or ".join(str(tuple(sorted(beside))) for beside in BESIDE)
        msg = f"scopes {wanted} may hold each other, and do not add up; these do: {sets}"
        raise WorkbenchError(msg)
    return wanted


def _with_silent(power: pd.DataFrame, names: pd.Series) -> pd.DataFrame:
    # A meter without any row is expected in every sum, so it gets a row without power.
    power = power.assign(entity=power["entity"].cat.set_categories(names))
    silent = names[~names.isin(power["entity"].unique())]
    if power.empty or silent.empty:
        return power.reset_index(drop=True)
    rows = pd.DataFrame({"time_ns": power["time_ns"].min(), "entity": silent, "power_w": np.nan})
    rows = rows.astype({"entity": power["entity"].dtype})
    return pd.concat([power, rows], ignore_index=True)


def _host_count(entities: pd.DataFrame) -> int:
    # Parts of hosts that do not state their host are told apart by their files.
    is_part = entities["scope"].isin(["gpu", "module"])
    unnamed = entities["source"].where(is_part, entities["entity"])
    return entities["node"].fillna(unnamed).nunique()


# The power of all meters together, in cells well below the time between two readings.

# A cell averages what lies in it: at an eighth of the time between readings, 1/16 at most of a
# reading that stands out is lost, at the whole of it a half.
_CELLS_PER_READING = 8
_LEAST_COVERED_SHARE = 0.5


def power_sum(power: pd.DataFrame, *, period_s: float | None = None) -> pd.DataFrame:
    """Return the sum over all meters as one uniform series.

    This is :func:`workbench.analyze.power_grid` and :func:`workbench.analyze.power_totals` in one
    call, in cells so short that they do not blunt dips and ramps.

    Parameters
    ----------
    power
        Table :data:`workbench.tables.POWER` of one scope; see
        :func:`workbench.analyze.power_of_scope`.
    period_s
        Length of a cell, in s; if None, the longest of 1, 2, 5 times a power of ten that is no
        more than an eighth of the median time between readings.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_TOTALS`: ``time_ns``, ``power_w``, ``entity_count``,
        ``expected_count``, ``covered_share``, ``meter_period_s``. A cell that any meter does not
        cover has no power; one that never reads is expected, and not in the sum. Without
        readings it is empty.

    Raises
    ------
    WorkbenchError
        If one meter holds another, or ``period_s`` is not a positive number.
    ValueError
        If there are too many cells; a clock that jumps makes them.

    Examples
    --------
    >>> readings = pd.DataFrame(
    ...     {"time_ns": [0, 10**9] * 2, "entity": list("aabb"), "power_w": [100.0, 300, 50, 50]}
    ... ).astype({"entity": "category"})
    >>> power_sum(readings, period_s=0.5)["power_w"].tolist()
    [200.0, 300.0]
    """
    POWER.check(power)
    requested = None if period_s is None else positive("period_s", period_s)
    curves = EnergyCurves(power, longest_gap_periods=3.0)
    period = requested or _short_s(curves.period_s())
    if period == 0 or curves.signal is None:
        return POWER_TOTALS.empty()
    return _summed(curves.signal, period)


def _short_s(meter_period_s: float) -> float:
    if meter_period_s <= 0:
        return 0.0
    # Rounding must not push a cell that fits exactly to the next shorter one.
    most = meter_period_s / _CELLS_PER_READING * (1 + 1e-9)
    power = math.floor(math.log10(most))
    return max(
        float(f"{lead}e{n}")
        for n in (power, power - 1)
        for lead in (1, 2, 5)
        if float(f"{lead}e{n}") <= most
    )


def _summed(readings: Signal, period_s: float) -> pd.DataFrame:
    # Entity after entity: a grid of all of them would not fit the memory of a laptop.
    edges = edges_of(readings, period_s, None, None)
    expected = len(readings.names)
    power_w = np.zeros(len(edges) - 1)
    count = np.zeros(len(edges) - 1, dtype=np.int64)
    for _, energy_j, covered_ns in known_up_to(readings, edges):
        mean, share = cells_of(energy_j, covered_ns, int(edges[1] - edges[0]))
        unknown = is_unknown(share, _LEAST_COVERED_SHARE)
        power_w += np.where(unknown, 0.0, mean).sum(axis=0)
        count += (~unknown).sum(axis=0)
    # A sum without a meter that comes and goes looks like a dip; without one that never reads,
    # it is too low everywhere, and ``covered_share`` says so.
    reading = max(int((np.diff(readings.first) > 0).sum()), 1)
    has_period = ~np.isnan(readings.period_s)
    return POWER_TOTALS.of({
        "time_ns": edges[:-1], "power_w": np.where(count == reading, power_w, np.nan),
        "entity_count": count, "expected_count": expected, "covered_share": count / expected,
        "meter_period_s": readings.period_s[has_period].max() if has_period.any() else np.nan,
    })  # fmt: skip
