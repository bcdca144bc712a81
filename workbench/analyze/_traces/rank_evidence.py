"""Small tables of one rank from which the rules on traces are answered, without its events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.kernel_kinds import KINDS
from workbench.analyze._lib import rows as arrays
from workbench.analyze._lib.dark import LEAST_DARK_NS, dark_times
from workbench.analyze._lib.intervals import measure_within
from workbench.analyze._lib.rows import MISSING, Ints, Work
from workbench.analyze._lib.scopes import Analysis, name_of, per_rank
from workbench.analyze._traces.breakdown import step_times, time_breakdown
from workbench.analyze._traces.by_rank import collect, communication_of
from workbench.analyze._traces.idle import idle_time
from workbench.analyze._traces.inference import annotated_iterations
from workbench.analyze._traces.kernels import kernel_kinds, kernels
from workbench.analyze._traces.launches import copy_bandwidth
from workbench.errors import WorkbenchError
from workbench.tables import RankFiles, Trace

_LOADER_CALLS = r"(?i)dataloader.*__next__|enumerate\(dataloader\)"
_SYNC_CALLS = r"Synchronize|hipMemcpyWithStream|^cudaMemcpy$"
_ALLOCATIONS = r"^(?:cuda|hip)(?:Malloc|Free)(?:Async)?$"
_LAUNCHERS = r"_runtime$|_driver$"
_NEVER_NS = np.iinfo(np.int64).max

# Earlier kinds hide later ones, as in the time breakdown.
_LAYERS = tuple(KINDS.index(kind) for kind in ("compute", "communication", "memory", "other"))
COVERED = ("upto_compute_ns", "upto_communication_ns", "upto_memory_ns", "upto_other_ns")
_NO_MOMENTS = pd.DataFrame(
    {name: np.zeros(0, np.int64) for name in ("rank", "time_ns", *COVERED, "launched_ns")}
).assign(is_arrival=np.zeros(0, bool))
_GAPS = ("rank", "start_ns", "dur_ns", "before_ns", "after_ns", "loading_ns")
_NO_GAPS = pd.DataFrame({name: np.zeros(0, np.int64) for name in _GAPS}).assign(
    is_drained=np.zeros(0, bool)
)


def _matches(column: pd.Series, pattern: str) -> NDArray[np.bool_]:
    """Return for each row whether its name matches; every name is looked at once."""
    names = column.cat.categories.astype(str).str.contains(pattern, regex=True)
    return np.asarray(np.append(np.asarray(names, dtype=bool), False)[arrays.codes(column)])


def _slices(rank: Ints) -> Iterator[tuple[int, slice]]:
    """Yield the rows of each rank, which lie together."""
    numbers, first = np.unique(rank, return_index=True)
    for number, low, high in zip(numbers, first, [*first[1:], len(rank)], strict=False):
        yield int(number), slice(int(low), int(high))


def _spans(events: pd.DataFrame, chosen: NDArray[np.bool_]) -> tuple[Ints, Ints, Ints]:
    """Return rank, start and end of chosen rows, in order of rank."""
    rows = np.flatnonzero(chosen)
    rank = events["rank"].to_numpy()[rows].astype(np.int64)
    if (order := arrays.in_order(rank)) is not None:
        rows, rank = rows[order], rank[order]
    start = events["start_ns"].to_numpy("int64")[rows]
    return rank, start, start + events["dur_ns"].to_numpy("int64")[rows]


@per_rank
def rank_facts(events: pd.DataFrame) -> pd.DataFrame:
    """Return for each rank its first GPU work, and whether calls that launch work are recorded."""
    rank = events["rank"].astype("int64")
    first = events["start_ns"].where(events["kind"].notna()).astype("Int64").groupby(rank).min()
    calls = pd.Series(_matches(events["category"], _LAUNCHERS), events.index).groupby(rank).any()
    return pd.DataFrame({"first_ns": first, "has_launches": calls}).reset_index()


@per_rank
def gpu_gaps(events: pd.DataFrame) -> pd.DataFrame:
    """Return the times without any GPU work of a rank, with the work before and after each.

    What the host had launched already, what no known call launched, and what the GPU did without a
    record is not in ``dur_ns``, unless it is short. ``loading_ns`` is for how long the host loads
    data; ``is_drained`` says that it began while the host waited for the GPU, so that nothing was
    queued, and was not spent on loading.
    """
    work = arrays.gpu_work(events, "name", "launch")
    call, dark = arrays.launches_of(events, work.row), dark_times(events, work)
    issued = (events["start_ns"].to_numpy() + events["dur_ns"].to_numpy())[call]
    # A collective that was launched waits for other ranks.
    issued[(call != MISSING) & (work.kind == KINDS.index("communication"))] = _NEVER_NS
    issued[call == MISSING] = 0
    loads = _spans(events, _matches(events["name"], _LOADER_CALLS))
    is_host = arrays.codes(events["kind"]) < 0
    calls = _spans(events, is_host & _matches(events["name"], _SYNC_CALLS))
    frames = [_NO_GAPS]
    for rank, at in _slices(work.rank):
        start, end = work.start[at], work.end[at]
        reach, length = np.maximum.accumulate(end)[:-1], end - start
        gap = np.flatnonzero(start[1:] > reach)
        begin, finish = reach[gap], start[1:][gap]
        late = finish - np.clip(issued[at][1:][gap], begin, finish)
        late[late < LEAST_DARK_NS] = 0
        hidden = late + dark.within(np.full(len(gap), rank), begin, finish - late)[0]
        loading = measure_within(*_of_rank(loads, rank), begin, finish)
        is_held = _held(_of_rank(calls, rank), begin, finish)
        columns = {
            "start_ns": begin, "dur_ns": finish - begin - hidden, "before_ns": length[:-1][gap],
            "after_ns": length[1:][gap], "loading_ns": loading,
            "is_drained": is_held & (2 * loading < finish - begin),
        }  # fmt: skip
        frames.append(pd.DataFrame({"rank": np.int32(rank), **columns}))
    return pd.concat(frames[1:] or frames, ignore_index=True)


def _of_rank(spans: tuple[Ints, Ints, Ints], rank: int) -> tuple[Ints, Ints]:
    low, high = np.searchsorted(spans[0], [rank, rank + 1])
    return spans[1][low:high], spans[2][low:high]


def _held(calls: tuple[Ints, Ints], begin: Ints, finish: Ints) -> NDArray[np.bool_]:
    """Return for each gap whether the host waited when it began, and no longer when it ended."""
    order = np.argsort(calls[1], kind="stable")
    start, end = (np.append(times[order], _NEVER_NS) for times in calls)
    # The call that ended first after the GPU had run dry.
    call = np.searchsorted(end[:-1], begin)
    return np.asarray((begin >= start[call]) & (end[call] < finish))


@per_rank
def loader_calls(events: pd.DataFrame) -> pd.DataFrame:
    """Return rank, step and ``dur_ns``: the time in calls of the data loader inside steps."""
    chosen = _matches(events["name"], _LOADER_CALLS) & events["step"].notna().to_numpy()
    return events[chosen].groupby(["rank", "step"])["dur_ns"].sum().reset_index()


@per_rank
def host_calls(events: pd.DataFrame) -> pd.DataFrame:
    """Return number and time of the calls that synchronise, and of allocations inside steps."""
    is_sync = _matches(events["name"], _SYNC_CALLS) & (arrays.codes(events["kind"]) < 0)
    is_allocation = _matches(events["name"], _ALLOCATIONS) & events["step"].notna().to_numpy()
    chosen = events.loc[is_sync | is_allocation, ["rank", "name", "dur_ns"]]
    chosen = chosen.assign(
        name=chosen["name"].astype(str), is_sync=is_sync[is_sync | is_allocation]
    )
    grouped = chosen.groupby(["rank", "name", "is_sync"])["dur_ns"]
    return grouped.agg(call_count="size", dur_ns="sum").reset_index()


@per_rank
def step_starts(events: pd.DataFrame) -> pd.DataFrame:
    """Return rank, step and ``time_ns``: its first event; step -1 is the whole rank."""
    rank, start = (events[name].to_numpy("int64") for name in ("rank", "start_ns"))
    step = events["step"].to_numpy("int64", na_value=MISSING)
    of_rank, of_step = arrays.grouped(rank), arrays.grouped(rank, step)
    inside = of_step.keys[1] != MISSING
    columns = {
        "rank": np.append(of_rank.keys[0], of_step.keys[0][inside]),
        "step": np.append(np.full(len(of_rank.keys[0]), MISSING), of_step.keys[1][inside]),
        "time_ns": np.append(of_rank.smallest(start), of_step.smallest(start)[inside]),
    }
    return pd.DataFrame(columns).sort_values(["rank", "step"], ignore_index=True)


@per_rank
def coverage_moments(events: pd.DataFrame) -> pd.DataFrame:
    """Return how much GPU work of each kind was done at the moments between which rules measure.

    Moments are starts and ends of communication, and first events of a step. Time in any window
    between two of them is then a difference, without the events.

    Returns
    -------
    pandas.DataFrame
        ``rank`` and ``time_ns``, sorted; ``upto_compute_ns`` is the time since the first event in
        which compute ran, ``upto_communication_ns`` that in which either ran, and so on for
        memory and other; ``launched_ns`` is the compute launched before the communication that
        begins here, -1 if that is not known, and ``is_arrival`` says that some does.
    """
    work = arrays.gpu_work(events, "launch", "step")
    starts, launched = step_starts(events), _launched(events, work)
    is_communication = work.kind == KINDS.index("communication")
    frames = [_NO_MOMENTS]
    for rank, of_starts in _slices(starts["rank"].to_numpy()):
        first = starts["time_ns"].to_numpy("int64")[of_starts]
        low, high = np.searchsorted(work.rank, [rank, rank + 1]).tolist()
        of_rank, own = slice(low, high), is_communication[low:high]
        start, end, kind = work.start[of_rank], work.end[of_rank], work.kind[of_rank]
        time = np.unique(np.concatenate([first, start[own], end[own]]))
        columns: dict[str, Any] = {"rank": np.int32(rank), "time_ns": time}
        for name, last in zip(COVERED, range(1, len(_LAYERS) + 1), strict=True):
            chosen = np.isin(kind, _LAYERS[:last])
            origin = np.full_like(time, min(time[0], start[0] if len(start) else time[0]))
            columns[name] = measure_within(start[chosen], end[chosen], origin, time)
        # Of kernels that begin together the first one counts.
        arrival, kernel = np.unique(start[own], return_index=True)
        at = np.searchsorted(time, arrival)
        columns["launched_ns"] = np.full(len(time), MISSING)
        columns["launched_ns"][at] = launched[of_rank][own][kernel]
        columns["is_arrival"] = np.zeros(len(time), dtype=bool)
        columns["is_arrival"][at] = True
        frames.append(pd.DataFrame(columns))
    return pd.concat(frames[1:] or frames, ignore_index=True)


def _launched(events: pd.DataFrame, work: Work) -> Ints:
    """Return the compute of its rank launched up to each piece of GPU work [ns], -1 if unknown.

    Every rank launches the same work in the same order, whenever it runs.
    """
    launch = arrays.launches_of(events, work.row)
    when = events["start_ns"].to_numpy()[launch]
    # In order of launch, which is the same on all ranks; that of execution is not.
    order = np.lexsort((work.start, when, work.rank))
    spent = np.where(work.kind == KINDS.index("compute"), work.end - work.start, 0)[order]
    until, total = np.empty_like(spent), np.cumsum(spent)
    first = np.searchsorted(work.rank, work.rank)
    # Since the first of the rank, so that ranks by themselves have the same numbers.
    until[order] = total - np.append(0, total)[first[order]]
    return np.where(launch == MISSING, MISSING, until)


# Evidence for rules from the traces of a job: loaded whole, or reduced rank by rank.

# All per rank, and all that any rule on traces reads besides communication.
_ANALYSES: tuple[Analysis, ...] = (
    time_breakdown, step_times, idle_time, kernels, kernel_kinds, copy_bandwidth, rank_facts,
    gpu_gaps, loader_calls, host_calls, step_starts, coverage_moments, annotated_iterations,
)  # fmt: skip


@dataclass(frozen=True)
class _Answer:
    """An analysis whose refusal is its answer, so that the rank still counts in the others."""

    analysis: Analysis

    @property
    def __name__(self) -> str:
        return name_of(self.analysis)

    def __call__(self, events: pd.DataFrame) -> pd.DataFrame | WorkbenchError:
        try:
            return self.analysis(events)
        except WorkbenchError as error:
            return error


@dataclass(frozen=True, repr=False)
class ReducedTrace(Trace):
    """A trace of which ``events`` has communication only; the rest is reduced to ``tables``."""

    files: RankFiles
    tables: dict[str, Any] = field(default_factory=dict)


def reduced(files: RankFiles, client: Any = None) -> ReducedTrace:
    """Load the ranks of a job one after the other, and keep what rules read of each."""
    tables = collect(files, [_Answer(analysis) for analysis in _ANALYSES], client).tables
    own = {column.name: tables[column.name] for column in fields(Trace) if column.name in tables}
    trace = Trace.of(events=tables["communication"], **own)
    every = {column.name: getattr(trace, column.name) for column in fields(Trace)}
    return ReducedTrace(**every, files=files, tables=tables)


class JobEvidence:
    """The traces of a job, and tables of its ranks, each computed once."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._tables = dict(trace.tables) if isinstance(trace, ReducedTrace) else {}

    def table(self, analysis: Analysis) -> pd.DataFrame:
        """Return the table of an analysis of single ranks, of all of them."""
        name = name_of(analysis)
        if name not in self._tables:
            self._tables[name] = _Answer(analysis)(self.trace.events)
        answer: pd.DataFrame | WorkbenchError = self._tables[name]
        if isinstance(answer, WorkbenchError):
            raise answer
        return answer

    @cached_property
    def communication(self) -> pd.DataFrame:
        """Events of communication; of a rank without any, its first GPU work."""
        return communication_of(self.trace.events)

    def events_of(self, rank: int) -> pd.DataFrame:
        """Return the events of one rank, on its own clock; a reduced one is loaded again."""
        if isinstance(self.trace, ReducedTrace):
            return next(file for file in self.trace.files if file.rank == rank).load().events
        return self.trace.events[self.trace.events["rank"] == rank]
