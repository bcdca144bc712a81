"""Curves and knees: public sweeps first, then the laws of ratios, then what is refused."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze, load
from workbench.errors import TableError, WorkbenchError
from workbench.tables import POWER_CURVE, POWER_KNEES, POWER_SWEEPS


def sweep(*rows, **same):
    """Make a table of sweeps from (limit, time, energy)."""
    usual = {"gpu": "G", "job": "net 8", "network": "net", "gpu_count": 1, "run_count": 1,
             "doubt": "", "source": "s.csv", "line": 2} | same  # fmt: skip
    made = [usual | dict(zip(("limit_w", "time_s", "energy_j"), row, strict=True)) for row in rows]
    frame = pd.DataFrame(made, columns=list(POWER_SWEEPS.columns))
    frame["power_w"] = frame["energy_j"] / frame["time_s"]
    return POWER_SWEEPS.check(POWER_SWEEPS.cast(frame))


@pytest.fixture(scope="module")
def public(real_data):
    files = sorted(real_data("power-zeus-sweeps").glob("summary_power_*.csv"))
    return analyze.power_curve(load.power_sweeps(files))


@pytest.fixture(scope="module")
def public_knees(public):
    return analyze.power_knees(public).set_index(["gpu", "job"])


@pytest.mark.oracle
def test_every_public_sweep_has_its_configurations(public):
    names = public.drop_duplicates(["gpu", "job", "configuration"])
    assert names.groupby("gpu").size().to_dict() == {
        "V100": 58, "A40": 53, "RTX6000": 52, "P100": 45,
    }  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("gpu", "job", "printed"),
    [
        ("V100", "resnet50", (250, 137.5, 0.238, 0.169, 212.5)),
        ("V100", "bert_base_uncased", (250, 150, 0.216, 0.207, 225)),
        ("A40", "resnet50", (300, 175, 0.216, 0.068, 225)),
        ("A40", "bert_base_uncased", (300, 200, 0.214, 0.108, 250)),
        ("RTX6000", "resnet50", (260, 125, 0.266, 0.211, 225)),
        ("P100", "resnet50", (250, 125, 0.214, 0.088, 175)),
    ],
)
def test_knees_of_public_sweeps_are_reproduced(public_knees, gpu, job, printed):
    largest, best, saving, loss, kept = printed
    row = public_knees.loc[(gpu, job)]
    assert row["largest_limit_w"] == largest
    assert row["least_energy_limit_w"] == best
    assert row["kept_speed_limit_w"] == kept
    assert row["saving_ratio"] == pytest.approx(saving, abs=0.001)
    assert row["speed_loss_ratio"] == pytest.approx(loss, abs=0.001)


@pytest.mark.oracle
def test_a_job_that_is_faster_when_limited_stays_visible_and_is_flagged(public_knees):
    row = public_knees.loc[("V100", "ncf")]
    assert row["speed_loss_ratio"] == pytest.approx(-0.042, abs=0.001)
    assert "4.2 % faster at the lower limit" in row["doubt"]
    assert "noise" in row["doubt"]
    assert public_knees.loc[("V100", "resnet50"), "doubt"] == ""


@pytest.mark.oracle
def test_losing_speed_adds_more_time_than_the_share_that_is_lost(public_knees):
    # 17 % of the speed is 20 % more time: one number must not be read as the other.
    row = public_knees.loc[("V100", "resnet50")]
    assert row["time_increase_ratio"] == pytest.approx(0.204, abs=0.001)


@pytest.mark.oracle
def test_medians_over_fewer_configurations_say_so(real_data):
    files = real_data("power-zeus-sweeps") / "summary_power_a40.csv"
    curve = analyze.power_curve(load.power_sweeps(files), per="job")
    mine = curve[curve["job"] == "bert_base_uncased"].set_index("limit_w")
    assert mine.loc[225, "doubt"] == "8 of 14 configurations have this limit"
    assert mine.loc[200, "doubt"] == ""
    assert set(mine["configuration"]) == {"median of 14"}


def test_everything_is_compared_with_the_largest_limit():
    curve = analyze.power_curve(sweep((100, 20, 1_000), (200, 10, 2_000)))
    assert curve["speed_ratio"].tolist() == [0.5, 1]
    assert curve["energy_ratio"].tolist() == [0.5, 1]
    assert curve["saving_ratio"].tolist() == [0.5, 0]


def test_points_that_cannot_be_compared_are_left_out_and_counted():
    lost = pd.concat([
        sweep((100, 20, 1_000), (200, 10, 2_000)), sweep((150, None, None)),
    ], ignore_index=True)  # fmt: skip
    curve = analyze.power_curve(lost)
    assert curve["limit_w"].tolist() == [100, 200]
    assert set(curve["doubt"]) == {"1 limits without time, energy or limit dropped"}


def test_other_runs_at_a_limit_are_in_doubt():
    rows = pd.concat([
        sweep((100, 20, 1_000), variant="adam"), sweep((200, 10, 2_000), variant="sgd"),
    ], ignore_index=True)  # fmt: skip
    assert analyze.power_curve(rows)["doubt"].tolist() == [
        "other runs than at the largest limit", "",
    ]  # fmt: skip


def test_two_rows_at_one_limit_are_refused():
    twice = sweep((100, 20, 1_000), (100, 21, 1_000))
    with pytest.raises(WorkbenchError, match=r"two rows at 100 W .*s.csv, line 2.*load each"):
        analyze.power_curve(twice)


def test_an_unknown_way_to_group_is_refused():
    with pytest.raises(WorkbenchError, match="per must be 'configuration' or 'job', not 'gpu'"):
        analyze.power_curve(sweep((100, 20, 1_000)), per="gpu")
    with pytest.raises(TableError, match="'limit_w' is missing"):
        analyze.power_curve(pd.DataFrame({"gpu": ["G"]}))


def test_empty_tables_stay_empty():
    assert analyze.power_curve(POWER_SWEEPS.empty()).empty
    assert analyze.power_knees(POWER_CURVE.empty()).empty


points = st.lists(st.tuples(st.floats(1, 1e4), st.floats(1, 1e6)), min_size=2, max_size=8).map(
    lambda each: [(100.0 + 25 * at, *point) for at, point in enumerate(each)]
)


@pytest.mark.slow
@given(points, st.floats(0.01, 100), st.floats(0.01, 100))
def test_the_unit_of_work_does_not_matter(rows, time_scale, energy_scale):
    scaled = [(limit, time * time_scale, energy * energy_scale) for limit, time, energy in rows]
    one, other = (analyze.power_curve(sweep(*each)) for each in (rows, scaled))
    for name in ("speed_ratio", "energy_ratio"):
        np.testing.assert_allclose(one[name], other[name], rtol=1e-9)


@pytest.mark.slow
@given(points)
def test_knees_are_the_best_of_their_rule(rows):
    curve = analyze.power_curve(sweep(*rows))
    (knee,) = POWER_KNEES.check(analyze.power_knees(curve)).to_dict("records")
    at = curve.set_index("limit_w")
    energy, speed = at["energy_ratio"], at["speed_ratio"]
    assert energy[knee["least_energy_limit_w"]] == energy.min()
    assert (energy / speed)[knee["edp_limit_w"]] == (energy / speed).min()
    assert (energy / speed**2)[knee["ed2p_limit_w"]] == (energy / speed**2).min()
    assert speed[knee["kept_speed_limit_w"]] >= 0.95
    assert (speed[speed.index < knee["kept_speed_limit_w"]] < 0.95).all()
    assert knee["saving_ratio"] >= 0, "the largest limit is one of the choices"


def test_the_knee_is_where_the_curve_bends():
    curve = analyze.power_curve(sweep((100, 100, 1), (150, 52, 1), (200, 51, 1), (250, 50, 1)))
    assert analyze.power_knees(curve)["knee_limit_w"].tolist() == [150]


@pytest.mark.parametrize(
    "rows",
    [
        ((100, 20, 1), (200, 10, 1)),
        ((100, 10, 1), (150, 10, 1), (200, 10, 1)),
        ((100, 40, 1), (150, 35, 1), (200, 10, 1)),
    ],
    ids=["two limits", "flat", "bent the other way"],
)
def test_a_curve_without_a_bend_has_no_knee(rows):
    assert analyze.power_knees(analyze.power_curve(sweep(*rows)))["knee_limit_w"].isna().all()


def test_least_energy_at_the_smallest_limit_may_lie_lower():
    knees = analyze.power_knees(analyze.power_curve(sweep((100, 20, 1_000), (200, 10, 2_000))))
    assert "at the smallest limit measured; it may lie lower" in knees["doubt"].iloc[0]


def test_without_power_there_is_no_energy_and_the_row_says_so():
    (row,) = analyze.power_knees(analyze.published_curve()).to_dict("records")
    assert np.isnan(row["least_energy_limit_w"])
    assert row["kept_speed_limit_w"] == 1_000
    assert "no power is known, so no energy" in row["doubt"]


def test_knees_of_guesses_are_refused():
    guessed = analyze.extended_curve(analyze.published_curve(), 960)
    with pytest.raises(WorkbenchError, match="extrapolated rows; leave them out"):
        analyze.power_knees(guessed)
    with pytest.raises(WorkbenchError, match="kept_speed_share must be above 0 and at most 1"):
        analyze.power_knees(analyze.published_curve(), kept_speed_share=95)


def test_a_curve_that_keeps_the_speed_nowhere_is_named():
    slow = analyze.published_curve().assign(speed_ratio=[0.8, 0.9])
    with pytest.raises(
        WorkbenchError, match=r"gb200-meta keeps 0\.9 of the speed at most, not 0\.95"
    ):
        analyze.power_knees(slow)
