"""Survival: numbers of another tool first, then laws, then what is refused."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workbench import analyze
from workbench.errors import TableError, WorkbenchError
from workbench.tables import LIFETIMES, SURVIVAL, WEIBULL

# Twenty lifetimes by hand, and what lifelines 0.30.3 says of them (KaplanMeierFitter,
# WeibullFitter; its intervals are log-log and of the standard error).
HOURS = [5, 8, 12, 12, 20, 23, 27, 30, 33, 43, 45, 50, 61, 70, 70, 75, 80, 90, 95, 100]
FAILED = [1, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 0, 1, 0]
KAPLAN_MEIER = {
    5: (0.95, 0.694743, 0.992802),
    12: (0.85, 0.603790, 0.948996),
    30: (0.686538, 0.429351, 0.845949),
    61: (0.440529, 0.207003, 0.652669),
    70: (0.314663, 0.117749, 0.535282),
    100: (0.117999, 0.009646, 0.373800),
}
SHAPE, SHAPE_ERROR, SCALE, SCALE_ERROR = 1.390724, 0.311088, 66.201156, 12.723358

lives = st.lists(st.tuples(st.integers(1, 50), st.booleans()), min_size=1, max_size=60)


def table_of(hours, failed, group="all"):
    frame = pd.DataFrame(
        {"lifetime_h": np.array(hours, float), "is_failure": np.array(failed, bool)}
    )
    return LIFETIMES.check(LIFETIMES.cast(frame.assign(node="a", group=group)))


@pytest.mark.oracle
def test_kaplan_meier_is_that_of_lifelines():
    curve = SURVIVAL.check(analyze.survival(table_of(HOURS, FAILED), band="log-log"))
    curve = curve.set_index("time_h")[["survival_share", "low_share", "high_share"]]
    for age, expected in KAPLAN_MEIER.items():
        assert curve.loc[age].tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.oracle
def test_the_weibull_law_is_that_of_lifelines():
    row = WEIBULL.check(analyze.weibull(table_of(HOURS, FAILED))).iloc[0]
    assert row["shape_ratio"] == pytest.approx(SHAPE, rel=1e-5)
    assert row["scale_h"] == pytest.approx(SCALE, rel=1e-5)
    # Ours are symmetric in the logarithm, so the error is found there.
    z = stats.norm.ppf(0.975)
    error = np.log(row["high_shape_ratio"] / row["shape_ratio"]) / z * SHAPE
    assert error == pytest.approx(SHAPE_ERROR, rel=1e-3)
    error = np.log(row["high_scale_h"] / row["scale_h"]) / z * SCALE
    assert error == pytest.approx(SCALE_ERROR, rel=1e-3)
    assert row["exponential_mean_h"] == sum(HOURS) / sum(FAILED)


@pytest.mark.oracle
def test_the_plain_band_is_greenwoods_by_hand():
    curve = analyze.survival(table_of([1, 2, 3, 4], [1, 0, 1, 0])).set_index("time_h")
    assert curve["survival_share"].tolist() == pytest.approx([0.75, 0.75, 0.375, 0.375])
    error = 0.375 * np.sqrt(1 / 12 + 1 / 2)
    low = max(0.375 - stats.norm.ppf(0.975) * error, 0)
    assert curve["low_share"][3] == pytest.approx(low)
    assert curve["at_risk_count"].tolist() == [4, 3, 2, 1]
    assert curve["censored_count"].tolist() == [0, 1, 0, 1]


@given(lives)
def test_survival_falls_and_lies_in_its_band(lives):
    hours, failed = zip(*lives, strict=True)
    for band in ("plain", "log-log"):
        curve = SURVIVAL.check(analyze.survival(table_of(hours, failed), band=band))
        assert curve["survival_share"].is_monotonic_decreasing
        assert (curve["low_share"] <= curve["survival_share"] + 1e-12).all()
        assert (curve["survival_share"] <= curve["high_share"] + 1e-12).all()
        assert curve[["failure_count", "censored_count"]].sum().sum() == len(lives)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60))
def test_without_censoring_survival_is_the_share_still_alive(hours):
    curve = analyze.survival(table_of(hours, [True] * len(hours)))
    alive = [(np.array(hours) > age).mean() for age in curve["time_h"]]
    assert curve["survival_share"].tolist() == pytest.approx(alive)


@given(st.integers(0, 2**32 - 1), st.floats(0.5, 3), st.floats(1e-3, 1e6))
def test_drawn_lives_give_their_law_back_in_any_unit(seed, shape, scale):
    draws = np.random.default_rng(seed)
    hours = scale * draws.weibull(shape, 1_500)
    end = np.quantile(hours, 0.7)
    table = table_of(np.minimum(hours, end), hours <= end)
    row = analyze.weibull(table, confidence_level=0.999999).iloc[0]
    assert row["low_shape_ratio"] < shape < row["high_shape_ratio"]
    assert row["low_scale_h"] < scale < row["high_scale_h"]


def test_chance_is_recognised_and_so_are_bursts():
    draws = np.random.default_rng(1)
    chance = analyze.weibull(table_of(draws.exponential(9, 400), [True] * 400)).iloc[0]
    assert chance["p_value_share"] > 0.05
    bursts = analyze.weibull(table_of(9 * draws.weibull(0.6, 400), [True] * 400)).iloc[0]
    assert bursts["p_value_share"] < 1e-6
    assert bursts["high_shape_ratio"] < 1


def test_groups_are_apart():
    table = pd.concat([table_of(HOURS, FAILED, "b"), table_of([1, 2], [1, 1], "a")])
    curves = analyze.survival(table)
    assert curves["group"].drop_duplicates().tolist() == ["a", "b"]
    alone = analyze.survival(table_of(HOURS, FAILED, "b"))
    pd.testing.assert_frame_equal(
        curves[curves["group"] == "b"].reset_index(drop=True), alone, check_like=True
    )
    assert analyze.weibull(table)["lifetime_count"].tolist() == [2, 20]


@pytest.mark.parametrize(
    ("hours", "failed"),
    [
        ([3, 4], [0, 0]),
        ([3, 4], [1, 0]),
        ([3, 3], [1, 1]),
        ([2, 3, 3], [0, 1, 1]),
        ([0, 3, 4], [1, 1, 1]),
    ],
    ids=["none failed", "one failed", "at one time", "at the very end", "at birth"],
)
def test_where_no_law_fits_none_is_given_but_survival_is(hours, failed):
    row = analyze.weibull(table_of(hours, failed)).iloc[0]
    assert pd.isna(row["shape_ratio"])
    assert row["failure_count"] == sum(failed)
    curve = analyze.survival(table_of(hours, failed))
    assert curve["weibull_share"].isna().all()
    assert len(curve) == len(set(hours))


def test_no_lives_are_no_error():
    assert SURVIVAL.check(analyze.survival(LIFETIMES.empty())).empty
    assert WEIBULL.check(analyze.weibull(LIFETIMES.empty())).empty


def test_what_is_no_lifetime_is_refused():
    with pytest.raises(TableError, match="'lifetime_h' has 1 values below 0"):
        analyze.survival(table_of([1], [1]).assign(lifetime_h=-1.0))
    with pytest.raises(WorkbenchError, match="band='wide' is not one of"):
        analyze.survival(table_of([1], [1]), band="wide")
    with pytest.raises(WorkbenchError, match="confidence_level must be between"):
        analyze.weibull(table_of([1], [1]), confidence_level=0)
