"""What the flight recorder of every rank would write, as ``dump_nccl_trace_json`` does."""

from __future__ import annotations

from typing import Any

from workbench.simulate._failures.hang_engine import Record, Worker

_TIMEOUT_MS = 600_000


def dump(worker: Worker, buffer_count: int) -> dict[str, Any]:
    """Return the content of one rank's dump, with its last operations."""
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
        place = call.group.members.index
        name += f" {place(worker.rank)}{arrow}{place(call.peer)}"
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
