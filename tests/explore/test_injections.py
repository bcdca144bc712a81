"""Explorers of fault injection: every rule can be changed, and none of them is hidden."""

import pandas as pd
import pytest

from claims._interval_coverage import truth_sample
from tests.analyze.conftest import skewed_truth
from workbench import analyze, explore
from workbench._shared.fixed_injections import FixedInjections
from workbench.errors import WorkbenchError
from workbench.explore.static import static_html


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


def test_injection_sample_sizes_ask_for_an_error_and_a_confidence(truth, title):
    explorer = explore.injection_sample_sizes(truth)
    first = title(explorer)
    explorer.controls["error"].value = 0.5
    assert title(explorer) != first
    explorer.controls["level"].value = 0.99
    assert "at 99 % confidence" in said(explorer)


def test_samples_of_a_truth_grow_beside_it(truth, title):
    explorer = explore.injection_sample_sizes(truth)
    assert explorer.controls["seed"].disabled
    explorer.controls["view"].value = "growing"
    assert not explorer.controls["seed"].disabled
    assert explorer.controls["component"].value == "top"
    assert title(explorer).startswith("6,000 sites of top: ")
    exact = analyze.pvf(truth, average="bits").set_index("component")["pvf"]["top"]
    (line,) = (each.y0 for each in explorer.figure().layout.shapes if each.y0 == each.y1)
    assert line == pytest.approx(100 * exact)
    before = explorer.figure()
    explorer.controls["seed"].value = 2.0
    assert explorer.figure() != before
    explorer.controls["level"].value = 0.8
    explorer.controls["error"].value = 0.5
    assert "good enough after" in title(explorer)


def test_a_campaign_that_was_drawn_alike_is_followed_and_another_refused_in_words(truth, title):
    sample = truth_sample(truth, 400, seed=1)
    explorer = explore.injection_sample_sizes(sample)
    assert set(explorer.controls) == {"view", "error", "level"}
    explorer.controls["view"].value = "growing"
    assert title(explorer).startswith("400 sites: ")
    strata = truth_sample(truth, 400, seed=1, by="bit")
    explorer = explore.injection_sample_sizes(strata)
    before = title(explorer)
    explorer.controls["view"].value = "growing"
    assert "drawn alike" in explorer.message.value
    assert title(explorer) == before


def test_pvf_protection_protects_elements_bits_or_tensors(truth, title):
    explorer = explore.pvf_protection(truth)
    assert "of the elements removes" in title(explorer)
    explorer.controls["unit"].value = "bits"
    explorer.controls["part"].value = "top"
    assert title(explorer).startswith("Protecting 2 of 32 bits of top (the last: bit 25)")


def live(everything):
    start = truth_sample(everything, 400, seed=1, component="top")
    parts = [start.outcomes.iloc[at : at + 50] for at in range(0, 200, 50)]
    return explore.injection_sample_sizes(
        everything, lambda: iter(parts), start=start, source="a truth"
    )


def test_what_is_injected_now_takes_the_place_of_what_was_drawn(truth, title):
    explorer = live(truth)
    assert title(explorer).startswith("6,000 sites of top: ")
    explorer.inject.click()
    explorer.thread.join()
    assert title(explorer).startswith("200 sites of top: ")
    assert "injected just now" in explorer.figure().layout.annotations[-1].text
    assert explorer.progress.value == "all of 200 sites"
    explorer.controls["error"].value = 0.5
    assert title(explorer).startswith("200 sites of top: ")
    # The truth drawn stays that of what is injected, whatever else is looked at.
    lines = [each.y0 for each in explorer.figure().layout.shapes]
    explorer.controls["component"].value = "bottom"
    assert [each.y0 for each in explorer.figure().layout.shapes] == lines


def test_a_campaign_goes_on_from_its_own_results(truth, title):
    start = truth_sample(truth, 400, seed=1, component="top")
    explorer = explore.injection_sample_sizes(start, lambda: iter([start.outcomes.iloc[:50]]))
    assert title(explorer).startswith("400 sites of top: ")
    explorer.inject.click()
    explorer.thread.join()
    assert title(explorer).startswith("50 sites of top: ")


def test_faults_of_no_campaign_cannot_be_injected(truth):
    with pytest.raises(WorkbenchError, match="pass start=, the campaign whose faults"):
        explore.injection_sample_sizes(truth, lambda: iter(()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "noun",
    ["pvf", "pvf_by_bit", "pvf_protection", "injection_sample_sizes"],
)
def test_every_control_has_a_label_and_a_page_holds_all_states(truth, noun):
    explorer = getattr(explore, noun)(truth)
    for control in explorer.controls.values():
        assert control.description
        assert getattr(control, "continuous_update", True)
    assert "wb-explorer" in static_html(explorer)
