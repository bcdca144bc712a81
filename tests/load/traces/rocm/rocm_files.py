"""Small files of ROCm's profilers, made record by record."""

import json
import sqlite3

CPU, GPU_0, GPU_1 = 11, 22, 33
KINDS = {
    "HIP_RUNTIME_API_EXT": ["hipMemcpyAsync", "hipLaunchKernel"],
    "MARKER_CORE_RANGE_API": ["roctxThreadRangeA"],
    "MEMORY_COPY": ["MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_DEVICE", "MEMORY_COPY_DEVICE_TO_HOST"],
    "KERNEL_DISPATCH": ["KERNEL_DISPATCH_NONE", "KERNEL_DISPATCH_ENQUEUE", "KERNEL_DISPATCH_COMPLETE"],
    "RCCL_API": ["ncclAllReduce", "ncclGroupEnd", "ncclReduceScatter"],
}  # fmt: skip
KERNELS = {
    1: "void gemm<float>(float*)",
    2: "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
}


def record(kind, operation, start, end, correlation, **more):
    return {
        "size": 64, "kind": list(KINDS).index(kind), "operation": operation, "thread_id": 77,
        "correlation_id": {"internal": correlation, "external": 0},
        "start_timestamp": start, "end_timestamp": end, **more,
    }  # fmt: skip


def dispatch(start, end, correlation, *, kernel=1, agent=GPU_0, queue=5, stream=3):
    info = {"agent_id": {"handle": agent}, "queue_id": {"handle": queue}, "kernel_id": kernel}
    record_of = record("KERNEL_DISPATCH", 2, start, end, correlation, dispatch_info=info)
    return record_of if stream is None else {**record_of, "stream_id": {"handle": stream}}


def process(pid=400, **records):
    """Return what rocprofv3 writes of one process: launches, a kernel, RCCL, a copy, a marker."""
    agents = [
        {"id": {"handle": CPU}, "type": 1, "logical_node_type_id": 0},
        {"id": {"handle": GPU_0}, "type": 2, "logical_node_type_id": 0, "name": "gfx942",
         "product_name": "AMD Instinct MI300X", "gfx_target_version": 90402, "cu_count": 304,
         "mem_banks": [{"heap_type": 1, "size_in_bytes": 1 << 30}]},
        {"id": {"handle": GPU_1}, "type": 2, "logical_node_type_id": 1},
    ]  # fmt: skip
    buffers = {
        "kernel_dispatch": [dispatch(2000, 2500, 7), dispatch(3000, 3900, 8, kernel=2, queue=6)],
        "memory_copy": [
            record("MEMORY_COPY", 1, 1000, 1200, 6, bytes=4096, stream_id={"handle": 3},
                   src_agent_id={"handle": CPU}, dst_agent_id={"handle": GPU_1}),
        ],
        "hip_api": [
            record("HIP_RUNTIME_API_EXT", 0, 900, 950, 6),
            record("HIP_RUNTIME_API_EXT", 1, 960, 990, 7),
            record("HIP_RUNTIME_API_EXT", 1, 1110, 1120, 8),
        ],
        "marker_api": [record("MARKER_CORE_RANGE_API", 0, 800, 4000, 5)],
        "rccl_api": [
            record("RCCL_API", 0, 1000, 1050, 90), record("RCCL_API", 1, 1100, 1150, 91),
            record("RCCL_API", 2, 1200, 1250, 92),
        ],
    } | records  # fmt: skip
    return {
        "metadata": {"pid": pid},
        "agents": agents,
        "strings": {
            "buffer_records": [{"kind": kind, "operations": names} for kind, names in KINDS.items()],
            "marker_api": [{"key": 5, "value": "ProfilerStep#4"}],
        },
        "kernel_symbols": [
            {"kernel_id": number, "formatted_kernel_name": name} for number, name in KERNELS.items()
        ],
        "buffer_records": buffers,
    }  # fmt: skip


def write_json(path, *processes):
    path.write_text(json.dumps({"rocprofiler-sdk-tool": list(processes or (process(),))}))
    return path


# rocpd, schema version 3: events with times of their own (ROCm 7.0), and with tracks and stamps.
STRINGS = [
    (1, "KERNEL_DISPATCH"), (2, "MEMORY_COPY"), (3, "HIP_RUNTIME_API_EXT"),
    (4, "MARKER_CORE_RANGE_API"), (5, "hipLaunchKernel"), (6, "MEMORY_COPY_HOST_TO_DEVICE"),
    (7, "roctxThreadRangeA"), (8, "hipMemcpyAsync"),
]  # fmt: skip
EVENTS = [
    (1, 1, 7, "{}"), (2, 2, 6, "{}"), (3, 3, 7, "{}"), (4, 4, 5, '{"message": "ProfilerStep#4"}'),
    (5, 3, 6, "{}"),
]  # fmt: skip
PLACE = "pid tid agent_id queue_id stream_id"
# Table, columns before the times, and rows: identity, then process, thread, agent, queue, stream.
SPANS = {
    "kernel_dispatch": (
        "kernel_id event_id",
        [((1, 77, 2, 5, 3), (2000, 2500), (1, 1)), ((1, 77, 3, 6, 3), (2100, 2200), (1, 1))],
    ),
    "memory_copy": (
        "name_id size dst_agent_id src_agent_id event_id",
        [((1, 77, None, None, 3), (1000, 1200), (6, 4096, 3, 1, 2))],
    ),
    "region": (
        "name_id event_id",
        [((1, 77, None, None, None), (960, 990), (5, 3)),
         ((1, 77, None, None, None), (800, 4000), (7, 4)),
         ((1, 77, None, None, None), (900, 950), (8, 5))],
    ),
}  # fmt: skip


def rocpd_tables(guid="_abc", environment=None, pid=400, *, has_tracks=False):
    """Return tables as name: (columns, rows)."""
    tables = {
        "string": ("id string", STRINGS),
        "info_process": ("id pid environment", [(1, pid, json.dumps(environment or {}))]),
        "info_thread": ("id tid", [(77, 7700)]),
        "info_agent": (
            "id type type_index name product_name extdata",
            [(1, "CPU", 0, "EPYC", "EPYC", "{}"),
             (2, "GPU", 0, "gfx942", "AMD Instinct MI300X",
              '{"gfx_target_version": 90402, "cu_count": 304}'),
             (3, "GPU", 1, "gfx942", "AMD Instinct MI300X", "{}")],
        ),
        "info_kernel_symbol": (
            "id kernel_name display_name", [(1, "_Z4gemm.kd", "void gemm<float>(float*)")],
        ),
        "event": ("id category_id stack_id extdata", EVENTS),
    }  # fmt: skip
    tracks, stamps = [], []
    for name, (columns, rows) in SPANS.items():
        if not has_tracks:
            made = [(at, *place, *times, *more) for at, (place, times, more) in enumerate(rows)]
            tables[name] = (f"id {PLACE} start end {columns}", made)
            continue
        made = []
        for at, (place, times, more) in enumerate(rows):
            tracks.append((len(tracks) + 1, *place))
            stamps += [(len(stamps) + 1 + side, time) for side, time in enumerate(times)]
            made.append((at, len(tracks), len(stamps) - 1, len(stamps), *more))
        tables[name] = (f"id track_id start_id end_id {columns}", made)
    if has_tracks:
        tables |= {"track": (f"id {PLACE}", tracks), "timestamp": ("id value", stamps)}
    return {f"rocpd_{name}{guid}": table for name, table in tables.items()}


def write_rocpd(path, *sets):
    database = sqlite3.connect(path)
    for tables in sets or (rocpd_tables(),):
        for name, (columns, rows) in tables.items():
            quoted = ", ".join(f'"{column}"' for column in columns.split())
            database.execute(f'CREATE TABLE "{name}" ({quoted})')
            marks = ", ".join("?" * len(columns.split()))
            database.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)
    database.commit()
    database.close()
    return path
