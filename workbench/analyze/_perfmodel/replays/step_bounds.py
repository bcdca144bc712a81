"""Where the steps of training begin in a graph, on the host and with their GPU work."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.rows import MISSING, Ints, step_numbers
from workbench.tables import EDGE_KINDS, ExecutionGraph


class HostSteps(NamedTuple):
    """Steps of one rank, in order of time, between the points of the thread that marks them."""

    number: Ints  # number of the step, as the profiler counts
    start: Ints  # when it was marked, from the start of the graph [ns]
    before: Ints  # the last point before that, or the start of the graph
    first: Ints  # the first point from then on; the last one of the thread if there is none

    def chosen(self, number: Ints) -> HostSteps:
        kept = np.isin(self.number, number)
        return HostSteps(*(column[kept] for column in self))

    def times(self, time_ns: Ints, measured_ns: Ints) -> Ints:
        """Return when each step begins on the host: it moves with the points around it [ns]."""
        width = measured_ns[self.first] - measured_ns[self.before]
        # A mark has no point of its own: it keeps its place between its neighbours.
        share = np.clip((self.start - measured_ns[self.before]) / np.maximum(width, 1), 0, 1)
        moved = np.rint(share * (time_ns[self.first] - time_ns[self.before])).astype(np.int64)
        beyond = np.maximum(self.start - measured_ns[self.first], 0)
        return np.asarray(time_ns[self.before] + moved + beyond)


class StepBounds(NamedTuple):
    """Moments between the steps of a graph: a step lasts from each to the next."""

    number: Ints
    of_rank: list[HostSteps]
    begun: Ints  # for each piece of GPU work how many steps had begun when it was launched
    work_end: NDArray[np.integer[Any]]  # point where each piece of GPU work ends
    measured_ns: Ints

    def times(self, time_ns: Ints) -> Ints:
        """Return when each step begins, by measured or replayed times of the points [ns].

        A step begins when the host is there and all GPU work launched before has ended. Where
        the host runs ahead its own steps say nothing: the GPU is still at an earlier one.
        """
        ended = np.full(len(self.number) + 1, np.iinfo(np.int64).min)
        np.maximum.at(ended, self.begun, time_ns[self.work_end])
        on_host = [steps.times(time_ns, self.measured_ns) for steps in self.of_rank]
        latest = np.max([ended[:-1], *on_host], axis=0)
        return np.asarray(np.maximum.accumulate(latest))

    def durations(self) -> Ints:
        """Return the measured time of every step, from the first mark on [ns].

        In a graph the first step begins with its first row.
        """
        times = self.times(self.measured_ns)
        times[:1] += min(steps.start.min(initial=0) for steps in self.of_rank)
        return np.diff(times)


def step_bounds(events: pd.DataFrame, graph: ExecutionGraph, rank: int | None = None) -> StepBounds:
    """Find the steps that all ranks of a graph recorded, or one rank; none if any has none."""
    every = np.unique(graph.point_rank[graph.point_rank >= 0]).tolist()
    ranks = every if rank is None else [rank]
    of_rank = [host_steps(events, graph, member) for member in ranks]
    # Only steps that all ranks recorded: a step lasts until its slowest rank is through.
    number = of_rank[0].number
    for steps in of_rank[1:]:
        number = number[np.isin(number, steps.number)]
    of_rank = [steps.chosen(number) for steps in of_rank]
    # Work of other ranks belongs to no step here, as that after the last one.
    begun = np.full(len(graph.gpu_start), len(number))
    launched = launch_times(events, graph)[graph.gpu_start]
    for member, steps in zip(ranks, of_rank, strict=True):
        own_work = graph.point_rank[graph.gpu_start] == member
        begun[own_work] = np.searchsorted(steps.start, launched[own_work], side="right")
    return StepBounds(number, of_rank, begun, graph.gpu_start + 1, graph.time_ns)


def host_steps(events: pd.DataFrame, graph: ExecutionGraph, rank: int) -> HostSteps:
    """Find the steps of a rank, if their thread has points in the graph."""
    is_rank = events["rank"].to_numpy() == rank
    number = np.where(is_rank, step_numbers(events), MISSING)
    row = np.flatnonzero(number != MISSING)
    start = events["start_ns"].to_numpy()[row] - graph.origin_ns
    row, start = row[np.argsort(start, kind="stable")], np.sort(start)
    # A number that occurs again is a repetition of the same step.
    kept = np.sort(np.unique(number[row], return_index=True)[1])
    row, start = row[kept], start[kept]
    points = _points_beside(events, graph, row, is_rank)
    if not len(points):
        return HostSteps(*np.zeros((4, 0), dtype=np.int64))
    position = np.searchsorted(graph.time_ns[points], start)
    before = np.append(0, points)[position]
    return HostSteps(number[row], start, before, points[np.minimum(position, len(points) - 1)])


def _points_beside(
    events: pd.DataFrame, graph: ExecutionGraph, row: Ints, of_rank: np.ndarray
) -> Ints:
    if not len(row):
        return row
    mark = events.iloc[row[0]]
    same = of_rank & (events["process"] == mark["process"]) & (events["thread"] == mark["thread"])
    points = np.flatnonzero((graph.thread >= 0) & np.isin(graph.event, events.index[same]))
    return points[np.argsort(graph.time_ns[points], kind="stable")]


def launch_times(events: pd.DataFrame, graph: ExecutionGraph) -> Ints:
    """Return when each point came, of GPU work when the call began that launched it [ns].

    GPU work runs behind the host, so that it belongs to the step of its launch.
    """
    time = graph.time_ns.copy()
    launched = graph.edge_kind == EDGE_KINDS.index("launch")
    call = graph.event[graph.source[launched]]
    time[graph.target[launched]] = (
        events["start_ns"].reindex(call, fill_value=0).to_numpy() - graph.origin_ns
    )
    # The end of work belongs to the same step as its start.
    time[graph.gpu_start + 1] = time[graph.gpu_start]
    return time
