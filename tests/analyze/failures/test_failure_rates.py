"""How often nodes fail: published rates first, then laws, then what is refused."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workbench import analyze
from workbench.errors import WorkbenchError
from workbench.tables import FAILURE_RATES, FAILURES, NODE_SPANS


@pytest.fixture
def log(make_failures):
    """Make failures of nodes, at days if they are given."""

    def make(*nodes, days=None, **others):
        when = days or [None] * len(nodes)
        rows = zip(nodes, when, strict=True)
        return make_failures(*({"node": node, "day": day, **others} for node, day in rows))

    return make


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("count", "nodes", "days", "mtbf_h", "rate"),
    [
        (419, 2048, 54, 3.093, 3.79),
        (466, 2048, 54, 2.781, 4.21),
        (65, 12_288, 10_000 / 12_288, 0.3005, 6.5),
    ],
)
def test_rates_of_llama_3_and_of_the_18_minutes(count, nodes, days, mtbf_h, rate):
    row = analyze.failure_rate(count, node_count=nodes, days=days).iloc[0]
    assert row["mtbf_h"] == pytest.approx(mtbf_h, abs=5e-4)
    assert row["per_1000_node_days"] == pytest.approx(rate, abs=5e-3)


@pytest.mark.oracle
def test_standby_nodes_are_those_of_byterobust():
    assert analyze.standby_nodes(1024, 0.001) == 4
    assert analyze.standby_nodes(1024, 0) == 0
    assert analyze.standby_nodes(16, 1) == 16


@given(st.integers(0, 5_000), st.sampled_from([0.5, 0.9, 0.95]))
def test_the_interval_is_exact(count, confidence):
    table = analyze.failure_rates(FAILURES.empty(), nodes=1, days=1, confidence_level=confidence)
    assert table["failure_count"].tolist() == [0]
    row = analyze.failure_rate(count, node_count=10, days=100).iloc[0]
    low, high = row["low_per_1000_node_days"], row["high_per_1000_node_days"]
    # At its ends, seeing as many or more (as few or fewer) has just 2.5 %.
    assert stats.poisson.cdf(count, high) == pytest.approx(0.025, rel=1e-6)
    if count:
        assert stats.poisson.sf(count - 1, low) == pytest.approx(0.025, rel=1e-6)
    else:
        assert low == 0


def test_no_failure_is_an_answer_with_an_upper_end():
    row = FAILURE_RATES.check(analyze.failure_rate(0, node_count=100, days=10)).iloc[0]
    assert row["per_1000_node_days"] == row["low_per_1000_node_days"] == 0
    assert row["high_per_1000_node_days"] == pytest.approx(3.689, abs=1e-3)
    assert pd.isna(row["mtbf_h"])
    assert pd.isna(row["high_mtbf_h"])
    assert row["low_mtbf_h"] == pytest.approx(240 / 3.689, rel=1e-3)


def test_rates_by_cause_share_the_exposure_and_add_up(log):
    table = pd.concat([log("a", "a", "b"), log("c", cause="d", category="host")])
    rates = analyze.failure_rates(table.reset_index(drop=True), nodes=10, days=5, by="category")
    assert rates["group"].tolist() == ["gpu", "host"]
    assert rates["exposure_node_days"].tolist() == [50, 50]
    whole = analyze.failure_rates(table.reset_index(drop=True), nodes=10, days=5)
    assert rates["per_1000_node_days"].sum() == whole["per_1000_node_days"].sum() == 80


def test_rates_by_group_of_nodes_have_their_own_exposure(log, make_spans):
    racks = {"a": "r1", "b": "r1", "c": "r2"}
    table = log("a", "a", "c", None)
    rates = analyze.failure_rates(table, nodes=make_spans(a=1, b=2, c=4), by=racks).set_index(
        "group"
    )
    assert rates["failure_count"].to_dict() == {"r1": 2, "r2": 1}
    assert rates["exposure_node_days"].to_dict() == {"r1": 3, "r2": 4}
    assert rates["node_count"].to_dict() == {"r1": 2, "r2": 1}
    assert rates.attrs["left_out"] == {"no node": 1}


def test_nodes_may_be_a_number_names_or_spans_with_or_without_days(log, make_spans):
    table = log("a", "b")
    same = [
        analyze.failure_rates(table, nodes=nodes, days=days)["per_1000_node_days"].item()
        for nodes, days in ((3, 2), (["a", "b", "c"], 2), (make_spans(a=2, b=2, c=2), None))
    ]
    assert same == [pytest.approx(1000 * 2 / 6)] * 3
    longer = analyze.failure_rates(table, nodes=make_spans(a=2, b=2, c=2), days=4)
    assert longer["exposure_node_days"].tolist() == [12]


def test_nodes_seen_only_because_they_failed_are_doubted(log, make_spans):
    nodes = make_spans(a=2, b=2).assign(failure_count=1)
    (doubt,) = analyze.failure_rates(log("a", "b"), nodes=nodes).attrs["doubts"]
    assert "nodes seen only because they failed make all rates too high" in doubt
    assert analyze.failure_rates(log("a", "b"), nodes=make_spans(a=2, b=2)).attrs["doubts"] == []


def test_info_is_not_counted_but_said(log):
    rates = analyze.failure_rates(log("a", severity="info"), nodes=1, days=1)
    assert rates["failure_count"].tolist() == [0]
    assert rates.attrs["left_out"] == {"info": 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": 2}, "observation time of the nodes is unknown"),
        ({"nodes": 0, "days": 1}, "nodes must be 1 or more, not 0"),
        ({"nodes": 2, "days": 0}, "days must be above 0 and finite, not 0"),
        ({"nodes": 2, "days": -3}, "days must be above 0 and finite, not -3"),
        ({"nodes": 2, "days": float("nan")}, "days must be above 0 and finite, not nan"),
        ({"nodes": [], "days": 1}, "there are no nodes"),
        ({"nodes": ["a", "a"], "days": 1}, "node 'a' is listed twice"),
        ({"nodes": "a", "days": 1}, "nodes='a' is a text"),
        ({"nodes": ["a"], "days": 1}, "1 nodes have failed that are not among the 1 nodes"),
        ({"nodes": 1, "days": 1}, "2 nodes have failed, and only 1 was watched"),
        ({"nodes": 2, "days": 1, "by": "colour"}, "by='colour': failures are told apart by"),
        ({"nodes": 2, "days": 1, "by": {"a": "r"}}, "by= has no group for 1 of 2 nodes, e.g. 'b'"),
        ({"nodes": 2, "days": 1, "confidence_level": 1}, "confidence_level must be between"),
    ],
)
def test_what_cannot_be_a_rate_is_refused(log, options, message):
    with pytest.raises(WorkbenchError, match=message):
        analyze.failure_rates(log("a", "b"), **options)


def test_failures_cannot_span_more_time_than_was_watched(log):
    with pytest.raises(WorkbenchError, match="the failures span 9 days, but days=5"):
        analyze.failure_rates(log("a", "a", days=[1, 10]), nodes=1, days=5)


def test_a_node_without_a_span_needs_days(log, make_spans):
    nodes = make_spans(a=1, b=0)
    with pytest.raises(WorkbenchError, match=r"1 of 2 nodes have no time .* e.g. 'b'; pass days="):
        analyze.failure_rates(log("a"), nodes=nodes)
    with pytest.raises(WorkbenchError, match="there are no nodes"):
        analyze.failure_rates(log("a"), nodes=NODE_SPANS.empty())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: analyze.failure_rate(-1, node_count=1, days=1), "failure_count must be 0 or more"),
        (lambda: analyze.failure_rate(1, node_count=0, days=1), "node_count must be 1 or more"),
        (
            lambda: analyze.failure_rate(1, node_count=1, days=0),
            "days must be above 0 and finite, not 0",
        ),
        (lambda: analyze.standby_nodes(0, 0.1), "node_count must be 1 or more"),
        (lambda: analyze.standby_nodes(1, 1.1), "fail_share must be from 0 to 1"),
        (lambda: analyze.standby_nodes(1, 0.1, quantile_share=1), "quantile_share must be between"),
    ],
)
def test_impossible_numbers_are_refused(call, message):
    with pytest.raises(WorkbenchError, match=message):
        call()
