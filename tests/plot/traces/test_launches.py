"""Launch calls, queues and copies."""

import numpy as np

from workbench import plot
from workbench.tables import COPY_BANDWIDTH, LAUNCHES


def call(name, *, rank=0, calls=10, kernels=10, **more):
    return {"rank": rank, "name": name, "call_count": calls, "kernel_count": kernels} | more


def test_launches_states_the_latency_of_the_most_frequent_call(build):
    rows = [
        call("cudaLaunchKernel", kernels=80, host_mean_ns=5e3, latency_median_ns=6e3),
        call("cudaLaunchKernel", rank=1, kernels=10, host_mean_ns=5e3, latency_median_ns=9e3),
        call("cudaMemcpyAsync", kernels=10, host_mean_ns=2e3, queue_median_ns=4e6),
        call(None, calls=0, kernels=25),
    ]
    figure = plot.launches(build(LAUNCHES, rows))
    assert figure.layout.title.text.replace("<br>", " ") == (
        "cudaLaunchKernel starts 90 % of the GPU work; on an idle stream it begins after "
        "6 µs to 9 µs"
    )
    assert figure.layout.title.subtitle.text == "20 % of the GPU work has no launch in the trace"
    assert [list(trace.x) for trace in figure.data] == [[5, 5, 2], [6, 9], [4_000]]
    assert list(figure.layout.yaxis.ticktext) == ["cudaLaunchKernel", "cudaMemcpyAsync"]


def test_log_axes_have_round_numbers_even_for_a_narrow_range(build):
    rows = [call("a", latency_median_ns=7e3), call("b", latency_median_ns=8e3)]
    figure = plot.launches(build(LAUNCHES, rows))
    low, high = 10 ** np.array(figure.layout.xaxis.range)
    assert low < 7 < 8 < high
    assert list(figure.layout.xaxis.ticktext) == ["6", "7", "8", "9", "10"]
    rows.append(call("c", latency_median_ns=8e6))
    figure = plot.launches(build(LAUNCHES, rows))
    assert list(figure.layout.xaxis.ticktext) == ["10", "100", "1,000", "10,000"]


def test_copy_bandwidth_names_the_direction_that_moves_most(build):
    rows = [
        {"rank": rank, "device": 0, "direction": direction, "copy_count": 2, "size_bytes": moved,
         "busy_ns": 100, "mean_gb_per_s": moved / 100, "peak_gb_per_s": moved / 50}
        for rank in (0, 1)
        for direction, moved in (("HtoD", 1_000), ("DtoD", 50_000))
    ]  # fmt: skip
    rows.append({"rank": 0, "direction": "DtoH", "copy_count": 3, "unsized_count": 3})
    figure = plot.copy_bandwidth(build(COPY_BANDWIDTH, rows))
    assert figure.layout.title.text == "DtoD moves most, 100 kB in 4 pieces, at 500 GB/s"
    assert figure.layout.title.subtitle.text == "3 copies without a size are dropped"
    assert list(figure.layout.yaxis.ticktext) == ["DtoD", "HtoD"]
