"""Perfetto traces written byte by byte, without the decoder's description of them."""

import struct

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def entry(number, value):
    """Encode one field: a number, a float, or bytes and text behind their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def message(*pairs):
    return b"".join(entry(number, value) for number, value in pairs)


def packet(*pairs, sequence=1):
    return entry(1, message(*pairs, (10, sequence)))


def annotation(name, value):
    return message((10, name), (6 if isinstance(value, str) else 3, value))


def event(kind, time, *, track=1, category=None, name=None, sequence=1, more=(), **arguments):
    pairs = [(9, kind), (11, track)]
    pairs += [(22, category)] if category else []
    pairs += [(23, name)] if name else []
    pairs += [(4, annotation(key, value)) for key, value in arguments.items()]
    return packet((8, time), (11, message(*pairs)), *more, sequence=sequence)


def span(start, end, category, name, **options):
    begin = event(BEGIN, start, category=category, name=name, **options)
    return begin + event(
        END, end, track=options.get("track", 1), sequence=options.get("sequence", 1)
    )


def track(uuid, name="", *, pid=None, tid=None, parent=None):
    pairs = [(1, uuid), (2, name)]
    if tid is not None:
        pairs.append((4, message((1, pid), (2, tid))))
    elif pid is not None:
        pairs.append((3, message((1, pid))))
    pairs += [(5, parent)] if parent is not None else []
    return packet((60, message(*pairs)))


def snapshot(*clocks, sequence=1):
    """Encode readings of clocks: identity, time, and of own clocks whether they count up."""
    inner = [message(*zip((1, 2, 3, 4), clock, strict=False)) for clock in clocks]
    return packet((6, message(*((1, clock) for clock in inner))), sequence=sequence)


def rocm(offset=0, pid=400):
    """Return what rocprofv3 writes: a launch, a kernel, a copy, a marker."""
    root, thread, compute, copy = (offset + at for at in (1, 2, 3, 4))
    return (
        track(root, "python", pid=pid) + track(thread, pid=pid, tid=77, parent=root)
        + track(compute, "COMPUTE AGENT [2] STREAM [3] (GPU)", parent=root)
        + track(copy, "COPY to GPU [1] STREAM [5] (GPU)", parent=root)
        + span(960, 990, "hip_api", "hipLaunchKernel", track=thread, corr_id=7)
        + span(900, 950, "hip_api", "hipMemcpyAsync", track=thread, corr_id=6)
        + span(800, 4000, "marker_api", "ProfilerStep#4", track=thread, corr_id=5)
        + span(1000, 1200, "memory_copy", "MEMORY_COPY_HOST_TO_DEVICE", track=copy, corr_id=6,
               copy_bytes=4096, dst_agent="GPU-1")
        + span(2000, 2500, "kernel_dispatch", "gemm(float*) [clone .kd]", track=compute,
               corr_id=7, queue=9, agent="Agent-2")
    )  # fmt: skip
