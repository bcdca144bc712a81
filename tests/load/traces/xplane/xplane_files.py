"""The whole XPlane schema for the protobuf package, and small profiles made with it."""

from functools import cache

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from workbench import datasets

REAL = "jax_conv_mi300_8gpu.xplane.pb"
_CODES = {"double": 1, "int64": 3, "uint64": 4, "message": 11, "bytes": 12, "string": 9}
_SCHEMA = {
    "XStat": {
        "metadata_id": "1 int64", "double_value": "2 double ?", "uint64_value": "3 uint64 ?",
        "int64_value": "4 int64 ?", "str_value": "5 string ?", "bytes_value": "6 bytes ?",
        "ref_value": "7 uint64 ?",
    },
    "XEvent": {
        "metadata_id": "1 int64", "offset_ps": "2 int64 ?", "duration_ps": "3 int64",
        "stats": "4 message* XStat", "num_occurrences": "5 int64 ?",
    },
    "XEventMetadata": {
        "id": "1 int64", "name": "2 string", "metadata": "3 bytes", "display_name": "4 string",
        "stats": "5 message* XStat",
    },
    "XStatMetadata": {"id": "1 int64", "name": "2 string"},
    "EventEntry": {"key": "1 int64", "value": "2 message XEventMetadata"},
    "StatEntry": {"key": "1 int64", "value": "2 message XStatMetadata"},
    "XLine": {
        "id": "1 int64", "name": "2 string", "timestamp_ns": "3 int64",
        "events": "4 message* XEvent", "duration_ps": "9 int64", "display_name": "11 string",
    },
    "XPlane": {
        "id": "1 int64", "name": "2 string", "lines": "3 message* XLine",
        "event_metadata": "4 message* EventEntry", "stat_metadata": "5 message* StatEntry",
        "stats": "6 message* XStat",
    },
    "XSpace": {"planes": "1 message* XPlane", "hostnames": "4 string*"},
}  # fmt: skip


@cache
def space_class():
    """Return XSpace with every message inside decoded by protobuf itself."""
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", package="x", syntax="proto3")
    for name, layout in _SCHEMA.items():
        message = file.message_type.add(name=name)
        if any("?" in described for described in layout.values()):
            message.oneof_decl.add(name="value")
        for field_name, described in layout.items():
            number, kind, *more = described.split()
            field = message.field.add(
                name=field_name, number=int(number), type=_CODES[kind.rstrip("*")],
                label=3 if kind.endswith("*") else 1,
            )  # fmt: skip
            if more == ["?"]:
                field.oneof_index = 0
            elif more:
                field.type_name = f".x.{more[0]}"
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("x.XSpace"))


def real_space():
    return space_class().FromString((datasets.path("xplane") / REAL).read_bytes())


def add_line(plane, name, events, *, number=0, timestamp_ns=0):
    """Add a line; events are name, offset and duration in ps, and a dict of statistics."""
    line = plane.lines.add(id=number, name=name, timestamp_ns=timestamp_ns)
    for text, offset, dur, stats in events:
        event = line.events.add(metadata_id=_event_id(plane, text), duration_ps=dur)
        event.offset_ps = offset
        for key, value in stats.items():
            stat = event.stats.add(metadata_id=stat_id(plane, key))
            if isinstance(value, int):
                stat.int64_value = value
            elif isinstance(value, float):
                stat.double_value = value
            else:
                stat.ref_value = stat_id(plane, value)
    return line


def _event_id(plane, text):
    for entry in plane.event_metadata:
        if entry.value.name == text:
            return entry.key
    entry = plane.event_metadata.add(key=len(plane.event_metadata) + 1)
    entry.value.id, entry.value.name = entry.key, text
    return entry.key


def stat_id(plane, text):
    for entry in plane.stat_metadata:
        if entry.value.name == text:
            return entry.key
    entry = plane.stat_metadata.add(key=len(plane.stat_metadata) + 1)
    entry.value.id, entry.value.name = entry.key, text
    return entry.key


def gpu_space():
    """Make one GPU with two kernels and a copy, and a host that launches them in a step."""
    space = space_class()()
    gpu, host = space.planes.add(id=1, name="/device:GPU:3"), space.planes.add(name="/host:CPU")
    add_line(gpu, "Stream #17(Kernel)", [
        ("gemm", 2_000_500, 1_000_000, {"correlation_id": 5, "hlo_op": "dot.1", "flops": 2.5e9}),
        ("ncclDevKernel_AllReduce_Sum_f32", 3_001_000, 500_000, {"correlation_id": 6}),
    ], timestamp_ns=100)  # fmt: skip
    copy = {"correlation_id": 7, "memcpy_details": "kind_src:host kind_dst:device size:4096"}
    add_line(gpu, "Stream #20(MemcpyH2D)", [("MemcpyH2D", 0, 9_000, copy)], timestamp_ns=100)
    add_line(gpu, "XLA Ops", [("dot.1", 2_000_500, 1_500_500, {})], timestamp_ns=100)
    add_line(gpu, "Steps", [("12", 0, 4_000_000, {})], timestamp_ns=100)
    add_line(host, "python", [
        ("train", 0, 3_000_000, {"step_num": 12}),
        ("cuLaunchKernel", 10_000, 5_000, {"correlation_id": 5}),
        ("cuLaunchKernel", 20_000, 5_000, {"correlation_id": 6}),
        ("cuMemcpyHtoDAsync", 1_000, 5_000, {"correlation_id": 7}),
        ("$train.py:3 step", 0, 2_900_000, {}),
    ], number=9, timestamp_ns=50)  # fmt: skip
    return space


def tpu_space():
    """Make one TPU whose collective begins and ends apart, and whose steps it marks itself."""
    space = space_class()()
    tpu = space.planes.add(id=1, name="/device:TPU:0")
    add_line(tpu, "XLA Ops", [
        ("fusion.3", 0, 5_000_000, {}), ("all-reduce.7", 5_000_000, 3_000_000, {}),
        ("copy.1", 8_000_000, 1_000_000, {}),
    ])  # fmt: skip
    add_line(tpu, "Steps", [("4", 0, 9_000_000, {})])
    add_line(tpu, "Framework Name Scope", [("jit(f)", 0, 9_000_000, {})])
    return space


def names_of(plane):
    return {entry.key: entry.value.name for entry in plane.event_metadata}


def as_json(space):
    """Spell a profile as XProf does: processes and threads named first, arguments as text."""
    named, timed = [], []
    for pid, plane in enumerate(space.planes):
        stats = {entry.key: entry.value.name for entry in plane.stat_metadata}
        told_name = {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": plane.name}}
        named.append(told_name)
        for tid, line in enumerate(plane.lines):
            thread = {"pid": pid, "tid": tid}
            named.append({"ph": "M", "name": "thread_name", "args": {"name": line.name}, **thread})
            for event in line.events:
                args = {
                    stats[stat.metadata_id]: stats.get(stat.ref_value) or str(stat.int64_value)
                    for stat in event.stats
                }
                # Events of other lines may touch only after the time stamp of their line is added.
                start = line.timestamp_ns + event.offset_ps // 1000
                end = line.timestamp_ns + (event.offset_ps + event.duration_ps) // 1000
                timed.append({
                    "ph": "X", "name": names_of(plane)[event.metadata_id], "args": args,
                    "ts": start / 1000, "dur": (end - start) / 1000, **thread,
                })  # fmt: skip
    return {"displayTimeUnit": "ns", "traceEvents": [*named, *timed, {}]}
