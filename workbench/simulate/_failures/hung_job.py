"""A training job that hangs: what the flight recorder of every rank would have written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from workbench.simulate._failures.hang_dumps import dump
from workbench.simulate._failures.hang_engine import (
    HANG_FAULTS,
    OTHER_OPERATION,
    OTHER_SIZE,
    Fault,
    Worker,
    run,
    workers,
)  # fmt: skip
from workbench.simulate._failures.hang_program import GROUPS, HangJob
from workbench.simulate._folder import new_folder, write, write_truth
from workbench.tables import HANG_TRUTH

_README = """# Synthetic dumps of a hang

**Nothing here was measured.** `workbench.simulate.hang` made every file from seed {seed}.

| file | holds |
|---|---|
| `synthetic_nccl_trace_rank_0.json`, ... | what the NCCL flight recorder of each of {world_size} \
ranks would have written: its last {buffer_count} operations; each says `"synthetic": true` |
| `truth.csv` | {what} |

The job trains with {tensor_ranks} tensor-parallel x {dp_ranks} data-parallel ranks in {stages} \
pipeline stages, {micro_batches} micro-batches per step.

The licence is that of the workbench (MIT).
"""


def hang(
    out: str | Path,
    *,
    seed: int,
    fault: str | None = "frozen host",
    rank: int | None = None,
    group: str | None = None,
    job: HangJob | tuple[int, ...] = HangJob(),  # noqa: B008 - cannot be changed
) -> pd.DataFrame:
    """Write the flight-recorder dumps of a job that hangs, and the truth about it.

    Every rank calls its collectives, sends and receives in the order of its program, ahead
    of its GPU. One of them goes wrong; the others run on until they wait. Then the recorder
    of every rank writes the last operations it holds.

    Parameters
    ----------
    out
        Folder to write into; made if absent, must be empty.
    seed
        Seed of all that is random, among it where the fault hits. The same seed gives the
        same bytes.
    fault
        ``"frozen host"``: the host stops before it calls a collective; ``"failed GPU"``: a
        collective has been called and never ends on this GPU, nor does the recorder learn of
        what ended up to 0.1 s before; ``"mismatched operation"``, ``"mismatched size"``:
        another operation or twice the elements; None: the job ends well.
    rank
        Global rank that the fault hits; None: any.
    group
        What the group is for in which it shows, e.g. ``"DATA_PARALLEL_GROUP"``; None: any,
        of mismatches any with a majority, that is of three ranks and more.
    job
        Size of the job and of the recorder's memory; see :class:`workbench.simulate.HangJob`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.HANG_TRUTH`, as written to ``truth.csv``: ``fault``,
        ``rank``, ``group``, ``description``, ``seq`` and ``operation``; empty without a fault.

    Raises
    ------
    FileExistsError
        If ``out`` holds files already.
    ValueError
        If the fault is unknown, the job too small, or there is no such collective.

    Notes
    -----
    GPUs run their operations in order, and a collective ends when all members are in it.
    The source of a broadcast waits for nobody; sends hold up nothing. Members whose calls do
    not fit each other stay in them for good. Hosts wait for their GPU after every receive,
    as Megatron's do, and twice at the end of a step.
    """
    folder = new_folder(out)
    shape = _checked(HangJob(*job))
    rng = np.random.default_rng(seed)
    ranks = workers(shape, rng)
    chosen = None if fault is None else _chosen(ranks, shape, rng, (fault, rank, group))
    truth = _truth(ranks, chosen)
    run(ranks, chosen)
    for worker in ranks:
        text = json.dumps(dump(worker, shape.buffer_count), separators=(",", ":"))
        name = f"synthetic_nccl_trace_rank_{worker.rank}.json"
        write(folder / name, text + "\n")
    write_truth(folder, truth)
    about = {**shape._asdict(), "world_size": shape.world_size, "seed": seed}
    what = "no fault: the job ends well" if chosen is None else "the fault, and where it hits"
    write(folder / "README.md", _README.format(**about, what=what))
    return truth


def _checked(job: HangJob) -> HangJob:
    least = {"steps": 2, "buffer_count": 2}
    if small := [name for name, size in job._asdict().items() if size < least.get(name, 1)]:
        msg = f"job.{small[0]} is {getattr(job, small[0])}; it must be at least "
        msg += str(least.get(small[0], 1))
        raise ValueError(msg)
    if job.world_size == 1:
        msg = "a job of one rank has nobody to wait for; give at least two ranks"
        raise ValueError(msg)
    return job


def _chosen(
    ranks: list[Worker],
    job: HangJob,
    rng: np.random.Generator,
    asked: tuple[str, int | None, str | None],
) -> Fault:
    """Draw where the fault hits: a collective of the second half that is not of the last step."""
    kind, rank, group = asked
    if kind not in HANG_FAULTS:
        msg = f"unknown fault {kind!r}; it must be one of {', '.join(HANG_FAULTS)} or None"
        raise ValueError(msg)
    if rank is not None and not 0 <= rank < job.world_size:
        msg = f"rank is {rank}; the job has ranks 0 to {job.world_size - 1}"
        raise ValueError(msg)
    if group is not None and group not in GROUPS:
        msg = f"unknown group {group!r}; it must be one of {', '.join(GROUPS)} or None"
        raise ValueError(msg)
    hit = int(rng.integers(job.world_size)) if rank is None else rank
    calls = ranks[hit].calls
    per_step = len(calls) // job.steps
    step = int(rng.integers(job.steps // 2, job.steps - 1)) if job.steps > 2 else 0
    needs = 3 if group is None and kind in {OTHER_OPERATION, OTHER_SIZE} else 2
    places = [
        at
        for at in range(step * per_step, (step + 1) * per_step)
        if not calls[at].is_p2p
        and len(calls[at].group.members) >= needs
        and group in {None, calls[at].group.description}
    ]
    if not places:
        where = f"in {group}" if group else f"of {needs} ranks or more"
        msg = f"rank {hit} calls no collective {where}; name another group or a larger job"
        raise ValueError(msg)
    return Fault(kind, hit, places[int(rng.integers(len(places)))])


def _truth(ranks: list[Worker], fault: Fault | None) -> pd.DataFrame:
    """Make table HANG_TRUTH; before the run, which puts in what is called by mistake."""
    rows = []
    if fault is not None:
        calls = ranks[fault.rank].calls[: fault.position + 1]
        group = calls[-1].group
        seq = sum(each.group == group and not each.is_p2p for each in calls)
        rows.append(
            (fault.kind, fault.rank, group.name, group.description, seq, calls[-1].operation)
        )
    frame = pd.DataFrame(rows, columns=list(HANG_TRUTH.columns), dtype=object)
    return HANG_TRUTH.check(HANG_TRUTH.cast(frame))
