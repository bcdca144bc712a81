"""Write what the profiler of one rank would have written: a Kineto trace."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from data.make._fleet.engine import CALL_NS, EVENT_NS, RETURN_NS, History, Step
from data.make._fleet.program import (
    COMPUTE_STREAM,
    JOB_STREAM,
    NODE_STREAM,
    SECOND,
    Job,
    Op,
)

_STREAMS = (COMPUTE_STREAM, JOB_STREAM, NODE_STREAM)
_STREAM_SYNC_THREAD = 1_000_000  # the profiler adds it to the stream of a "Stream Sync" row
_CALLBACKS = {  # runtime calls and their ids in CUPTI
    "cudaLaunchKernel": 211,
    "cudaLaunchKernelExC": 430,
    "cudaMemcpyAsync": 41,
    "cudaStreamSynchronize": 131,
    "cudaEventRecord": 135,
    "cudaStreamWaitEvent": 147,
    "cudaGraphLaunch": 311,
}
_PHASES = {
    "data": "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
    "forward": "## forward ##",
    "backward": "## backward ##",
    "optimizer": "Optimizer.step#AdamW.step",
}


def trace_text(history: History, rank: int) -> str:
    """Return the Kineto trace of one rank as JSON text."""
    writer = _RankTrace(history, rank)
    for step in history.traced:
        writer.add_step(step)
    return writer.text()


class _RankTrace:
    """Turns the operations of one rank into rows."""

    def __init__(self, history: History, rank: int) -> None:
        self._job, self._program, self._rank = history.job, history.program, rank
        self._device = rank % self._job.gpus_per_node
        self._pid = 41_000 + 37 * rank
        self._autograd = self._pid + 412
        self._end = int(history.traced[-1].end[rank]) + 60_000
        self._rows = Rows(int(history.traced[0].start[rank]) - 40_000)
        self._events = 0
        self._signalled: dict[str, tuple[int, int, int]] = {}
        self._sequence: dict[str, int] = {}
        self._name_everything()

    def add_step(self, step: Step) -> None:
        """Add the rows of one step."""
        groups = [op.group for op in self._program]
        self._sequence = {group: step.number * groups.count(group) for group in ("job", "node")}
        self._add_annotations(step)
        add = {
            "kernel": self._add_kernel,
            "copy": self._add_copy,
            "collective": self._add_collective,
            "join": self._add_join,
            "sync": self._add_sync,
            "graph": self._add_graph,
        }
        columns = ("host_start", "call_start", "call_end", "host_end", "gpu_start", "gpu_end")
        times = {name: getattr(step, name)[:, self._rank].tolist() for name in columns}
        for index, op in enumerate(self._program):
            if op.kind in add:
                add[op.kind](op, {name: column[index] for name, column in times.items()})

    def text(self) -> str:
        """Return the finished trace."""
        self._rows.close(self._end)
        head = {
            "schemaVersion": 1,
            "deviceProperties": devices(self._job.gpus_per_node),
            "cupti_version": 26,
            "cuda_runtime_version": 12080,
            "cuda_driver_version": 12080,
            "distributedInfo": distributed(self._job, self._rank),
            "synthetic": True,
            "synthetic_note": "made by data.make.fleet; not measured on any machine",
            "synthetic_seed": self._job.seed,
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": self._rows.base_ns,
        }
        name = f"synthetic_rank_{self._rank}.pt.trace.json"
        return self._rows.text(head, {"traceName": name})

    def _add_kernel(self, op: Op, at: Mapping[str, int]) -> None:
        external = self._add_calls(op, at)
        name = "cudaLaunchKernelExC" if op.gpu_name.startswith("nvjet") else "cudaLaunchKernel"
        self._add_runtime(op, name, (at["call_start"], at["call_end"]), external)
        self._add_gpu("kernel", op, at, {"External id": external, **shape(op)})

    def _add_graph(self, op: Op, at: Mapping[str, int]) -> None:
        self._add_runtime(op, "cudaGraphLaunch", (at["call_start"], at["call_end"]), None)

    def _add_copy(self, op: Op, at: Mapping[str, int]) -> None:
        external = self._add_calls(op, at)
        self._add_runtime(op, "cudaMemcpyAsync", (at["call_start"], at["call_end"]), external)
        speed = op.size_bytes / (at["gpu_end"] - at["gpu_start"])
        args = {"External id": external, "bytes": op.size_bytes, "memory bandwidth (GB/s)": speed}
        self._add_gpu("gpu_memcpy", op, at, args)

    def _add_collective(self, op: Op, at: Mapping[str, int]) -> None:
        """Add a collective: let its stream wait for compute, launch it, signal its end."""
        self._sequence[op.group] += 1
        about = collective(self._job, op, self._rank, self._sequence[op.group])
        external = self._add_calls(op, at, about)
        call, back = at["call_start"], at["call_end"]
        span = (call - 2 * EVENT_NS - 600, back + EVENT_NS)
        marked = self._rows.add_op("user_annotation", op.annotation, self._thread(op), span)
        ready = self._add_record(op, call - 2 * EVENT_NS, COMPUTE_STREAM, external)
        self._add_wait(op, call - EVENT_NS, op.stream, ready)
        self._add_runtime(op, "cudaLaunchKernelExC", (call, back), external)
        self._add_gpu("kernel", op, at, {"External id": external, **shape(op), **about})
        self._mark_gpu(op.annotation, op.stream, (at["gpu_start"], at["gpu_end"]), marked)
        self._signalled[op.event] = self._add_record(op, back + 50, op.stream, external)

    def _add_join(self, op: Op, at: Mapping[str, int]) -> None:
        self._add_wait(op, at["call_start"], COMPUTE_STREAM, self._signalled[op.event])

    def _add_sync(self, op: Op, at: Mapping[str, int]) -> None:
        external = self._add_calls(op, at)
        start, end = at["call_start"], at["call_end"]
        self._add_runtime(op, "cudaStreamSynchronize", (start, end), external)
        args = {
            "External id": external,
            "cuda_sync_kind": "Stream Sync",
            "stream": COMPUTE_STREAM,
            "correlation": self._rows.correlation,
            "device": self._device,
            "context": 1,
        }
        lane = (self._device, COMPUTE_STREAM + _STREAM_SYNC_THREAD)
        self._rows.add("cuda_sync", "Stream Sync", lane, (start + 700, end - 400), args)

    def _add_calls(
        self, op: Op, at: Mapping[str, int], about: Mapping[str, Any] | None = None
    ) -> int:
        """Add the nested CPU ops; give the external id of the innermost."""
        external = 0
        for depth, name in enumerate(op.calls):
            span = (at["host_start"] + depth * CALL_NS, at["host_end"] - depth * RETURN_NS)
            details = about if name == "record_param_comms" else None
            external = self._rows.add_op("cpu_op", name, self._thread(op), span, details)
        return external

    def _add_runtime(self, op: Op, name: str, span: Span, external: int | None) -> None:
        self._rows.correlation += 1
        args = {"cbid": _CALLBACKS[name], "correlation": self._rows.correlation}
        if external is not None:
            args = {"External id": external, **args}
        self._rows.add("cuda_runtime", name, self._thread(op), span, args)
        if name.startswith(("cudaLaunch", "cudaMemcpy")):
            self._rows.add_flow("s", self._thread(op), span[0])

    def _add_gpu(
        self, category: str, op: Op, at: Mapping[str, int], args: Mapping[str, Any]
    ) -> None:
        ids = {"device": self._device, "context": 1, "stream": op.stream}
        ids["correlation"] = self._rows.correlation
        lane, span = (self._device, op.stream), (at["gpu_start"], at["gpu_end"])
        self._rows.add(category, op.gpu_name, lane, span, {**args, **ids})
        self._rows.add_flow("f", lane, span[0])

    def _add_record(self, op: Op, start: int, stream: int, external: int) -> tuple[int, int, int]:
        """Add a cudaEventRecord; give its correlation id, stream and event id."""
        self._add_runtime(op, "cudaEventRecord", (start, start + EVENT_NS - 200), external)
        self._events += 1
        return self._rows.correlation, stream, 16 + self._events % 64

    def _add_wait(self, op: Op, start: int, stream: int, event: tuple[int, int, int]) -> None:
        self._add_runtime(op, "cudaStreamWaitEvent", (start, start + EVENT_NS - 200), None)
        args = {
            "cuda_sync_kind": "Stream Wait Event",
            "wait_on_stream": event[1],
            "wait_on_cuda_event_record_corr_id": event[0],
            "wait_on_cuda_event_id": event[2],
            "stream": stream,
            "correlation": self._rows.correlation,
            "device": self._device,
            "context": 1,
        }
        span = (start + 200, start + EVENT_NS - 400)
        self._rows.add("cuda_sync", "Stream Wait Event", (self._device, stream), span, args)

    def _add_annotations(self, step: Step) -> None:
        """Add the step and its phases, on the CPU and as spans over their GPU work."""
        span = (int(step.start[self._rank]), int(step.end[self._rank]))
        name, lane = f"ProfilerStep#{step.number}", (self._pid, self._pid)
        marked = self._rows.add_op("user_annotation", name, lane, span)
        for stream in _STREAMS:
            inside = [
                i for i, op in enumerate(self._program) if op.gpu_name and op.stream == stream
            ]
            self._mark_gpu(name, stream, self._gpu_span(step, inside), marked)
        for phase, name in _PHASES.items():
            ops = [(i, op) for i, op in enumerate(self._program) if op.phase == phase]
            rows = [i for i, _ in ops]
            span = (
                int(step.host_start[rows, self._rank].min()),
                int(step.host_end[rows, self._rank].max()),
            )
            marked = self._rows.add_op("user_annotation", name, lane, span)
            inside = [i for i, op in ops if op.gpu_name and op.stream == COMPUTE_STREAM]
            if inside:
                self._mark_gpu(name, COMPUTE_STREAM, self._gpu_span(step, inside), marked)

    def _gpu_span(self, step: Step, rows: list[int]) -> Span:
        starts, ends = step.gpu_start[rows, self._rank], step.gpu_end[rows, self._rank]
        return int(starts.min()), int(ends.max())

    def _mark_gpu(self, name: str, stream: int, span: Span, external: int) -> None:
        """Repeat an annotation over its GPU work, 1 ns early and 2 ns long as Kineto does."""
        wide = (span[0] - 1, span[1] + 1)
        lane = (self._device, stream)
        self._rows.add("gpu_user_annotation", name, lane, wide, {"External id": external})

    def _name_everything(self) -> None:
        for process, label in ((self._pid, "CPU"), (self._device, f"GPU {self._device}")):
            order = self._pid if label == "CPU" else 16_777_216 + self._device
            self._rows.add_name((process, 0), "process_name", "name", "python3.12")
            self._rows.add_name((process, 0), "process_labels", "labels", label)
            self._rows.add_name((process, 0), "process_sort_index", "sort_index", order)
        for thread in (self._pid, self._autograd):
            name = f"thread {thread} (python3.12)"
            self._rows.add_name((self._pid, thread), "thread_name", "name", name)
        for stream in _STREAMS:
            self._rows.add_name((self._device, stream), "thread_name", "name", f"stream {stream} ")

    def _thread(self, op: Op) -> Place:
        return self._pid, self._autograd if op.is_backward else self._pid


_PROCESSORS = 132


def group(job: Job, kind: str, rank: int) -> tuple[str, str, list[int]]:
    """Return name, purpose and members of the process group a rank belongs to."""
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
    """Return a plausible launch shape for a kernel."""
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
    gpu = {
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
    return [{"id": device, **gpu} for device in range(count)]


# As ``libkineto/src/output_json.cpp`` writes them: microseconds with three digits, relative to
# ``baseTimeNanoseconds``, which the profiler floors to a multiple of this.
_BASE_SECONDS = 7_889_238

Span = tuple[int, int]
Place = tuple[int, int]  # process and thread, or device and stream


class Rows:
    """Collects rows and hands out the ids that join them."""

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self.base_ns = start_ns // SECOND // _BASE_SECONDS * _BASE_SECONDS * SECOND
        self.external = 0
        self.correlation = 0
        self._rows: list[str] = []

    def add(self, category: str, name: str, lane: Place, span: Span, args: object) -> None:
        """Add something that took time."""
        start, end = span
        self._rows.append(
            f'{{"ph": "X", "cat": "{category}", "name": {json.dumps(name)}, '
            f'"pid": {lane[0]}, "tid": {lane[1]}, "ts": {self._ts(start)}, '
            f'"dur": {_us(end - start)}, "args": {json.dumps(args)}}}'
        )

    def add_op(
        self,
        category: str,
        name: str,
        lane: Place,
        span: Span,
        about: Mapping[str, Any] | None = None,
    ) -> int:
        """Add an operator or annotation on the CPU; give its external id."""
        self.external += 1
        ids = {"External id": self.external, "Record function id": self.external}
        args = {**ids, "Ev Idx": self.external - 1, **(about or {})}
        self.add(category, name, lane, span, args)
        return self.external

    def add_flow(self, phase: str, lane: Place, start_ns: int) -> None:
        """Add one end of the arrow from a launch to its GPU work."""
        binding = ', "bp": "e"' if phase == "f" else ""
        self._rows.append(
            f'{{"ph": "{phase}", "id": {self.correlation}, "pid": {lane[0]}, '
            f'"tid": {lane[1]}, "ts": {self._ts(start_ns)}, '
            f'"cat": "ac2g", "name": "ac2g"{binding}}}'
        )

    def add_name(self, lane: Place, name: str, key: str, value: str | int) -> None:
        """Add a row that names or sorts a process, thread or stream."""
        self._rows.append(
            f'{{"name": "{name}", "ph": "M", "ts": {self._ts(self.start_ns)}, "pid": {lane[0]}, '
            f'"tid": {lane[1]}, "args": {json.dumps({key: value})}}}'
        )

    def close(self, end_ns: int) -> None:
        """Mark the span that was recorded, and its end."""
        start, dur, name = self._ts(self.start_ns), _us(end_ns - self.start_ns), "PyTorch Profiler"
        self._rows += [
            f'{{"ph": "X", "cat": "Trace", "ts": {start}, "dur": {dur}, "pid": "Spans", '
            f'"tid": "{name}", "name": "{name} (0)", "args": {{"Op count": 0}}}}',
            f'{{"name": "Iteration Start: {name}", "ph": "i", "s": "g", "pid": "Traces", '
            f'"tid": "Trace {name}", "ts": {start}}}',
            '{"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", '
            f'"ts": {self._ts(end_ns)}}}',
        ]

    def text(self, head: Mapping[str, Any], tail: Mapping[str, Any]) -> str:
        """Return the whole trace: metadata, rows, closing metadata."""
        before = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        after = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in tail.items()]
        rows = '"traceEvents": [\n' + ",\n".join(self._rows) + "\n]"
        return "{\n" + ",\n".join([*before, rows, *after]) + "\n}\n"

    def _ts(self, time_ns: int) -> str:
        return _us(time_ns - self.base_ns)


def _us(duration_ns: int) -> str:
    return f"{duration_ns // 1000}.{duration_ns % 1000:03d}"
