"""Run training steps on all ranks at once: who starts what when, to the nanosecond.

Every rank has a host thread and one GPU with a compute stream and a stream per kind of process
group. The host issues operations in order and runs ahead of the GPU; work on a stream starts when
the stream is free and its launch has arrived. A collective starts on each rank as soon as that rank
gets there, but moves data only when the last member of its group has come, so it ends on all
members together and early ranks wait inside their kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.make._fleet.program import (
    COMPUTE_STREAM,
    JOB_STREAM,
    NODE_STREAM,
    SECOND,
    Job,
    Op,
    training_step,
)
from workbench._shared.numbers import Floats, Ints

CALL_NS = 3_000  # from the start of a CPU op to what it does
RETURN_NS = 1_000  # from there to its end
EVENT_NS = 1_200  # cudaEventRecord or cudaStreamWaitEvent
LATENCY_NS = 4_500  # from the start of a launch call to the start of its kernel


@dataclass(frozen=True)
class Step:
    """When everything in one step happened: arrays of shape (operation, rank), in ns."""

    number: int
    attempt: int
    start: Ints
    end: Ints
    host_start: Ints
    call_start: Ints
    call_end: Ints
    host_end: Ints
    gpu_start: Ints
    gpu_end: Ints


class Engine:
    """The state of all ranks between two operations."""

    def __init__(self, job: Job, program: list[Op], *, attempt: int, start_ns: int) -> None:
        self._job, self._program, self._attempt = job, program, attempt
        self._host = np.full(job.ranks, start_ns, dtype=np.int64)
        self._free = {
            stream: self._host.copy() for stream in (COMPUTE_STREAM, JOB_STREAM, NODE_STREAM)
        }
        self._signalled: dict[str, Ints] = {}
        ranks = np.arange(job.ranks)
        self._members = {"job": ranks * 0, "node": ranks // job.gpus_per_node}

    def run(self, number: int) -> Step:
        """Run one step on all ranks."""
        job, shape = self._job, (len(self._program), self._job.ranks)
        rng = np.random.default_rng([job.seed, self._attempt, number])
        self._gpu_noise, self._calls = rng.random(shape), 5_000 + _ints(2_000 * rng.random(shape))
        self._pauses, self._exits = _ints(9_000 * rng.random(shape)), _ints(900 * rng.random(shape))
        self._compute = job.compute_factor(number, self._attempt)
        self._delay = job.host_delay_ns(number, self._attempt)
        start = self._host.copy()
        rows = [self._issue(index, op) for index, op in enumerate(self._program)]
        self._host = self._host + 25_000
        columns = (np.stack(column) for column in zip(*rows, strict=True))
        return Step(number, self._attempt, start, self._host.copy(), *columns)

    def pause(self, duration_ns: int) -> None:
        """Let all hosts do something else, such as writing a checkpoint."""
        self._host = self._host.max() + duration_ns + 0 * self._host

    def _issue(self, index: int, op: Op) -> tuple[Ints, ...]:
        """Let every host issue one operation; give its six rows of the step."""
        host_start = self._host
        call_start = host_start + CALL_NS * len(op.calls) + 2 * EVENT_NS * (op.group != "")
        call_end = call_start + (EVENT_NS if op.kind == "join" else self._calls[index])
        gpu_start = gpu_end = np.full_like(host_start, -1)
        if op.kind == "host":
            call_end = call_start + _ints(op.host_ns * (0.9 + 0.2 * self._gpu_noise[index]))
            call_end = call_end + (self._delay if op.phase == "data" else 0)
        elif op.kind == "join":
            self._wait(COMPUTE_STREAM, self._signalled[op.event])
        elif op.kind == "sync":
            call_end = np.maximum(call_end, self._free[COMPUTE_STREAM] + 3_000)
        elif op.kind == "collective":
            gpu_start, gpu_end = self._collective(index, op, call_start)
        else:
            gpu_start, gpu_end = self._local(index, op, call_start)
        host_end = call_end + RETURN_NS * len(op.calls) + EVENT_NS * (op.group != "")
        self._host = host_end + self._pauses[index]
        return host_start, call_start, call_end, host_end, gpu_start, gpu_end

    def _local(self, index: int, op: Op, call_start: Ints) -> tuple[Ints, Ints]:
        factor = self._compute if op.kind == "kernel" else 1.0
        noisy = op.gpu_ns * (0.994 + 0.012 * self._gpu_noise[index])
        start = np.maximum(self._free[op.stream] + 900, call_start + LATENCY_NS)
        end = start + _ints(noisy * factor)
        self._free[op.stream] = end
        return start, end

    def _collective(self, index: int, op: Op, call_start: Ints) -> tuple[Ints, Ints]:
        """Enter on each rank when ready; end when the last member has come and data moved."""
        self._wait(op.stream, self._free[COMPUTE_STREAM])
        start = np.maximum(self._free[op.stream] + 900, call_start + LATENCY_NS)
        member = self._members[op.group]
        latest = np.zeros(int(member.max()) + 1, dtype=np.int64)
        np.maximum.at(latest, member, start)
        noise = 0.98 + 0.04 * self._gpu_noise[index][: len(latest)]
        transfer = _ints(op.gpu_ns * noise * self._job.transfer_factor(op.group))
        end = (latest + transfer)[member] + self._exits[index]
        self._free[op.stream] = end
        self._signalled[op.event] = end
        return start, end

    def _wait(self, stream: int, until: Ints) -> None:
        self._free[stream] = np.maximum(self._free[stream], until)


def _ints(values: Floats) -> Ints:
    return np.rint(values).astype(np.int64)


@dataclass(frozen=True)
class History:
    """Everything that happened, in ns since the epoch; None for what did not happen."""

    job: Job
    program: list[Op]
    steps: list[Step]  # whole steps, in order of time
    checkpoints: list[tuple[int, int, int]]  # (steps saved, start, end)
    failed_ns: int | None
    detected_ns: int | None
    restarted_ns: int | None
    interrupted: Step | None  # the step that the failure cut off
    end_ns: int

    @property
    def traced(self) -> list[Step]:
        """The steps that the profiler recorded."""
        job = self.job
        return [
            step
            for step in self.steps
            if step.attempt == 1 and job.first_traced_step <= step.number <= job.last_traced_step
        ]


def run(job: Job) -> History:
    """Run the job to its end, through the failure if there is one."""
    program = training_step(job.cluster, job.ranks, job.gpus_per_node)
    engine = Engine(job, program, attempt=1, start_ns=job.start_ns + job.startup_ns)
    fails = job.faults.failing_rank is not None
    stop = job.failing_step if fails else job.total_steps
    steps, checkpoints = _run_steps(job, engine, 0, stop)
    if not fails:
        end = int(steps[-1].end.max()) + 2 * SECOND
        return History(job, program, steps, checkpoints, None, None, None, None, end)
    cut = engine.run(stop)
    failed = int(cut.start.max()) + int((cut.end - cut.start).max()) * 2 // 5
    detected = failed + job.detect_ns
    restarted = detected + job.reschedule_ns
    engine = Engine(job, program, attempt=2, start_ns=restarted + job.startup_ns)
    resumed = checkpoints[-1][0] if checkpoints else 0
    more, later = _run_steps(job, engine, resumed, job.total_steps)
    end = int(more[-1].end.max()) + 2 * SECOND
    saved = checkpoints + later
    return History(job, program, steps + more, saved, failed, detected, restarted, cut, end)


def span_of(history: History, rank: int, first: int, last: int) -> tuple[int, int]:
    """Return start and end of some steps of the first attempt on one rank."""
    steps = [s for s in history.steps if s.attempt == 1 and first <= s.number <= last]
    return int(steps[0].start[rank]), int(steps[-1].end[rank])


def _run_steps(
    job: Job, engine: Engine, first: int, stop: int
) -> tuple[list[Step], list[tuple[int, int, int]]]:
    """Run whole steps, writing a checkpoint every so often."""
    steps, checkpoints = [], []
    for number in range(first, stop):
        steps.append(engine.run(number))
        if (number + 1) % job.checkpoint_every == 0:
            start = int(steps[-1].end.max())
            engine.pause(job.checkpoint_ns)
            checkpoints.append((number + 1, start, start + job.checkpoint_ns))
    return steps, checkpoints
