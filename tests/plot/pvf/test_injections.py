"""Figures of fault injection say what was counted, and tell zero, unsure and unknown apart."""

import pandas as pd
import pytest

from workbench import plot
from workbench.errors import TableError
from workbench.tables import (
    INJECTION_SAMPLE_SIZES,
    OUTCOME_SHARES,
    PVF,
    PVF_PROTECTION,
    PVF_RUNNING,
)

RULES = {
    "average": "bits", "nan_policy": "wrong", "criterion": "threshold", "fault_model": "sbf",
    "confidence_level": 0.95, "interval": "clustered", "is_sure": True, "design_effect_ratio": 276.0,
}  # fmt: skip
TOP = RULES | {
    "group": "top", "pvf": 0.00749, "low": 0.0063, "high": 0.0087, "independent_low": 0.00744,
    "independent_high": 0.00754, "site_count": 10_000, "trial_count": 10_000_000,
    "event_site_count": 640, "sdc_count": 74_900, "due_count": 12,
}  # fmt: skip
RARE = TOP | {
    "group": "embeddings", "pvf": 1.8e-5, "low": 1e-6, "high": 3.5e-5, "independent_low": 1.5e-5,
    "independent_high": 2.1e-5, "is_sure": False, "doubt": "only 57 sites with events",
}  # fmt: skip
ZERO = TOP | {"group": "norm", "pvf": 0.0, "low": 0.0, "high": 0.003, "independent_low": 0.0}
UNKNOWN = TOP | {
    "group": "bias", "pvf": None, "low": None, "high": None, "independent_low": None,
    "independent_high": None, "is_sure": False, "doubt": "nothing judged",
}  # fmt: skip


def marks(figure):
    drawn = [trace for trace in figure.data if trace.type == "scatter"]
    return {trace.name: trace for trace in drawn if trace.mode == "markers"}


def said(figure):
    return figure.layout.title.subtitle.text.replace("<br>", " ")


def test_a_factor_is_printed_with_its_rules(build):
    note = said(plot.pvf(build(PVF, [TOP])))
    for words in (
        "every bit weighs the same",
        "outputs that are not finite count as wrong",
        "wrong: other side of the threshold",
        "one bit flips",
        "1,000 inputs per site",
        "95 % intervals",
    ):
        assert words in note


def test_the_interval_that_is_too_narrow_says_so_and_is_thinner(build):
    lines = {t.name: t for t in plot.pvf(build(PVF, [TOP])).data if t.mode != "markers"}
    narrow = lines["too narrow: inputs taken as independent"]
    right = lines["interval, sites as the sample"]
    assert list(narrow.x[:2]) == pytest.approx([0.744, 0.754])
    assert list(right.x[:2]) == pytest.approx([0.63, 0.87])
    assert narrow.line.width < right.line.width


def test_sure_unsure_zero_and_unknown_have_marks_of_their_own(build):
    figure = plot.pvf(build(PVF, [ZERO, UNKNOWN, RARE, TOP]))
    found = {name: trace.marker.symbol for name, trace in marks(figure).items()}
    assert found == {
        "PVF": "circle",
        "PVF, unreliable estimate": "diamond-open",
        "no wrong output found": "triangle-left-open",
        "no answer": "x-thin-open",
    }
    assert figure.layout.xaxis.type == "log"
    assert figure.layout.xaxis.ticktext[0] == "0"
    names = figure.layout.yaxis.ticktext
    assert [name.split("<br>")[0] for name in names] == ["top", "embeddings", "norm", "bias"]
    assert "unreliable: only 57 sites" in names[1].replace("</i><br><i>", " ")


def test_the_title_names_the_worst_unless_intervals_overlap(build):
    assert plot.pvf(build(PVF, [RARE, TOP])).layout.meta["claim"] == (
        "Highest: top, 0.749 % of faulty inferences go wrong; next embeddings, 0.0018 %"
    )
    close = TOP | {"group": "bottom", "pvf": 0.00686, "low": 0.0056, "high": 0.008}
    assert "their intervals overlap" in plot.pvf(build(PVF, [close, TOP])).layout.meta["claim"]


def test_groups_that_are_equal_or_without_interval_are_not_called_apart(build):
    tools = [TOP | {"group": name} for name in ("workbench", "SFIadvancedmodels")]
    assert plot.pvf(build(PVF, tools)).layout.meta["claim"] == (
        "workbench and SFIadvancedmodels are highest: 0.749 % of faulty inferences go wrong in each"
    )
    for missing in ("low", "high"):
        single = TOP | {"pvf": 0.00748, missing: None}
        first, second = (TOP, single) if missing == "high" else (single | {"pvf": 0.02}, TOP)
        claim = plot.pvf(build(PVF, [first, second])).layout.meta["claim"]
        assert claim.endswith("not known whether by chance")


def test_results_of_tools_with_other_rules_say_which_they_follow(build):
    other = TOP | {"group": "SFIadvancedmodels", "criterion": "argmax", "site_count": 500}
    figure = plot.pvf(build(PVF, [TOP, other]))
    assert "criterion differs: threshold, argmax" in said(figure)
    assert "500 sites" in figure.layout.yaxis.ticktext[1]
    assert "criterion: argmax" in figure.layout.yaxis.ticktext[1]


def test_exact_factors_are_marked_as_such(build):
    exact = TOP | {"interval": "exact", "low": 0.00749, "high": 0.00749}
    figure = plot.pvf(build(PVF, [exact]))
    assert list(marks(figure)) == ["exact: every site was injected"]
    assert "all 10,000 sites" in figure.layout.yaxis.ticktext[0]


def by_bit(build):
    shares = {31: 0.01, 30: 0.235, 25: 0.0024, 14: 0.0}
    table = build(PVF, [TOP | {"pvf": share} for share in shares.values()])
    table.insert(0, "component", "top")
    table.insert(1, "dtype", "fp32")
    table.insert(2, "bit", pd.array(list(shares), dtype="Int64"))
    return table


def test_bits_run_from_the_sign_down_and_zero_is_not_missing(build):
    figure = plot.pvf_by_bit(by_bit(build))
    heat = figure.data[0]
    assert list(figure.layout.xaxis.ticktext[:2]) == ["31", "30"]
    assert list(heat.z[0][:2]) == pytest.approx([0.0, 1.371], abs=1e-3)
    found = marks(figure)
    assert list(found["no wrong output found"].x) == [31 - 14]
    assert len(found["no fault injected"].x) == 18 - 4
    roles = [note.text for note in figure.layout.annotations]
    assert roles[:3] == ["<b>sign</b>", "<b>exponent</b>", "<b>mantissa</b>"]
    assert figure.layout.meta["claim"] == "Bit 30 is worst: 23.5 % go wrong; 1 bit never does harm"


def test_a_table_that_was_grouped_otherwise_is_refused(build):
    with pytest.raises(TableError, match=r"group by it, as analyze\.pvf_by_bit does"):
        plot.pvf_by_bit(build(PVF, [TOP]))


def test_what_is_visible_is_shown_twice_and_beneficial_is_hatched(build):
    shares = {"masked": 0.6, "benign": 0.39, "sdc": 0.006, "beneficial": 0.001, "due": 0.003}
    rows = [
        {"group": "top", "outcome": name, "outcome_share": share} for name, share in shares.items()
    ]
    figure = plot.outcome_shares(build(OUTCOME_SHARES, rows))
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert sum(trace.x[0] for trace in bars if trace.xaxis == "x") == pytest.approx(100)
    assert len([trace for trace in bars if trace.xaxis == "x2"]) == 3
    hatched = next(trace for trace in bars if trace.name.startswith("beneficial"))
    assert hatched.marker.pattern.shape == "/"
    assert "0.7 % of trials end in another decision (0.1 %" in figure.layout.meta["claim"]


def test_a_tool_that_cannot_tell_numbers_from_others_is_not_said_to_have_none(build):
    shares = {"masked or benign": 0.99, "sdc": 0.01}
    rows = [
        {"group": "top", "outcome": name, "outcome_share": share} for name, share in shares.items()
    ]
    claim = plot.outcome_shares(build(OUTCOME_SHARES, rows)).layout.meta["claim"]
    assert claim == "top: 1 % of trials end in another decision, in no number: not recorded"


def test_protection_reads_off_where_nine_tenths_are_removed(build):
    rows = [
        {"group": "all", "unit": "elements", "ranked_by": "truth", "protected_count": count,
         "protected_share": count / 443_601, "removed_share": removed}
        for count, removed in ((443, 0.05), (8_872, 0.486), (22_180, 0.897), (44_360, 0.995))
    ]  # fmt: skip
    claim = plot.pvf_protection(build(PVF_PROTECTION, rows)).layout.meta["claim"]
    assert claim == "Protecting 10.0 % of the elements removes 99.5 % of the wrong outputs"


def test_a_running_estimate_says_what_was_counted(build):
    figure = plot.pvf_running(build(PVF_RUNNING, [RULES | {"site_count": 500, "group": "top"}]))
    for words in ("every bit weighs the same", "other side of the threshold", "one bit flips"):
        assert words in said(figure)


def test_the_running_estimate_says_when_it_was_enough(build):
    rows = [
        {"site_count": n, "pvf": 0.01, "low": 0.01 - 1 / n, "high": 0.01 + 1 / n,
         "independent_low": 0.0099, "independent_high": 0.0101, "event_site_count": n // 20,
         "is_enough": n >= 1_500}
        for n in (500, 1_000, 1_500, 2_000)
    ]  # fmt: skip
    figure = plot.pvf_running(build(PVF_RUNNING, rows), truth=0.011)
    assert figure.layout.meta["claim"].endswith("good enough after 1,500")
    notes = [note.text for note in figure.layout.annotations]
    assert notes == ["truth: 1.1 %", "enough at 1,500"]
    stopped = plot.pvf_running(build(PVF_RUNNING, rows[:2]))
    assert stopped.layout.meta["claim"].endswith("not yet good enough to stop")


def test_designs_without_an_answer_are_counted_not_drawn(build):
    base = {"group": "top", "pvf": 0.0075, "error": 0.1, "error_kind": "relative",
            "confidence_level": 0.95}  # fmt: skip
    rows = [
        base | {"design": "uniform", "inputs": "one", "site_count": 50_909.0},
        base | {"design": "neyman", "inputs": "all", "site_count": 122.0},
        base | {"group": "silent", "pvf": 0.0, "design": "neyman", "inputs": "all"},
    ]
    figure = plot.injection_sample_sizes(build(INJECTION_SAMPLE_SIZES, rows))
    assert figure.layout.meta["claim"] == (
        "top needs 122 sites by design Neyman, 50,909 by uniform"
    )
    assert "1 design without an answer" in said(figure)


def test_confidences_that_differ_have_bars_of_their_own(build):
    base = {"group": "top", "pvf": 0.0075, "error": 0.1, "error_kind": "relative", "inputs": "one"}
    rows = [
        base | {"design": design, "confidence_level": level, "site_count": count}
        for level, counts in ((0.8, (100.0, 400.0)), (0.99, (900.0, 3_000.0)))
        for design, count in zip(("neyman", "uniform"), counts, strict=True)
    ]
    figure = plot.injection_sample_sizes(build(INJECTION_SAMPLE_SIZES, rows))
    assert [bar.name for bar in figure.data] == [
        f"{design}, one input, ±10 % at {level} %"
        for level in (80, 99) for design in ("Neyman", "uniform")
    ]  # fmt: skip
    assert len({bar.y[0] for bar in figure.data}) == 4
    assert "confidence" not in said(figure)
    assert figure.layout.meta["claim"] == (
        "top needs 100 sites by design Neyman, 400 by uniform, for ±10 % at 80 % confidence"
    )
    one = plot.injection_sample_sizes(build(INJECTION_SAMPLE_SIZES, rows[:2]))
    assert "at 80 % confidence" in said(one)
    assert one.data[0].name == "Neyman, one input, ±10 %"
