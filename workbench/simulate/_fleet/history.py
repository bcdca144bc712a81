"""The whole job from start to end: attempts, checkpoints, the failure and the restart."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.simulate._fleet.engine import Engine, Step
from workbench.simulate._fleet.plan import SECOND, Job
from workbench.simulate._fleet.program import Op, training_step


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
    """Give start and end of some steps of the first attempt on one rank."""
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
