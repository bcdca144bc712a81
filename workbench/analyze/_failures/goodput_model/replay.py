"""The replay engine: failures as intervals on one long line, run after run, without a loop."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from workbench.analyze._failures.goodput_model.cover import Covered, Floats, Ints, Pieces, union
from workbench.analyze._failures.goodput_model.fault_tolerance import FaultTolerance


@dataclass(frozen=True)
class Strikes:
    """Failures in order of run and time, as arrays."""

    run: Ints
    time: Floats
    replica: Ints  # -1: all of them
    phases: Floats  # minutes, one column per phase
    down: Floats  # until whoever was hit works again

    def __len__(self) -> int:
        return len(self.time)

    def take(self, chosen: Ints | np.ndarray) -> Strikes:
        """Return some of them."""
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
        """Where runs begin, and where the last one ends."""
        return np.arange(self.run_count + 1) * self.horizon

    @property
    def origin(self) -> Floats:
        """Where every strike lies on the line; before its run if it struck before it."""
        origin: Floats = self.strikes.run * self.horizon + self.strikes.time
        return origin

    def per_run(self, owner: Ints, lengths: Floats) -> Floats:
        """Sum lengths by the run of the strikes that own them."""
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
        """Give the working time before every point, weighted by the share of live replicas."""
        running = self.stopped.free_before(points)
        changes, clock, out, lost = self._losses
        at = np.searchsorted(changes, points, side="right") - 1
        lost = lost[at] + out[at] * (running - clock[at])
        weighted: Floats = running - lost / self.job.replicas
        return weighted

    @cached_property
    def _losses(self) -> tuple[Floats, Floats, Ints, Floats]:
        """Give when replicas go and come, the running clock then, how many are out, their loss."""
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
        """Give when single replicas are out, on the line; pieces of replicas may overlap."""
        replicas = self.job.replicas
        if replicas == 1 or not len(alone):
            return Pieces(np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64))
        run, replica = strikes.run[alone], strikes.replica[alone]
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
    """Give the ages at which the phases of every row begin and end."""
    return np.column_stack([np.zeros(len(phases)), np.cumsum(phases, axis=1)])


def _merged(first: Pieces, second: Pieces) -> Pieces:
    """Give the union of two unions."""
    if not len(second.start) or not len(first.start):
        return first if len(first.start) else second
    start = np.concatenate([first.start, second.start])
    end = np.concatenate([first.end, second.end])
    owner = np.concatenate([first.owner, second.owner])
    order = np.argsort(start, kind="stable")
    pieces = union(start[order], end[order])
    return Pieces(pieces.start, pieces.end, owner[order][pieces.owner])
