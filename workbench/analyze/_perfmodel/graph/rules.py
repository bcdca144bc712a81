"""The numbers that steer how an execution graph is built."""

from __future__ import annotations

from dataclasses import dataclass, fields

from workbench._numbers import not_negative, whole_number


@dataclass(frozen=True, kw_only=True)
class GraphRules:
    """Times and counts from which the builder of a graph concludes, all changeable.

    The defaults were chosen on twelve public traces (V100, A100, H100) and hold on thirteen
    others. Halving or doubling one of them moves the replayed time by some tenths of a per cent.

    Parameters
    ----------
    sync_ns
        What a call that waits for the GPU costs the CPU besides waiting.
    blocked_launch_ns
        What a launch into a full queue costs the CPU besides waiting.
    longest_gap_ns
        A longer time between two operators of a thread may be a wait for another thread.
    launch_ns
        Launch latency where too few launches found their stream idle.
    fewest_launches
        As many such launches tell what a launch usually takes.
    longest_launch_ns
        A longer launch latency has another cause than the launch.
    queued_ns
        Work launched this long before the one before it ended was certainly queued.
    longest_stream_gap_ns
        Longer times between queued work do not count as the usual gap.
    stream_gap_ns
        Usual gap where none can be measured.
    blocked_ns
        A launch call that takes longer may wait for room in the queue; if there was room, its
        work is launched when the call ends, not when it begins.
    fewest_blocked
        As many such calls are no sign of a limit yet.
    shortest_queue
        Queues that fill earlier are not taken for the limit of the driver.
    clash_ns
        Work that ends this much after the call that should have waited for it was not waited for.
    jitter_ns
        Ends up to this much after what they should precede are rounding.
    furthest_call
        The launch after a stream wait is looked for among as many calls of the thread.
    least_residual_ns
        Work that begins later than explained by this much is looked into.
    residual_window_ns
        Its cause may have ended this long before.
    draining_ns
        A kernel that fills the GPU lets other work begin this long before its end.
    blocking_copy_ns
        A call to copy that takes longer waits for the copy.
    least_dark_ns
        A wait for a CUDA graph without recorded work is dark GPU time from this length on.
    polling_ns
        Time of the CPU that no call accounts for, longer than this, may have been spent asking
        whether communication is done if it ends at most this long before or after that does.
    co_critical_busy_share
        Where the GPU is busy for more of the window than this...
    co_critical_gap_share
        ... and more of the critical path than this is time of the CPU that no row accounts for,
        what-ifs are unreliable: the host may poll for the GPU, or be as late as it is by chance.
    most_error_ratio
        A graph whose replay is further off in time is not usable: of the whole window, or from
        the first to the last GPU work.
    most_breakdown_error_ratio
        Nor is one whose parts of the GPU time are further off, summed, of the span.
    most_step_error_ratio
        Nor is one that is further off in its worst step.
    """

    sync_ns: int = 5_000
    blocked_launch_ns: int = 60_000
    longest_gap_ns: int = 200_000
    launch_ns: int = 6_000
    fewest_launches: int = 3
    longest_launch_ns: int = 100_000
    queued_ns: int = 20_000
    longest_stream_gap_ns: int = 50_000
    stream_gap_ns: int = 1_000
    blocked_ns: int = 50_000
    fewest_blocked: int = 5
    shortest_queue: int = 1_000
    clash_ns: int = 5_000
    jitter_ns: int = 2_000
    furthest_call: int = 200
    least_residual_ns: int = 50_000
    residual_window_ns: int = 40_000
    draining_ns: int = 150_000
    blocking_copy_ns: int = 30_000
    least_dark_ns: int = 50_000
    polling_ns: int = 100_000
    co_critical_busy_share: float = 0.9
    co_critical_gap_share: float = 0.3
    most_error_ratio: float = 0.05
    most_breakdown_error_ratio: float = 0.05
    most_step_error_ratio: float = 0.1

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name.endswith(("_ns", "_blocked", "_queue", "_call", "_launches")):
                whole_number(field.name, getattr(self, field.name), least=0)
            else:
                not_negative(field.name, getattr(self, field.name))
