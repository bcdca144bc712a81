"""Figures of energy and work: titles, bars and lines say what the table says."""

import numpy as np
import pandas as pd
import pytest

from workbench import plot
from workbench.plot._style.text import amount, seconds
from workbench.tables import (
    DIP_CAUSES,
    ENERGY_WASTE,
    FLEET_TIMELINE,
    INCIDENT_ENERGY,
    PHASE_POWER,
    POWER_TOTALS,
    STEP_ENERGY,
)

START = pd.Timestamp("2026-01-12T08:00:00").value
SECOND = 1_000_000_000


def title(figure):
    return figure.layout.title.text.replace("<br>", " ")


def subtitle(figure):
    return figure.layout.title.subtitle.text.replace("<br>", " ")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(4.7e6, "J", "4.70 MJ"), (0.0303, "J", "30.3 mJ"), (0, "W", "0 W"), (950, "W", "950 W")],
)
def test_amounts_have_a_unit_that_fits(value, unit, text):
    assert amount(value, unit) == text


@pytest.mark.parametrize(("value", "text"), [(57, "57 s"), (122, "122 s"), (7_200, "120 min")])
def test_times_have_a_unit_that_fits(value, text):
    assert seconds(value) == text


def step(n, energy=4.7e6, **more):
    return {
        "step": n, "attempt": 1, "start_ns": START + 11 * n * SECOND,
        "end_ns": START + (11 * n + 10) * SECOND, "energy_j": energy, "mean_w": 4.4e5,
        "energy_per_token_j": None if energy is None else energy / 4e6, "covered_share": 1.0,
        "entity_count": 64, "reading_count": 320,
    } | more  # fmt: skip


def test_steps_and_tokens_stand_in_the_title_and_in_panels(build):
    figure = plot.step_energy(build(STEP_ENERGY, [step(0), step(1), step(2, 9e6)]))
    assert title(figure) == "A step draws 4.70 MJ (median), 440 kW on average; 1.18 J per token"
    assert figure.layout.yaxis.title.text == "energy per step [MJ]"
    assert figure.layout.yaxis2.title.text == "energy per token [J]"
    assert list(figure.data[0].y) == [4.7, 4.7, 9]
    assert list(figure.data[1].y) == [4.7, 4.7]


def test_samples_stand_for_tokens_where_none_are_told(build):
    rows = [step(0, energy_per_token_j=None, energy_per_sample_j=2_295.0)]
    assert title(plot.step_energy(build(STEP_ENERGY, rows))).endswith("2.29 kJ per sample")


def test_steps_that_are_not_resolved_or_not_covered_are_said_so(build):
    rows = [step(0, reading_count=16, covered_share=0.96), step(1, None, covered_share=0.5)]
    line = subtitle(plot.step_energy(build(STEP_ENERGY, rows)))
    assert "1 step without energy: too little is covered" in line
    assert "readings cover 96 % of a step at least" in line
    assert "0.25 readings per meter and step: steps are not resolved" in line


def phase(n, watts, place="in steps"):
    inside = place == "in steps"
    return {
        "place": place, "first_share": n / 2 if inside else None,
        "last_share": (n + 1) / 2 if inside else None, "power_w": watts, "low_w": watts,
        "high_w": watts, "sample_count": 60, "missing_count": 1,
    }  # fmt: skip


def test_the_profile_of_a_step_names_its_lowest_and_highest_part(build):
    rows = [phase(0, 4e5), phase(1, 5e5), phase(2, 3e5, "outside of steps")]
    figure = plot.phase_power(build(PHASE_POWER, rows))
    assert title(figure) == (
        "Power within a step is lowest (400 kW) from 0 to 50 %, highest (500 kW) from 50 to 100 %: "
        "20 % between them"
    )
    assert (
        subtitle(figure)
        == "120 samples of all steps laid over each other · 3 samples without power"
    )
    assert list(figure.data[2].y) == [400, 500]
    assert figure.data[3].name == "outside of steps, mean 300 kW"


def state(name, energy, **more):
    return {"state": name, "time_s": 10.0, "energy_j": energy, "covered_share": 1.0} | more


def test_states_follow_each_other_and_end_at_the_energy_of_the_run(build):
    rows = [state("useful steps", 3e5), state("restart", 5e5), state("checkpoint", 2e5)]
    figure = plot.energy_waste(build(ENERGY_WASTE, rows))
    assert title(figure) == (
        "30 % of 1 MJ went into useful steps; the most of the rest, 50 %: restart"
    )
    ends = [(list(t.base), list(np.asarray(t.base) + np.asarray(t.x))) for t in figure.data]
    assert ends[0] == ([0], [pytest.approx(0.3)])
    assert ends[1] == ([pytest.approx(0.3), pytest.approx(0.8)], [pytest.approx(0.8), 1])
    labels = [note.text for note in figure.layout.annotations][:3]
    assert labels == ["300 kJ · 30 %", "500 kJ · 50 %", "200 kJ · 20 %"]
    assert list(figure.layout.yaxis.ticktext) == ["useful steps", "restart", "checkpoint"]


def test_no_label_of_a_state_leaves_the_figure(build):
    rows = [state("useful steps", 1e5), state("restart", 9e5)]
    figure = plot.energy_waste(build(ENERGY_WASTE, rows))
    assert (
        max(note.x for note in figure.layout.annotations[:2]) < 0.8 * figure.layout.xaxis.range[1]
    )


def test_states_without_energy_are_counted_and_missing_coverage_is_said(build):
    rows = [state("useful steps", 1e6, covered_share=0.5), state("between steps", 1.0)]
    line = subtitle(plot.energy_waste(build(ENERGY_WASTE, rows)))
    assert "readings cover 75 %; what they do not is missing" in line
    assert "1 state of next to no energy not drawn" in line
    nothing = plot.energy_waste(build(ENERGY_WASTE, [state("restart", 0.0)]))
    assert title(nothing) == "No energy to take apart"


def interruption(n, energy=3e5, **more):
    return {
        "start_ns": START + n * 3_600 * SECOND, "end_ns": START + (n * 3_600 + 57) * SECOND,
        "node": "node001", "cause": "GPU is lost", "also": "", "lost_step_count": 19,
        "lost_work_s": 5.0, "restart_s": 57.0, "lost_work_j": energy / 3,
        "restart_j": energy * 2 / 3, "energy_j": energy, "energy_share": 0.25,
        "covered_share": 1.0,
    } | more  # fmt: skip


def test_interruptions_are_rows_with_time_host_cause_and_cost(build):
    figure = plot.incident_energy(build(INCIDENT_ENERGY, [interruption(0), interruption(1, 9e5)]))
    assert title(figure) == (
        "2 interruptions cost 1.20 MJ, 50 % of the run's energy; the dearest 900 kJ: GPU is lost"
    )
    assert figure.layout.yaxis.ticktext[0] == "08:00:00 node001<br>GPU is lost"
    assert figure.layout.annotations[0].text == (
        "300 kJ · 25 %<br>19 steps lost, 57 s until the next"
    )
    assert [trace.name for trace in figure.data] == ["lost steps", "restart"]
    sums = np.asarray(figure.data[0].x) + np.asarray(figure.data[1].x)
    assert sums.tolist() == pytest.approx([300, 900])


def test_only_the_dearest_are_drawn_and_the_others_counted(build):
    rows = [interruption(n, 1e5 * (n + 1)) for n in range(5)]
    rows += [interruption(6, energy_j=None)]
    rows += [interruption(7, energy_j=None, restart_s=None, lost_step_count=None)]
    figure = plot.incident_energy(build(INCIDENT_ENERGY, rows), top=2)
    assert len(figure.layout.yaxis.ticktext) == 2
    line = subtitle(figure)
    assert "3 cheaper interruptions not drawn" in line
    assert "1 interruption without a known energy" in line
    assert "1 fatal failure interrupted nothing in the job log" in line
    with pytest.raises(ValueError, match="top must be 1 or more; got 0"):
        plot.incident_energy(build(INCIDENT_ENERGY, rows), top=0)


def dip(n, cause="checkpoint", **more):
    return {
        "start_ns": START + n * 60 * SECOND, "end_ns": START + (n * 60 + 10) * SECOND,
        "dur_s": 10.0, "usual_w": 4e5, "mean_w": 2e5, "lowest_w": 1e5, "depth_share": 0.5,
        "shortfall_j": 2e6, "covered_share": 1.0, "cause": cause, "evidence": "why", "also": "",
    } | more  # fmt: skip


def test_dips_are_marked_by_their_cause_on_the_power_they_fell_from(build):
    totals = build(
        POWER_TOTALS,
        [{"time_ns": START + n * SECOND, "power_w": 4e5, "entity_count": 1} for n in range(99)],
    )
    rows = [dip(0), dip(1, "not explained", shortfall_j=9e6, dur_s=30.0)]
    figure = plot.power_dips(build(DIP_CAUSES, rows), totals=totals)
    assert title(figure) == (
        "2 dips of power, 1 explained; the largest, 50 % for 30 s: not explained"
    )
    names = [trace.name for trace in figure.data]
    assert names == ["power", "mean power of the dip [kW]", "checkpoint", "not explained"]
    assert list(figure.data[1].y)[:2] == [200, 200]
    assert figure.data[2].marker.symbol != figure.data[3].marker.symbol


def test_many_causes_share_the_last_symbol_and_their_words_stay_text(build):
    rows = [dip(n, f"<b>span</b> {n}", evidence="<script>") for n in range(12)]
    figure = plot.power_dips(build(DIP_CAUSES, rows))
    marks = [trace for trace in figure.data if trace.mode == "markers"]
    assert len(marks) == 6
    assert len({trace.marker.symbol for trace in marks}) == 6
    assert any(trace.name == "another span" for trace in marks)
    assert "<script>" not in figure.to_json().replace("\\u003c", "<")


def test_dips_without_causes_are_dips(build):
    from workbench.tables import POWER_DIPS

    rows = [{key: value for key, value in dip(0).items() if key in POWER_DIPS.columns}]
    figure = plot.power_dips(build(POWER_DIPS, rows))
    assert title(figure) == "1 dip of power, the largest by 50 % for 10 s"


def line(panel, lane, at, **more):
    return {
        "panel": panel, "lane": lane, "start_ns": START + at * SECOND,
        "end_ns": START + (at + more.pop("for_s", 0)) * SECOND, "text": "",
    } | more  # fmt: skip


@pytest.fixture
def timeline(build):
    rows = [
        line("power", lane, at, power_w=watts, node=lane)
        for lane, watts in (("all entities", 300.0), ("n1", 200.0), ("n2", 100.0))
        for at in range(30)
    ]
    rows += [
        line("step time", "attempt 1", n, for_s=1, dur_s=1.0, text=f"step {n}") for n in range(9)
    ]
    rows += [line("job", "run", 0, for_s=30), line("job", "restart", 10, for_s=12)]
    rows += [line("failures", "n1", 10, node="n1", text="xid 79: lost (fatal)")]
    rows += [line("failures", "n2", 2, node="n2", text="xid 13: odd (warning)")]
    rows += [line("traces", f"rank {rank}", 3, for_s=1) for rank in (10, 2)]
    return build(FLEET_TIMELINE, rows)


def test_panels_stand_below_each_other_on_one_axis(timeline):
    figure = plot.fleet_timeline(timeline)
    assert title(figure) == (
        "30 s from 08:00:00 UTC, 300 W to 300 W, 9 steps; 08:00:10: xid 79: lost"
    )
    axes = [f"yaxis{n}" if n > 1 else "yaxis" for n in range(1, 6)]
    assert [figure.layout[axis].title.text for axis in axes] == [
        "power [W]", "step [s]", "job", "failures", "traces",
    ]  # fmt: skip
    assert all(figure.layout[f"xaxis{n}"].matches == "x5" for n in (2, 3, 4))
    assert list(figure.layout.yaxis5.ticktext) == ["rank 2", "rank 10"]
    assert len(figure.layout.shapes) == 1, "one dashed line for the fatal failure"


def test_a_window_shows_what_lies_in_it(timeline):
    figure = plot.fleet_timeline(
        timeline, first_ns=START + 20 * SECOND, last_ns=START + 25 * SECOND
    )
    assert title(figure).startswith("5 s from 08:00:20 UTC, 300 W to 300 W")
    assert "step" not in title(figure)
    power = figure.data[0]
    assert len(power.x) == 6
    far = START + 99 * SECOND
    nothing = plot.fleet_timeline(timeline, first_ns=far, last_ns=far + SECOND)
    assert title(nothing) == "Nothing in this window"
    with pytest.raises(ValueError, match="the window ends"):
        plot.fleet_timeline(timeline, first_ns=9, last_ns=5)


def test_of_many_meters_only_the_sum_is_drawn_and_said_so(build):
    rows = [
        line("power", lane, at, power_w=10.0, node=lane)
        for lane in ("all entities", *(f"n{n}" for n in range(64)))
        for at in range(5)
    ]
    figure = plot.fleet_timeline(build(FLEET_TIMELINE, rows))
    assert [trace.name for trace in figure.data] == ["all entities"]
    assert "64 meters, of which only the sum is drawn" in subtitle(figure)
