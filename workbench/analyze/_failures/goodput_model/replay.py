"""The replay engine: failures as intervals on one long line, run after run, without a loop."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from workbench.analyze._failures.goodput_model.goodput import FaultTolerance


@dataclass(frozen=True)
class Strikes:
    run: Ints
    time: Floats
    replica: Ints  # -1: all of them
    phases: Floats  # minutes, one column per phase
    down: Floats  # until whoever was hit works again

    def __len__(self) -> int:
        return len(self.time)

    def take(self, chosen: Ints | np.ndarray) -> Strikes:
        return Strikes(
            self.run[chosen], self.time[chosen], self.replica[chosen],
            self.phases[chosen], self.down[chosen],
        )  # fmt: skip


class Line:
    """One replay: when everybody stands still, and which replicas are out besides.

    Runs lie behind each other on one line, ``horizon`` apart, and what reaches beyond the end
    of a run is cut off; so one pass over sorted arrays serves all runs, and all replicas.
    """

    def __init__(
        self, strikes: Strikes, job: FaultTolerance, horizon: float, run_count: int
    ) -> None:
        self.job, self.horizon, self.run_count = job, horizon, run_count
        self.strikes = strikes
        everybody = np.flatnonzero(strikes.replica < 0)
        alone = np.flatnonzero(strikes.replica >= 0)
        self.outages = self._on_line(strikes, everybody, strikes.down)
        stall = np.full(len(strikes), job.stall_total_min)
        self.stalls = self._on_line(strikes, alone, stall)
        self.outage_or_stall = _merged(self.outages, self.stalls)
        self.stopped = Covered(self.outage_or_stall)
        if job.rejoin_min and len(alone):
            rejoin = self._on_line(
                strikes, alone, np.full(len(strikes), job.rejoin_min), delay=strikes.down
            )
            self.stopped = Covered(_merged(self.outage_or_stall, rejoin))
        self.down = self._down(strikes, alone)

    @property
    def edges(self) -> Floats:
        return np.arange(self.run_count + 1) * self.horizon

    @property
    def origin(self) -> Floats:
        origin: Floats = self.strikes.run * self.horizon + self.strikes.time
        return origin

    def per_run(self, owner: Ints, lengths: Floats) -> Floats:
        runs = self.strikes.run[owner]
        return np.bincount(runs, weights=lengths, minlength=self.run_count)

    def phase_times(self, pieces: Pieces, limits: Floats, over: Covered | None) -> list[Floats]:
        """Sum the pieces by run for every phase of their owners, without what ``over`` covers."""
        begin = self.origin[pieces.owner]
        sums = []
        for phase in range(limits.shape[1] - 1):
            first = np.maximum(pieces.start, begin + limits[pieces.owner, phase])
            last = np.minimum(pieces.end, begin + limits[pieces.owner, phase + 1])
            last = np.maximum(first, last)
            length = last - first
            if over is not None:
                length = over.free_before(last) - over.free_before(first)
            sums.append(self.per_run(pieces.owner, length))
        return sums

    def capacity_before(self, points: Floats) -> Floats:
        """Return the working time before every point, weighted by the share of live replicas."""
        running = self.stopped.free_before(points)
        changes, clock, out, lost = self._losses
        at = np.searchsorted(changes, points, side="right") - 1
        lost = lost[at] + out[at] * (running - clock[at])
        weighted: Floats = running - lost / self.job.replicas
        return weighted

    @cached_property
    def _losses(self) -> tuple[Floats, Floats, Ints, Floats]:
        """Return when replicas leave and rejoin, the clock then, the number out, their loss."""
        start, end = self.down.start, self.down.end
        changes = np.concatenate(([-np.inf], start, end))
        order = np.argsort(changes, kind="stable")
        changes = changes[order]
        out = np.cumsum(np.repeat([0, 1, -1], [1, len(start), len(end)])[order])
        clock = self.stopped.free_before(np.maximum(changes, 0.0))
        lost = np.concatenate(([0.0], np.cumsum(out[:-1] * np.diff(clock))))
        return changes, clock, out, lost

    def _on_line(
        self, strikes: Strikes, rows: Ints, length: Floats, delay: Floats | None = None
    ) -> Pieces:
        """Lay intervals of some strikes on the line; owners are rows of ``strikes``."""
        base = strikes.run[rows] * self.horizon
        origin = base + strikes.time[rows] + (0.0 if delay is None else delay[rows])
        start = np.maximum(origin, base)
        end = np.minimum(origin + length[rows], base + self.horizon)
        kept = end > start
        rows, start, end = rows[kept], start[kept], end[kept]
        order = np.argsort(start, kind="stable")
        pieces = union(start[order], end[order])
        return Pieces(pieces.start, pieces.end, rows[order][pieces.owner])

    def _down(self, strikes: Strikes, alone: Ints) -> Pieces:
        """Return when single replicas are out, on the line; pieces of replicas may overlap."""
        replicas = self.job.replicas
        if replicas == 1 or not len(alone):
            return Pieces(np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64))
        run, replica = strikes.run[alone], strikes.replica[alone]
        # A lane of its own for each replica of a run: one sort and union for all of them.
        lane = (run * replicas + replica) * self.horizon
        time = strikes.time[alone]
        start = lane + np.maximum(time, 0.0)
        end = lane + np.minimum(time + strikes.down[alone], self.horizon)
        kept = np.flatnonzero(end > start)
        order = kept[np.argsort(start[kept], kind="stable")]
        pieces = union(start[order], end[order])
        owner = order[pieces.owner]
        shift = run[owner] * self.horizon - lane[owner]
        return Pieces(pieces.start + shift, pieces.end + shift, alone[owner])


def limits_of(phases: Floats) -> Floats:
    return np.column_stack([np.zeros(len(phases)), np.cumsum(phases, axis=1)])


def _merged(first: Pieces, second: Pieces) -> Pieces:
    if not len(second.start) or not len(first.start):
        return first if len(first.start) else second
    start = np.concatenate([first.start, second.start])
    end = np.concatenate([first.end, second.end])
    owner = np.concatenate([first.owner, second.owner])
    order = np.argsort(start, kind="stable")
    pieces = union(start[order], end[order])
    return Pieces(pieces.start, pieces.end, owner[order][pieces.owner])


# Unions of many intervals at once, and how much of a line they cover up to a point.

Floats: TypeAlias = NDArray[Any]  # float64
Ints: TypeAlias = NDArray[Any]  # int64


@dataclass(frozen=True)
class Pieces:
    """A union cut into disjoint pieces, in order; each belongs to one of the intervals."""

    start: Floats
    end: Floats
    owner: Ints

    @property
    def length(self) -> Floats:
        return self.end - self.start


def union(start: Floats, end: Floats) -> Pieces:
    """Cut the union of intervals, sorted by start, into pieces.

    Where intervals overlap, the one that ends last owns the time; of equally long ones that is
    the one that began last.

    ``intervals.union`` merges exact nanoseconds and forgets whose they
    were. Here times are minutes, as floats, and every piece must still tell which
    failure it belongs to, so neighbours that touch are not merged.
    """
    if not len(start):
        return Pieces(start, end, np.zeros(0, dtype=np.int64))
    reach = np.maximum.accumulate(end)
    owner = np.maximum.accumulate(np.where(end >= reach, np.arange(len(end)), 0))
    until = reach.copy()
    np.minimum(until[:-1], start[1:], out=until[:-1])
    kept = until > start
    return Pieces(start[kept], until[kept], owner[kept])


class Covered:
    """How much a set of disjoint pieces, in order, covers before any point."""

    def __init__(self, pieces: Pieces) -> None:
        self.pieces = pieces
        self.sums = np.concatenate(([0.0], np.cumsum(pieces.length)))

    def before(self, points: Floats) -> Floats:
        if not len(self.pieces.start):
            return np.zeros(len(points))
        index = np.searchsorted(self.pieces.start, points, side="right")
        last = np.maximum(index - 1, 0)
        beyond = np.maximum(self.pieces.end[last] - points, 0.0)
        covered: Floats = np.where(index > 0, self.sums[index] - beyond, 0.0)
        return covered

    def free_before(self, points: Floats) -> Floats:
        """Return the length that is not covered before every point, counted from 0."""
        free: Floats = points - self.before(points)
        return free

    def point_of(self, free: Floats) -> Floats:
        """Return the point before which so much is free; the inverse of ``free_before``."""
        at_start = self.pieces.start - self.sums[:-1]
        points: Floats = free + self.sums[np.searchsorted(at_start, free, side="left")]
        return points


# What intervals alone cannot express: too few live replicas, and too few spare nodes.


def with_outages(strikes: Strikes, job: FaultTolerance) -> Strikes:
    """Let everybody restart together whenever fewer replicas than needed are alive.

    All replicas come back at the end of such an outage at the latest; later failures are
    judged by who is back then.
    """
    if job.min_replicas <= 1 or not len(strikes):
        return strikes
    ends = (strikes.time + strikes.down).tolist()
    times, replicas, runs = strikes.time.tolist(), strikes.replica.tolist(), strikes.run.tolist()
    most_out, outage = job.replicas - job.min_replicas, job.outage_min
    struck: list[int] = []
    out: list[int] = []
    run = -1
    for row, (now, replica) in enumerate(zip(times, replicas, strict=True)):
        if runs[row] != run:
            run, out = runs[row], []
        if replica < 0:
            continue
        # A replica may be out for several failures; all of them end with the outage.
        out = [*(index for index in out if ends[index] > now), row]
        if len({replicas[index] for index in out}) > most_out:
            struck.append(row)
            for index in out:
                ends[index] = min(ends[index], now + outage)
    added = strikes.take(np.asarray(struck, dtype=np.int64))
    total = np.maximum(added.phases.sum(axis=1, keepdims=True), 1e-300)
    scaled = added.phases / total * outage
    # What rounding lost goes to the last phase, so that they add up to the outage.
    scaled[:, -1] += outage - scaled.sum(axis=1)
    together = Strikes(
        np.concatenate([strikes.run, added.run]),
        np.concatenate([strikes.time, added.time]),
        np.concatenate([strikes.replica, np.full(len(added), -1)]),
        np.concatenate([strikes.phases, scaled]),
        np.concatenate([np.asarray(ends) - strikes.time, np.full(len(added), outage)]),
    )
    return together.take(np.lexsort((together.time, together.run)))


def spare_waits(run: Ints, time: Floats, repair: Floats, spares: int) -> Floats:
    """Return how long every failure waits for a spare node.

    A failed node goes into repair and is a spare after it. A failure takes a spare that is
    there, else the one that is repaired first, which nobody else may take then.
    """
    waits = np.zeros(len(time))
    ready: list[float] = []
    before = -1
    for row, (number, now, needed) in enumerate(
        zip(run.tolist(), time.tolist(), repair.tolist(), strict=True)
    ):
        if number != before:
            ready, before = [-np.inf] * spares, number
        # The node that fails now may be the next spare, if its repair is the quickest.
        heapq.heappush(ready, now + needed)
        waits[row] = max(heapq.heappop(ready) - now, 0.0)
    return waits
