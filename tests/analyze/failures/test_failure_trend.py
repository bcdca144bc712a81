"""Trends of failures, and the time between them: formulas first, then laws."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workbench import analyze
from workbench.analyze._failures.failure_trend import weibull_shape
from workbench.errors import WorkbenchError
from workbench.tables import FAILURE_GAPS, FAILURE_TREND, NODE_SPANS


@pytest.fixture
def failures(make_failures):
    """Make failures from pairs of node and day."""
    return lambda *pairs: make_failures(*({"node": n, "day": day} for n, day in pairs))


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


@pytest.mark.oracle
def test_the_shape_of_the_gaps_is_that_of_scipy(make_failures):
    gaps = np.random.default_rng(5).weibull(0.8, 60)
    row = analyze.failure_gaps(make_failures(*({"day": day} for day in gaps.cumsum()))).iloc[0]
    shape, _, scale = stats.weibull_min.fit(gaps[1:], floc=0)
    assert row["shape_ratio"] == pytest.approx(shape, rel=1e-3)
    by_chance = stats.expon(scale=gaps[1:].mean()).logpdf(gaps[1:]).sum()
    gain = 2 * (stats.weibull_min(shape, scale=scale).logpdf(gaps[1:]).sum() - by_chance)
    assert row["p_value_share"] == pytest.approx(stats.chi2.sf(gain, 1), rel=1e-3)


@given(st.integers(0, 2**32 - 1), st.floats(0.5, 3), st.floats(1e-3, 1e6))
def test_drawn_gaps_give_their_shape_back_in_any_unit(seed, shape, scale):
    gaps = scale * np.random.default_rng(seed).weibull(shape, 1_500)
    fitted = weibull_shape(gaps, 0.999999)
    assert fitted.low_shape_ratio < shape < fitted.high_shape_ratio


def test_the_interval_of_the_shape_covers_as_often_as_it_says():
    draws = np.random.default_rng(7)
    fits = [weibull_shape(draws.weibull(0.7, 80), 0.9) for _ in range(400)]
    covered = np.mean([fit.low_shape_ratio < 0.7 < fit.high_shape_ratio for fit in fits])
    assert covered == pytest.approx(0.9, abs=0.05)


def test_chance_is_recognised_and_so_are_bursts():
    draws = np.random.default_rng(1)
    assert weibull_shape(draws.exponential(9, 400), 0.95).p_value_share > 0.05
    bursts = weibull_shape(9 * draws.weibull(0.6, 400), 0.95)
    assert bursts.p_value_share < 1e-6
    assert bursts.high_shape_ratio < 1


@pytest.mark.parametrize("gaps", [[], [3], [3, 3]], ids=["none", "one", "all alike"])
def test_where_no_law_fits_none_is_given(gaps):
    assert all(map(np.isnan, weibull_shape(np.array(gaps, float), 0.95)))


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


def test_failures_without_a_time_are_refused_or_counted(make_failures, make_spans):
    with pytest.raises(
        WorkbenchError, match=r"none of the 1 failures has a time \(clock is none\)"
    ):
        analyze.failure_trend(make_failures({"node": "a"}), make_spans(a=3))
    table = analyze.failure_trend(
        make_failures({"node": "a"}, {"node": "a", "day": 1}), make_spans(a=3)
    )
    assert table.attrs["left_out"] == {"no time": 1}


def test_clocks_that_cannot_be_compared_are_refused(make_failures, make_spans):
    rows = [{"node": "a", "day": 1, "clock": "own", "source": name} for name in ("x.log", "y.log")]
    with pytest.raises(WorkbenchError, match=r"on 2 clocks .* own x\.log, own y\.log"):
        analyze.failure_trend(make_failures(*rows), make_spans(a=3))
    with pytest.raises(WorkbenchError, match="1 of 1 nodes are on another clock"):
        analyze.failure_trend(make_failures(rows[0]), make_spans(a=3))
    spans = make_spans(a=3).assign(clock="own")
    assert len(analyze.failure_trend(make_failures(rows[0]), spans)) >= 1


def test_nodes_that_do_not_fit_the_failures_are_refused(failures, make_spans):
    with pytest.raises(WorkbenchError, match=r"1 nodes have failed .* 'a'; pass all nodes"):
        analyze.failure_trend(failures(("a", 1)), make_spans(b=3))
    with pytest.raises(WorkbenchError, match=r"1 failures lie outside .* of 'a' 96 h after"):
        analyze.failure_trend(failures(("a", 4)), make_spans(a=3))
    with pytest.raises(WorkbenchError, match="1 of 2 nodes were last seen no later than first"):
        analyze.failure_trend(failures(("a", 1)), make_spans(a=3, b=0))
    missing = make_spans(a=3).assign(last_ns=pd.array([None], dtype="Int64"))
    with pytest.raises(WorkbenchError, match="1 of 1 nodes have no observation time"):
        analyze.failure_trend(failures(("a", 1)), missing)
    with pytest.raises(WorkbenchError, match="there are no nodes"):
        analyze.failure_trend(failures(("a", 1)), NODE_SPANS.empty())
    with pytest.raises(WorkbenchError, match="node 'a' is listed twice"):
        analyze.failure_trend(failures(("a", 1)), pd.concat([make_spans(a=3), make_spans(a=3)]))
