"""What a trace says of the machine and the job: devices, process groups, launch shapes."""

from __future__ import annotations

from typing import Any

from workbench.simulate._fleet.plan import Job
from workbench.simulate._fleet.program import Op

_PROCESSORS = 132


def group(job: Job, kind: str, rank: int) -> tuple[str, str, list[int]]:
    """Give name, purpose and members of the process group a rank belongs to."""
    if kind == "job":
        return "0", "default_pg", list(range(job.ranks))
    node = rank // job.gpus_per_node
    first = node * job.gpus_per_node
    return str(node + 1), "mesh_expert", list(range(first, first + job.gpus_per_node))


def distributed(job: Job, rank: int) -> dict[str, Any]:
    """Describe the job and the rank's process groups, as ``distributedInfo`` does."""
    groups = [group(job, kind, rank) for kind in ("job", "node")]
    return {
        "backend": "nccl",
        "rank": rank,
        "world_size": job.ranks,
        "pg_count": len(groups),
        "pg_config": [
            {
                "pg_name": name,
                "pg_desc": purpose,
                "backend_config": "cuda:nccl",
                "pg_size": len(members),
                "ranks": members,
            }
            for name, purpose, members in groups
        ],
        "nccl_version": "2.27.3",
    }


def collective(job: Job, op: Op, rank: int, sequence: int) -> dict[str, Any]:
    """Describe one collective as PyTorch records it."""
    name, purpose, members = group(job, op.group, rank)
    return {
        "Collective name": op.collective,
        "In msg nelems": op.in_count,
        "Out msg nelems": op.out_count,
        "Group size": len(members),
        "dtype": op.dtype,
        "In split size": "[]",
        "Out split size": "[]",
        "Process Group Name": name,
        "Process Group Description": purpose,
        "Process Group Ranks": str(members),
        "Rank": rank,
        "Seq": sequence,
    }


def shape(op: Op) -> dict[str, Any]:
    """Give a plausible launch shape for a kernel."""
    if op.kind == "collective":
        registers, shared, blocks, threads = 96, 82_240, 16, 544
    elif op.gpu_name.startswith(("nvjet", "void cutlass", "void flash")):
        registers, shared, blocks, threads = 168, 213_248, _PROCESSORS, 384
    else:
        registers, shared, blocks, threads = 32, 0, max(1, op.gpu_ns // 4), 128
    return {
        "queued": 0,
        "registers per thread": registers,
        "shared memory": shared,
        "blocks per SM": round(blocks / _PROCESSORS, 6),
        "warps per SM": round(blocks * threads / 32 / _PROCESSORS, 6),
        "grid": [blocks, 1, 1],
        "block": [threads, 1, 1],
        "est. achieved occupancy %": min(100, int(100 * blocks * threads / 2048 / _PROCESSORS)),
    }


def devices(count: int) -> list[dict[str, Any]]:
    """Describe the GPUs of a node as the profiler does."""
    one = {
        "name": "NVIDIA H100 80GB HBM3",
        "totalGlobalMem": 84_942_979_072,
        "computeMajor": 9,
        "computeMinor": 0,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerMultiprocessor": 2048,
        "regsPerBlock": 65_536,
        "warpSize": 32,
        "sharedMemPerBlock": 49_152,
        "numSms": _PROCESSORS,
        "regsPerMultiprocessor": 65_536,
        "sharedMemPerBlockOptin": 232_448,
        "sharedMemPerMultiprocessor": 233_472,
    }
    return [{"id": device, **one} for device in range(count)]
