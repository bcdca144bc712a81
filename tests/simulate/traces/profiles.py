"""Profiles made by hand, so that what a twin does is known before it is drawn."""

from workbench.tables import TraceProfile
from workbench.tables.trace_profile import Block, KindProfile, Operation, bucket


def kind(dur_ns, gap_ns=5_000.0, size_bytes=(), count=10):
    def flat(value):
        return (float(value),) * 33

    return KindProfile(count, flat(dur_ns), flat(gap_ns), tuple(size_bytes), 0.0)


def operation(name, dur_ns, *, stream=0, waits=-1, back=0, collective="", group=0):
    return Operation(name, stream, int(bucket(dur_ns)), waits, back, collective, group)


def profile(operations, order, *, gap_ns=5_000.0, ranks=2, steps=2, **changes):
    """Make a profile of operations (name, ns, ...) in an order, without noise."""
    made = tuple(operation(*args, **kwargs) for args, kwargs in operations)
    kinds = {args[0]: kind(args[1], gap_ns) for args, _ in operations if args[0] != "sync"}
    gaps = (int(bucket(gap_ns)),) * len(order)
    values = {
        "rank_count": ranks, "step_count": steps, "is_synthetic": True, "kinds": kinds,
        "operations": made, "motif": (Block(1, tuple(order), gaps),),
        "chain": {(): dict.fromkeys(sorted(set(order)), 1)}, "launch_ns": 5_000.0, "tail_ns": 0.0,
        "start_ns": (0.0,) * 33, "compute_noise_ratio": 0.0, "host_noise_ratio": 0.0,
    }  # fmt: skip
    return TraceProfile(**values | changes)


COMPUTE, LAST = 0, 2
# Eight kernels, an all-reduce on a stream of its own, and a kernel that needs its result.
HIDDEN = [1, *[COMPUTE] * 8, LAST]
EXPOSED = [*[COMPUTE] * 8, 1, LAST]


def overlapped(order=HIDDEN, **changes):
    """One step: communication that runs beside compute, or after it, by the order alone."""
    # Who begins late decides: in the second order communication waits for the kernels.
    is_late = order is not HIDDEN
    talk = {"stream": 1, "collective": "all-reduce", "waits": 0 if is_late else -1}
    operations = [
        (("compute", 100_000), {}),
        (("communication", 600_000), talk),
        (("compute", 100_000), {"waits": 1}),
    ]
    return profile(operations, order, **changes)
