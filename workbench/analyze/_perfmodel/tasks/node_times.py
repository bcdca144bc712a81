"""When the nodes of an execution trace ran: joined with a profiler trace of the same job."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.rows import MISSING, gpu_work, nest
from workbench.errors import PerformanceModelError
from workbench.tables import NODE_TIMES, NODES, Table

_COLUMNS = ("name", "category", "process", "thread", "external_id", "correlation", "launch")
_KEYS = ("rank", "node", "name", "record_function")
_RECORD_FUNCTION = "Record function id"
_HOST = ("cpu_op", "user_annotation")


def node_times(
    nodes: pd.DataFrame,
    events: pd.DataFrame,
    *,
    least_id_share: float = 0.9,
    least_order_share: float = 0.5,
) -> pd.DataFrame:
    """Find what each node of an execution trace took, in a profiler trace of the same job.

    Parameters
    ----------
    nodes
        Table :data:`workbench.tables.NODES`, all of them: nested calls count too when
        calls of one name are taken in order.
    events
        Table :data:`workbench.tables.EVENTS`. Load it with
        ``args=("Record function id",)`` where the profiler wrote that.
    least_id_share
        Ids join if at least this share of the ids of a rank leads to events of the same
        name; two runs count alike, so ids alone prove nothing.
    least_order_share
        Calls join in order if at least this share of the nodes of a rank finds a partner
        so; below it, the traces are of different runs or steps and nothing is joined.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.NODE_TIMES`, one row per node in the order given. What
        found no partner has no times. ``attrs["id_share"]`` is the share of nodes with an id
        whose event of that id has the same name (None if there is no such event), and
        ``attrs["joined_share"]`` the share of nodes joined; both of the worst rank.

    Raises
    ------
    PerformanceModelError
        If the two share no rank.

    Notes
    -----
    Where ids do not join, the calls of a name are taken in order: if both sides have as
    many, or the events a whole multiple (the profiler recorded more steps than the execution
    trace), which gives the mean. Orders differ where threads race, so a single time joined by
    order is less sure than the sum of a name.

    GPU time is that of all work launched by the call or by what it called.

    References
    ----------
    mlcommons/chakra: src/trace_link; facebookresearch/param: et_replay.
    """
    needed = {name: NODES.columns[name] for name in _KEYS}
    Table(NODES.name, NODES.meaning, needed).check(nodes, "nodes")
    timed = _timed(events)
    shared = set(nodes["rank"].unique()) & set(timed["rank"].unique())
    if len(nodes) and not shared:
        msg = (
            f"nodes are of ranks {sorted(nodes['rank'].unique().tolist())[:8]}, events of "
            f"{sorted(timed['rank'].unique().tolist())[:8]}: none is the same. Load both with "
            "the same rank="
        )
        raise PerformanceModelError(msg)
    parts, shares, joined_shares = [], [], []
    for rank, mine in nodes.groupby("rank", sort=True):
        own = timed[timed["rank"] == rank]
        by_id, share = _by_id(mine, own)
        shares += [share] if share is not None else []
        is_trusted = share is not None and share >= least_id_share
        part = by_id if is_trusted else _by_order(mine, own, least_order_share)
        parts.append(part)
        joined_shares.append(float((part["joined_by"] != "none").mean()))
    joined = pd.concat(parts) if parts else pd.DataFrame(columns=list(NODE_TIMES.columns))
    table = NODE_TIMES.cast(joined.loc[nodes.index] if parts else joined).reset_index(drop=True)
    table.attrs["id_share"] = min(shares, default=None)
    table.attrs["joined_share"] = min(joined_shares, default=None)
    return NODE_TIMES.check(table)


def _timed(events: pd.DataFrame) -> pd.DataFrame:
    """List operators and annotations on the CPU with the GPU time that they caused."""
    work = gpu_work(events, *_COLUMNS)
    tree = nest(events, work)
    gpu = np.zeros(len(tree.row), dtype=np.int64)
    above, duration = tree.starter, work.end - work.start
    while len(above):
        on = above != MISSING
        above, duration = above[on], duration[on]
        np.add.at(gpu, above, duration)
        above = tree.parent[above]
    position = pd.Series(gpu, index=tree.row)
    row = np.flatnonzero(events["category"].astype(str).isin(_HOST).to_numpy())
    ids = events[_RECORD_FUNCTION] if _RECORD_FUNCTION in events else events["external_id"]
    numbers = pd.to_numeric(ids, errors="coerce").to_numpy(dtype="float64", na_value=np.nan)
    return pd.DataFrame(
        {
            "rank": events["rank"].to_numpy()[row],
            "name": events["name"].astype(str).to_numpy()[row],
            "id": numbers[row],
            "event": events.index.to_numpy()[row],
            "start_ns": events["start_ns"].to_numpy()[row],
            "host_ns": events["dur_ns"].to_numpy()[row],
            "gpu_ns": position.reindex(row).to_numpy(),
        }
    )  # fmt: skip


def _by_id(nodes: pd.DataFrame, timed: pd.DataFrame) -> tuple[pd.DataFrame, float | None]:
    """Join by id where the name agrees; the share of ids that lead to the same name."""
    known = timed[timed["id"].notna()].drop_duplicates("id", keep=False)
    wanted = nodes["record_function"].to_numpy(dtype="float64", na_value=np.nan)
    place = pd.Index(known["id"]).get_indexer(pd.Index(wanted))
    place[np.isnan(wanted)] = MISSING
    found = place != MISSING
    names = np.append(known["name"].to_numpy(dtype=object), "")
    same = found & (names[place] == nodes["name"].astype(str).to_numpy())
    asked = int((~np.isnan(wanted)).sum())
    share = float(same.sum() / asked) if found.any() else None
    rows = _empty(nodes)
    for column in ("event", "start_ns", "host_ns", "gpu_ns"):
        values = known[column].to_numpy()[place[same]]
        rows.loc[same, column] = pd.array(values).astype(object)
    rows.loc[same, "event_count"] = 1
    rows["joined_by"] = np.where(same, "id", "none")
    return rows, share


def _by_order(nodes: pd.DataFrame, timed: pd.DataFrame, least_share: float) -> pd.DataFrame:
    """Join the calls of each name in order, if the events are a whole multiple of them."""
    rows = _empty(nodes)
    rows["joined_by"] = "none"
    events = dict(tuple(timed.sort_values("start_ns", kind="stable").groupby("name", sort=False)))
    order = nodes.sort_values("node", kind="stable")
    for name, mine in order.groupby(order["name"].astype(str), sort=False):
        own = events.get(str(name))
        if own is None or len(own) % len(mine):
            continue
        repeats = len(own) // len(mine)
        label = mine.index
        first = own.iloc[: len(mine)]
        rows.loc[label, "event"] = first["event"].astype(object).to_numpy()
        rows.loc[label, "start_ns"] = first["start_ns"].astype(object).to_numpy()
        rows.loc[label, "event_count"] = repeats
        for column in ("host_ns", "gpu_ns"):
            rows.loc[label, column] = _means(
                own[column].to_numpy(dtype="float64", na_value=np.nan), repeats
            ).astype(object)
        rows.loc[label, "joined_by"] = "order" if repeats == 1 else "repeats"
    if (rows["joined_by"] != "none").mean() >= least_share:
        return rows
    return _empty(nodes).assign(joined_by="none")


def _means(values: NDArray[np.float64], repeats: int) -> NDArray[np.float64]:
    """Average calls that recur in the same order."""
    means: NDArray[np.float64] = values.reshape(repeats, -1).mean(axis=0)
    return means


def _empty(nodes: pd.DataFrame) -> pd.DataFrame:
    rows = pd.DataFrame(index=nodes.index, columns=list(NODE_TIMES.columns), dtype=object)
    rows[["rank", "node"]] = nodes[["rank", "node"]].astype(object)
    rows["event_count"] = 0
    return rows
