"""Run training steps on all ranks at once: who starts what when, to the nanosecond.

Every rank has a host thread and one GPU with a compute stream and a stream per
kind of process group. The host issues operations in order and runs ahead of the
GPU; work on a stream starts when the stream is free and its launch has arrived.
A collective starts on each rank as soon as that rank gets there, but moves data
only when the last member of its group has come, so it ends on all members
together and early ranks wait inside their kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.simulate._fleet.plan import Floats, Ints, Job
from workbench.simulate._fleet.program import COMPUTE_STREAM, JOB_STREAM, NODE_STREAM, Op

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
        """Run a kernel or a copy."""
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
        transfer = _ints(op.gpu_ns * (0.98 + 0.04 * self._gpu_noise[index][: len(latest)]))
        end = (latest + transfer)[member] + self._exits[index]
        self._free[op.stream] = end
        self._signalled[op.event] = end
        return start, end

    def _wait(self, stream: int, until: Ints) -> None:
        self._free[stream] = np.maximum(self._free[stream], until)


def _ints(values: Floats) -> Ints:
    return np.rint(values).astype(np.int64)
