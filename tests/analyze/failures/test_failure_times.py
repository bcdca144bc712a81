"""From a failure log to a replay: what counts, whom it hits, and what is dropped."""

import math

import pandas as pd
import pytest

from workbench.analyze import FaultTolerance, failure_times, goodput_replay, observed_span
from workbench.errors import TableError, WorkbenchError
from workbench.tables import FAILURES, NODE_SPANS, TIMELINE

MINUTE = 60_000_000_000
DAY = (0, 1440 * MINUTE)
NODES = ["a", "b", "c", "d"]


def log(*rows):
    """Make a failure log from (minute, node) and what else matters."""
    full = []
    for number, row in enumerate(rows):
        minute, node, *others = row
        at = None if minute is None else round(minute * MINUTE)
        known = {"start_ns": at, "end_ns": at, "clock": "none" if at is None else "epoch",
                 "node": node, "kind": "xid", "cause": "fell off the bus", "category": "gpu",
                 "severity": "fatal", "other_codes": "", "line_count": 1, "devices": "", "ranks": "", "rank_count": 0, "text": "",
                 "source": "log", "line": number + 1, "assumed": ""}  # fmt: skip
        full.append(known | (others[0] if others else {}))
    frame = pd.DataFrame(full).reindex(columns=list(FAILURES.columns))
    return FAILURES.check(FAILURES.cast(frame)) if full else FAILURES.empty()


def test_minutes_count_from_the_beginning_of_the_span_in_order():
    table = failure_times(log((70, "a"), (30, "b")), span_ns=(10 * MINUTE, 100 * MINUTE))
    assert table["time_min"].tolist() == [20, 60]
    assert table["run"].eq(0).all()
    assert table["other_min"].eq(10).all()
    assert table.attrs == {"left_out": {}, "horizon_min": 90, "doubts": []}


def test_nodes_belong_to_replicas_in_equal_parts_and_in_order():
    table = failure_times(
        log((1, "a"), (2, "b"), (3, "c"), (4, "d")), span_ns=DAY, replicas=2, nodes=NODES
    )
    assert table["replica"].tolist() == [0, 0, 1, 1]
    three = failure_times(
        log(*((minute, name) for minute, name in enumerate("abcdefg"))),
        span_ns=DAY, replicas=3, nodes=list("abcdefg"),
    )  # fmt: skip
    assert three["replica"].tolist() == [0, 0, 0, 1, 1, 2, 2]


def test_a_table_of_nodes_is_taken_in_order_of_name():
    spans = pd.DataFrame({"node": ["d", "b", "a", "c"], "clock": "epoch", "failure_count": 0})
    spans = NODE_SPANS.cast(spans.reindex(columns=list(NODE_SPANS.columns)))
    table = failure_times(log((1, "b"), (2, "d")), span_ns=DAY, replicas=2, nodes=spans)
    assert table["replica"].tolist() == [0, 1]


def test_a_failure_without_a_known_node_stops_everybody_and_is_counted():
    table = failure_times(
        log((1, None), (2, "stranger"), (3, "a")), span_ns=DAY, replicas=2, nodes=NODES
    )
    assert table["replica"].isna().tolist() == [True, True, False]
    assert table.attrs["left_out"] == {"have no known node: they stop all replicas": 2}


def test_without_replicas_every_failure_stops_everybody_whatever_job_it_is_replayed_with():
    table = failure_times(log((100, "a")), span_ns=DAY)
    assert table["replica"].isna().all()
    runs = goodput_replay(table, FaultTolerance(replicas=12), horizon_min=1440)
    share = runs.set_index("state")["gpu_time_share"]
    assert share["productive"] == pytest.approx(1 - 10 / 1440)


def test_what_does_not_count_is_counted_by_reason():
    failures = log(
        (1, "a"), (2, "a", {"severity": "warning"}), (3, "a", {"severity": "info"}),
        (4, "a", {"category": "follow-on"}), (5, "a", {"category": "planned"}),
        (6, "a", {"severity": "unknown"}), (None, "a"), (1440, "a"), (9999, "a"),
        (1441, "a", {"severity": "info"}),
    )  # fmt: skip
    table = failure_times(failures, span_ns=DAY)
    assert table["time_min"].tolist() == [1, 6]
    assert table.attrs["left_out"] == {
        "outside the span": 3,
        "do not stop a job (severity)": 2,
        "planned, or follow another failure": 2,
        "without a time": 1,
    }
    assert len(table) + sum(table.attrs["left_out"].values()) == len(failures)
    everything = failure_times(failures, span_ns=DAY, everything=True)
    assert everything["time_min"].tolist() == [1, 2, 3, 4, 5, 6]


def test_recoveries_are_a_number_phases_or_a_series_by_row():
    failures = log((20, "a"), (10, "b"))
    phases = {"detection": 1, "first step": 2, "recovery": 4}
    table = failure_times(failures, span_ns=DAY, recovery_min=phases)
    assert (
        table[["detection_min", "first_step_min", "other_min"]].to_numpy().tolist()
        == [[1, 2, 4]] * 2
    )
    given = pd.Series([7.0, 3.0], index=failures.index)
    table = failure_times(failures, span_ns=DAY, recovery_min=given)
    assert table["other_min"].tolist() == [3, 7]
    assert table["time_min"].tolist() == [10, 20]


def test_no_failures_give_an_empty_run_with_a_horizon():
    table = failure_times(FAILURES.empty(), span_ns=DAY, replicas=2, nodes=NODES)
    assert table.empty
    assert table.attrs["horizon_min"] == 1440


def test_the_span_is_from_the_first_to_the_last_time_of_all_tables():
    failures = log((10, "a"), (20, "a"), (None, "b"))
    timeline = pd.DataFrame({"start_ns": [5 * MINUTE], "end_ns": [30 * MINUTE], "clock": "epoch"})
    timeline = timeline.assign(state="running", source="log", line=1)
    timeline = TIMELINE.cast(timeline.reindex(columns=list(TIMELINE.columns)))
    assert observed_span(failures) == (10 * MINUTE, 20 * MINUTE)
    assert observed_span(failures, timeline) == (5 * MINUTE, 30 * MINUTE)
    assert all(type(each) is int for each in observed_span(failures))


# --- what is refused ---


def test_a_span_needs_times_of_one_clock():
    with pytest.raises(WorkbenchError, match="nothing in these tables has a time"):
        observed_span(log((None, "a")))
    with pytest.raises(WorkbenchError, match=r"different clocks \(epoch, own\) do not fit"):
        observed_span(log((1, "a"), (2, "a", {"clock": "own"})))
    # Other tables on another clock tell nothing.
    own = log((900, "a", {"clock": "own"}))
    assert observed_span(log((1, "a")), own) == observed_span(log((1, "a")))


def test_failures_of_different_clocks_do_not_fit_into_one_run():
    with pytest.raises(WorkbenchError, match=r"different clocks \(epoch, own\) do not fit"):
        failure_times(log((1, "a"), (2, "a", {"clock": "own"})), span_ns=DAY)


@pytest.mark.parametrize("span", [(5, 5), (9, 3)])
def test_a_span_ends_after_it_begins(span):
    with pytest.raises(WorkbenchError, match="span_ns must end after it begins"):
        failure_times(log((1, "a")), span_ns=span)


def test_replicas_need_nodes_and_enough_of_them():
    with pytest.raises(WorkbenchError, match="2 replicas need nodes="):
        failure_times(log((1, "a")), span_ns=DAY, replicas=2)
    with pytest.raises(WorkbenchError, match="4 nodes cannot form 5 replicas"):
        failure_times(log((1, "a")), span_ns=DAY, replicas=5, nodes=NODES)
    with pytest.raises(WorkbenchError, match=r"nodes= names \['a'\] twice"):
        failure_times(log((1, "a")), span_ns=DAY, replicas=2, nodes=["a", "b", "a", "c"])
    for value, words in (
        (0, "1 or more, not 0"),
        (-1, "1 or more, not -1"),
        (2.5, "a whole number from 1, not 2.5"),
        (math.nan, "a whole number from 1, not nan"),
    ):
        with pytest.raises(WorkbenchError, match=f"^replicas must be {words}$"):
            failure_times(log((1, "a")), span_ns=DAY, replicas=value, nodes=NODES)


def test_recoveries_are_known_and_not_negative():
    failures = log((1, "a"), (2, "a"))
    with pytest.raises(WorkbenchError, match="recovery_min has no phase 'coffee'; there are"):
        failure_times(failures, span_ns=DAY, recovery_min={"coffee": 5})
    for value in (-1, math.nan, math.inf):
        with pytest.raises(WorkbenchError, match=r"recovery_min\['recovery'\] must be 0 or more"):
            failure_times(failures, span_ns=DAY, recovery_min=value)
        given = pd.Series([1.0, value], index=failures.index)
        with pytest.raises(WorkbenchError, match=r"no minutes .* for 1 of 2 failures"):
            failure_times(failures, span_ns=DAY, recovery_min=given)
    with pytest.raises(WorkbenchError, match=r"no minutes .* for 2 of 2 failures"):
        failure_times(failures, span_ns=DAY, recovery_min=pd.Series(dtype="float64"))


def test_only_a_failure_log_is_one():
    with pytest.raises(TableError, match="'start_ns' is missing"):
        failure_times(pd.DataFrame({"time": [1]}), span_ns=DAY)
