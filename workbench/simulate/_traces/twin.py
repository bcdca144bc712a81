"""A statistical twin: a trace drawn from the profile of another one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench._shared.numbers import Floats, positive, whole_number
from workbench.errors import WorkbenchError
from workbench.simulate._traces.draws import Draws
from workbench.simulate._traces.twin_events import Launches, trace_of
from workbench.tables import Trace, TraceProfile
from workbench.tables.trace_profile import SYNC

_MOST_ROWS = 2_000_000
_LONGEST_S = 1e9  # times are int64 [ns]
# What the host spends in a call that waits, and between neighbours on a stream [ns].
_SYNC_NS, _STREAM_GAP_NS = 5_000, 1_000
_LEAST_CALL_NS = 2_000


@dataclass(frozen=True)
class TwinChange:
    """How a twin differs from its source.

    Parameters
    ----------
    compute_ratio
        Time of compute, of that in the profile.
    communication_ratio
        The same of communication.
    """

    compute_ratio: float = 1.0
    communication_ratio: float = 1.0

    def __post_init__(self) -> None:
        positive("compute_ratio", self.compute_ratio)
        positive("communication_ratio", self.communication_ratio)


def traces_like(
    profile: TraceProfile,
    *,
    ranks: int | None = None,
    repeats: int | None = None,
    change: TwinChange | None = None,
    seed: int = 0,
) -> Trace:
    """Draw a trace that behaves like the one a profile was taken from.

    It is a trace like any other: every analysis, what-if and writer takes it. It is synthetic, and
    says so: nothing in it was measured.

    Parameters
    ----------
    profile
        From :func:`workbench.analyze.trace_profile` or :func:`workbench.load.trace_profile`.
    ranks
        Ranks to draw; by default as many as the profile was taken from.
    repeats
        Steps to draw; by default as many as the profile was taken from.
    change
        A what-if: compute or communication that takes another time.
    seed
        The same seed draws the same trace.

    Returns
    -------
    workbench.tables.Trace
        ``events``, ``ranks``, ``process_groups``, ``steps`` and ``quality``, which says that the
        trace is synthetic. Names say so too.

    Raises
    ------
    WorkbenchError
        If a number is out of range, or the trace would have more than 2,000,000 operations or last
        for decades.

    Notes
    -----
    All ranks start the operations of the motif in one order. Work starts once the host has launched
    it, the work before it on its stream has ended, and the stream that it waits for has ended what
    was launched before; a collective moves data once its last rank is there, and ends on all ranks
    at once. The host waits where the source waited. So nothing waits for itself, nothing on a
    stream overlaps, and waits between ranks arise from their differences. Ranks differ by their
    begin and by log-normal factors of compute and of host time.
    """
    count = whole_number("ranks", profile.rank_count if ranks is None else ranks, least=1)
    steps = whole_number("repeats", profile.step_count if repeats is None else repeats, least=1)
    rng = np.random.default_rng(whole_number("seed", seed, least=0))
    draws = Draws(profile, rng)
    if (rows := len(draws.operations) * steps * count) > _MOST_ROWS:
        msg = f"{count} ranks of {steps} steps of {len(draws.operations):,} operations are "
        msg += f"{rows:,}, more than {_MOST_ROWS:,}; ask for fewer ranks or repeats"
        raise WorkbenchError(msg)
    job = _Job(profile, draws, count, rng)
    factors = _factors(draws, change or TwinChange())
    size = draws.sizes()
    launches = [job.step(size, factors) for _ in range(steps)]
    if (last := launches[-1].times.max() / 1e9) >= _LONGEST_S:
        msg = f"the twin would last {last:.3g} s, more than {_LONGEST_S:.3g} s; "
        raise WorkbenchError(msg + "look at the durations and gaps of the profile")
    return trace_of(profile, draws, Launches.joined(launches), size)


def _factors(draws: Draws, change: TwinChange) -> Floats:
    ratio = {"compute": change.compute_ratio, "communication": change.communication_ratio}
    return np.array([ratio.get(operation.kind, 1.0) for operation in draws.operations])


class _Job:
    """The hosts and streams of all ranks, as arrays over ranks."""

    def __init__(
        self, profile: TraceProfile, draws: Draws, count: int, rng: np.random.Generator
    ) -> None:
        self._profile, self._draws, self._rng, self._count = profile, draws, rng, count
        share = (rng.permutation(count) + 0.5) / count
        begin = np.interp(share, np.linspace(0, 1, len(profile.start_ns)), profile.start_ns)
        self._host = begin if count > 1 else np.zeros(1)
        self._compute, self._pace = (
            np.exp(noise * rng.standard_normal(count))
            for noise in (profile.compute_noise_ratio, profile.host_noise_ratio)
        )
        streams = [max(operation.stream, operation.waits) for operation in draws.operations]
        # Of each stream the operation that was started last, and all before it.
        self._ends: list[list[Floats]] = [[np.zeros(count)] for _ in range(max(streams) + 1)]
        self._started: list[list[int]] = [[-1] for _ in self._ends]
        self._number = 0

    def step(self, size: Floats, factors: Floats) -> Launches:
        """Run one step; everything is in ns from the start of the trace."""
        count, operations = self._count, self._draws.operations
        gap = np.maximum(self._draws.gaps(), self._draws.least_gaps)
        duration = self._draws.durations(size) * factors
        times = np.zeros((5, len(operations), count))
        causes = np.full(len(operations), -1)
        begin = self._host.copy()
        for at, operation in enumerate(operations):
            self._host = self._host + np.rint(gap[at] * self._pace)
            if operation.kind == SYNC:
                times[:2, at] = self._wait(operation.stream)
                continue
            call = self._host
            start = np.maximum(
                call + self._profile.launch_ns, self._ends[operation.stream][-1] + _STREAM_GAP_NS
            )
            if operation.waits >= 0:
                place = max(len(self._ends[operation.waits]) - 1 - operation.back, 0)
                start = np.maximum(start, self._ends[operation.waits][place])
                causes[at] = self._started[operation.waits][place]
            own = duration[at] * (self._compute if operation.kind == "compute" else np.ones(count))
            own = np.rint(np.maximum(own, 1.0))
            start = np.rint(start)
            end = start + own
            if operation.kind == "communication":
                end = _last(start, operation.group) + own
            self._ends[operation.stream].append(end)
            self._started[operation.stream].append(self._number + at)
            following = gap[at + 1] if at + 1 < len(operations) else _LEAST_CALL_NS
            length = np.rint(min(following / 2, _LEAST_CALL_NS) * self._pace)
            times[:, at] = call, call + length, start, end, own
        self._host = self._host + np.rint(self._profile.tail_ns * self._pace)
        self._number += len(operations)
        return Launches(times, causes, begin[None], self._host[None])

    def _wait(self, stream: int) -> tuple[Floats, Floats]:
        call = self._host
        waited = self._ends if stream < 0 else [self._ends[stream]]
        ready = np.max([ends[-1] for ends in waited], axis=0)
        self._host = np.maximum(call + _SYNC_NS, np.rint(ready))
        return call, self._host


def _last(start: Floats, group: int) -> Floats:
    """Return when the last rank of each group of neighbours is there."""
    members = group if group and len(start) % group == 0 else len(start)
    return np.repeat(start.reshape(-1, members).max(axis=1), members)
