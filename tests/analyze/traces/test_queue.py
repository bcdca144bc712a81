"""Queue length: a peer's maxima, then a count of what waits at each moment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze
from workbench.tables import EVENTS, QUEUE_LENGTH


def launched(calls):
    """Turn (start of call, delay, stream) into a call and its kernel."""
    rows = []
    for number, (start, delay, stream) in enumerate(calls):
        call = {"id": number, "start_ns": start, "dur_ns": 3, "category": "cuda_runtime"}
        kernel = {"start_ns": start + delay, "dur_ns": 1, "kind": "compute"}
        rows += [call, kernel | {"stream": stream, "launch": number}]
    return rows


@pytest.mark.oracle
def test_longest_queues_agree_with_holistic_trace_analysis(real_events, published):
    for file, printed in published("trace_hta_queue").groupby("file"):
        queue = analyze.queue_length(real_events("kineto-hta", file))
        found = analyze.queue_summary(queue).set_index("stream")["max_count"].to_dict()
        for row in printed.itertuples():
            assert found[row.stream] == row.max_count, (file, row.stream)


calls = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 15), st.integers(1, 2)), max_size=12)


@given(calls)
def test_the_length_is_the_number_of_launches_that_wait(make_events, some):
    table = QUEUE_LENGTH.check(analyze.queue_length(make_events(*launched(some))))
    for stream, queue in table.groupby("stream"):
        waiting = [(start, start + delay) for start, delay, s in some if s == stream and delay]
        last_at = queue.drop_duplicates("time_ns", keep="last")
        for row in last_at.itertuples():
            expected = sum(start <= row.time_ns < end for start, end in waiting)
            assert row.queue_count == expected
    assert (table["queue_count"] >= 0).all()


@given(calls)
def test_the_mean_length_is_waiting_time_over_time(make_events, some):
    queue = analyze.queue_length(make_events(*launched(some)))
    for row in analyze.queue_summary(queue).itertuples():
        waiting = [(start, start + delay) for start, delay, s in some if s == row.stream and delay]
        span = max(end for _, end in waiting) - min(start for start, _ in waiting)
        total = sum(end - start for start, end in waiting)
        assert row.mean_count == pytest.approx(total / span)


def test_a_graph_waits_once_whatever_it_starts(make_events):
    call = {"id": 1, "start_ns": 0, "dur_ns": 3, "category": "cuda_runtime"}
    kernels = [
        {"start_ns": start, "dur_ns": 1, "kind": "compute", "launch": 1} for start in (10, 20, 30)
    ]
    queue = analyze.queue_length(make_events(call, *kernels))
    assert queue["time_ns"].tolist() == [0, 10]
    assert queue["queue_count"].tolist() == [1, 0]


def test_calls_at_the_limit_are_blocked(make_events):
    events = make_events(*launched([(0, 90, 1), (5, 90, 1), (10, 90, 1)]))
    queue = analyze.queue_length(events, limit=3)
    assert queue["blocked_ns"].tolist() == [0, 0, 3, 0, 0, 0]
    summary = analyze.queue_summary(queue)
    assert summary[["max_count", "blocked_count", "blocked_ns"]].to_numpy().tolist() == [[3, 1, 3]]
    assert analyze.queue_length(events, limit=4)["blocked_ns"].sum() == 0


def test_without_launches_there_is_no_queue(make_events):
    for events in (EVENTS.empty(), make_events({"start_ns": 0, "kind": "compute"})):
        queue = analyze.queue_length(events)
        assert queue.empty
        assert analyze.queue_summary(queue).empty
