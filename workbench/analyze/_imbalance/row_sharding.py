"""Rows of unequal popularity over memory units: load imbalance, and how to reduce it."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from workbench._shared.numbers import Floats, Ints, whole_number
from workbench.errors import WorkbenchError
from workbench.tables import REUSE_HISTOGRAM, ROW_CACHE, ROW_POPULARITY, ROW_SHARDING

_ROUNDING = 1e-6


def row_popularity(histogram: pd.DataFrame) -> pd.DataFrame:
    """Turn a histogram of reuse into the popularity of rows.

    A bin of the histogram becomes one class of rows that are equally popular. That keeps
    the look-ups of every bin; what is lost is how popularity varies inside a bin, by at
    most a factor of 2.

    Parameters
    ----------
    histogram
        Table :data:`workbench.tables.REUSE_HISTOGRAM` of one batch.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.ROW_POPULARITY`: ``row_count``, ``lookup_share``, most
        popular first.

    Raises
    ------
    WorkbenchError
        If the histogram is of no batch or of several, or has no look-ups.

    Notes
    -----
    A bin (a, b] with look-ups q has q / u rows, where u is the look-ups per row that the
    two shares of the bin give, held inside the bin; shares are printed with three digits,
    so a bin with a row share of 0 takes the geometric mean of its ends. The open bin is
    taken to end at twice its start: it may hold rows that are more popular still.
    """
    REUSE_HISTOGRAM.check(histogram)
    names = histogram["batch"].unique().tolist()
    if len(names) != 1:
        msg = f"one batch is needed, these are {len(names)}: {names[:3]}; pick one by its name"
        raise WorkbenchError(msg)
    bins = histogram[histogram["lookup_share"] > 0].sort_values("above_count", ascending=False)
    if bins.empty:
        msg = f"the histogram of {names[0]!r} has no look-ups"
        raise WorkbenchError(msg)
    above = bins["above_count"].to_numpy(dtype=np.float64)
    upto = bins["upto_count"].to_numpy(dtype=np.float64, na_value=np.nan)
    upto = np.where(np.isnan(upto), 2 * above, upto)
    # The share of each bin is printed rounded, and so is their sum.
    share = bins["lookup_share"].to_numpy() / bins["lookup_share"].sum()
    lookups = share * bins["lookup_count"].to_numpy()
    rows = bins["row_share"].to_numpy() * bins["unique_count"].to_numpy()
    middle = np.sqrt(np.maximum(above, 1) * upto)
    per_row = np.divide(lookups, rows, out=middle, where=rows > 0)
    count = np.rint(lookups / np.clip(per_row, np.maximum(above, 1), upto))
    table = pd.DataFrame(
        {"row_count": np.maximum(count, 1).astype(np.int64), "lookup_share": share}
    )
    return ROW_POPULARITY.check(table)


def row_cache(popularity: pd.DataFrame, *, cached_rows: Sequence[int]) -> pd.DataFrame:
    """Work out which share of look-ups a cache of table rows serves.

    Parameters
    ----------
    popularity
        Table :data:`workbench.tables.ROW_POPULARITY`.
    cached_rows
        Rows that the cache holds; several sizes to compare.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.ROW_CACHE`: ``cached_row_count``, ``lru_share``,
        ``hottest_share``.

    Raises
    ------
    WorkbenchError
        If a size is not a whole number from 0, or the shares do not add up to 1.

    Notes
    -----
    Che's approximation: a row of popularity q is in a cache of c rows with probability
    ``1 - exp(-q t)``, t such that these add up to c. Look-ups are taken to be independent and of
    popularity that stays; a batch of real look-ups repeats rows in bursts, which raises the share,
    and meets rows for the first time, which lowers it. Rows that the popularity lacks count as
    never looked up.

    References
    ----------
    Che et al.: Hierarchical Web Caching Systems, IEEE JSAC 20, 2002.
    """
    classes = _classes(popularity)
    rows, share = classes.rows.astype(np.float64), classes.share
    table = []
    for size in (whole_number("cached_rows", count, least=0) for count in cached_rows):
        cached = np.clip(size - classes.first, 0, rows)
        shares = (
            float((rows * share * _cached(rows, share, size)).sum()),
            float((cached * share).sum()),
        )
        table.append((size, *np.clip(shares, 0, 1)))
    return ROW_CACHE.of(table)


def _cached(rows: Floats, share: Floats, size: int) -> Floats:
    """Return the probability that a row of each class is in an LRU cache of some rows."""
    from scipy.optimize import brentq

    used = share > 0
    if size == 0 or size >= rows[used].sum():
        return np.where(used, float(size > 0), 0.0)

    def surplus(log_time: float) -> float:
        return float((rows * -np.expm1(-share * np.exp(log_time))).sum()) - size

    # Time counts look-ups: the cache is not full before as many as it has rows.
    least = np.log(size)
    most = least - np.log1p(-size / rows[used].sum()) - np.log(share[used].min() * size)
    log_time = brentq(surplus, least - 1, max(most, least) + 1)
    return np.asarray(-np.expm1(-share * np.exp(log_time)))


def row_sharding(
    popularity: pd.DataFrame,
    *,
    units: int,
    hot_rows: int | Sequence[int] = 0,
    copies: int = 0,
    lpt_rows: int = 20_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Spread rows over memory units in four ways, and see how busy the busiest unit is.

    A row lies on one unit, so a unit has at least the look-ups of its most popular row: where that
    is more than a unit's share, no placement helps. Treating the most popular rows apart does.

    Parameters
    ----------
    popularity
        Table :data:`workbench.tables.ROW_POPULARITY`.
    units
        Memory units, e.g. the DPUs of a memory that computes, or GPUs.
    hot_rows
        The most popular rows, treated apart; several numbers to compare.
    copies
        Units that hold each hot row, its look-ups split between them; 0: hot rows are
        served by a cache outside the units.
    lpt_rows
        Rows that LPT places one by one; the others are dealt out in turn. More come closer
        to the bound and take longer; there should be many per unit. Of hot rows as many are
        copied one by one; the others fill up the least loaded units.
    seed
        Seed of the random placement.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.ROW_SHARDING`, four placements per number of hot rows.

    Raises
    ------
    WorkbenchError
        If shares do not add up to 1, a number is not possible, or a cache takes all look-ups.

    Notes
    -----
    Placements: contiguous (blocks of equally many rows, most popular first: ids that follow
    popularity), random, round-robin by popularity, LPT (largest first to the least loaded).
    Hot copies go first, each on the least loaded units; the other rows stay where they would
    be without, except under LPT. With D units, r copies, shares p_1 >= p_2 >= ... and h hot
    rows, the bound on max / mean is D p_1 for h = 0, D max(p_1 / r, p_(h+1)) with copies,
    D p_(h+1) / (1 - p_1 - ... - p_h) with a cache; never below 1.

    References
    ----------
    UpDLRM, arXiv:2406.13941 (uniform, non-uniform and cache-aware partitions).

    Examples
    --------
    >>> two = pd.DataFrame({"row_count": [1, 4], "lookup_share": [0.5, 0.5]})
    >>> row_sharding(two, units=2)["max_to_mean_ratio"].round(2).tolist()[-1]
    1.0
    """
    classes = _classes(popularity)
    count = int(classes.rows.sum())
    units = whole_number("units", units, least=1)
    copies = whole_number("copies", copies, least=0)
    lpt_rows = whole_number("lpt_rows", lpt_rows, least=0)
    seed = whole_number("seed", seed, least=0)
    several = isinstance(hot_rows, Iterable) and not isinstance(hot_rows, str)
    sizes: Any = hot_rows if several else [hot_rows]
    hot = sorted({whole_number("hot_rows", size, least=0) for size in sizes})
    _check(hot, count, units=units, copies=copies)
    all_lookups = classes.total()
    segments = _segments(classes, [*hot, count])
    fixed = _fixed_loads(segments, hot, count, units, np.random.default_rng(seed))
    rows: list[dict[str, Any]] = []
    for number, size in enumerate(hot):
        head, tail = classes.cut(size)
        if not copies and not tail.total() > 0:
            msg = (
                f"a cache of hot_rows={size:,} rows takes all look-ups and leaves nothing to "
                "balance; treat fewer rows apart, or give them copies"
            )
            raise WorkbenchError(msg)
        apart = copied(head, copies, units, lpt_rows) if copies else np.zeros(units)
        # The segments from this border on are the rows that are not hot.
        loads = {name: sum(segment_loads[number:], apart) for name, segment_loads in fixed.items()}
        loads["LPT"] = largest_first(tail, apart, lpt_rows)
        mean = (tail.total() + (head.total() if copies else 0.0)) / units
        single = max(tail.share[0], classes.share[0] / copies if copies and size else 0.0)
        facts = {
            "unit_count": units,
            "row_count": count,
            "top_row_share": classes.share[0] / all_lookups,
            "hot_row_count": size,
            "hot_share": min(head.total() / all_lookups, 1.0),
            "copy_count": copies,
            "bound_ratio": max(single / mean, 1.0),
        }
        rows += [
            {"placement": name, **facts, "max_to_mean_ratio": max(load.max() / mean, 1.0)}
            for name, load in loads.items()
        ]
    return ROW_SHARDING.of(rows)


def _segments(classes: Classes, borders: list[int]) -> list[Classes]:
    """Cut the rows at some borders, leaving out those before the first."""
    _, tail = classes.cut(borders[0])
    segments = []
    for before, border in pairwise(borders):
        segment, tail = tail.cut(border - before)
        segments.append(segment)
    return segments


def _fixed_loads(
    segments: list[Classes], hot: list[int], count: int, units: int, rng: np.random.Generator
) -> dict[str, list[Floats]]:
    """Load the units with each segment, by placements that do not look at the other rows."""
    together = list(zip(segments, hot, strict=True))
    return {
        "contiguous": [contiguous(segment, at, count, units) for segment, at in together],
        "random": [random(segment, units, rng) for segment in segments],
        "round-robin": [round_robin(segment, at, units) for segment, at in together],
    }


def _classes(popularity: pd.DataFrame) -> Classes:
    ROW_POPULARITY.check(popularity)
    rows = popularity["row_count"].to_numpy()
    shares = popularity["lookup_share"].to_numpy()
    total = shares.sum()
    if abs(total - 1) > _ROUNDING:
        msg = f"the shares of the rows add up to {total:.6g}, not to 1; divide by their sum"
        raise WorkbenchError(msg)
    share = shares / rows
    order = np.argsort(-share, kind="stable")
    return Classes(rows[order], share[order])


def _check(hot: list[int], count: int, *, units: int, copies: int) -> None:
    if not hot or hot[-1] >= count:
        msg = f"hot_rows must be from 0 to {count - 1:,}, one less than there are rows, not {hot}"
        raise WorkbenchError(msg)
    if units > count:
        msg = f"{units:,} units for {count:,} rows: some would get none; use fewer units"
        raise WorkbenchError(msg)
    if copies > units:
        msg = f"{copies:,} copies need as many units, there are {units:,}"
        raise WorkbenchError(msg)


# Classes, not rows, so that a hundred million rows cost no more than there are classes.
class Classes(NamedTuple):
    """Rows by falling popularity: how many are equally popular, and how popular each is."""

    rows: Ints
    share: Floats
    """Of all look-ups, each row of the class."""

    @property
    def first(self) -> Ints:
        ends: Ints = np.cumsum(self.rows)
        return ends - self.rows

    def cut(self, row: int) -> tuple[Classes, Classes]:
        """Split into the rows before a row and the others."""
        ends = np.cumsum(self.rows)
        at = int(np.searchsorted(ends, row, side="right"))
        if at == len(ends):
            return self, Classes(self.rows[:0], self.share[:0])
        inside = row - int(ends[at] - self.rows[at])
        head = Classes(self.rows[: at + (inside > 0)].copy(), self.share[: at + (inside > 0)])
        tail = Classes(self.rows[at:].copy(), self.share[at:])
        if inside:
            head.rows[-1] = inside
            tail.rows[0] -= inside
        return head, tail

    def each(self) -> Floats:
        return np.repeat(self.share, self.rows)

    def total(self) -> float:
        # Not a dot product: on a busy machine the threads of BLAS wait for each other.
        return float((self.rows * self.share).sum())


def contiguous(classes: Classes, first: int, count: int, units: int) -> Floats:
    """Load the units with blocks of equally many rows, as they come.

    ``first`` is the number of the first row given, ``count`` how many rows there are in all.
    """
    borders = np.arange(units + 1) * count // units
    rows = np.concatenate([[0], np.cumsum(classes.rows)]) + first
    done = np.concatenate([[0.0], np.cumsum(classes.rows * classes.share)])
    return np.diff(np.interp(borders, rows, done))


def round_robin(classes: Classes, first: int, units: int) -> Floats:
    """Load the units with rows dealt out in turn; row 0 goes to unit 0."""
    every, left = np.divmod(classes.rows, units)
    load = np.full(units, float((every * classes.share).sum()))
    # What is left of a class goes to the units from start on: up at the first, down after the last.
    start = (classes.first + first) % units
    share = np.where(left > 0, classes.share, 0.0)
    steps = np.bincount(start, weights=share, minlength=2 * units + 1)
    steps -= np.bincount(start + left, weights=share, minlength=2 * units + 1)
    level: Floats = np.cumsum(steps, dtype=np.float64)
    total: Floats = load + level[:units] + level[units : 2 * units]
    return total


def random(classes: Classes, units: int, rng: np.random.Generator) -> Floats:
    """Load the units with rows that go anywhere."""
    single = classes.rows == 1
    shares = classes.share[single]
    load: Floats = np.zeros(units)
    load += np.bincount(rng.integers(0, units, len(shares)), weights=shares, minlength=units)
    for rows, share in zip(classes.rows[~single], classes.share[~single], strict=True):
        # Rows of a class are alike: only their number on each unit has to be drawn.
        load += share * rng.multinomial(rows, np.full(units, 1 / units))
    return load


def largest_first(classes: Classes, load: Floats, single_rows: int) -> Floats:
    """Add rows to loaded units: the most popular one by one to the least loaded, then in turn."""
    units = len(load)
    head, tail = classes.cut(single_rows)
    heap = [(level, unit) for unit, level in enumerate(load.tolist())]
    heapq.heapify(heap)
    for share in head.each().tolist():
        least, unit = heap[0]
        heapq.heapreplace(heap, (least + share, unit))
    filled = np.empty(units)
    for level, unit in heap:
        filled[unit] = level
    if len(tail.rows):
        dealt = round_robin(tail, 0, units)
        # The unit that is dealt most is the one that has least.
        filled[np.argsort(filled, kind="stable")] += np.sort(dealt)[::-1]
    return filled


def copied(classes: Classes, copies: int, units: int, single_rows: int) -> Floats:
    """Load empty units with copies of rows, each row on as many of the least loaded ones.

    After the first rows, which go one by one, each is so small that the others fill up the
    least loaded units like water; a unit gets at most one copy of each.
    """
    load: Floats = np.zeros(units)
    if copies >= units:
        load += classes.total() / units
        return load
    head, tail = classes.cut(single_rows)
    for share in head.each():
        # Which of the least loaded units comes first does not matter, so nothing is sorted.
        load[np.argpartition(load, copies - 1)[:copies]] += share / copies
    return _filled_up(load, tail.total(), tail.total() / copies)


def _filled_up(load: Floats, total: float, most: float) -> Floats:
    """Raise the lowest loads to one level, each by no more than ``most``, by ``total`` in all."""
    low, high = load.min(), load.max() + most
    # Bisection: so many halvings reach the last bit of a float.
    for _ in range(64):
        level = (low + high) / 2
        added = np.clip(level - load, 0.0, most)
        low, high = (level, high) if added.sum() < total else (low, level)
    filled: Floats = load + added
    return filled
