"""Failures that recur, lives between them, and trends: by hand first, then laws."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workbench import analyze
from workbench.errors import WorkbenchError
from workbench.tables import FAILURE_GAPS, FAILURE_TREND, LIFETIMES, NODE_SPANS, RECURRENCE

NEEDS_TIME = (analyze.lifetimes, analyze.recurrence, analyze.failure_trend)


@pytest.fixture
def failures(make_failures):
    """Make failures from pairs of node and day."""
    return lambda *pairs: make_failures(*({"node": n, "day": day} for n, day in pairs))


def test_lives_run_from_failure_to_failure_and_the_last_is_censored(failures, make_spans):
    lives = analyze.lifetimes(failures(("a", 1), ("a", 4)), make_spans(a=10, b=3))
    lives = LIFETIMES.check(lives)
    assert lives["node"].tolist() == ["a", "a", "a", "b"]
    assert (lives["lifetime_h"] / 24).tolist() == pytest.approx([1, 3, 6, 3])
    assert lives["is_failure"].tolist() == [True, True, False, False]


def test_the_life_before_the_first_failure_can_be_left_out(failures, make_spans):
    log = failures(("a", 1), ("a", 4))
    lives = analyze.lifetimes(log, make_spans(a=10, b=3), first="dropped")
    assert (lives["lifetime_h"] / 24).tolist() == pytest.approx([3, 6])
    with pytest.raises(WorkbenchError, match="first='none' is neither"):
        analyze.lifetimes(log, make_spans(a=10, b=3), first="none")


def test_lives_of_a_node_that_fails_at_the_very_end_are_not_cut_to_nothing(failures, make_spans):
    lives = analyze.lifetimes(failures(("a", 10)), make_spans(a=10))
    assert (lives["lifetime_h"] / 24).tolist() == pytest.approx([10])
    assert lives["is_failure"].all()


def test_failures_at_the_same_instant_are_one_and_are_counted(failures, make_spans):
    lives = analyze.lifetimes(failures(("a", 1), ("a", 1)), make_spans(a=3))
    assert len(lives) == 2
    assert lives.attrs["left_out"] == {"at the same instant as another of the node": 1}


def test_lives_have_the_group_of_their_node(failures, make_spans):
    groups = {"a": "old", "b": "new"}
    lives = analyze.lifetimes(failures(("a", 1)), make_spans(a=3, b=3), groups=groups)
    assert lives["group"].tolist() == ["old", "old", "new"]
    with pytest.raises(WorkbenchError, match=r"groups= has no group for 1 nodes, e.g. 'b'"):
        analyze.lifetimes(failures(("a", 1)), make_spans(a=3, b=3), groups={"a": "old"})


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 99)), unique=True))
def test_lives_add_up_to_what_was_watched(make_failures, make_spans, pairs):
    log = make_failures(*({"node": n, "day": d / 10} for n, d in pairs))
    lives = analyze.lifetimes(log, make_spans(a=10, b=10, c=(0, 11)))
    assert lives["lifetime_h"].sum() == pytest.approx(24 * 31)
    assert lives["is_failure"].sum() == len(pairs)


def test_recurrence_by_hand_as_nodes_come_and_go(failures, make_spans):
    log = failures(("a", 1), ("b", 3), ("b", 5))
    table = RECURRENCE.check(analyze.recurrence(log, make_spans(a=4, b=(2, 6))))
    assert (table["time_h"] / 24).tolist() == pytest.approx([1, 3, 5])
    assert table["at_risk_count"].tolist() == [1, 2, 1]
    assert table["mean_count"].tolist() == pytest.approx([1, 1.5, 2.5])
    assert table["high_count"].isna().all(), "one node alone has no spread"


def test_the_band_is_the_spread_between_nodes(failures, make_spans):
    """With all nodes watched all the time the variance is that of their counts, over n."""
    log = failures(("a", 1), ("a", 2), ("a", 3), ("b", 4))
    table = analyze.recurrence(log, make_spans(a=9, b=9, c=9, d=9))
    error = np.std([3, 1, 0, 0]) / np.sqrt(4)
    reach = stats.norm.ppf(0.975) * error
    assert table["high_count"].iloc[-1] == pytest.approx(1 + reach)
    assert table["low_count"].iloc[-1] == pytest.approx(max(1 - reach, 0))


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(30, 50)), min_size=1))
def test_the_band_is_that_of_the_formula_also_as_nodes_come_and_go(
    make_failures, make_spans, pairs
):
    spans = {"a": (0, 9), "b": (1, 5), "c": (3, 9), "d": (0, 5), "e": (4, 4.5), "f": (0, 2)}
    log = make_failures(*({"node": n, "day": d / 10} for n, d in pairs))
    table = analyze.recurrence(log, make_spans(**spans))
    apart, expected = dict.fromkeys(spans, 0.0), []
    for day in sorted({d for _, d in pairs}):
        watched = [n for n, (first, last) in spans.items() if first <= day / 10 <= last]
        failed = [n for n, d in pairs if d == day]
        for name in watched:
            excess = failed.count(name) - len(failed) / len(watched)
            apart[name] += excess / len(watched)
        expected.append(sum(each**2 for each in apart.values()))
    error = (table["high_count"] - table["mean_count"]) / stats.norm.ppf(0.975)
    assert (error**2).tolist() == pytest.approx(expected, abs=1e-9)


def test_the_power_law_ends_where_the_counts_end(failures, make_spans):
    log = failures(("a", 1), ("b", 5), ("a", 9))
    table = analyze.recurrence(log, make_spans(a=9, b=9))
    assert table["trend_count"].iloc[-1] == pytest.approx(1.5)


@pytest.mark.oracle
def test_the_trend_is_that_of_the_formulas(failures, make_spans):
    days = np.array([1, 2, 4, 8.0])
    log = failures(*(("a", day) for day in days))
    row = FAILURE_TREND.check(analyze.failure_trend(log, make_spans(a=10))).iloc[0]
    assert row["growth_ratio"] == pytest.approx(4 / np.log(10 / days).sum())
    assert row["laplace_ratio"] == pytest.approx((days.mean() - 5) / (10 / np.sqrt(48)))
    ends = stats.chi2.ppf([0.025, 0.975], 8) / 8
    low, high = row["low_growth_ratio"], row["high_growth_ratio"]
    assert [low, high] == pytest.approx(row["growth_ratio"] * ends)


def test_more_nodes_are_no_trend(make_failures, make_spans):
    """Twice the nodes in the second half fail twice as often: a constant rate."""
    draws = np.random.default_rng(8)
    early = [{"node": "a", "day": day} for day in draws.uniform(0, 100, 200)]
    late = [{"node": "b", "day": day} for day in draws.uniform(50, 100, 100)]
    row = analyze.failure_trend(make_failures(*early, *late), make_spans(a=100, b=(50, 100)))
    assert row["p_value_share"].item() > 0.05
    assert row["growth_ratio"].item() == pytest.approx(1, abs=0.15)
    wrong = analyze.failure_trend(make_failures(*early, *late), make_spans(a=100, b=100))
    assert wrong["p_value_share"].item() < 1e-3


@pytest.mark.parametrize("count", [0, 1])
def test_few_failures_have_no_trend(failures, make_spans, count):
    log = failures(*[("a", 1)] * count)
    row = analyze.failure_trend(log, make_spans(a=10)).iloc[0]
    assert row["failure_count"] == count
    assert pd.isna(row["growth_ratio"])
    assert pd.isna(row["p_value_share"])
    assert len(analyze.recurrence(log, make_spans(a=10))) == count


def test_bursts_have_a_shape_below_one_and_chance_has_one(make_failures):
    draws = np.random.default_rng(2)
    for gaps, low, high in (
        (draws.exponential(1, 300), 0.85, 1.15),
        (draws.weibull(0.5, 300), 0.4, 0.6),
    ):
        log = make_failures(*({"day": day} for day in gaps.cumsum()))
        row = FAILURE_GAPS.check(analyze.failure_gaps(log)).iloc[0]
        assert low < row["shape_ratio"] < high
        assert row["mean_h"] == pytest.approx(24 * gaps[1:].mean(), rel=1e-6)


def test_simultaneous_failures_are_gaps_of_nothing(make_failures):
    row = analyze.failure_gaps(make_failures(*({"day": d} for d in (1, 1, 2, 4)))).iloc[0]
    assert (row["gap_count"], row["together_count"]) == (3, 1)
    assert pd.isna(analyze.failure_gaps(make_failures())["shape_ratio"].item())


def test_the_first_days_are_what_was_known_then(failures, make_spans):
    log = failures(("a", 1), ("a", 5), ("b", 8))
    some, spans = analyze.first_days(log, make_spans(a=10, b=(7, 10)), days=6)
    assert some["node"].tolist() == ["a", "a"]
    assert spans["node"].tolist() == ["a"]
    assert spans["failure_count"].tolist() == [2]
    same, _ = analyze.first_days(log, make_spans(a=10, b=(7, 10)), days=99)
    assert len(same) == 3
    with pytest.raises(WorkbenchError, match=r"^days must be above 0 and finite, not 0$"):
        analyze.first_days(log, make_spans(a=10, b=10), days=0)


@pytest.mark.parametrize("function", NEEDS_TIME)
def test_failures_without_a_time_are_refused_or_counted(make_failures, make_spans, function):
    with pytest.raises(
        WorkbenchError, match=r"none of the 1 failures has a time \(clock is none\)"
    ):
        function(make_failures({"node": "a"}), make_spans(a=3))
    table = function(make_failures({"node": "a"}, {"node": "a", "day": 1}), make_spans(a=3))
    assert table.attrs["left_out"] == {"no time": 1}


@pytest.mark.parametrize("function", NEEDS_TIME)
def test_clocks_that_cannot_be_compared_are_refused(make_failures, make_spans, function):
    rows = [{"node": "a", "day": 1, "clock": "own", "source": name} for name in ("x.log", "y.log")]
    with pytest.raises(WorkbenchError, match=r"on 2 clocks .* own x\.log, own y\.log"):
        function(make_failures(*rows), make_spans(a=3))
    with pytest.raises(WorkbenchError, match="1 of 1 nodes are on another clock"):
        function(make_failures(rows[0]), make_spans(a=3))
    spans = make_spans(a=3).assign(clock="own")
    assert len(function(make_failures(rows[0]), spans)) >= 1


@pytest.mark.parametrize("function", NEEDS_TIME)
def test_nodes_that_do_not_fit_the_failures_are_refused(failures, make_spans, function):
    with pytest.raises(WorkbenchError, match=r"1 nodes have failed .* 'a'; pass all nodes"):
        function(failures(("a", 1)), make_spans(b=3))
    with pytest.raises(WorkbenchError, match=r"1 failures lie outside .* of 'a' 96 h after"):
        function(failures(("a", 4)), make_spans(a=3))
    with pytest.raises(WorkbenchError, match="1 of 2 nodes were last seen no later than first"):
        function(failures(("a", 1)), make_spans(a=3, b=0))
    missing = make_spans(a=3).assign(last_ns=pd.array([None], dtype="Int64"))
    with pytest.raises(WorkbenchError, match="1 of 1 nodes have no observation time"):
        function(failures(("a", 1)), missing)
    with pytest.raises(WorkbenchError, match="there are no nodes"):
        function(failures(("a", 1)), NODE_SPANS.empty())
    with pytest.raises(WorkbenchError, match="node 'a' is listed twice"):
        function(failures(("a", 1)), pd.concat([make_spans(a=3), make_spans(a=3)]))
