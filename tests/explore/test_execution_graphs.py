"""The explorers of execution graphs: move a control, read the screen."""

import itertools
import time

import pytest

from workbench import analyze, explore, load
from workbench.analyze import GRAPH_STEPS, Change
from workbench.errors import PerformanceModelError


@pytest.fixture(scope="module")
def events(fleet_demo):
    trace = load.traces(fleet_demo / "traces", progress=False)
    return trace.events[trace.events["rank"] < 2].reset_index(drop=True)


@pytest.fixture(scope="module")
def graph(events):
    return analyze.execution_graph(events)


@pytest.fixture(scope="module")
def questions(events, graph):
    return explore.what_if(events, graph, source="demo", synthetic=True)


@pytest.fixture(scope="module")
def path(events, graph):
    return explore.critical_path(events, graph, source="demo", synthetic=True)


@pytest.fixture(scope="module")
def steps(events):
    one = events[events["rank"] == 0]
    return explore.graph_ablation(one, source="demo", synthetic=True)


def test_they_start_without_a_complaint(questions, path, steps, title):
    for explorer in (questions, path, steps):
        assert explorer.message.value == ""
        assert title(explorer)
        assert "SYNTHETIC DATA" in explorer.figure().layout.title.subtitle.text


def test_every_control_has_a_label_and_answers_while_it_moves(questions, path, steps):
    for explorer in (questions, path, steps):
        for control in explorer.controls.values():
            assert control.description
            assert getattr(control, "continuous_update", True)


def test_a_question_stands_among_the_standard_ones(questions, title):
    assert title(questions).startswith("compute x0.5: a step takes ")
    questions.controls["time"].value = 2.0
    assert title(questions).startswith("compute x2: a step takes ")
    ticks = list(questions.figure().layout.yaxis.ticktext)
    assert "<b>compute x2</b>" in ticks
    assert {"communication removed", "CPU x0.5"} <= set(ticks)


def test_twice_the_time_of_compute_is_what_the_analysis_says(questions, events, graph, title):
    questions.controls["what"].value, questions.controls["time"].value = "compute", 2.0
    table = analyze.what_if(events, graph, [Change(kind="compute", factor=2.0)])
    assert f"{table['speedup_ratio'].iloc[0]:.2f} × as fast" in title(questions)


def test_a_kernel_can_be_chosen_by_name_and_a_rank_alone(questions, title):
    kernel = list(questions.controls["what"].options)[-1]
    questions.controls["what"].value, questions.controls["rank"].value = kernel, 1
    assert questions.message.value == ""
    assert "on rank 1" in title(questions)
    assert "^" not in title(questions)
    questions.controls["rank"].value = "all"


def test_a_graph_that_explains_too_little_is_told_not_raised(events, title):
    one = events[events["rank"] == 0]
    poor = analyze.execution_graph(one, without=["stream order"])
    with pytest.raises(PerformanceModelError, match="of the time is explained"):
        analyze.what_if(one, poor, [Change(factor=0.5)])
    explorer = explore.what_if(one, poor)
    assert "of the time is explained" in explorer.message.value
    assert title(explorer) == "These values cannot be shown together"


def test_a_change_gives_another_critical_path(path, title):
    before = title(path)
    path.controls["question"].value = "compute x0.5"
    assert title(path) != before
    path.controls["question"].value = "nothing"
    assert title(path) == before
    path.controls["top"].value = 4
    few = len(path.figure().layout.yaxis.ticktext)
    path.controls["top"].value = 16
    assert len(path.figure().layout.yaxis.ticktext) > few


def test_the_path_of_a_change_is_as_long_as_its_replay(events, graph):
    before = analyze.critical_path(events, graph)["dur_ns"].sum()
    assert before == analyze.replay(graph).max()
    slow = analyze.critical_path(events, graph, changes=[Change(factor=2.0)])
    assert slow["dur_ns"].sum() > before
    start = slow["start_ns"].to_numpy()
    assert (start[1:] == (start + slow["dur_ns"].to_numpy())[:-1]).all()


def test_steps_are_switched_off_one_by_one(steps, title):
    assert len(steps.figure().layout.yaxis.ticktext) > len(GRAPH_STEPS)
    steps.controls["without"].value = "launch"
    assert list(steps.figure().layout.yaxis.ticktext) == ["without launch"]
    steps.controls["view"].value = "busy"
    assert [trace.name for trace in steps.figure().data] == ["measured", "replayed"]
    assert "in the replay" in title(steps)


@pytest.mark.slow
def test_a_redraw_is_quick(questions):
    options = [
        [each[1] if isinstance(each, tuple) else each for each in control.options]
        for control in questions.controls.values()
    ]
    taken = []
    for state in list(itertools.product(*options))[::9]:
        start = time.process_time()
        questions.draw(**dict(zip(questions.controls, state, strict=True)))
        taken.append(time.process_time() - start)
    assert sorted(taken)[len(taken) // 2] < 0.2


def test_kernels_whose_names_read_the_same_once_cut_stay_apart(events, graph, title):
    longest = analyze.kernels(events).groupby("name", observed=True)["total_ns"].sum()
    new = {
        name: f"void at::native::{'f' * 40}{middle}{'(int, float)' * 3}"
        for name, middle in zip(longest.nlargest(2).index, "ab", strict=True)
    }
    renamed = events.assign(name=events["name"].cat.rename_categories(new))
    explorer = explore.what_if(renamed, graph)
    first, second = [each for each in explorer.controls["what"].options if "fff" in each]
    assert second == f"{first} (2)"
    explorer.controls["what"].value = first
    before = title(explorer)
    explorer.controls["what"].value = second
    assert explorer.message.value == ""
    assert title(explorer) != before


def test_a_refused_graph_has_no_critical_path_to_explore(events, graph, monkeypatch, title):
    refused = analyze.replay_fidelity(events, graph).assign(is_usable=False, doubt="made dark")
    monkeypatch.setattr(analyze, "replay_fidelity", lambda *_: refused)
    explorer = explore.critical_path(events, graph)
    assert "the graph is refused" in explorer.message.value
    assert title(explorer) == "These values cannot be shown together"
