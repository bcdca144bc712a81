"""Clocks of the ranks: how far apart they are, and what cannot be said because of that."""

from __future__ import annotations

from itertools import compress
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.rows import MISSING, Ints, checked, grouped
from workbench.tables import CLOCKS, COLLECTIVES

# No rank can leave such a collective before the last one has entered it.
_SYNCHRONISING = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send-receive")
# The median of two ends says nothing of its own error.
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
_OTHER_STEPS = "off by whole steps: perhaps its steps are counted from another one, not its clock"
_STILL_OFF = "after correction most of its collectives end on a rank before the last one begins"


def clocks(collectives: pd.DataFrame, *, largest_imbalance_ratio: float = 1.05) -> pd.DataFrame:
    """Estimate from the ends of collectives how far the clock of each rank is off.

    Ranks leave an all-reduce together, whenever they entered it. So where one of them records its
    ends earlier or later than the others every time, its clock is off.

    Parameters
    ----------
    collectives
        Table :data:`workbench.tables.COLLECTIVES`, from events on the ranks' own clocks.
    largest_imbalance_ratio
        Collectives in which the largest size of all ranks is more than this times the mean are not
        used: with unequal shares of the work ranks end apart.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.CLOCKS`, one row per rank of ``collectives``. Ranks that no
        collective joins, directly or through others, have different ``clock``.

    Notes
    -----
    Used are matched all-reduce, all-gather, reduce-scatter and all-to-all (also as send-receive of
    all ranks, which is how NCCL calls its kernel): every rank needs data from every other, so none
    can end before the last begins. Of broadcast, reduce, gather and scatter ranks may leave early.

    Inside a set of ranks, the offset of rank r is the median over collectives of its end minus the
    median end of all ranks. Sets that overlap (tensor- and data-parallel groups) are joined by
    weighted least squares. What is left, ``d = end - offset - median over ranks of the same``,
    gives the residual u = 1.4826 median ``|d|``; at least 0.5 µs where all times are whole
    microseconds.

    Where only their order matches the kernels of ranks, a trace that begins a collective later
    looks like an offset if collectives come as regularly as ends agree. Such an offset is not sure,
    unless the time from one end to the k-th after it varies by more than 4 u, for every k that
    would match the same operations. Steps fix the match where all ranks of a collective number its
    step alike and have as many collectives of the group in it; but an offset of whole steps, within
    2 % of one, is not sure either.

    Ends that are apart for another reason, the same every time (unequal shares of the work, a rank
    that the algorithm always lets go last), look like an offset; nothing in a trace tells the two
    apart. Drift is reported, and part of the residual until :func:`align_clocks` corrects it.

    Examples
    --------
    >>> from workbench.tables import COLLECTIVES
    >>> len(clocks(COLLECTIVES.empty()))
    0
    """
    COLLECTIVES.check(collectives)
    ranks = pd.Index(np.unique(collectives["rank"].to_numpy()), name="rank")
    fits = collectives["collective"].notna() & collectives["operation"].isin(_SYNCHRONISING)
    is_uneven = collectives["size_imbalance_ratio"] > largest_imbalance_ratio
    fits &= ~is_uneven.fillna(value=False).astype(bool)
    known = collectives.assign(is_fixed=_is_fixed(collectives))[fits]
    used = best_matched(known.drop_duplicates(["collective", "rank"]))
    table = CLOCKS.empty().set_index("rank") if used.empty else _of_ranks(used)
    table = table.reindex(ranks).reset_index()
    table["note"] = table["note"].mask(table["clock"].isna(), _NO_CLOCK)
    table["collective_count"] = table["collective_count"].fillna(0)
    table["is_sure"] = table["is_sure"].astype("boolean").fillna(value=False)
    return CLOCKS.check(CLOCKS.cast(table))


def align_clocks(
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
        Also correct how much faster or slower each clock runs, where that is known. Durations stay
        as they are: a drift changes them by a few in a million.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.EVENTS`, labels and order as before. ``attrs["own_clock"]``
        lists the ranks whose offset is not known; they stay as they are, and what is said of them
        against others is not sure.

    Notes
    -----
    ``start - offset``; with drift ``start - offset - drift (start - reference)``. After a
    correction of drift, estimate the clocks again from the shifted events: the residual is smaller
    then.
    """
    checked(events, "rank", "start_ns")
    CLOCKS.check(clocks)
    offsets = clocks.dropna(subset=["offset_ns"]).drop_duplicates("rank").set_index("rank")
    rank = events["rank"].to_numpy()
    position = offsets.index.get_indexer(pd.Index(rank))
    start = events["start_ns"].to_numpy()
    shift = np.append(offsets["offset_ns"].to_numpy("int64"), 0)[position]
    if correct_drift:
        # Position -1, a rank whose clock is not known, finds the appended zero and stays as it is.
        rate = np.append(offsets["drift_ratio"].to_numpy("float64", na_value=0.0), 0.0)[position]
        reference = np.append(offsets["reference_ns"].to_numpy("int64"), 0)[position]
        shift = shift + np.rint(rate * np.where(rate == 0, 0, start - reference)).astype(np.int64)
    shifted = events.assign(start_ns=start - shift)
    shifted.attrs["own_clock"] = np.unique(rank[position < 0]).tolist()
    return shifted


def arrival_doubts(comm: pd.DataFrame, clocks: pd.DataFrame) -> pd.Series:
    """Flag collectives in which clocks do not agree well enough to tell which rank was last.

    ``comm`` has one row per communication kernel with ``instance`` (-1 if not matched), ``rank``
    and ``start`` on one clock. The doubt is a text, empty if there is none.
    """
    CLOCKS.check(clocks)
    by_rank = clocks.drop_duplicates("rank").set_index("rank")
    matched = comm.loc[comm["instance"] != MISSING, ["instance", "rank", "start"]]
    instances = grouped(matched["instance"].to_numpy())
    clock = matched["rank"].map(by_rank["clock"])
    residual = matched["rank"].map(by_rank["residual_ns"].where(by_rank["is_sure"])).astype("Int64")
    unknown = instances.largest(residual.isna().to_numpy().astype(np.int64)) > 0
    of_clock = pd.factorize(clock)[0].astype(np.int64)
    # Clocks that no collective joins have offsets of different zeros.
    apart = instances.largest(of_clock) != instances.smallest(of_clock)
    first, second = _largest_two(instances.number, np.asarray(residual.fillna(0), dtype=np.int64))
    latest, before = _largest_two(instances.number, matched["start"].to_numpy())
    agree, margin = 2 * (first + second), latest - before
    words = [
        f"the last two ranks start {_us(gap)} apart and clocks agree to {_us(limit)}: who was "
        "last is not sure"
        for gap, limit in zip(margin.tolist(), agree.tolist(), strict=True)
    ]
    doubt = np.where(margin <= agree, np.array(words, dtype=object), "")
    doubt = np.where(unknown, "how well the clocks of its ranks agree is not known", doubt)
    doubt = np.where(apart, "its ranks are not on one clock", doubt)
    per_row = pd.Series(doubt[instances.number], index=matched.index, dtype=object)
    return per_row.reindex(comm.index, fill_value="")


def _of_ranks(used: pd.DataFrame) -> pd.DataFrame:
    number, rank = np.unique(used["rank"].to_numpy(), return_inverse=True)
    start = used["start_ns"].to_numpy()
    end = start + used["dur_ns"].to_numpy()
    moment = pd.factorize(used["collective"])[0].astype(np.int64)
    fitted = offsets(Moments(moment, rank.astype(np.int64), end))
    rows = [np.flatnonzero(rank == code) for code in range(len(number))]
    enough = np.array([len(of_rank) >= _FEWEST for of_rank in rows])
    residual = [spread(fitted.left[of_rank], end[of_rank]) for of_rank in rows]
    grows = [drift(fitted.left[of_rank], end[of_rank]) for of_rank in rows]
    # The middle of the trace, where the estimated offset is that of the clock even if it drifts.
    middle = [np.sort(end[of_rank])[len(of_rank) // 2] for of_rank in rows]
    table = pd.DataFrame(
        {
            "clock": _names_of(number, fitted.clock),
            "offset_ns": pd.array(fitted.offset, dtype="Int64"),
            "residual_ns": pd.array(residual, dtype="Int64"),
            "drift_ratio": pd.array(grows, dtype="Float64"),
            "reference_ns": pd.array(middle, "Int64"),
            "collective_count": list(map(len, rows)),
        },
        index=pd.Index(number, name="rank"),
    )
    table["residual_ns"] = table["residual_ns"].where(enough)
    shift = fitted.offset[rank]
    moments = grouped(moment)
    # No rank can leave before the last one enters; if one still does, its clock is still off.
    is_left = moments.largest(start - shift) > moments.smallest(end - shift)
    impossible = is_left[moments.number]
    most = pd.Series(impossible).groupby(rank).mean().to_numpy() > 0.5
    shortest = pd.Series(used["transfer_min_ns"].to_numpy("int64")).groupby(rank).min().to_numpy()
    far = np.abs(fitted.offset) > shortest
    apart = np.full(len(number), fitted.clock.max() > 0)
    uncertain = table["residual_ns"].to_numpy("float64", na_value=np.nan)
    shifted = could_be_shifted(used, fitted, rank.astype(np.int64), uncertain)
    other_steps = _is_whole_steps(used, fitted.offset) & ~shifted
    doubts = {_TOO_FEW: ~enough, _STILL_OFF: most, _SHIFTED: shifted, _WAS_OFF: far, _APART: apart,
              _OTHER_STEPS: other_steps}  # fmt: skip
    by_rank = zip(*(doubtful.tolist() for doubtful in doubts.values()), strict=True)
    table["note"] = ["; ".join(compress(doubts, doubtful)) or None for doubtful in by_rank]
    return table.assign(is_sure=enough & ~most & ~shifted & ~other_steps)


def _names_of(rank: Ints, clock: Ints) -> list[str | None]:
    names: dict[int, str] = {}
    for number in np.unique(clock).tolist():
        members = rank[clock == number]
        runs = np.split(members, np.flatnonzero(np.diff(members) != 1) + 1)
        names[number] = ", ".join(
            f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs
        )
    return [names[number] for number in clock.tolist()]


def _largest_two(group: Ints, values: Ints) -> tuple[Ints, Ints]:
    order = np.lexsort((-values, group))
    bounds = np.flatnonzero(np.append(True, np.diff(group[order]) > 0)[: len(order)])
    ordered = values[order]
    return ordered[bounds], ordered[np.minimum(bounds + 1, len(order) - 1)]


def _us(time_ns: int) -> str:
    return f"{time_ns / 1000:,.3g} µs"


Floats = NDArray[np.float64]

# At most: the loop ends when no offset moves by a nanosecond.
_ROUNDS = 10
# The median absolute deviation times this is the standard deviation of normal noise.
_NORMAL = 1.4826


class Moments(NamedTuple):
    """Times at which several ranks recorded the same moments: one entry per moment and rank."""

    moment: Ints  # number of the moment, from 0
    rank: Ints  # number of the rank, from 0
    time: Ints  # when it was on the clock of the rank [ns]


class Offsets(NamedTuple):
    """Corrections to subtract from each rank's clock, one entry per rank."""

    clock: Ints  # number of the common clock; ranks that no moments join have different ones
    offset: Ints  # offset from that clock [ns]; 0 for the median rank
    left: Floats  # what the offsets leave of the differences [ns], one entry per moment and rank


def offsets(moments: Moments) -> Offsets:
    """Find the offsets with which ranks agree best about when the moments were.

    Notes
    -----
    Moments with the same ranks are taken together: the offset of rank r inside them is the median
    over moments of its time minus the median time of all ranks, iterated once with the offsets
    found. Where sets of ranks overlap, ``sum w (d - o - t)^2`` over sets and ranks is minimised,
    with d the offset inside the set, o that of the rank, t that of the set and w the number of
    moments; w is lowered where the misfit exceeds the median misfit (Huber), until nothing changes
    by a nanosecond.
    """
    count = int(moments.rank.max()) + 1
    # Clocks may be years apart: floats hold what is left beyond each rank's first moment.
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, moments.rank, moments.time)
    since = (moments.time - first[moments.rank]).astype(np.float64)
    sets = _sets(moments)
    clock = _connected(sets, count)
    inside = [
        (ranks, _inside(since[rows].reshape(-1, len(ranks))), len(rows) // len(ranks))
        for ranks, rows in sets
    ]
    relative = _solved(inside, clock)
    corrected = since - relative[moments.rank]
    middle = pd.Series(corrected).groupby(moments.moment).transform("median").to_numpy()
    # The first moment of each rank is not a common one, so it goes back into the offset.
    offset = _centred(first, np.rint(relative).astype(np.int64), clock)
    return Offsets(clock, offset, corrected - middle)


def joined(moments: Moments) -> Ints:
    """Enumerate groups of ranks that moments join, directly or through others."""
    return _connected(_sets(moments), int(moments.rank.max(initial=-1)) + 1)


def spread(left: Floats, time: Ints) -> int:
    """Return the robust standard deviation of differences [ns].

    Whole microseconds, as profilers wrote them until 2024, hide half a microsecond.
    """
    # Differences, since an epoch base adds nanoseconds that are the same in all stamps.
    coarse = bool(((time - time[0]) % 1000 == 0).all())
    return max(int(np.ceil(_NORMAL * np.median(np.abs(left)))), 500 if coarse else 0)


def drift(left: Floats, time: Ints) -> float | None:
    """Return by how much differences grow with time; None if it cannot be told from none.

    Notes
    -----
    A line is laid through the medians of the first and the last third. Their distance has to exceed
    3 of its standard errors, ``1.25 s sqrt(6 / n)``, with s the robust standard deviation around
    the line and n the number of differences, at least 9.
    """
    # Outliers move a median less than a fitted line, and ends of a trace are where they gather.
    third = len(left) // 3
    if third < 3:
        return None
    order = np.argsort(time, kind="stable")
    moment = (time[order] - time[order[0]]).astype(np.float64)
    value = left[order]
    run = float(np.median(moment[-third:]) - np.median(moment[:third]))
    rise = float(np.median(value[-third:]) - np.median(value[:third]))
    if run == 0:
        return None
    slope = rise / run
    around = value - slope * moment
    noise = _NORMAL * float(np.median(np.abs(around - np.median(around))))
    return slope if abs(rise) > 3 * 1.25 * noise * np.sqrt(6 / len(left)) else None


# Moments with the same ranks are solved together: their offsets are plain medians.
def _sets(moments: Moments) -> list[tuple[Ints, Ints]]:
    order = np.lexsort((moments.rank, moments.moment))
    moments_rows = np.split(order, np.flatnonzero(np.diff(moments.moment[order])) + 1)
    by_ranks: dict[bytes, list[Ints]] = {}
    for rows in moments_rows:
        by_ranks.setdefault(moments.rank[rows].tobytes(), []).append(rows)
    return [(moments.rank[rows[0]], np.concatenate(rows)) for rows in by_ranks.values()]


def _connected(sets: list[tuple[Ints, Ints]], count: int) -> Ints:
    # Connected components: the lowest rank spreads through every set until nothing changes.
    lowest = np.arange(count)
    before = lowest - 1
    while (before != lowest).any():
        before = lowest.copy()
        for ranks, _ in sets:
            lowest[ranks] = lowest[ranks].min()
    return grouped(lowest).number


# Alternating medians over ranks and moments (median polish), two rounds.
def _inside(times: Floats) -> Floats:
    offset = np.zeros(times.shape[1])
    for _ in range(2):
        middle = np.median(times - offset, axis=1, keepdims=True)
        offset = np.median(times - middle, axis=0)
    return offset


def _solved(inside: list[tuple[Ints, Floats, int]], clock: Ints) -> Floats:
    offset = np.zeros(len(clock))
    weights = [np.full(len(ranks), float(count)) for ranks, _, count in inside]
    same = (clock[:, None] == clock[None, :]).astype(np.float64)
    for _ in range(_ROUNDS):
        # Only differences of offsets are known. The ones added for ranks of one clock make
        # their sum zero, and with that the equations have one solution.
        matrix, right = same.copy(), np.zeros(len(clock))
        for (ranks, value, _), weight in zip(inside, weights, strict=True):
            share = weight / weight.sum()
            matrix[np.ix_(ranks, ranks)] += np.diag(weight) - np.outer(weight, share)
            right[ranks] += weight * (value - share @ value)
        solution = np.linalg.solve(matrix, right)
        moved = np.abs(solution - offset).max()
        offset = solution
        if moved < 1:
            break
        misfits = _misfits(inside, weights, offset)
        usual = max(float(np.median(np.concatenate(misfits))), 1.0)
        weights = [
            count * np.minimum(1.0, usual / np.maximum(misfit, 1.0))
            for (_, _, count), misfit in zip(inside, misfits, strict=True)
        ]
    return offset


# A common shift of a set says nothing of its ranks, so it is taken off.
def _misfits(
    inside: list[tuple[Ints, Floats, int]], weights: list[Floats], offset: Floats
) -> list[Floats]:
    misfits = []
    for (ranks, value, _), weight in zip(inside, weights, strict=True):
        apart = value - offset[ranks]
        misfits.append(np.abs(apart - weight @ apart / weight.sum()))
    return misfits


def _centred(first: Ints, relative: Ints, clock: Ints) -> Ints:
    offset = np.zeros(len(clock), dtype=np.int64)
    for number in range(int(clock.max(initial=-1)) + 1):
        ranks = np.flatnonzero(clock == number)
        absolute = (first[ranks] - first[ranks[0]]) + relative[ranks]
        offset[ranks] = absolute - np.sort(absolute)[(len(ranks) - 1) // 2]
    return offset


# A trace that begins a collective later shifts the order of its rank. If collectives come as
# regularly as ends agree, that looks like a clock that is off by the time between two.
_MOST = 1_000  # of each process group; more tell no more
# Two ranks share a difference between them, so each has half of it; and twice that for chance.
_CLEARLY = 4.0
_OF_A_STEP = 0.02


def best_matched(used: pd.DataFrame) -> pd.DataFrame:
    """Leave out what order alone matched, where numbers or steps join the same ranks."""
    sure = used["is_fixed"]
    if sure.all() or not sure.any():
        return used
    team = _parts(used)
    moments = grouped(pd.factorize(used["collective"])[0].astype(np.int64))
    inside = (moments.largest(team) == moments.smallest(team))[moments.number]
    kept: pd.DataFrame = used[sure.to_numpy() | ~inside]
    return kept


def _is_fixed(table: pd.DataFrame) -> pd.Series:
    """Say of each row whether a number, or the step, fixes which rows of other ranks match it."""
    lanes = table.groupby(["rank", "group", "step"], observed=True)["start_ns"]
    rows = table[["collective", "step"]].assign(count=lanes.transform("size"))
    rows = rows.astype("float64").fillna(MISSING)
    by_collective = rows.groupby("collective")[["step", "count"]]
    is_alike = (by_collective.transform("min") == by_collective.transform("max")).all(axis=1)
    return (table["confidence"] == "high") | (is_alike & (rows["step"] != MISSING))


def _is_whole_steps(used: pd.DataFrame, offset: Ints) -> NDArray[np.bool_]:
    """Say of which ranks the clock seems off by whole steps, where only steps fix the match."""
    by_step = used[used["is_fixed"] & (used["confidence"] != "high")]
    starts = by_step.groupby(["rank", "step"])["start_ns"].min().groupby("rank").diff()
    period = float(starts.median()) if starts.notna().any() else np.inf
    steps = np.abs(offset) / period
    return (steps > 0.5) & (np.abs(steps - np.rint(steps)) < _OF_A_STEP)


def could_be_shifted(
    used: pd.DataFrame, fitted: Offsets, rank: Ints, residual: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return for each rank whether its offset could be a shift of the order instead.

    ``rank`` is the number of the rank of each row of ``used``, from 0; ``residual`` the uncertainty
    of each rank's clock [ns], NaN if not known.

    Notes
    -----
    A rank is beyond doubt if sequence numbers or steps matched its collectives with those of the
    other ranks; if its offset is 0 as far as clocks agree, for a shift would have to be cancelled
    by a clock; or if, in one of its process groups, no shift by k collectives of the same
    operations fits: the time from one end to the k-th after it varies by more than 4 times the
    residual. Ranks that these join stand for each other.
    """
    by_order = ~used["is_fixed"].to_numpy()
    clock_of = fitted.clock[rank]
    doubtful = np.isin(fitted.clock, clock_of[by_order])
    typical = pd.Series(residual).groupby(fitted.clock).transform("median").fillna(0).to_numpy()
    agree = 2 * (np.nan_to_num(residual) + typical)
    fine = ~doubtful | (np.abs(fitted.offset) <= agree)
    team = np.zeros(len(fine), dtype=np.int64)
    team[rank] = _parts(used)
    if not _any_of(fine, team).all():
        fine[_refuted(used[by_order], fitted, rank[by_order], fitted.left[by_order])] = True
    return ~_any_of(fine, team)


# Ranks joined otherwise than by order stand for each other: a shift would have to move them all.
def _parts(used: pd.DataFrame) -> Ints:
    number, rank = np.unique(used["rank"].to_numpy(), return_inverse=True)
    sure = used["is_fixed"].to_numpy()
    count = np.bincount(rank[sure], minlength=len(number))
    kept = sure & (count[rank] >= _FEWEST)
    team = np.arange(len(number)) + len(used)
    if kept.any():
        moment = pd.factorize(used["collective"][kept])[0].astype(np.int64)
        of_rank = rank[kept].astype(np.int64)
        shared = joined(Moments(moment, of_rank, np.zeros_like(of_rank)))
        team[np.unique(of_rank)] = shared[np.unique(of_rank)]
    return team[rank]


def _any_of(fine: NDArray[np.bool_], team: Ints) -> NDArray[np.bool_]:
    return pd.Series(fine).groupby(team).transform("any").to_numpy()


def _refuted(
    used: pd.DataFrame, fitted: Offsets, rank: Ints, left: NDArray[np.float64]
) -> NDArray[np.int64]:
    end = (used["start_ns"] + used["dur_ns"]).to_numpy()
    rows = pd.DataFrame(
        {
            "group": used["group"].astype(str).to_numpy(),
            "collective": used["collective"].to_numpy("int64"),
            "operation": pd.factorize(used["operation"])[0],
            "rank": rank,
            "end": end,
            "corrected": end - fitted.offset[rank],
            "left": left,
        }
    )
    members = rows.groupby("collective")["rank"].agg(lambda ranks: str(sorted(ranks)))
    rows["members"] = rows["collective"].map(members)
    fine: list[int] = []
    for _, group in rows.groupby(["group", "members"]):
        # Relative to the first, so that medians of times since 1970 stay exact.
        since = group.assign(since=group["corrected"] - group["corrected"].min())
        collectives = since.groupby("collective")
        middle = collectives.agg(time=("since", "median"), operation=("operation", "first"))
        middle = middle.sort_values("time", kind="stable").iloc[:_MOST]
        least = _least_spread(middle["time"].to_numpy(), middle["operation"].to_numpy())
        fine += [
            int(of_rank["rank"].iloc[0])
            for _, of_rank in group.groupby("rank")
            if least > _CLEARLY * spread(of_rank["left"].to_numpy(), of_rank["end"].to_numpy())
        ]
    return np.unique(np.array(fine, dtype=np.int64))


# Of all shifts the least regular time decides, so that a rank is called sure only if no shift fits.
def _least_spread(time: NDArray[np.float64], operation: Ints) -> float:
    if len(time) < _FEWEST:
        return 0.0
    least = np.inf
    for k in range(1, max(len(time) - _FEWEST, 1) + 1):
        if (operation[k:] == operation[:-k]).all():
            gap = time[k:] - time[:-k]
            least = min(least, _NORMAL * float(np.median(np.abs(gap - np.median(gap)))))
    return least
