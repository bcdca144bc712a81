"""Lanes of a timeline and the few rectangles that stand for millions of events in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.profiler_steps import is_step_name

# At 20 px each they fill a screen; further ones could only be seen by scrolling.
MAX_LANES = 40
KIND_ORDER = ("compute", "communication", "memory", "other", "operator", "runtime call")

_RUNTIME = (
    "cuda_runtime", "cuda_driver", "mtia_runtime", "xpu_runtime", "xpu_driver",
    "privateuse1_runtime", "privateuse1_driver", "glow_runtime",
)  # fmt: skip
_HOST = ("cpu_op", "user_annotation", "python_function")
_PLACE = ["rank", "process", "thread", "device", "stream"]
# Before any time: the first row of a thread has no end before it.
_NEVER = np.iinfo(np.int64).min
_COMBINED = {"busy_ns": np.add, "count": np.add, "start_ns": np.minimum, "end_ns": np.maximum}
_ITEM = ["lane", "kind", "start_ns", "end_ns", "busy_ns", "count", "longest_ns", "row"]


def lanes_of(events: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Sort what is worth drawing into lanes: GPU streams and CPU threads.

    A stream holds its GPU work. A thread holds its outermost operators and annotations
    and, below them, its calls of the GPU runtime. At most :data:`MAX_LANES` lanes are
    kept: streams before threads, then in order of rank.

    Returns
    -------
    tuple of two pandas.DataFrame
        The items, one row each: ``lane``, ``kind``, ``start_ns``, ``end_ns``,
        ``busy_ns``, ``count`` (1), ``longest_ns``, ``row`` (label in ``events``).
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
            "longest_ns": events["dur_ns"].to_numpy()[drawn],
            "row": drawn,
        }
    )
    keys = _lane_keys(events[_PLACE].iloc[drawn], stream[drawn])
    lanes = _ordered(keys, threads=events["thread"].cat.categories)
    items["lane"] = lanes["lane"].to_numpy(dtype=np.float64, na_value=np.nan)[keys["code"]]
    if lanes["lane"].isna().any():
        items = items[items["lane"].notna()]
    items = items.astype({"lane": "int64"})
    items = items.assign(
        end_ns=items["start_ns"] + items["longest_ns"], busy_ns=items["longest_ns"], count=1
    )
    return items[_ITEM].reset_index(drop=True), lanes


def merged(items: pd.DataFrame, *, start_ns: int, end_ns: int, limit: int) -> pd.DataFrame:
    """Reduce the items between two times to at most about ``limit`` rectangles.

    Time is cut into bins, doubled in width until few enough rectangles are left. An
    item as long as a bin, alone in its bin, or among the longest ``limit / 10`` stays
    itself. The others of one bin become one rectangle per kind that spans them all, is
    as high as their busy share, and remembers how many they are and the longest.

    Returns
    -------
    pandas.DataFrame
        The item columns plus ``bottom_share`` and ``height_share``, the part of the
        lane's height that the rectangle takes: area is busy time.
    """
    inside = (items["end_ns"] >= start_ns) & (items["start_ns"] <= end_ns)
    view = items[inside]
    view = view.assign(
        start_ns=view["start_ns"].clip(lower=start_ns),
        end_ns=view["end_ns"].clip(upper=end_ns),
        bottom_share=0.0,
        height_share=1.0,
    )
    view["busy_ns"] = view["end_ns"] - view["start_ns"]
    keep = view["longest_ns"].nlargest(max(limit // 10, 1) if len(view) > limit else 0).index
    kept, short = view.loc[keep], view.drop(index=keep)
    # As if every bin of every lane held one rectangle; wider ones only where that is too many.
    width = max((end_ns - start_ns) * view["lane"].nunique() // max(limit, 1), 1)
    while len(kept) + len(short) > limit and width < 2 * max(end_ns - start_ns, 1):
        short = _coarser(short, start_ns=start_ns, width_ns=width)
        width *= 2
    return pd.concat([short, kept]).sort_values(["lane", "start_ns"], ignore_index=True)


def _coarser(items: pd.DataFrame, *, start_ns: int, width_ns: int) -> pd.DataFrame:
    """Merge what is shorter than a bin of ``width_ns`` with its neighbours in the bin."""
    bins = (items["start_ns"].to_numpy() - start_ns) // width_ns
    # A thread has two bands, operators above calls, and bars of one must not swallow the other.
    bands = items["lane"].to_numpy() * 2 + (items["kind"] == KIND_ORDER.index("runtime call"))
    cells = (bands * (bins.max(initial=0) + 1) + bins).to_numpy()
    is_short = (items["end_ns"] - items["start_ns"] < width_ns).to_numpy()
    fellows = np.bincount(cells, weights=is_short, minlength=1)[cells]
    to_merge = np.flatnonzero(is_short & (fellows > 1))
    if not len(to_merge):
        return items
    order = to_merge[
        np.lexsort(
            (
                items["longest_ns"].to_numpy()[to_merge],
                items["kind"].to_numpy()[to_merge],
                cells[to_merge],
            )
        )
    ]
    bars = _summed(items.iloc[order], cells[order])
    alone = np.ones(len(items), dtype=bool)
    alone[to_merge] = False
    return pd.concat([items[alone], bars])


def _summed(items: pd.DataFrame, cells: NDArray[np.int64]) -> pd.DataFrame:
    """Make one bar per cell and kind from items in order of cell, kind and duration."""
    kinds = items["kind"].to_numpy()
    starts = np.flatnonzero((np.diff(cells, prepend=-1) != 0) | (np.diff(kinds, prepend=-1) != 0))
    # Items of one bar are in order of duration, so the last of them is the longest.
    longest = np.append(starts[1:], len(items)) - 1
    bars = items.iloc[longest].assign(
        **{
            name: combine.reduceat(items[name].to_numpy(), starts)
            for name, combine in _COMBINED.items()
        }
    )
    cell = cells[longest]
    bars["start_ns"] = bars["start_ns"].groupby(cell).transform("min")
    bars["end_ns"] = bars["end_ns"].groupby(cell).transform("max")
    share = bars["busy_ns"] / (bars["end_ns"] - bars["start_ns"]).clip(lower=1)
    share /= share.groupby(cell).transform("sum").clip(lower=1.0)
    return bars.assign(height_share=share, bottom_share=share.groupby(cell).cumsum() - share)


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
    """Give each distinct combination of some integer columns a number, counted from 0."""
    numbers = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        codes, values = pd.factorize(np.asarray(column), sort=True)
        numbers = pd.factorize(numbers * max(len(values), 1) + codes, sort=True)[0]
    return numbers


def _lane_keys(rows: pd.DataFrame, is_stream: NDArray[np.bool_]) -> pd.DataFrame:
    """Give each row the lane it belongs to, as sortable columns and a number."""
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


def _ordered(keys: pd.DataFrame, *, threads: pd.Index) -> pd.DataFrame:
    """List the lanes in order of rank, streams before threads, and number those kept."""
    lanes = keys.drop_duplicates("code").sort_values("code").reset_index(drop=True)
    devices = lanes[lanes["place"] == 0].groupby("rank")["device"].nunique()
    several = lanes["rank"].map(devices).fillna(0) > 1
    lanes["label"] = [
        f"{f'GPU {device} ' if many else ''}{_stream(number)}"
        if place == 0
        else f"thread {threads[thread]}"
        for place, device, number, thread, many in zip(
            lanes["place"], lanes["device"], lanes["number"], lanes["thread"], several, strict=True
        )
    ]
    kept = lanes.sort_values(["place", "code"]).index[:MAX_LANES].sort_values()
    lanes["lane"] = pd.Series(range(len(kept)), index=kept, dtype="Int64").reindex(lanes.index)
    return lanes[["rank", "label", "lane"]]


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
