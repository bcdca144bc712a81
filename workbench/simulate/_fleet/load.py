"""What a GPU of the job draws at every moment, before any sensor averages it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from workbench.simulate._fleet.engine import Step
from workbench.simulate._fleet.history import History
from workbench.simulate._fleet.plan import SECOND, Flags, Floats, Ints, Job


@dataclass(frozen=True)
class Load:
    """A step function: each value holds from its edge to the next one."""

    edges_ns: Ints
    power_w: Floats
    is_busy: Flags


@dataclass(frozen=True)
class _Spans:
    """Stretches of time in which the GPU did one kind of work, with its power above idle."""

    start_ns: Ints
    end_ns: Ints
    extra_w: Floats


def load_of(history: History, rank: int, attempts: Collection[int]) -> Load:
    """Follow a GPU through the attempts it took part in.

    Compute sets the power; communication only where nothing computes, for it
    hardly adds to a GPU at work; idle power is always there.
    """
    compute = _spans(history, rank, attempts, ("kernel", "copy"))
    talk = _spans(history, rank, attempts, ("collective",))
    edges = np.unique(
        np.concatenate([compute.start_ns, compute.end_ns, talk.start_ns, talk.end_ns])
    )
    computing = _level(edges, compute, np.ones_like(compute.extra_w)) > 0.5
    talking = _level(edges, talk, np.ones_like(talk.extra_w)) > 0.5
    talk_w = history.job.cluster.communication_w - history.job.cluster.idle_w
    extra = np.where(computing, _level(edges, compute, compute.extra_w), talk_w * talking)
    return Load(edges, history.job.cluster.idle_w + extra, computing | talking)


def window_mean(edges_ns: Ints, values: Floats, time_ns: Ints) -> Floats:
    """Average a step function over the second before each sample.

    Before the first edge and after the last one the last value holds, which is
    that of an idle GPU.
    """
    outside = values[-1]
    inner = edges_ns - edges_ns[0]
    area = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(inner))])

    def integral(at: Ints) -> Floats:
        beyond = np.minimum(at, 0) + np.maximum(at - inner[-1], 0)
        return np.asarray(np.interp(at, inner, area) + beyond * outside, dtype=np.float64)

    at = time_ns - edges_ns[0]
    return (integral(at) - integral(at - SECOND)) / SECOND


def _spans(
    history: History, rank: int, attempts: Collection[int], kinds: Collection[str]
) -> _Spans:
    """Collect the GPU's work of some kinds, up to the failure and the hang after it."""
    job, cut = history.job, history.failed_ns
    chosen = np.array([op.kind in kinds for op in history.program])
    steps = [step for step in history.steps if step.attempt in attempts]
    steps += [history.interrupted] if history.interrupted and 1 in attempts else []
    start = [step.gpu_start[chosen, rank] for step in steps]
    end = [step.gpu_end[chosen, rank] for step in steps]
    extra = [np.full(chosen.sum(), _compute_w(job, s, rank) - job.cluster.idle_w) for s in steps]
    if history.interrupted and 1 in attempts and cut is not None:
        start[-1], end[-1] = np.minimum(start[-1], cut), np.minimum(end[-1], cut)
        hangs = "collective" in kinds and rank != job.faults.failing_rank
        if hangs and history.detected_ns:  # spins in a collective until the watchdog ends it
            start.append(np.array([cut], dtype=np.int64))
            end.append(np.array([history.detected_ns], dtype=np.int64))
            extra.append(np.zeros(1))
    return _Spans(np.concatenate(start), np.concatenate(end), np.concatenate(extra))


def _level(edges: Ints, spans: _Spans, weight: Floats) -> Floats:
    """Add up the weights of the spans that cover each stretch between edges."""
    change = np.zeros(len(edges))
    np.add.at(change, np.searchsorted(edges, spans.start_ns), weight)
    np.subtract.at(change, np.searchsorted(edges, spans.end_ns), weight)
    return np.cumsum(change)


def _compute_w(job: Job, step: Step, rank: int) -> float:
    """Give the power of computing: less at a capped clock, less in a GPU that stalls."""
    first = step.attempt == 1
    if first and rank == job.faults.capped_rank and job.is_capped(step.number):
        return job.cluster.compute_power_w(job.capped_clock_mhz())
    if first and rank == job.faults.slow_rank and job.is_slow(step.number):
        dynamic = job.cluster.compute_w - job.cluster.idle_w
        return job.cluster.idle_w + dynamic / job.faults.slow_factor
    return job.cluster.compute_w
