"""What changed between two traces."""

import pytest

from workbench import plot
from workbench.tables import TRACE_DIFF


def change(name, a, b, *, category="kernel", **more):
    row = {"category": category, "name": name, "change": "both", "a_count": 1, "b_count": 1}
    row |= {"a_total_ns": a, "b_total_ns": b, "difference_ns": b - a}
    return row | {"total_ratio": b / a if a else None} | more


def drawn(figure):
    return {trace.name: list(trace.x) for trace in figure.data}


def test_the_gpu_work_is_compared_and_host_time_does_not_count_twice(build):
    rows = [
        change("gemm", 100, 160),
        change("copy", 50, 30, category="gpu_memcpy"),
        change("same", 50, 50),
        change("aten::mm", 1_000, 9_000, category="cpu_op"),
    ]
    figure = plot.trace_diff(build(TRACE_DIFF, rows))
    assert drawn(figure) == {"more": [60], "less": [-20]}
    assert figure.layout.title.text == (
        "GPU work takes 40 ns longer in b (× 1.20); largest: gemm 60 ns longer"
    )


def test_host_categories_can_be_asked_for_but_are_not_added_up(build):
    rows = [change("gemm", 100, 160), change("aten::mm", 1_000, 900, category="cpu_op")]
    figure = plot.trace_diff(build(TRACE_DIFF, rows), categories=["cpu_op"])
    assert list(figure.layout.yaxis.ticktext) == ["aten::mm · cpu_op"]
    assert figure.layout.title.text == "The largest change is aten::mm · cpu_op 100 ns less in b"
    assert "do not add up" in figure.layout.title.subtitle.text


def test_the_rest_is_added_up(build):
    rows = [change(f"k{n}", 100, 200 - n) for n in range(20)]
    figure = plot.trace_diff(build(TRACE_DIFF, rows), top=5)
    assert list(figure.layout.yaxis.ticktext)[-1] == "all others (15 changes)"
    microseconds = sum(row["difference_ns"] for row in rows) / 1_000
    assert sum(drawn(figure)["more"]) == pytest.approx(microseconds)


def test_steps_and_categories_name_their_rows(build):
    rows = [change(None, 10, 20, step=3), change(None, 10, 15, category="gpu_memset")]
    figure = plot.trace_diff(build(TRACE_DIFF, rows))
    assert list(figure.layout.yaxis.ticktext) == ["step 3 · kernel", "gpu_memset"]


def test_equal_traces_differ_in_nothing(build):
    figure = plot.trace_diff(build(TRACE_DIFF, [change("gemm", 100, 100)]))
    assert figure.layout.title.text == "No difference to show"
    assert "exactly as long in both" in figure.layout.annotations[0].text
