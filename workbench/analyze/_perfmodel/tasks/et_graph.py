"""Execution traces as graphs of tasks: who must be done before whom, and how long each takes."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.tables import DEPENDENCIES, NODE_TIMES, NODES, TASK_EDGES, TASKS, TaskGraph

Ints = NDArray[np.int64]

Control = Literal["callers", "dependencies"]
_MISSING = -1
_MOST_LISTED = 8


class _Rank(NamedTuple):
    """The nodes of one rank in the order they are called, as positions."""

    nodes: pd.DataFrame
    caller: Ints
    """Position of the caller, -1 if none."""
    order: Ints
    """Positions in the order of calls: a caller, what it calls, its next sibling."""
    last: Ints
    """For each position, the position of the last call inside of it, or itself."""
    thread: NDArray[np.object_]
    is_gpu: NDArray[np.bool_]


def trace_tasks(
    nodes: pd.DataFrame,
    dependencies: pd.DataFrame,
    *,
    times: pd.DataFrame | None = None,
    control: Control | None = None,
) -> TaskGraph:
    """Turn an execution trace, of PyTorch or Chakra, into tasks and what each waits for.

    Parameters
    ----------
    nodes, dependencies
        Tables :data:`workbench.tables.NODES` and :data:`workbench.tables.DEPENDENCIES`.
    times
        Table :data:`workbench.tables.NODE_TIMES`, for traces that state no durations.
    control
        What control edges are: ``"callers"`` (a caller ends last; converters from PyTorch
        write them so) or ``"dependencies"``. By default they are callers if every node has
        at most one, they cover half of the nodes, and some node comes from PyTorch.

    Returns
    -------
    TaskGraph
        ``tasks`` (:data:`workbench.tables.TASKS`; ``event`` is the id of the node) and
        ``edges`` (:data:`workbench.tables.TASK_EDGES`). ``cyclic`` has the tasks that can
        never be done, and ``doubts`` say what is missing.

    Raises
    ------
    TableError
        If a frame does not fit its table.
    ValueError
        If ``control`` is neither.

    Notes
    -----
    On a CPU, tasks follow each other on their thread in the order they were called, callers
    before what they call (``thread order``, inferred). A task has the time of its own: of
    nodes of PyTorch, and of joined times, the time of the calls inside is taken off; nodes of
    Chakra state their own time. A dependency on a caller is one on the last call inside it.
    GPU work waits for its caller (``launch``) and for what it needs; a trace does not state
    streams, so nothing else keeps it in order. Edges between a caller and what is inside it
    are dropped: they cannot both end first.

    References
    ----------
    Chakra, arXiv 2305.14516; mlcommons/chakra: src/converter/pytorch_converter.py.
    """
    if control not in (None, "callers", "dependencies"):
        msg = f"control must be 'callers' or 'dependencies', not {control!r}"
        raise ValueError(msg)
    NODES.check(nodes, "nodes")
    DEPENDENCIES.check(dependencies, "dependencies")
    if times is not None:
        NODE_TIMES.check(times, "times")
    tasks, edges, doubts = [], [], []
    first = 0
    for rank, mine in nodes.groupby("rank", sort=True):
        needed = dependencies[dependencies["rank"] == rank]
        label = f"rank {rank}"
        kind = control or _control(mine, needed)
        ranked = _ranked(mine.sort_values("node", kind="stable"), needed, kind)
        durations, missing = _durations(ranked, times)
        tasks.append(_tasks(ranked, durations, first))
        edges.append(_edges(ranked, needed, kind, first))
        doubts += _doubts(label, needed, ranked, kind, missing)
        first += len(mine)
    every = TASKS.cast(_stacked(tasks)) if tasks else TASKS.empty()
    between = TASK_EDGES.cast(_stacked(edges)) if edges else TASK_EDGES.empty()
    between, cyclic, dropped = _acyclic(between, first)
    if dropped:
        doubts.append(f"{dropped:,} inferred edges contradict recorded ones and are dropped")
    if cyclic:
        ids = every["event"].iloc[list(cyclic[:_MOST_LISTED])].tolist()
        dots = ", ..." if len(cyclic) > _MOST_LISTED else ""
        listed = ", ".join(map(str, ids)) + dots
        doubts.append(f"{len(cyclic):,} nodes can never be done, they wait in circles: {listed}")
    return TaskGraph(TASKS.check(every), TASK_EDGES.check(between), cyclic, tuple(doubts))


def _control(nodes: pd.DataFrame, needed: pd.DataFrame) -> Control:
    """Tell what control edges mean, from how they look."""
    edges = needed[needed["edge"].astype(str) == "control"]
    is_tree = not edges["node"].duplicated().any() and 2 * len(edges) >= len(nodes)
    from_pytorch = nodes["record_function"].notna().any()
    return "callers" if len(edges) and is_tree and from_pytorch else "dependencies"


def _ranked(nodes: pd.DataFrame, needed: pd.DataFrame, kind: Control) -> _Rank:
    """Order the nodes of a rank as they were called, from their callers."""
    ids = nodes["node"].to_numpy()
    above = pd.Series(nodes["parent"].to_numpy(dtype="float64", na_value=np.nan), index=ids)
    above = above[~above.index.duplicated()]
    if kind == "callers":
        edges = needed[needed["edge"].astype(str) == "control"].drop_duplicates("node")
        stated = pd.Series(edges["needs"].to_numpy(dtype="float64"), index=edges["node"].to_numpy())
        above = above.fillna(stated)
    wanted = above.reindex(ids).to_numpy()
    caller = _positions(ids, wanted)
    # A caller comes first; anything else is damage and would make circles.
    caller[caller >= np.arange(len(ids))] = _MISSING
    thread = _threads(nodes, wanted, caller)
    is_gpu = ~nodes["is_cpu"].fillna(value=True).to_numpy(dtype=bool)
    order = _preorder(caller)
    last = np.arange(len(ids))
    for position in order[::-1].tolist():
        up = caller[position]
        if up != _MISSING and not is_gpu[position]:
            rank_of = last[position]
            last[up] = rank_of if last[up] == up else last[up]
    return _Rank(nodes, caller, order, last, thread, is_gpu)


def _positions(ids: Ints, wanted: NDArray[np.float64]) -> Ints:
    """Return where ids are, -1 for those that are missing."""
    order = np.argsort(ids, kind="stable")
    found = np.searchsorted(ids[order], wanted)
    found = np.minimum(found, max(len(ids) - 1, 0))
    place = order[found] if len(ids) else np.zeros(0, np.int64)
    place[ids[place] != wanted] = _MISSING
    return np.asarray(place)


def _threads(nodes: pd.DataFrame, wanted: NDArray[np.float64], caller: Ints) -> NDArray[np.object_]:
    """Name the thread of each node: its outermost caller, which converters may leave out."""
    is_root = (nodes["type"].astype(str) == "root").to_numpy()
    ids = nodes["node"].to_numpy()
    names = np.empty(len(ids), dtype=object)
    for position in range(len(ids)):
        up = caller[position]
        if up != _MISSING and not (is_root[up] and is_root[position]):
            names[position] = names[up]
        elif is_root[position] or np.isnan(wanted[position]):
            names[position] = f"from node {ids[position]}" if is_root[position] else "main"
        else:
            names[position] = f"from node {int(wanted[position])}"
    return names


def _preorder(caller: Ints) -> Ints:
    """Return positions so that a caller is followed by all that it calls."""
    called: dict[int, list[int]] = {}
    for position, up in enumerate(caller.tolist()):
        called.setdefault(up, []).append(position)
    order = []
    stack = called.get(_MISSING, [])[::-1]
    while stack:
        position = stack.pop()
        order.append(position)
        stack += called.get(position, [])[::-1]
    return np.array(order, dtype=np.int64)


def _durations(ranked: _Rank, times: pd.DataFrame | None) -> tuple[pd.Series, int]:
    """Return the time of its own of each node, and how many nodes have none."""
    nodes = ranked.nodes
    stated = nodes["dur_ns"].reset_index(drop=True)
    from_pytorch = ~nodes["type"].astype(str).str.endswith("_NODE").to_numpy()
    inclusive = pd.Series(from_pytorch)
    if times is not None:
        keyed = times.drop_duplicates(["rank", "node"]).set_index(["rank", "node"])
        joined = keyed["host_ns"].reindex(pd.MultiIndex.from_frame(nodes[["rank", "node"]]))
        joined = joined.reset_index(drop=True).round().astype("Int64")
        inclusive |= stated.isna() & joined.notna()
        stated = stated.fillna(joined)
    own = stated.astype("Int64")
    # Roots span everything and do nothing themselves.
    own = own.mask((nodes["type"].astype(str) == "root").to_numpy(), 0)
    taken = np.zeros(len(own), dtype=np.int64)
    inside = np.flatnonzero((ranked.caller != _MISSING) & ~ranked.is_gpu)
    np.add.at(taken, ranked.caller[inside], stated.fillna(0).to_numpy(np.int64)[inside])
    less = (own - taken).clip(lower=0)
    return less.where(inclusive, own), int(own.isna().sum())


def _tasks(ranked: _Rank, durations: pd.Series, first: int) -> pd.DataFrame:
    nodes = ranked.nodes.reset_index(drop=True)
    thread = pd.Series(ranked.thread, dtype=object).where(~ranked.is_gpu, None)
    return pd.DataFrame(
        {
            "task": np.arange(first, first + len(nodes)),
            "rank": nodes["rank"],
            "event": nodes["node"],
            "name": nodes["name"].astype(str),
            "category": nodes["type"].astype(str),
            "start_ns": nodes["start_ns"],
            "dur_ns": durations,
            "stream": pd.array([pd.NA] * len(nodes), dtype="Int64"),
            "thread": thread,
        }
    )


def _edges(ranked: _Rank, needed: pd.DataFrame, kind: Control, first: int) -> pd.DataFrame:
    """List thread order, launches, and the recorded dependencies that can be kept."""
    parts = [_thread_order(ranked), _launches(ranked)]
    ids = ranked.nodes["node"].to_numpy()
    used = needed if kind == "dependencies" else needed[needed["edge"].astype(str) != "control"]
    src = _positions(ids, used["needs"].to_numpy(dtype="float64"))
    dst = _positions(ids, used["node"].to_numpy(dtype="float64"))
    is_known = (src != _MISSING) & (dst != _MISSING)
    src, dst, names = src[is_known], dst[is_known], used["edge"].astype(str).to_numpy()[is_known]
    rank_of = np.empty(len(ids), dtype=np.int64)
    rank_of[ranked.order] = np.arange(len(ids))
    end = ranked.last[src]
    # What is inside a caller cannot wait for its end, nor the other way round.
    is_inside = (rank_of[src] <= rank_of[dst]) & (rank_of[dst] <= rank_of[end])
    is_around = (rank_of[dst] <= rank_of[src]) & (rank_of[src] <= rank_of[ranked.last[dst]])
    kept = ~(is_inside | is_around) | (ranked.is_gpu[src] & (src != dst))
    parts.append(
        pd.DataFrame(
            {"src": end[kept], "dst": dst[kept], "kind": names[kept], "is_inferred": False}
        )
    )
    edges = pd.concat(parts, ignore_index=True)
    edges = edges[edges["src"] != edges["dst"]].drop_duplicates(["src", "dst"])
    return edges.assign(src=edges["src"] + first, dst=edges["dst"] + first)


def _thread_order(ranked: _Rank) -> pd.DataFrame:
    on_cpu = ranked.order[~ranked.is_gpu[ranked.order]]
    number = pd.factorize(ranked.thread[on_cpu])[0]
    by_thread = np.argsort(number, kind="stable")
    row, thread = on_cpu[by_thread], number[by_thread]
    follows = np.flatnonzero(thread[1:] == thread[:-1])
    return pd.DataFrame(
        {
            "src": row[follows],
            "dst": row[follows + 1],
            "kind": "thread order",
            "is_inferred": True,
        }
    )


def _launches(ranked: _Rank) -> pd.DataFrame:
    launched = np.flatnonzero(ranked.is_gpu & (ranked.caller != _MISSING))
    return pd.DataFrame(
        {
            "src": ranked.caller[launched],
            "dst": launched,
            "kind": "launch",
            "is_inferred": False,
        }
    )


def _doubts(
    label: str, needed: pd.DataFrame, ranked: _Rank, kind: Control, missing: int
) -> list[str]:
    said = []
    if missing:
        count = len(ranked.nodes)
        said.append(f"{label}: {missing:,} of {count:,} nodes have no duration")
    absent = ~needed["needs"].isin(ranked.nodes["node"])
    if absent.any():
        said.append(f"{label}: {int(absent.sum()):,} dependencies are on nodes that are missing")
    controls = int((needed["edge"].astype(str) == "control").sum())
    if controls and kind == "callers":
        said.append(f"{label}: {controls:,} control edges are taken for callers, which end last")
    if ranked.is_gpu.any():
        said.append(f"{label}: streams are not recorded; GPU work waits only for what it needs")
    return said


def _acyclic(edges: pd.DataFrame, count: int) -> tuple[pd.DataFrame, tuple[int, ...], int]:
    """Leave out guessed edges that close circles; return what is left, and who still waits."""
    cyclic = _cyclic(edges, count)
    if not cyclic:
        return edges, (), 0
    inside = edges["src"].isin(cyclic) & edges["dst"].isin(cyclic) & edges["is_inferred"]
    kept = edges[~inside].reset_index(drop=True)
    return kept, _cyclic(kept, count), int(inside.sum())


def _cyclic(edges: pd.DataFrame, count: int) -> tuple[int, ...]:
    """Return the tasks that remain when sources and sinks are taken off until none is left."""
    src, dst = edges["src"].to_numpy(np.int64), edges["dst"].to_numpy(np.int64)
    left = _never_ready(src, dst, count)
    if left.any():
        left &= _never_ready(dst, src, count)
    return tuple(np.flatnonzero(left).tolist())


def _never_ready(before: Ints, after: Ints, count: int) -> NDArray[np.bool_]:
    """Tell which tasks never start if each waits for all that come before it."""
    waiting = np.bincount(after, minlength=count).tolist()
    by_before = np.argsort(before, kind="stable")
    followers = after[by_before].tolist()
    first = np.searchsorted(before[by_before], np.arange(count + 1)).tolist()
    ready = [task for task, left in enumerate(waiting) if left == 0]
    while ready:
        done = ready.pop()
        for task in followers[first[done] : first[done + 1]]:
            waiting[task] -= 1
            if waiting[task] == 0:
                ready.append(task)
    return np.array(waiting, dtype=np.int64) > 0


def _stacked(frames: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(frames, ignore_index=True)
