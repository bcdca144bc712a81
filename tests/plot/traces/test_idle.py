"""Idle time by cause, per GPU or per stream."""

from workbench import plot
from workbench.tables import IDLE_TIME


def gap(rank, cause, ns, **more):
    return {"rank": rank, "device": 0, "cause": cause, "idle_ns": ns, "gap_count": 1} | more


def drawn(figure):
    return {trace.name: list(trace.y) for trace in figure.data}


def test_details_of_one_cause_are_added_up_and_the_largest_is_named(build):
    rows = [
        gap(0, "host late", 30, detail="operator"),
        gap(0, "host late", 10, detail="blocking call"),
        gap(0, "unknown", 10, detail="no launch"),
        gap(1, "launch overhead", 50),
    ]
    figure = plot.idle_time(build(IDLE_TIME, rows))
    assert drawn(figure) == {"host late": [40, 0], "launch overhead": [0, 50], "unknown": [10, 0]}
    assert figure.layout.title.text == ("50 % of the 100 ns of idle time is launch overhead")
    rows.append(gap(1, "host late", 60, detail="operator"))
    figure = plot.idle_time(build(IDLE_TIME, rows))
    assert figure.layout.title.subtitle.text == (
        "the launching thread meanwhile ran mostly operator (90 %)"
    )


def test_streams_are_labelled_below_their_rank(build):
    rows = [gap(rank, "host wait", 10, stream=stream) for rank in (0, 1) for stream in (7, 20)]
    figure = plot.idle_time(build(IDLE_TIME, rows))
    assert list(figure.layout.xaxis.ticktext) == ["7<br>rank 0", "20", "7<br>rank 1", "20"]


def test_a_rank_with_two_gpus_has_two_columns(build):
    rows = [gap(0, "host late", 10, device=device) for device in (0, 1)]
    figure = plot.idle_time(build(IDLE_TIME, rows))
    assert list(figure.layout.xaxis.ticktext) == ["0 GPU 0", "0 GPU 1"]


def test_the_rest_of_the_stream_rule_is_not_called_other_work(build):
    figure = plot.idle_time(build(IDLE_TIME, [gap(0, "other", 10, stream=7)]))
    assert list(drawn(figure)) == ["other cause"]
