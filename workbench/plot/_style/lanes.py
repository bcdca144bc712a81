"""Lanes of a timeline and the few rectangles that stand for millions of events in them."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.profiler_steps import is_step_name

Ints: TypeAlias = NDArray[np.int64]

# At 20 px each they fill a screen; further ones could only be seen by scrolling.
MAX_LANES = 40
# A thread named by a hash is told apart by its end.
_LONG_ID = re.compile(r"-?\d{12,}")
KIND_ORDER = ("compute", "communication", "memory", "other", "operator", "runtime call")

_RUNTIME = (
    "cuda_runtime", "cuda_driver", "mtia_runtime", "xpu_runtime", "xpu_driver",
    "privateuse1_runtime", "privateuse1_driver", "glow_runtime",
)  # fmt: skip
_HOST = ("cpu_op", "user_annotation", "python_function")
_PLACE = ["rank", "process", "thread", "device", "stream"]
# Before any time: the first row of a thread has no end before it.
_NEVER = np.iinfo(np.int64).min
# Long items are looked for among so many of the longest before all are asked.
_MANY = 50_000
_ITEM = ["lane", "kind", "start_ns", "end_ns", "busy_ns", "count", "longest_ns", "row"]


def lanes_of(
    events: pd.DataFrame, first_rank: int | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Sort what is worth drawing into lanes: GPU streams and CPU threads.

    A stream holds its GPU work. A thread holds its outermost operators and annotations
    and, below them, its calls of the GPU runtime. At most :data:`MAX_LANES` lanes are
    kept: streams before threads, then in order of rank. ``first_rank`` is drawn above the others.

    Returns
    -------
    tuple of two pandas.DataFrame
        The items, one row each: ``lane``, ``kind``, ``start_ns``, ``end_ns``, ``row`` (position
        in ``events``).
        And all lanes in drawing order: ``rank``, ``label``, ``lane`` (missing where
        it was dropped).
    """
    stream = events["kind"].notna().to_numpy()
    runtime = events["category"].isin(_RUNTIME).to_numpy() & ~stream
    host = _outermost(events, events["category"].isin(_HOST).to_numpy() & ~stream)
    drawn = np.flatnonzero(stream | runtime | host)
    items = pd.DataFrame(
        {
            "kind": np.select(
                [stream[drawn], runtime[drawn]],
                [_codes(events["kind"].iloc[drawn]), KIND_ORDER.index("runtime call")],
                KIND_ORDER.index("operator"),
            ),
            "start_ns": events["start_ns"].to_numpy()[drawn],
            "end_ns": (events["start_ns"] + events["dur_ns"]).to_numpy()[drawn],
            "row": drawn,
        }
    )
    keys = _lane_keys(events[_PLACE].iloc[drawn], stream[drawn])
    lanes = _ordered(keys, threads=events["thread"].cat.categories, first_rank=first_rank)
    of_code = lanes["lane"].sort_index().to_numpy(dtype=np.float64, na_value=np.nan)
    items["lane"] = of_code[keys["code"]]
    if lanes["lane"].isna().any():
        items = items[items["lane"].notna()]
    return items.astype({"lane": "int64"}).reset_index(drop=True), lanes


class Indexed(NamedTuple):
    """Items in sorted arrays, of which any window is drawn without touching what lies outside.

    A band is the items of one lane and kind. Positions count in order of band and start.
    """

    lane: Ints  # of every band
    kind: Ints
    first: Ints  # position of the first item of every band, and one after the last band
    start_ns: Ints
    end_ns: Ints
    reach_ns: Ints  # latest end in the band up to here
    busy_ns: Ints  # busy time that each item adds to its band, summed before it
    rank: NDArray[np.int32]  # place in order of duration, so that the largest is the longest
    of_rank: NDArray[np.int32]
    row: Ints


def indexed(items: pd.DataFrame) -> Indexed:
    """Sort the items of lanes once, for :func:`merged`."""
    lane, kind, start, end = (
        items[name].to_numpy(dtype=np.int64) for name in ("lane", "kind", "start_ns", "end_ns")
    )
    order = np.lexsort((-end, start, kind, lane))
    lane, kind, start, end = lane[order], kind[order], start[order], end[order]
    is_new = (np.diff(lane, prepend=-1) != 0) | (np.diff(kind, prepend=-1) != 0)
    first = np.append(np.flatnonzero(is_new), len(order))
    reach = np.empty_like(end)
    for low, high in pairwise(first.tolist()):
        reach[low:high] = np.maximum.accumulate(end[low:high])
    before = np.where(is_new, start, np.maximum(np.roll(reach, 1), start))
    busy = np.append(0, np.maximum(end - before, 0).cumsum())
    of_rank = np.argsort(end - start, kind="stable").astype(np.int32)
    rank = np.empty_like(of_rank)
    rank[of_rank] = np.arange(len(order), dtype=np.int32)
    row = items["row"].to_numpy(dtype=np.int64)[order]
    at = first[:-1]
    return Indexed(lane[at], kind[at], first, start, end, reach, busy, rank, of_rank, row)


def merged(index: Indexed, *, start_ns: int, end_ns: int, limit: int) -> pd.DataFrame:
    """Reduce the items between two times to at most about ``limit`` rectangles.

    Time is cut into bins, doubled in width until few enough rectangles are left. An item as long
    as a bin, alone in its bin, or cut by the window stays itself. The others of one bin become one
    rectangle per kind that spans them all, is as high as their busy share, and remembers how many
    they are and the longest.

    Returns
    -------
    pandas.DataFrame
        The item columns plus ``bottom_share`` and ``height_share``, the part of the lane's height
        that the rectangle takes: area is busy time. ``busy_ns`` counts what overlaps in a lane and
        kind once, so that its sum is the time that they are busy within the window.
    """
    span = max(end_ns - start_ns, 0) + 1
    width = max(span * len(np.unique(index.lane)) // max(limit, 1), 1)
    views = [_view(index, band, start_ns, end_ns) for band in range(len(index.lane))]
    views = [view for view in views if view.begin < view.stop or len(view.cut)]
    long = _long(index, views, width)
    while True:
        edges = start_ns + width * np.arange(-(-span // width) + 1)
        bounds = [view.begin + view.starts.searchsorted(edges) for view in views]
        if width >= 2 * span or len(long) + sum(map(_occupied, bounds)) <= limit:
            break
        width *= 2
        long = long[index.end_ns[long] - index.start_ns[long] >= width]
    window = (start_ns, end_ns)
    bars = [_drawn(index, *pair, long, window) for pair in zip(views, bounds, strict=True)]
    return _stacked(np.concatenate([np.zeros((9, 0), dtype=np.int64), *bars], axis=1))


class _View(NamedTuple):
    """The part of a band that lies in a window."""

    band: int
    begin: int  # first position that starts in the window
    stop: int  # one after the last
    cut: Ints  # positions of items that an end of the window cuts
    starts: Ints


def _view(index: Indexed, band: int, start_ns: int, end_ns: int) -> _View:
    low, high = int(index.first[band]), int(index.first[band + 1])
    starts, reach = index.start_ns[low:high], index.reach_ns[low:high]
    begin = low + int(starts.searchsorted(start_ns))
    stop = low + int(starts.searchsorted(end_ns, side="right"))
    # Before these positions nothing reaches into the window, or out of it.
    inward, outward = low + reach.searchsorted([start_ns, end_ns], side="right")
    left = np.arange(min(inward, begin), begin)
    right = np.arange(min(max(outward, begin), stop), stop)
    cut = [left[index.end_ns[left] > start_ns], right[index.end_ns[right] > end_ns]]
    return _View(band, begin, stop, np.concatenate(cut), index.start_ns[begin:stop])


def _long(index: Indexed, views: list[_View], width: int) -> Ints:
    """Return the items in the window that are as long as a bin, in order of position."""
    # Few items are in a narrow window, and few are long where the bins are wide.
    durations = index.end_ns[index.of_rank[-_MANY:]] - index.start_ns[index.of_rank[-_MANY:]]
    if len(durations) and durations[0] < width:
        return np.sort(index.of_rank[-_MANY:][durations.searchsorted(width) :]).astype(np.int64)
    pieces = [
        view.begin + np.flatnonzero(index.end_ns[view.begin : view.stop] - view.starts >= width)
        for view in views
    ]
    return np.concatenate([np.zeros(0, dtype=np.int64), *pieces])


def _occupied(bounds: Ints) -> int:
    return int(np.count_nonzero(bounds[1:] > bounds[:-1]))


def _drawn(index: Indexed, view: _View, bounds: Ints, long: Ints, window: tuple[int, int]) -> Ints:
    """Return the bars of one band, one column each: bin, and the columns of an item."""
    inside = long[long.searchsorted(view.begin) : long.searchsorted(view.stop)]
    own = np.union1d(view.cut, inside)
    used = np.flatnonzero(bounds[1:] > bounds[:-1])
    low, high = bounds[used], bounds[used + 1]
    # Own items, which are bars of themselves, are skipped.
    mine = own[own.searchsorted(view.begin) :]
    rank, end = (array[view.begin : view.stop].copy() for array in (index.rank, index.end_ns))
    rank[mine - view.begin], end[mine - view.begin] = -1, _NEVER
    longest = np.maximum.reduceat(rank, low - view.begin) if len(used) else rank[:0]
    taken = mine.searchsorted(high) - mine.searchsorted(low)
    rest = high - low - taken
    alone = index.of_rank[longest[rest == 1]]
    several = rest > 1
    summed = np.append(0, (index.busy_ns[mine + 1] - index.busy_ns[mine]).cumsum())
    busy = index.busy_ns[high] - index.busy_ns[low]
    busy -= summed[mine.searchsorted(high)] - summed[mine.searchsorted(low)]
    # The first position of a bin without own item: own ones in a row differ as their numbers do.
    before, number = mine.searchsorted(low), np.arange(len(mine))
    start = low + (mine - number).searchsorted(low - before, side="right") - before
    position = index.of_rank[longest[several]]
    shared = [
        used[several], index.start_ns[start[several]],
        (np.maximum.reduceat(end, low - view.begin) if len(used) else end)[several],
        busy[several], rest[several], position,
    ]  # fmt: skip
    own = np.union1d(own, alone)
    cut_at = [np.clip(array[own], *window) for array in (index.start_ns, index.end_ns)]
    band_start = own == index.first[view.band]
    reach = np.where(band_start, cut_at[0], index.reach_ns[own - 1])
    mine_ns = np.maximum(cut_at[1] - np.maximum(cut_at[0], reach), 0)
    single = [np.full_like(own, -1), *cut_at, mine_ns, np.ones_like(own), own]
    both = np.concatenate([np.array(single), np.array(shared)], axis=1).astype(np.int64)
    position = both[-1]
    length = index.end_ns[position] - index.start_ns[position]
    lane, kind = (np.full(len(length), array[view.band]) for array in (index.lane, index.kind))
    return np.array([lane, kind, *both[:-1], length, index.row[position]])


def _stacked(bars: Ints) -> pd.DataFrame:
    """Lay the kinds of one bin above each other, each as high as it is busy."""
    names = ["lane", "kind", "bin", "start_ns", "end_ns", "busy_ns", "count", "longest_ns", "row"]
    table = pd.DataFrame(dict(zip(names, bars, strict=True))).sort_values(
        ["lane", "start_ns", "kind"], ignore_index=True
    )
    table = table.assign(bottom_share=0.0, height_share=1.0)
    shared = table[table["bin"] >= 0].sort_values("kind", kind="stable")
    # A thread has two bands, operators above calls, and bars of one must not swallow the other.
    cell = [shared["lane"], shared["kind"] == KIND_ORDER.index("runtime call"), shared["bin"]]
    start = shared["start_ns"].groupby(cell).transform("min")
    end = shared["end_ns"].groupby(cell).transform("max")
    share = shared["busy_ns"] / (end - start).clip(lower=1)
    share /= share.groupby(cell).transform("sum").clip(lower=1.0)
    new = {"start_ns": start, "end_ns": end, "height_share": share}
    new["bottom_share"] = share.groupby(cell).cumsum() - share
    for name, values in new.items():
        table.loc[shared.index, name] = values
    return table[[*_ITEM, "bottom_share", "height_share"]]


def _outermost(events: pd.DataFrame, wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Of the wanted rows of each thread, mark those that no other one encloses."""
    rows = np.flatnonzero(wanted & (events["dur_ns"].to_numpy() > 0))
    host = events[["rank", "start_ns", "dur_ns", "name", "process", "thread"]].iloc[rows]
    steps = np.array([is_step_name(str(name)) for name in host["name"].cat.categories])
    is_step = steps[host["name"].cat.codes] if len(steps) else np.zeros(len(rows), dtype=bool)
    rows, host = rows[~is_step], host[~is_step]
    threads = _group_numbers(
        host["rank"].to_numpy(), host["process"].cat.codes, host["thread"].cat.codes
    )
    ends = (host["start_ns"] + host["dur_ns"]).to_numpy()
    before = pd.Series(ends).groupby(threads).cummax().groupby(threads).shift(fill_value=_NEVER)
    result = np.zeros(len(events), dtype=bool)
    result[rows[host["start_ns"].to_numpy() >= before.to_numpy()]] = True
    return result


def _codes(kinds: pd.Series) -> NDArray[np.int64]:
    """Turn kinds of GPU work into their place in the drawing order; unheard-of ones are other."""
    other = KIND_ORDER.index("other")
    positions = [
        KIND_ORDER.index(kind) if kind in KIND_ORDER else other for kind in kinds.cat.categories
    ]
    return np.asarray([*positions, other], dtype=np.int64)[kinds.cat.codes]


def _group_numbers(*columns: Any) -> NDArray[np.int64]:
    """Enumerate the distinct combinations of some integer columns, counted from 0."""
    numbers = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        codes, values = pd.factorize(np.asarray(column), sort=True)
        numbers = pd.factorize(numbers * max(len(values), 1) + codes, sort=True)[0]
    return numbers


def _lane_keys(rows: pd.DataFrame, is_stream: NDArray[np.bool_]) -> pd.DataFrame:
    """Add to each row the lane it belongs to, as sortable columns and a number."""
    place = np.where(is_stream, 0, 1)
    device = np.where(is_stream, rows["device"].fillna(-1).to_numpy(dtype=np.int64), -1)
    number = np.where(
        is_stream,
        rows["stream"].fillna(-1).to_numpy(dtype=np.int64),
        _group_numbers(rows["process"].cat.codes, rows["thread"].cat.codes),
    )
    keys = pd.DataFrame(
        {"rank": rows["rank"].to_numpy(), "place": place, "device": device, "number": number}
    )
    keys["thread"] = rows["thread"].cat.codes.to_numpy()
    keys["code"] = _group_numbers(keys["rank"], keys["place"], keys["device"], keys["number"])
    return keys


def _ordered(keys: pd.DataFrame, *, threads: pd.Index, first_rank: int | None) -> pd.DataFrame:
    """List the lanes in order of rank, streams before threads, and number those kept.

    The index is the code of a lane.
    """
    lanes = keys.drop_duplicates("code").sort_values("code").reset_index(drop=True)
    devices = lanes[lanes["place"] == 0].groupby("rank")["device"].nunique()
    several = lanes["rank"].map(devices).fillna(0) > 1
    lanes["label"] = [
        f"{f'GPU {device} ' if many else ''}{_stream(number)}"
        if place == 0
        else f"thread {_LONG_ID.sub(_end, str(threads[thread]))}"
        for place, device, number, thread, many in zip(
            lanes["place"], lanes["device"], lanes["number"], lanes["thread"], several, strict=True
        )
    ]
    is_later = lanes["rank"] != first_rank
    lanes = lanes.assign(is_later=is_later).sort_values(["is_later", "code"])
    kept = lanes.sort_values(["place", "is_later", "code"]).index[:MAX_LANES]
    kept = lanes.index[lanes.index.isin(kept)]
    lanes["lane"] = pd.Series(range(len(kept)), index=kept, dtype="Int64").reindex(lanes.index)
    return lanes[["rank", "label", "lane"]]


def _end(number: re.Match[str]) -> str:
    return f"…{number[0][-4:]}"


def _stream(number: int) -> str:
    return f"stream {number}" if number >= 0 else "stream unknown"


# Fewer points that look the same: every bucket keeps its lowest and its highest.

MAX_POINTS = 5_000


def extremes(values: NDArray[Any], limit: int = MAX_POINTS) -> NDArray[np.int64]:
    """Choose the positions of a series that a line through it must not lose.

    The series is cut into buckets of equal length and each gives its lowest and its highest value,
    in the order they occur; the first and the last point stay. So no peak or dip can vanish,
    however narrow, which an every-n-th rule or a mean would not promise. A missing value (NaN)
    is chosen only where a whole bucket is missing, so that a gap stays a gap. Returns at most
    ``limit`` (4 or more) increasing positions, all of a series that is short enough.
    """
    if limit < 4:
        msg = f"limit is {limit}, but a bucket needs two points and the ends two more"
        raise ValueError(msg)
    count = len(values)
    if count <= limit:
        return np.arange(count, dtype=np.int64)
    # Rounded up, so that the buckets are never more than the limit allows.
    width = -(-count // ((limit - 2) // 2))
    numbers = np.asarray(values, dtype=np.float64)
    low, high = np.where(np.isnan(numbers), [[np.inf], [-np.inf]], numbers)
    missing = -count % width
    low = np.pad(low, (0, missing), constant_values=np.inf)
    high = np.pad(high, (0, missing), constant_values=-np.inf)
    starts = np.arange(0, count, width)
    lowest = starts + low.reshape(-1, width).argmin(axis=1)
    highest = starts + high.reshape(-1, width).argmax(axis=1)
    return np.unique(np.r_[0, lowest, highest, count - 1].astype(np.int64))
