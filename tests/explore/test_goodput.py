"""The explorers of goodput: the published case first, every control does something, refusals in words."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze, datasets, explore, load, simulate
from workbench.analyze import FaultTolerance
from workbench.errors import WorkbenchError
from workbench.explore.static import _ENOUGH, _spread, static_html
from workbench.tables import Source

WEEK = 7 * 1440.0


@pytest.fixture(scope="module")
def log():
    """Draw a week of failures in bursts, as a log would hold them."""
    process = simulate.FailureProcess(
        process="weibull", weibull_shape=0.5, node_count=24, is_aged=True, failure_interval_min=90
    )
    return simulate.failure_times(process, horizon_min=WEEK, seed=1, runs=1, replicas=4)


def make(noun, log):
    if noun == "goodput_windows":
        return explore.goodput_windows(
            log, horizon_min=WEEK, replicas=4, source="demo", synthetic=True
        )
    return getattr(explore, noun)()


NOUNS = (
    "goodput", "goodput_at_scale", "checkpoint_curve", "spares", "goodput_windows",
)  # fmt: skip


@pytest.mark.parametrize("noun", NOUNS)
def test_every_control_has_a_label_answers_while_it_moves_and_changes_the_figure(noun, log):
    explorer = make(noun, log)
    assert explorer.message.value == ""
    assert explorer.title()
    for control in explorer.controls.values():
        assert control.description
        assert getattr(control, "continuous_update", True)
        before, start = explorer.figure().to_json(), control.value
        values = [value for _, value in control.options]
        drawn = set()
        for each in {values[0], values[-1], start}:
            control.value = each
            drawn.add(explorer.figure().to_json() + explorer.message.value)
        assert len(drawn) > 1, control.description
        control.value = start
        assert explorer.figure().to_json() == before


@pytest.mark.oracle
def test_goodput_starts_at_the_published_case():
    title = explore.goodput().title()
    assert "44 % (full restart), 80 % (12 replicas fail alone)" in title


@pytest.mark.oracle
def test_other_explorers_start_where_numbers_are_printed():
    scale = explore.goodput_at_scale()
    assert "At 98,304 GPUs 57 % of the time is productive if all restart, 82 %" in scale.title()
    scale.controls["convention"].value = "interval"
    assert "At 98,304 GPUs 44 % of the time is productive if all restart, 80 %" in scale.title()
    assert explore.checkpoint_curve().title().startswith("Save every 18")
    spares = explore.spares()
    assert "nodes in repair on average" in str(spares.figure().layout.annotations)
    assert spares.figure().layout.shapes[0].x0 == pytest.approx(160, rel=0.05)


def test_what_no_convention_answers_is_explained_and_the_last_figure_stays():
    explorer = explore.goodput()
    title = explorer.title()
    explorer.controls["interval"].value = 2
    assert "would never run" in explorer.message.value
    assert explorer.title() == title
    explorer.controls["convention"].value = "poisson"
    assert explorer.message.value == ""


def test_a_case_that_one_job_can_answer_shows_that_one():
    explorer = explore.goodput()
    explorer.controls["interval"].value = 8
    assert explorer.message.value == ""
    assert list(explorer.figure().layout.yaxis.ticktext) == ["12 replicas fail alone"]


def test_controls_start_at_the_job_that_is_given_and_keep_all_of_it():
    job = FaultTolerance(
        recovery_min={"detection": 1, "NCCL init": 6.5}, stall_min={"timeout": 1, "redo": 0.7},
        replicas=5, rejoin_min=0.9, checkpoint_interval_min=30, checkpoint_write_min=0.5,
    )  # fmt: skip
    explorer = explore.goodput(job, failure_interval_min=44)
    values = explorer.values()
    assert (values["interval"], values["recovery"], values["replicas"]) == (44, 7.5, 5)
    assert values["stall"] == 1.7
    names = {trace.name for trace in explorer.figure().data}
    assert names >= {"re-join stall", "timeout", "redo", "detection", "NCCL init", "checkpoint"}
    explorer.controls["recovery"].value = 15
    parts = {trace.name: trace.x[0] for trace in explorer.figure().data}
    assert parts["NCCL init"] / parts["detection"] == pytest.approx(6.5)


def test_a_minimum_of_replicas_is_refused_in_words():
    explorer = explore.goodput(FaultTolerance(min_replicas=10))
    # The synchronous job has no such minimum, and an answer.
    assert list(explorer.figure().layout.yaxis.ticktext) == ["full restart"]


def test_a_log_without_failures_is_explained():
    quiet = simulate.failure_times(
        simulate.FailureProcess(1e9), horizon_min=WEEK, seed=1, runs=1, replicas=4
    )
    explorer = explore.goodput_windows(quiet.iloc[:0], horizon_min=WEEK)
    assert "there are no failures" in explorer.message.value
    assert explore.goodput_windows(quiet, horizon_min=WEEK, replicas=4).message.value == ""


def test_the_log_and_its_twin_fail_equally_often(log):
    explorer = make("goodput_windows", log)
    explorer.controls["view"].value = "states"
    figure = explorer.figure()
    assert list(figure.layout.yaxis.ticktext) == ["the log", "its Poisson twin (20 runs)"]
    assert "SYNTHETIC DATA" in figure.layout.title.subtitle.text
    inside = log["time_min"].between(0, WEEK, inclusive="left").sum()
    stalls = next(trace for trace in figure.data if trace.name == "global stall").x
    # Bursts overlap: the log loses no more than failures that come at random.
    assert stalls[0] <= stalls[1] * 1.1
    assert stalls[1] == pytest.approx(1 - np.exp(-3 * inside / WEEK), rel=0.1)


def options_of(page):
    content = json.loads(re.search(r'<script type="application/json">(.*?)</script>', page)[1])
    return content["labels"], sum(map(len, content["order"])) - len(content["order"]) + 1


def test_a_static_page_has_few_states_the_present_one_and_both_ends():
    explorer = explore.goodput()
    page = static_html(explorer)
    labels, count = options_of(page)
    assert 10 <= count <= _ENOUGH
    assert "Sliders have more values where a kernel runs." in page
    for (name, control), kept in zip(explorer.controls.items(), labels, strict=True):
        every = [label for label, _ in control.options]
        now = next(label for label, value in control.options if value == control.value)
        assert now in kept
        assert kept == [label for label in every if label in kept], name
        if len(kept) > 2:
            assert {every[0], every[-1]} <= set(kept)


def test_an_explorer_is_static_with_three_values_per_slider_at_least():
    explorer = explore.checkpoint_curve()
    labels, count = options_of(static_html(explorer))
    whole = [len(control.options) for control in explorer.controls.values()]
    assert [len(each) for each in labels] == whole or count > _ENOUGH * 2 / 3
    assert all(len(each) >= 3 for each in labels)
    # More than that only where three values of each slider are as many.
    assert count <= max(_ENOUGH, 1 + 2 * len(whole))


@given(count=st.integers(4, 300), wanted=st.integers(3, 299), now=st.integers(0, 299))
def test_values_thin_out_evenly(count, wanted, now):
    wanted, now = min(wanted, count - 1), min(now, count - 1)
    places = _spread(count, wanted, now)
    assert now in places
    assert places == sorted(set(places))
    assert len(places) == wanted
    assert {0, count - 1} <= set(places)
    step = (count - 1) / (wanted - 1)
    assert np.diff(places).max() <= 2 * step + 1


MEASURED = ("goodput", "goodput_at_scale", "checkpoint_curve", "spares")


@pytest.fixture(scope="module")
def inputs():
    path = datasets.path("failures-demo")
    return analyze.goodput_inputs(load.failures(path, tz="UTC", progress=False))


@pytest.mark.parametrize("noun", MEASURED)
def test_explorers_start_at_what_was_measured_and_say_what_is_assumed(noun, inputs):
    value = inputs.set_index("quantity")["value"]
    explorer = getattr(explore, noun)(start=inputs, source=Source("my log", "own"))
    assert explorer.message.value == ""
    assert explorer.figure().layout.meta["origin"] == "own"
    said = {c.description: c.value for c in explorer.controls.values()}
    measured = {label: number for label, number in said.items() if label.endswith("measured")}
    if noun != "goodput_at_scale":
        assert len(measured) >= 1
    for number in measured.values():
        assert any(number == pytest.approx(known, rel=5e-3) for known in value), measured
    assert "18" not in {str(number) for number in measured.values()}
    for control in explorer.controls.values():
        assert len(control.options) >= 2, control.description


def test_the_share_at_the_measured_inputs_is_that_of_the_log(inputs):
    value = inputs.set_index("quantity")["value"]
    share = value["time_to_failure_min"] / value["failure_interval_min"]
    explorer = explore.goodput(start=inputs, source="my log")
    bars = {trace.name: trace.x for trace in explorer.figure().data}
    assert bars["productive"][0] == pytest.approx(share, abs=2e-3)
    assert explorer.controls["replicas"].description == "replicas, assumed"


def test_a_log_that_tells_no_recovery_or_size_leaves_them_assumed_or_is_refused(inputs):
    only = inputs[inputs["quantity"].isin(["failure_interval_min", "time_to_failure_min"])]
    explorer = explore.goodput(start=only, source="my log")
    assert explorer.controls["recovery"].description == "recovery [min], assumed"
    with pytest.raises(WorkbenchError, match="does not state the number of GPUs"):
        explore.goodput_at_scale(start=only)


def test_the_checkpoint_interval_of_the_log_is_marked_beside_the_optimum(inputs):
    figure = explore.checkpoint_curve(start=inputs, source="my log").figure()
    assert [trace.name for trace in figure.data if "as logged" in trace.name] == [
        "as logged: 120 min"
    ]
