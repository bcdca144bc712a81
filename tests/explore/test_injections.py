"""Explorers of fault injection: every rule can be changed, and none of them is hidden."""

import numpy as np
import pandas as pd
import pytest

from claims._interval_coverage import truth_sample
from tests.analyze.conftest import injected, skewed_truth
from workbench import analyze, explore
from workbench._shared.fixed_injections import FixedInjections
from workbench.errors import WorkbenchError
from workbench.tables import DETECTOR_TRIALS


@pytest.fixture(scope="module")
def truth():
    return skewed_truth()


def said(explorer):
    return explorer.figure().layout.title.subtitle.text.replace("<br>", " ")


def test_results_that_are_kept_give_the_estimates_of_those_that_are_not():
    given = truth_sample(skewed_truth(), 400, seed=3)
    kept = FixedInjections.of(given)
    for average in ("bits", "tensors", "bits"):
        for policy in ("wrong", "ignore"):
            rules = {"average": average, "nan_policy": policy}
            pd.testing.assert_frame_equal(analyze.pvf(kept, **rules), analyze.pvf(given, **rules))
    assert set(kept.made) == {"experiments", "drawn"}
    assert FixedInjections.of(skewed := skewed_truth()) is skewed


def test_pvf_changes_its_rules_and_says_them(truth, title):
    explorer = explore.pvf(truth, source="a truth", synthetic=True)
    assert explorer.message.value == ""
    assert "Highest: top" in title(explorer)
    assert "every bit weighs the same" in said(explorer)
    explorer.controls["average"].value = "tensors"
    assert "every tensor weighs the same" in said(explorer)
    explorer.controls["nan_policy"].value = "ignore"
    assert "outputs that are not finite are dropped" in said(explorer)
    explorer.controls["by"].value = "param"
    assert len(explorer.figure().layout.yaxis.ticktext) == 5


def test_pvf_by_bit_shows_components_and_the_tensors_of_one(truth, title):
    explorer = explore.pvf_by_bit(truth)
    assert title(explorer).startswith("Bit 30 of top is worst")
    assert explorer.figure().layout.yaxis.ticktext == ("embeddings", "bottom", "top")
    assert "<b>exponent</b>" in [each.text for each in explorer.figure().layout.annotations]
    explorer.controls["component"].value = "bottom"
    assert explorer.figure().layout.yaxis.ticktext == ("bot.0.weight", "bot.0.bias")


def test_pvf_by_flips_shows_one_component(title):
    campaigns = []
    for flips in (1, 8):
        places = [
            {"component": "top", "layer": "top.0", "param": "top.0.weight", "elem": n, "bit": 4 * n}
            for n in range(flips)
        ]
        row = {"flips": places, "component": "top", "dtype": "fp32"}
        rows = [row | {"sdc_count": flips * (1 + n % 5)} for n in range(40)]
        campaigns.append(injected(*rows, campaign_id=f"f{flips}", flip_count=flips))
    explorer = explore.pvf_by_flips(campaigns)
    assert title(explorer) == "In doubt: top, fp32: 3 % go wrong at 1 flip, 24 % at 8"
    explorer.controls["component"].value = "top"
    assert explorer.message.value == ""


def test_interval_funnel_grows_by_500_sites(truth, title):
    explorer = explore.interval_funnel(truth)
    assert explorer.controls["component"].value == "top"
    assert "of 6 looks cover the true value" in title(explorer)
    explorer.controls["sites"].value = 3_500
    assert "of 7 looks cover the true value" in title(explorer)
    before = explorer.figure()
    explorer.controls["seed"].value = 2.0
    assert explorer.figure() != before


def test_injection_sample_sizes_ask_for_an_error_and_a_confidence(truth, title):
    explorer = explore.injection_sample_sizes(truth)
    first = title(explorer)
    explorer.controls["error"].value = 0.5
    assert title(explorer) != first
    explorer.controls["level"].value = 0.99
    assert "at 99 % confidence" in said(explorer)


def test_pvf_protection_protects_elements_bits_or_tensors(truth, title):
    explorer = explore.pvf_protection(truth)
    assert "of the elements removes" in title(explorer)
    explorer.controls["unit"].value = "bits"
    explorer.controls["part"].value = "top"
    assert title(explorer).startswith("Protecting 2 of 32 bits of top (the last: bit 25)")


def trials():
    rng = np.random.default_rng(1)
    clean = pd.DataFrame({"residual": 1e-7 * rng.random(200), "is_faulty": False})
    faulty = pd.DataFrame({"residual": 10.0 ** rng.uniform(-6, -2, 200), "is_faulty": True})
    table = pd.concat([clean, faulty], ignore_index=True).assign(
        detector="checksum", place="table row", bit=3, is_effective=lambda t: t["is_faulty"],
        output_change=0.1,
    )  # fmt: skip
    return DETECTOR_TRIALS.check(DETECTOR_TRIALS.cast(table))


def test_detector_tolerance_starts_where_no_alarm_is_false(title):
    explorer = explore.detector_tolerance(trials(), tolerances=(0, 1e-7, 1e-5, 1e-3))
    assert title(explorer).startswith("At a tolerance of 1e-07 100 % of the faults are detected")
    explorer.controls["tolerance"].value = 1e-3
    assert "0.001" in title(explorer)
    with pytest.raises(WorkbenchError, match="no trial has a fault that changed the output"):
        explore.detector_tolerance(trials().query("not is_faulty"))


def live(everything, **options):
    start = truth_sample(everything, 400, seed=1, component="top")
    parts = [start.outcomes.iloc[at : at + 50] for at in range(0, 200, 50)]
    return explore.pvf_running(start, lambda: iter(parts), source="a truth", **options)


def test_pvf_running_starts_with_what_is_known_and_then_shows_what_is_injected(truth, title):
    explorer = live(truth, truth=0.0087)
    assert title(explorer).startswith("400 sites of top: ")
    explorer.inject.click()
    explorer.thread.join()
    assert title(explorer).startswith("200 sites of top: ")
    assert "injected just now" in explorer.figure().layout.annotations[-1].text
    assert explorer.progress.value == "all of 200 sites"
    explorer.controls["wanted"].value = 0.5
    assert title(explorer).startswith("200 sites of top: ")


def test_pvf_running_says_what_to_pass_if_there_is_nothing_to_inject(truth, title):
    start = truth_sample(truth, 400, seed=1, component="top")
    explorer = explore.pvf_running(start)
    explorer.inject.click()
    explorer.thread.join()
    assert "pass chunks" in explorer.message.value
    assert title(explorer).startswith("400 sites of top: ")


@pytest.mark.slow
@pytest.mark.parametrize(
    "noun",
    ["pvf", "pvf_by_bit", "pvf_protection", "interval_funnel", "injection_sample_sizes"],
)
def test_every_control_has_a_label_and_a_page_holds_all_states(truth, noun):
    explorer = getattr(explore, noun)(truth)
    for control in explorer.controls.values():
        assert control.description
        assert getattr(control, "continuous_update", True)
    assert "wb-explorer" in explore.static_html(explorer)
