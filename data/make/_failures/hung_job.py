"""A training job that hangs: what the flight recorder of every rank would have written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from data.make._failures.hang_engine import (
    GROUPS,
    HANG_FAULTS,
    OTHER_OPERATION,
    OTHER_SIZE,
    Fault,
    HangJob,
    Record,
    Worker,
    run,
    workers,
)  # fmt: skip
from data.make._folder import new_folder, write, write_truth
from data.make._truth import HANG_TRUTH

_README = """# Synthetic dumps of a hang

**Nothing here was measured.** `data.make.hang` made every file from seed {seed}.

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
        Size of the job and of the recorder's memory; see :class:`data.make.HangJob`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`data.make.HANG_TRUTH`, as written to ``truth.csv``: ``fault``,
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
        msg = "a job of one rank has no other rank to wait for; pass at least two ranks"
        raise ValueError(msg)
    return job


def _chosen(
    ranks: list[Worker],
    job: HangJob,
    rng: np.random.Generator,
    wanted: tuple[str, int | None, str | None],
) -> Fault:
    """Draw where the fault hits: a collective of the second half that is not of the last step."""
    kind, rank, group = wanted
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
    positions = [
        at
        for at in range(step * per_step, (step + 1) * per_step)
        if not calls[at].is_p2p
        and len(calls[at].group.members) >= needs
        and group in {None, calls[at].group.description}
    ]
    if not positions:
        where = f"in {group}" if group else f"of {needs} ranks or more"
        msg = f"rank {hit} calls no collective {where}; name another group or a larger job"
        raise ValueError(msg)
    return Fault(kind, hit, positions[int(rng.integers(len(positions)))])


def _truth(ranks: list[Worker], fault: Fault | None) -> pd.DataFrame:
    rows = []
    if fault is not None:
        calls = ranks[fault.rank].calls[: fault.position + 1]
        group = calls[-1].group
        seq = sum(call.group == group and not call.is_p2p for call in calls)
        rows.append(
            (fault.kind, fault.rank, group.name, group.description, seq, calls[-1].operation)
        )
    frame = pd.DataFrame(rows, columns=list(HANG_TRUTH.columns), dtype=object)
    return HANG_TRUTH.of(frame)


# What the flight recorder of every rank would write, as ``dump_nccl_trace_json`` does.

_TIMEOUT_MS = 600_000


def dump(worker: Worker, buffer_count: int) -> dict[str, Any]:
    local = {group.name: at for at, group in enumerate(worker.groups)}
    first = max(len(worker.records) - buffer_count, 0)
    return {
        "version": "2.9",
        "synthetic": True,
        "nccl_version": "2.27.3",
        "pg_config": {
            group.name: {
                "name": group.name, "desc": group.description, "ranks": str(list(group.members)),
            }
            for group in worker.groups
        },
        "pg_status": {
            str(local[group.name]): _status(
                worker, [each for each in worker.records if each.call.group == group]
            )
            for group in worker.groups
        },
        "entries": [
            _entry(worker, record, at, local[record.call.group.name])
            for at, record in enumerate(worker.records)
            if at >= first
        ],
    }  # fmt: skip


def _status(worker: Worker, records: list[Record]) -> dict[str, int]:
    """Count as the recorder does: -1 is nothing; the last one may be of either kind."""
    done = [(seen, _number(each)) for each in records if (seen := worker.seen_ns(each))]
    return {
        "last_enqueued_collective": _number(records[-1]) if records else -1,
        # Starts are watched only with TORCH_NCCL_ENABLE_TIMING.
        "last_started_collective": -1,
        "last_completed_collective": max(done)[1] if done else -1,
    }


def _number(record: Record) -> int:
    return record.p2p_seq if record.call.is_p2p else record.seq


def _entry(worker: Worker, record: Record, at: int, local_group: int) -> dict[str, Any]:
    call = record.call
    seen = worker.seen_ns(record)
    name = call.operation
    if call.peer is not None:
        arrow = "->" if name == "send" else "<-"
        group_rank = call.group.members.index
        name += f" {group_rank(worker.rank)}{arrow}{group_rank(call.peer)}"
    return {
        "record_id": at,
        "pg_id": local_group,
        "process_group": [call.group.name, call.group.description],
        "collective_seq_id": record.seq,
        "p2p_seq_id": record.p2p_seq,
        "op_id": record.seq + record.p2p_seq,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": record.created_ns,
        "input_sizes": [list(call.in_shape)],
        "input_dtypes": [call.dtype],
        "output_sizes": [list(call.out_shape)],
        "output_dtypes": [call.dtype],
        "state": "scheduled" if seen is None else "completed",
        "time_discovered_started_ns": 0,
        "time_discovered_completed_ns": seen or 0,
        "retired": seen is not None,
        "timeout_ms": _TIMEOUT_MS,
        "is_p2p": call.is_p2p,
    }
