"""The explorers of spectra and smoothing: every control answers, refusals in words, pages small."""

import time

import numpy as np
import pytest

from tests.power_series import cells
from workbench import explore
from workbench.analyze import GridSpec, SmoothingPlan
from workbench.explore.static import static_html

NOUNS = ("power_spectrum", "power_smoothing")


@pytest.fixture(scope="module")
def totals():
    """Make an hour of a job whose step is 10.6 s, with a deep dip every 2.5 min."""
    at = np.arange(1_700) * 2.0
    power = 450e3 - 35e3 * (at % 10.6 < 3) - 90e3 * (at % 150 < 4)
    return cells(power + 3e3 * np.sin(at / 7), period_s=2)


@pytest.mark.parametrize("noun", NOUNS)
def test_every_control_has_a_label_answers_while_it_moves_and_changes_the_figure(noun, totals):
    explorer = getattr(explore, noun)(totals, source="demo", synthetic=True)
    assert explorer.message.value == ""
    assert "demo" in str(explorer.figure().layout.annotations)
    assert "SYNTHETIC DATA" in explorer.figure().layout.title.subtitle.text
    for control in explorer.controls.values():
        assert control.description
        assert getattr(control, "continuous_update", True)
        start, drawn = control.value, set()
        options = [each[1] for each in control.options]
        for each in {options[0], options[-1], start}:
            control.value = each
            assert explorer.message.value == ""
            drawn.add(explorer.figure().to_json())
        assert len(drawn) > 1, control.description
        control.value = start


def test_a_band_below_nyquist_gets_a_verdict_and_one_above_it_never_passes(totals):
    explorer = explore.power_spectrum(totals, step_s=10.6)
    assert "0.1-20 Hz: unknown (0.8 % of the band seen)" in explorer.title() or (
        "0.1-20 Hz: fail (0.8 % of the band seen)" in explorer.title()
    )
    explorer.controls["high"].value = 0.25
    explorer.controls["cap"].value = 10.0
    explorer.controls["averaging"].value = 0.0
    assert explorer.title().endswith("0.1-0.25 Hz: fail")
    assert "one step = 10.6 s" in str(explorer.figure().layout.annotations)


def test_the_state_names_the_first_option_too(totals):
    assert "hold before a fall [s] = 0," in explore.power_smoothing(totals).state()


def test_an_impossible_band_is_explained_not_raised(totals):
    wide = GridSpec("own", band_low_hz=0.3, band_high_hz=2, band_share=0.3)
    explorer = explore.power_spectrum(totals, spec=wide)
    assert explorer.controls["low"].value == 0.3
    explorer.controls["high"].value = 0.25
    assert "the band 0.3-0.25 Hz is empty" in explorer.message.value
    explorer.controls["low"].value = 0.1
    assert explorer.message.value == ""


def test_a_floor_and_a_store_together_spare_the_grid_most_of_the_swing(totals):
    explorer = explore.power_smoothing(totals)
    assert "grid: " in explorer.title()
    both = explorer.title()
    explorer.controls["floor"].value = 0.0
    explorer.controls["tau"].value = 0.0
    assert explorer.title() != both
    assert "for 0 % more energy" in explorer.title()
    explorer.controls["view"].value = "summary"
    assert explorer.figure().layout.xaxis.title.text.startswith("after, of what it was")


def test_limits_of_a_store_are_left_out_with_it(totals):
    plan = SmoothingPlan(storage_tau_s=30, storage_energy_j=3.6e5, charge_control_s=100)
    explorer = explore.power_smoothing(totals, plan=plan)
    explorer.controls["tau"].value = 0.0
    assert explorer.message.value == ""


def test_a_limit_for_a_site_needs_its_rating(totals):
    from workbench import analyze

    explorer = explore.power_smoothing(totals, spec=analyze.grid_spec("10 MW/min"))
    assert "give site_w" in explorer.message.value
    scaled = explore.power_smoothing(totals, spec=analyze.grid_spec("10 MW/min"), site_w=5e5)
    assert "grid: fail before" in scaled.title()


def test_a_move_is_answered_in_a_tenth_of_a_second(totals):
    explorer = explore.power_smoothing(totals)
    taken = []
    for floor in (80.0, 85.0, 90.0, 95.0):
        start = time.perf_counter()
        explorer.controls["floor"].value = floor
        taken.append(time.perf_counter() - start)
    assert min(taken) < 0.3


@pytest.mark.slow
@pytest.mark.parametrize("noun", NOUNS)
def test_a_page_without_a_kernel_stays_small(noun, totals):
    page = static_html(getattr(explore, noun)(totals))
    assert len(page) < 12e6
