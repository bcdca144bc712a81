"""Where to look in a long timeline, in which ranks, and what an event there depends on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from workbench._shared.kernel_kinds import KINDS
from workbench._shared.numbers import whole_number
from workbench.analyze._lib import rows as arrays
from workbench.analyze._lib.intervals import gaps, subtract
from workbench.analyze._lib.rows import Work
from workbench.analyze._traces.breakdown import step_times
from workbench.analyze._traces.clocks import clocks
from workbench.analyze._traces.collectives import collective_waits, collectives
from workbench.errors import WorkbenchError
from workbench.tables import EVENT_LINKS, TELLING_RANKS, TELLING_WINDOWS, Findings

# Around what a window is about, so that one sees what came before and after.
_MARGIN_SHARE = 0.25
_COLUMNS = ["rank", "start_ns", "end_ns", "dur_ns", "reason"]
# Two windows of a rank, or of a reason, that share more than this show the same.
_SAME_SHARE = 0.5


def telling_windows(
    events: pd.DataFrame, *, process_groups: pd.DataFrame | None = None, most_windows: int = 10
) -> pd.DataFrame:
    """Choose the windows of a timeline that are worth a look, each with its reason.

    A trace of a million events has a thousand screens. These are the extremes of what usually
    costs time: GPU idle, communication that nothing hides, a rank that the others wait for, a slow
    step, and a long kernel.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.
    process_groups
        Table :data:`workbench.tables.PROCESS_GROUPS`, which helps to match collectives.
    most_windows
        Windows to choose, from 1.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.TELLING_WINDOWS`, the worst of every reason first, then the
        second of every reason: ``rank``, ``start_ns``, ``end_ns``, ``dur_ns`` and ``reason``. Empty
        without GPU work.

    Raises
    ------
    WorkbenchError
        If ``most_windows`` is not a whole number from 1.

    Notes
    -----
    Idle: gaps in the union of the work of a GPU. Exposed communication: communication minus the
    union of computation of the rank. Late: matched collectives with a known straggler, from the
    first start to the end on the rank that came last, after the clocks were aligned. Slow: steps
    longer than the median step of their rank. A window is wider than what it shows by a quarter on
    either side. One that shares more than half of its time with a chosen one of its rank, or of its
    reason, is skipped.

    Examples
    --------
    >>> from workbench.tables import EVENTS
    >>> telling_windows(EVENTS.empty()).empty
    True
    """
    most = whole_number("most_windows", most_windows, least=1)
    work = arrays.gpu_work(events)
    if not len(work.row):
        return TELLING_WINDOWS.empty()
    kinds = [*_of_ranks(work), _late(events, process_groups), _slow(events)]
    table = pd.concat([kind.assign(place=range(len(kind))) for kind in kinds], ignore_index=True)
    chosen: list[tuple[int, int, int, int, str]] = []
    for row in table.sort_values("place", kind="stable")[_COLUMNS].itertuples(index=False):
        if len(chosen) < most and not any(_is_same(row, other) for other in chosen):
            chosen.append(tuple(row))
    windows = pd.DataFrame(chosen, columns=_COLUMNS)
    margin = (_MARGIN_SHARE * (windows["end_ns"] - windows["start_ns"])).astype("int64") + 1
    windows = windows.assign(
        start_ns=windows["start_ns"] - margin, end_ns=windows["end_ns"] + margin
    )
    return TELLING_WINDOWS.of(windows)


def _is_same(window: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    shared = min(window[2], other[2]) - max(window[1], other[1])
    length = max(window[2] - window[1], other[2] - other[1], 1)
    # One wait shows on many ranks, so the same reason counts as the same rank.
    is_alike = window[0] == other[0] or window[4] == other[4]
    return is_alike and bool(shared > _SAME_SHARE * length)


def _of_ranks(work: Work) -> Iterator[pd.DataFrame]:
    """Yield idle times, exposed communication and pieces of work, the longest first."""
    idle, exposed = [], []
    is_communication = work.kind == KINDS.index("communication")
    is_compute = work.kind == KINDS.index("compute")
    bounds = [*np.unique(work.rank, return_index=True)[1].tolist(), len(work.rank)]
    for low, high in pairwise(bounds):
        rank, start, end = int(work.rank[low]), work.start[low:high], work.end[low:high]
        for device in np.unique(work.device[low:high]):
            its = work.device[low:high] == device
            idle.append(_longest(rank, *gaps(start[its], end[its])))
        hidden, told = is_compute[low:high], is_communication[low:high]
        bare = subtract(start[told], end[told], start[hidden], end[hidden])
        exposed.append(_longest(rank, *bare))
    longest = np.argsort(work.start - work.end, kind="stable")[:_ENOUGH]
    kernels = _longest(work.rank[longest], work.start[longest], work.end[longest])
    reasons = ("GPU idle", "exposed communication", "long kernel or copy")
    for reason, tables in zip(reasons, (idle, exposed, [kernels]), strict=True):
        table = pd.concat(tables, ignore_index=True).nlargest(_ENOUGH, "dur_ns")
        yield table.assign(reason=reason)


_ENOUGH = 50


def _longest(rank: object, start: arrays.Ints, end: arrays.Ints) -> pd.DataFrame:
    order = np.argsort(start - end, kind="stable")[:_ENOUGH]
    ranks = rank[order] if isinstance(rank, np.ndarray) else rank
    columns = {"start_ns": start[order], "end_ns": end[order], "rank": ranks}
    return pd.DataFrame(columns).assign(dur_ns=(end - start)[order])


def _late(events: pd.DataFrame, process_groups: pd.DataFrame | None) -> pd.DataFrame:
    """Return the collectives whose last rank is known, longest waited for first."""
    known = clocks(collectives(events, process_groups=process_groups))
    known = known.dropna(subset=["offset_ns"])
    waits = collective_waits(events, process_groups=process_groups, clocks=known)
    waits = waits[waits["is_sure"]].sort_values("wait_ns", ascending=False, kind="stable")
    waits = waits.drop_duplicates("collective").head(_ENOUGH)
    # The window lies on the clock of the rank it shows.
    own_ns = waits["blamed_rank"].map(known.set_index("rank")["offset_ns"]).fillna(0)
    start = waits["start_ns"] + own_ns.astype("int64")
    return pd.DataFrame(
        {
            "rank": waits["blamed_rank"],
            "start_ns": start,
            "end_ns": start + waits["wait_ns"] + waits["transfer_ns"],
            "dur_ns": waits["wait_ns"],
            "reason": "others wait for this rank",
        }
    )


def _slow(events: pd.DataFrame) -> pd.DataFrame:
    steps = step_times(events).dropna(subset=["start_ns", "host_ns"])
    usual = steps.groupby("rank")["host_ns"].transform("median")
    slow = steps[(steps["host_ns"] > usual).fillna(value=False)].nlargest(_ENOUGH, "host_ns")
    columns = {"start_ns": slow["start_ns"], "end_ns": slow["start_ns"] + slow["host_ns"]}
    return slow[["rank"]].assign(**columns, dur_ns=slow["host_ns"], reason="slow step")


_RUNTIME = ("cuda_runtime", "cuda_driver")


def event_links(events: pd.DataFrame, *, event: int, most_launched: int = 20) -> pd.DataFrame:
    """List what an event depends on and what depends on it, as far as its trace records that.

    For GPU work: the call that launched it, the operator around that call, and what its stream had
    been told to wait for. For a call or an operator: the work that it launched, and the operator
    around it.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.
    event
        Row label of the event in ``events``.
    most_launched
        Pieces of work to name at most of what an operator launched, longest first.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.EVENT_LINKS`, one row per linked event: ``relation``,
        ``event``, ``name``, ``start_ns`` and ``dur_ns``.

    Raises
    ------
    WorkbenchError
        If no event has that label.

    Notes
    -----
    A wait for another stream is queued like work: it counts if the host issued it after it launched
    the previous work on that stream, and not after it launched this one. Waited for is the last
    work that was launched on the other stream before the event was recorded.

    Examples
    --------
    >>> from workbench.tables import EVENTS
    >>> event_links(EVENTS.empty(), event=3)
    Traceback (most recent call last):
        ...
    workbench.errors.WorkbenchError: no event has the label 3; take one of the 0 in events.index
    """
    arrays.checked(events, "launch", "correlation", "stream", "wait_stream", "wait_correlation")
    if event not in events.index:
        msg = f"no event has the label {event}; take one of the {len(events):,} in events.index"
        raise WorkbenchError(msg)
    chosen = _row(events, event)
    low, high = np.searchsorted(events["rank"].to_numpy(), [chosen["rank"], chosen["rank"] + 1])
    rank = events.iloc[int(low) : int(high)]
    links: dict[str, Any]
    if pd.isna(chosen["kind"]):
        launched = _launched(rank, event).nlargest(most_launched, "dur_ns")
        links = {"launches": launched.index, "called in": _operator(rank, event)}
    else:
        call = [chosen["launch"]] if chosen["launch"] in rank.index else []
        links = {"launched by": call}
        links["called in"] = _operator(rank, call[0]) if call else []
        links["waits for"] = _awaited(rank, event, call[0]) if call else []
    labels = np.concatenate([np.asarray(label, dtype=np.int64) for label in links.values()])
    linked = events.loc[labels, ["name", "start_ns", "dur_ns"]].astype({"name": str})
    relation = np.repeat(list(links), [len(label) for label in links.values()])
    return EVENT_LINKS.of(linked.assign(relation=relation, event=labels).reset_index(drop=True))


def _row(events: pd.DataFrame, label: int) -> dict[Any, Any]:
    return dict(events.loc[label])


def _thread(rank: pd.DataFrame, event: int) -> pd.DataFrame:
    chosen = _row(rank, event)
    same = (rank["thread"] == chosen["thread"]) & (rank["process"] == chosen["process"])
    return pd.DataFrame(rank[same & rank["kind"].isna()])


def _operator(rank: pd.DataFrame, event: int) -> list[int]:
    """Return the innermost operator around a call or an operator."""
    chosen, host = _row(rank, event), _thread(rank, event)
    end = chosen["start_ns"] + chosen["dur_ns"]
    around = (host["start_ns"] <= chosen["start_ns"]) & (host["start_ns"] + host["dur_ns"] >= end)
    around &= (host["category"] == "cpu_op") & (host.index != event)
    # Of equal times the one written first is outside.
    return [int(label) for label in host.index[around & (host.index < event)][-1:]]


def _launched(rank: pd.DataFrame, event: int) -> pd.DataFrame:
    """Return the GPU work launched by a call, or by the calls inside an operator."""
    chosen, host = _row(rank, event), _thread(rank, event)
    inside = (host["start_ns"] >= chosen["start_ns"]) & (
        host["start_ns"] + host["dur_ns"] <= chosen["start_ns"] + chosen["dur_ns"]
    )
    launched = rank.loc[rank["launch"].isin(host.index[inside]).to_numpy()]
    return pd.DataFrame(launched)


def _awaited(rank: pd.DataFrame, event: int, call: int) -> list[int]:
    """Return the last work that the stream of some GPU work had been told to wait for."""
    chosen, issued = _row(rank, event), int(_row(rank, call)["start_ns"])
    work = rank[rank["kind"].notna() & (rank["device"] == chosen["device"]).fillna(value=False)]
    launched = work["launch"].map(rank["start_ns"])
    on_stream = (work["stream"] == chosen["stream"]).fillna(value=False)
    earlier = launched[on_stream & (launched < issued)].max()
    syncs = rank[(rank["category"] == "cuda_sync") & rank["wait_stream"].notna()]
    syncs = syncs[(syncs["stream"] == chosen["stream"]).fillna(value=False)]
    syncs = syncs[syncs["start_ns"].between(0 if pd.isna(earlier) else earlier, issued)]
    calls, labels = rank[rank["category"].isin(_RUNTIME)], []
    for stream, correlation in syncs[["wait_stream", "wait_correlation"]].itertuples(index=False):
        record = calls.loc[(calls["correlation"] == correlation).fillna(value=False), "start_ns"]
        other = (work["stream"] == stream).fillna(value=False)
        before = launched[other & (launched <= (record.min() if len(record) else issued))]
        labels += [int(before.idxmax())] if len(before) else []
    return list(dict.fromkeys(labels))


# The ranks of a large job that are worth a look at their events.


def telling_ranks(
    found: Findings, *, most_ranks: int = 8, largest_whole_job: int = 15
) -> pd.DataFrame:
    """Choose the ranks whose events a page shows of a job of many.

    Findings are about all ranks. A timeline of a thousand of them shows nothing, so it takes those
    that hold up the others, one that waits for them, and a usual one to compare with.

    Parameters
    ----------
    found
        What :func:`workbench.analyze.findings` returned for traces.
    most_ranks
        Ranks to choose, at least 3.
    largest_whole_job
        A job of no more ranks is shown whole, so none is chosen.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.TELLING_RANKS`, one row per chosen rank: ``rank``, ``reason``,
        ``lost_ms`` and ``exposed_communication_ns``; empty where all ranks are shown.

    Raises
    ------
    ValueError
        If fewer than 3 ranks are to be chosen.

    Notes
    -----
    The rank that waits most has the most exposed communication and is the fastest; the usual one
    has the median of it. The others are those with the largest ``lost_ms``, in that order.
    """
    if most_ranks < 3:
        msg = f"most_ranks must be at least 3, for a late, a waiting and a usual rank: {most_ranks}"
        raise ValueError(msg)
    table = found.tables.get("traces.by_rank")
    if table is None or len(table) <= largest_whole_job:
        return TELLING_RANKS.empty()
    exposed = table["exposed_communication_ns"].sort_values(kind="stable")
    lost = found.tables.get("traces.lost_to", pd.DataFrame()).sum().sort_values(ascending=False)
    reasons = dict.fromkeys(lost.index[lost > 0][: most_ranks - 2], "delays the others")
    reasons.setdefault(exposed.index[-1], "waits most, so it is the fastest")
    reasons.setdefault(exposed.index[len(exposed) // 2], "waits as long as the median rank")
    ranks = pd.Index(reasons)
    rows = {
        "rank": ranks,
        "reason": list(reasons.values()),
        "lost_ms": (lost.reindex(ranks) / 1e6).to_numpy("float64"),
        "exposed_communication_ns": exposed.reindex(ranks).to_numpy(),
    }
    return TELLING_RANKS.of(pd.DataFrame(rows))
