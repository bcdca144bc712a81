"""Power of many meters on one grid of time, and their sum."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.power_scopes import refuse_double_counting, refuse_metered_twice
from workbench.analyze._lib.power_signal import Numbers, Signal, Times, known_up_to, signal
from workbench.analyze._power.energy import window
from workbench.errors import WorkbenchError
from workbench.tables import POWER_GRID, POWER_TOTALS

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

    Every cell holds the mean of the straight lines between readings, weighted by time; so the
    energy of the cells is that of the readings, whatever the grid. A cell that readings cover
    too little is missing, never 0 and never the value before it.

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
    TableError
        If ``power`` is not that table.
    ValueError
        If there is nothing to show or too much, or an option is out of its range.

    Notes
    -----
    A cell [a, b) has the value (E(b) - E(a)) / (C(b) - C(a)), with E the energy and C the
    covered time up to an instant.

    Examples
    --------
    >>> import pandas as pd
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
    table = pd.DataFrame(
        {
            "time_ns": np.tile(edges[:-1], len(readings.names)),
            "entity": pd.Categorical.from_codes(codes, categories=readings.names),
            "power_w": value,
            "covered_share": share,
            "meter_period_s": np.repeat(readings.period_s, cell_count),
        }
    )
    return POWER_GRID.check(table)


def check_share(least_covered_share: float) -> None:
    """Refuse what is no share."""
    if not 0 <= least_covered_share <= 1:
        msg = f"least_covered_share is a share from 0 to 1; got {least_covered_share!r}"
        raise ValueError(msg)


def edges_of(readings: Signal, period_s: float, start_ns: int | None, end_ns: int | None) -> Times:
    """Give the edges of the cells; refuse an empty grid and one that fits no memory."""
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
    """Give mean power and covered share of each cell, a row per entity."""
    drawn, known = np.diff(energy_j), np.diff(covered_ns)
    mean = np.maximum(drawn, 0) / (np.where(known > 0, known, 1) / _NS)
    return mean, known / width_ns


def is_unknown(covered_share: Numbers, least_covered_share: float) -> NDArray[np.bool_]:
    """Say of which cells readings cover too little."""
    least = max(least_covered_share - _SLACK, np.nextafter(0, 1))
    unknown: NDArray[np.bool_] = covered_share < least
    return unknown


def power_totals(
    grid: pd.DataFrame,
    *,
    entities: pd.DataFrame | None = None,
    least_covered_share: float = 1.0,
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
    TableError
        If an input is not its table.
    ValueError
        If ``least_covered_share`` is no share.
    WorkbenchError
        If there is nothing to sum, the cells differ between entities, or one entity holds
        another.

    Examples
    --------
    >>> import pandas as pd
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
    known = (share >= least_covered_share - _SLACK) & (count > 0)
    table = pd.DataFrame(
        {
            "time_ns": times,
            "power_w": np.where(known, power_w, np.nan),
            "entity_count": count,
            "expected_count": len(expected),
            "covered_share": share,
        }
    )
    if "meter_period_s" in grid:
        table["meter_period_s"] = grid["meter_period_s"].max()
    return POWER_TOTALS.check(POWER_TOTALS.cast(table))


def _refuse_one_feed(grid: pd.DataFrame, times: Times, wide: Numbers) -> None:
    """Refuse cells of two meters that bear one name and read one feed."""
    names = map(str, grid["entity"].to_numpy()[:: len(times)])
    known = ~np.isnan(wide)
    refuse_metered_twice(
        {name: (times[here], row[here]) for name, row, here in zip(names, wide, known, strict=True)}
    )


def by_entity(grid: pd.DataFrame, column: str = "power_w") -> tuple[Times, Numbers]:
    """Give the starts of the cells, and one row of values per entity in order of the table."""
    if grid.empty:
        msg = "there is no power to sum; none of the entities is in the grid"
        raise WorkbenchError(msg)
    codes = grid["entity"].cat.codes.to_numpy()
    time = grid["time_ns"].to_numpy()
    entity_count = len(np.unique(codes))
    times = time[: len(grid) // entity_count]
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
