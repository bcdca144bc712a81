"""Clocks of the ranks: how far apart they are, and what cannot be said because of that."""

from __future__ import annotations

from itertools import compress

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.rows import MISSING, Ints, checked, grouped
from workbench.analyze._traces.clock_offsets import Moments, drift, offsets, spread
from workbench.analyze._traces.order_shifts import best_matched, could_be_shifted
from workbench.tables import CLOCKS, COLLECTIVES

# No rank can leave such a collective before the last one has entered it.
_SYNCHRONISING = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send-receive")
_FEWEST = 3
_NO_CLOCK = "no matched collective that ends together on this and another rank"
_TOO_FEW = "fewer than 3 collectives: how well its clock agrees is not known"
_WAS_OFF = (
    "off by more than its shortest collective: without correction ranks seem to leave before "
    "the last one enters"
)
_APART = "no collective joins its clock with those of the other ranks"
_SHIFTED = (
    "matched by order alone: a trace that begins one or some collectives later looks the same"
)
_STILL_OFF = "after correction most of its collectives end on a rank before the last one begins"


def clocks(collectives: pd.DataFrame, *, largest_imbalance_ratio: float = 1.05) -> pd.DataFrame:
    """Estimate from the ends of collectives how far the clock of each rank is off.

    Ranks leave an all-reduce together, whenever they entered it. So where one of them
    records its ends earlier or later than the others every time, its clock is off.

    Parameters
    ----------
    collectives
        Table :data:`workbench.tables.COLLECTIVES`, from events on the ranks' own clocks.
    largest_imbalance_ratio
        Collectives in which the largest size of all ranks is more than this times the
        mean are not used: with unequal shares of the work ranks end apart.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.CLOCKS`, one row per rank of ``collectives``.
        Ranks that no collective joins, directly or through others, have different
        ``clock`` and cannot be compared.

    Notes
    -----
    Used are matched all-reduce, all-gather, reduce-scatter and all-to-all (also as
    send-receive of all ranks, which is how NCCL calls its kernel): in these every rank
    needs data from every other, so none can end before the last begins. Broadcast,
    reduce, gather and scatter are not used, as some of their ranks may leave early.

    Inside a set of ranks, the offset of rank r is the median over collectives of its end
    minus the median end of all ranks. Sets that overlap (tensor- and data-parallel groups)
    are joined by weighted least squares, so that ranks without a collective in common are
    compared through others. What is left, ``d = end - offset - median over ranks of the
    same``, gives the residual u = 1.4826 median |d|; at least 0.5 µs where all times are
    whole microseconds.

    Where no sequence numbers match the kernels of ranks, their order does, and a trace that
    begins a collective later shifts it. That looks like an offset if collectives come as
    regularly as ends agree. Such an offset is not sure, unless the time from one end to the
    k-th after it varies by more than 4 u, for every k that would match the same operations.

    Ends that are apart for another reason, the same every time, look like an offset:
    unequal shares of the work, or a rank that the algorithm always lets go last. Nothing
    in a trace tells the two apart. Drift is reported and not corrected unless asked for,
    see :func:`on_one_clock`; until then it is part of the residual.

    Examples
    --------
    >>> from workbench.tables import COLLECTIVES
    >>> len(clocks(COLLECTIVES.empty()))
    0
    """
    COLLECTIVES.check(collectives)
    ranks = pd.Index(np.unique(collectives["rank"].to_numpy()), name="rank")
    used = best_matched(_usable(collectives, largest_imbalance_ratio))
    known = CLOCKS.empty().set_index("rank") if used.empty else _known(used)
    table = known.reindex(ranks).reset_index()
    table["note"] = table["note"].mask(table["clock"].isna(), _NO_CLOCK)
    table["collective_count"] = table["collective_count"].fillna(0)
    table["is_sure"] = table["is_sure"].astype("boolean").fillna(value=False)
    return CLOCKS.check(CLOCKS.cast(table))


def on_one_clock(
    events: pd.DataFrame, clocks: pd.DataFrame, *, correct_drift: bool = False
) -> pd.DataFrame:
    """Shift the events of every rank by the offset of its clock.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.
    clocks
        Table :data:`workbench.tables.CLOCKS`, from :func:`clocks`.
    correct_drift
        Also correct how much faster or slower each clock runs, where that is known.
        Durations stay as they are: a drift changes them by a few in a million.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.EVENTS`, labels and order as before.
        ``attrs["own_clock"]`` lists the ranks whose offset is not known; they stay as
        they are, and what is said of them against others is not sure.

    Notes
    -----
    ``start - offset``; with drift ``start - offset - drift (start - reference)``. After a
    correction of drift, estimate the clocks again from the shifted events: the residual is
    smaller then.
    """
    checked(events, "rank", "start_ns")
    CLOCKS.check(clocks)
    known = clocks.dropna(subset=["offset_ns"]).drop_duplicates("rank").set_index("rank")
    rank = events["rank"].to_numpy()
    place = known.index.get_indexer(pd.Index(rank))
    start = events["start_ns"].to_numpy()
    shift = np.append(known["offset_ns"].to_numpy("int64"), 0)[place]
    if correct_drift:
        rate = np.append(known["drift_ratio"].to_numpy("float64", na_value=0.0), 0.0)[place]
        reference = np.append(known["reference_ns"].to_numpy("int64"), 0)[place]
        shift = shift + np.rint(rate * np.where(rate == 0, 0, start - reference)).astype(np.int64)
    shifted = events.assign(start_ns=start - shift)
    shifted.attrs["own_clock"] = np.unique(rank[place < 0]).tolist()
    return shifted


def arrival_doubts(comm: pd.DataFrame, clocks: pd.DataFrame) -> pd.Series:
    """Say in which collectives clocks do not agree well enough to tell who was last.

    Parameters
    ----------
    comm
        One row per communication kernel with ``instance`` (-1 if not matched), ``rank``
        and ``start`` on one clock.
    clocks
        Table :data:`workbench.tables.CLOCKS`.

    Returns
    -------
    pandas.Series
        The doubt in words, empty if there is none, per row of ``comm``.
    """
    CLOCKS.check(clocks)
    known = clocks.drop_duplicates("rank").set_index("rank")
    matched = comm.loc[comm["instance"] != MISSING, ["instance", "rank", "start"]]
    each = grouped(matched["instance"].to_numpy())
    clock = matched["rank"].map(known["clock"])
    residual = matched["rank"].map(known["residual_ns"].where(known["is_sure"])).astype("Int64")
    unknown = each.largest(residual.isna().to_numpy().astype(np.int64)) > 0
    of_clock = pd.factorize(clock)[0].astype(np.int64)
    apart = each.largest(of_clock) != each.smallest(of_clock)
    first, second = _largest_two(each.number, np.asarray(residual.fillna(0), dtype=np.int64))
    latest, before = _largest_two(each.number, matched["start"].to_numpy())
    agree, margin = 2 * (first + second), latest - before
    words = [
        f"the last two ranks start {_us(gap)} apart and clocks agree to {_us(limit)}: who was "
        "last is not sure"
        for gap, limit in zip(margin.tolist(), agree.tolist(), strict=True)
    ]
    doubt = np.where(margin <= agree, np.array(words, dtype=object), "")
    doubt = np.where(unknown, "how well the clocks of its ranks agree is not known", doubt)
    doubt = np.where(apart, "its ranks are not on one clock", doubt)
    per_row = pd.Series(doubt[each.number], index=matched.index, dtype=object)
    return per_row.reindex(comm.index, fill_value="")


def _usable(collectives: pd.DataFrame, largest_imbalance_ratio: float) -> pd.DataFrame:
    """Keep the collectives that end together on all ranks."""
    fits = collectives["collective"].notna() & collectives["operation"].isin(_SYNCHRONISING)
    fits &= ~(collectives["size_imbalance_ratio"] > largest_imbalance_ratio).fillna(value=False)
    return collectives[fits.astype(bool)].drop_duplicates(["collective", "rank"])


def _known(used: pd.DataFrame) -> pd.DataFrame:
    """Say what the ends of some collectives tell about the clock of each rank."""
    number, rank = np.unique(used["rank"].to_numpy(), return_inverse=True)
    start = used["start_ns"].to_numpy()
    end = start + used["dur_ns"].to_numpy()
    moment = pd.factorize(used["collective"])[0].astype(np.int64)
    found = offsets(Moments(moment, rank.astype(np.int64), end))
    by_rank = pd.Series(np.arange(len(rank))).groupby(rank)
    rows = [each.to_numpy() for _, each in by_rank]
    enough = np.array([len(each) >= _FEWEST for each in rows])
    residual = [spread(found.left[each], end[each]) for each in rows]
    grows = [drift(found.left[each], end[each]) for each in rows]
    known = pd.DataFrame(
        {
            "clock": _names_of(number, found.clock),
            "offset_ns": pd.array(found.offset, dtype="Int64"),
            "residual_ns": pd.array(residual, dtype="Int64"),
            "drift_ratio": pd.array(grows, dtype="Float64"),
            "reference_ns": pd.array(
                [np.sort(end[each])[len(each) // 2] for each in rows], "Int64"
            ),
            "collective_count": [len(each) for each in rows],
        },
        index=pd.Index(number, name="rank"),
    )
    known["residual_ns"] = known["residual_ns"].where(enough)
    shift = found.offset[rank]
    impossible = _impossible(moment, start - shift, end - shift)
    most = pd.Series(impossible).groupby(rank).mean().to_numpy() > 0.5
    shortest = pd.Series(used["transfer_min_ns"].to_numpy("int64")).groupby(rank).min().to_numpy()
    far = np.abs(found.offset) > shortest
    apart = np.full(len(number), found.clock.max() > 0)
    uncertain = known["residual_ns"].to_numpy("float64", na_value=np.nan)
    shifted = could_be_shifted(used, found, rank.astype(np.int64), uncertain)
    known["note"] = _joined(
        {_TOO_FEW: ~enough, _STILL_OFF: most, _SHIFTED: shifted, _WAS_OFF: far, _APART: apart}
    )
    return known.assign(is_sure=enough & ~most & ~shifted)


def _joined(doubts: dict[str, NDArray[np.bool_]]) -> list[str | None]:
    """Write all doubts about each rank into one note."""
    rows = zip(*(doubtful.tolist() for doubtful in doubts.values()), strict=True)
    return ["; ".join(compress(doubts, row)) or None for row in rows]


def _impossible(moment: Ints, start: Ints, end: Ints) -> NDArray[np.bool_]:
    """Say of which collectives a rank ended before the last one began."""
    each = grouped(moment)
    return np.asarray((each.largest(start) > each.smallest(end))[each.number])


def _names_of(rank: Ints, clock: Ints) -> list[str | None]:
    """Name every clock after its ranks: 0-3, 8."""
    names: dict[int, str] = {}
    for number in np.unique(clock).tolist():
        mine = rank[clock == number]
        runs = np.split(mine, np.flatnonzero(np.diff(mine) != 1) + 1)
        names[number] = ", ".join(
            f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs
        )
    return [names[number] for number in clock.tolist()]


def _largest_two(group: Ints, values: Ints) -> tuple[Ints, Ints]:
    """Return the largest and the second largest value of each group of two or more."""
    order = np.lexsort((-values, group))
    bounds = np.flatnonzero(np.append(True, np.diff(group[order]) > 0)[: len(order)])
    ordered = values[order]
    return ordered[bounds], ordered[np.minimum(bounds + 1, len(order) - 1)]


def _us(time_ns: int) -> str:
    return f"{time_ns / 1000:,.3g} µs"
