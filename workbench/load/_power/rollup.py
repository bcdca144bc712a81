"""Months of readings as counts, means, extremes and deviations per cell, out of core."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from workbench._numbers import Moments, joined, of_values, together
from workbench.load._files.archive import Paths
from workbench.load._power.formats.table.things import Things
from workbench.load._power.part import Unit
from workbench.load._power.rows import natural
from workbench.load._power.scan import (
    SECOND,
    Columns,
    Part,
    Readings,
    Seen,
    over_parts,
    parts_of,
    period_of,
    readings_of,
)
from workbench.tables import POWER_ROLLUP

_MANY_ROWS = 1 << 20
# Cells and entities in one number: entity first.
_SHIFT = 40
_HALF = 1 << (_SHIFT - 1)


def power_rollup(
    paths: Paths,
    *,
    period_s: float = 60.0,
    columns: Columns | None = None,
    unit: Unit | None = None,
    tz: str | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Shorten readings too many for memory to one row per entity and cell of time.

    Parquet files are read a few ten thousand rows at a time, and only the columns that are
    needed; memory grows with the result, not with the readings. Files may be sorted by time, by
    entity or not at all.

    Parameters
    ----------
    paths
        Parquet files, or folders that are searched for them to any depth. All have the same
        columns: a time, a name (``entity``, or ``node`` and ``gpu``), a power.
    period_s
        Length of a cell, in s. Cells begin at multiples of it since 1970.
    columns
        Names that do not tell: ``{"time": ..., "entity": ..., "power": ...}``. Two columns may
        name the entity (host and GPU), and several hold powers, each of a thing of its own.
    unit
        Unit of powers whose column names none.
    tz
        Time zone of stamps that have none.
    progress
        Whether to show a progress bar if loading takes more than a second.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_ROLLUP`, in order of entity and time. Cells without
        readings have no row. ``attrs["missing_count"]`` counts rows of the files without time,
        name or power, and powers that are none.

    Raises
    ------
    FileNotFoundError
        If a path does not exist.
    LoadError
        If there is no Parquet file, one is damaged or has other columns than the first, or a
        unit or time zone is needed and not given.
    ValueError
        If ``period_s`` is no period.

    Notes
    -----
    Parts of a cell are merged with the formulae of Chan et al. (1983): the squared deviations
    are summed about the mean, so none is lost where powers hardly change.

    References
    ----------
    T. F. Chan, G. H. Golub, R. J. LeVeque, The American Statistician 37 (1983) 242. That tiers
    of 10 s and 1 min keep count, mean, extremes and deviation is the practice of OLCF Summit.

    Examples
    --------
    >>> import tempfile
    >>> readings = pd.DataFrame({"time_ms": range(1_700_000_000_000, 1_700_000_120_000, 1_000)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     readings.assign(gpu=0, power_w=600.0).to_parquet(f"{folder}/hour.parquet")
    ...     rollup = power_rollup(folder)
    >>> rollup[["entity", "reading_count", "mean_w"]].values.tolist()
    [['gpu0', 40, 600.0], ['gpu0', 60, 600.0], ['gpu0', 20, 600.0]]
    """
    period_ns = period_of(period_s)
    parts = parts_of(paths, columns=columns, unit=unit, tz=tz)

    things = Things(parts[0].layout)

    def work(part: Part, go_on: Callable[[], None]) -> tuple[Moments, Seen]:
        seen, found = Seen(), Gathered()
        for readings in readings_of(part, period_ns, things, seen, go_on):
            found.add(_moments(readings))
        return found.all(), seen

    found, missing = Gathered(), 0
    for some, seen in over_parts(parts, work, label="rolling up power", progress=progress):
        found.add(some)
        missing += seen.missing_count
    return _table(found.all(), things.names, period_ns, missing)


class Gathered:
    """Moments that come in many tables, merged now and then so that they stay few."""

    def __init__(self) -> None:
        self._parts: list[Moments] = []
        self._rows = self._merged_rows = 0

    def add(self, part: Moments) -> None:
        """Take another table."""
        if not len(part):
            return
        self._parts.append(part)
        self._rows += len(part)
        if self._rows > 2 * self._merged_rows + _MANY_ROWS:
            self._parts = [together(joined(self._parts))]
            self._rows = self._merged_rows = len(self._parts[0])

    def all(self) -> Moments:
        """Return one row per key."""
        if not self._parts:
            return of_values(np.zeros(0, np.int64), np.zeros(0))
        return together(joined(self._parts))


def _moments(readings: Readings) -> Moments:
    """Return the moments of some readings by entity and cell."""
    if not len(readings.cells):
        return of_values(readings.cells, readings.watts)
    first = int(readings.cells.min())
    span = int(readings.cells.max()) - first + 1
    codes = readings.runs.per_row.astype(np.int64)
    local = of_values(codes * span + (readings.cells - first), readings.watts)
    codes, cells = np.divmod(local.key, span)
    return _with_key(local, codes, cells + first)


def _with_key(moments: Moments, codes: np.ndarray, cells: np.ndarray) -> Moments:
    key = (codes << _SHIFT) + cells + _HALF
    return Moments(
        key, moments.count, moments.mean, moments.low, moments.high, moments.squares
    )  # fmt: skip


def _split(key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return key >> _SHIFT, (key & ((1 << _SHIFT) - 1)) - _HALF


def _table(moments: Moments, names: list[str], period_ns: int, missing: int) -> pd.DataFrame:
    """Make the table, its entities in order of name."""
    by_name = sorted(range(len(names)), key=lambda code: natural(names[code]))
    place = np.empty(len(names), dtype=np.int64)
    place[by_name] = np.arange(len(names))
    codes, cells = _split(moments.key)
    codes = place[codes]
    order = np.argsort(codes, kind="stable")
    codes, cells = codes[order], cells[order]
    categories = pd.Index([names[code] for code in by_name], dtype=pd.Series([""]).dtype)
    table = pd.DataFrame(
        {
            "time_ns": cells * period_ns,
            "entity": pd.Categorical.from_codes(codes, categories=categories),
            "period_s": period_ns / SECOND,
            "reading_count": moments.count[order],
            "mean_w": moments.mean[order],
            "min_w": moments.low[order],
            "max_w": moments.high[order],
            "m2_w2": moments.squares[order],
        },
        copy=False,
    )
    table.attrs = {"missing_count": missing}
    return POWER_ROLLUP.check(table)
