"""Curves beyond what is known: interpolated inside, marked outside, refused where nothing holds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyze.power.test_provisioning import curve
from workbench import analyze
from workbench.errors import WorkbenchError

KNOWN = curve((100, 0.6, 98), (150, 0.85, 140), (200, 0.95, 180), (250, 1, 210))
METHODS = ("linear", "power", "quadratic", "cubic")


def speed_at(table, limit_w):
    return table.set_index("limit_w").loc[limit_w, "speed_ratio"]


def test_limits_between_known_ones_are_interpolated_with_power_and_energy():
    row = analyze.extended_curve(KNOWN, 175).set_index("limit_w").loc[175]
    assert row["speed_ratio"] == pytest.approx(0.9)
    assert (row["power_w"], row["basis"]) == (160, "interpolated")
    assert row["energy_ratio"] == pytest.approx(160 / 210 / 0.9)
    assert not row["is_extrapolated"]
    assert row["doubt"] == ""


@pytest.mark.parametrize("method", METHODS)
def test_limits_below_are_marked_and_have_no_energy(method):
    row = analyze.extended_curve(KNOWN, 90, method=method).set_index("limit_w").loc[90]
    assert row["is_extrapolated"]
    assert row["basis"] == "extrapolated"
    assert row["doubt"] == f"no speed is known there; extrapolated: {method}"
    assert np.isnan(row["power_w"])
    assert np.isnan(row["energy_ratio"])


@pytest.mark.slow
@given(st.sampled_from(METHODS), st.floats(85, 99.9))
def test_speed_falls_on_below_the_known_limits(method, limit_w):
    assert 0 < speed_at(analyze.extended_curve(KNOWN, limit_w, method=method), limit_w) < 0.6


@pytest.mark.slow
@given(st.sampled_from(METHODS))
def test_every_method_meets_the_known_curve(method):
    near = analyze.extended_curve(KNOWN, 99.999, method=method)
    assert speed_at(near, 99.999) == pytest.approx(0.6, abs=1e-4)


def test_a_straight_line_stays_straight():
    line = curve((200, 0.5), (300, 0.75), (400, 1))
    table = analyze.extended_curve(line, [100, 500])
    assert speed_at(table, 100) == pytest.approx(0.25)
    assert speed_at(table, 500) == pytest.approx(1.25)
    law = curve((100, 0.5), (400, 1))
    assert speed_at(analyze.extended_curve(law, 25, method="power"), 25) == pytest.approx(0.25)


def test_the_shape_of_another_curve_is_scaled_to_the_known_one():
    like = curve((500, 0.6), (750, 0.8), (1_000, 1), gpu="H")
    known = curve((900, 0.98), (1_200, 1))
    # At 75 % of its limit the other lost 20 %, the known one 2 %; at 50 % it lost 40 %.
    table = analyze.extended_curve(known, 600, like=like)
    assert speed_at(table, 600) == pytest.approx(0.96)
    assert table["doubt"].iloc[0].endswith("the shape of another curve")


def test_known_limits_are_left_as_they_are_and_curves_apart():
    both = analyze.extended_curve(analyze.published_curve(), [1_000, 1_200])
    assert both["basis"].tolist() == ["published", "published"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"limit_w": 90, "method": "spline"}, "no method is called 'spline'"),
        ({"limit_w": 0}, "limit_w must be above 0"),
        ({"limit_w": 300, "method": "cubic"}, "300 W is above the largest limit"),
        ({"limit_w": 90, "like": KNOWN}, "known down to 40 % of its largest limit, and 36 %"),
        ({"limit_w": 99, "like": curve((50, 0.9), (100, 1), (250, 1))}, "its shape says nothing"),
        ({"limit_w": 90, "like": analyze.power_curve}, "not a 'power_curve' table"),
    ],
)
def test_what_has_no_answer_is_refused_in_words(arguments, message):
    with pytest.raises(WorkbenchError, match=message):
        analyze.extended_curve(KNOWN, **arguments)


def test_no_speed_below_zero_is_made_up():
    with pytest.raises(WorkbenchError, match="at 80 W the speed would be 0 or below"):
        analyze.extended_curve(curve((100, 0.5), (110, 1)), [80, 95])


def test_one_limit_alone_cannot_be_extended():
    with pytest.raises(
        WorkbenchError, match="G, net, c has 1 known rows; extending needs two or more"
    ):
        analyze.extended_curve(curve((100, 1)), 90)


def test_what_was_extrapolated_is_no_knowledge_to_interpolate_from():
    once = analyze.extended_curve(KNOWN, [80, 90])
    twice = analyze.extended_curve(analyze.extended_curve(KNOWN, 80), 90)
    row = twice.set_index("limit_w").loc[90]
    assert (row["basis"], row["is_extrapolated"]) == ("extrapolated", True)
    assert speed_at(twice, 90) == pytest.approx(speed_at(once, 90))
    bent = analyze.extended_curve(analyze.extended_curve(KNOWN, 80), 90, method="quadratic")
    assert speed_at(bent, 90) == pytest.approx(
        speed_at(analyze.extended_curve(KNOWN, 90, method="quadratic"), 90)
    ), "the method requested counts, not that of the point below"


def test_a_single_limit_may_be_any_number():
    table = analyze.extended_curve(KNOWN, np.int64(175))
    assert speed_at(table, 175) == pytest.approx(0.9)
