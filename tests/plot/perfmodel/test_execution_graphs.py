"""The figures of execution graphs: what their titles find and their marks show."""

import pandas as pd
import pytest

from workbench import plot
from workbench.tables import (
    CRITICAL_PATH,
    GPU_BUSY,
    GRAPH_ABLATION,
    HELD_OUT_STEPS,
    REPLAY_FIDELITY,
    SLACK,
    WHAT_IF,
)

MS = 1_000_000


@pytest.fixture
def title_text():
    """Read title and subtitle as plain text."""

    def read(figure):
        title = figure.layout.title
        return [text.replace("<br>", " ") for text in (title.text, title.subtitle.text)]

    return read


def fits(error, explained, **more):
    return {"error_ratio": error, "explained_share": explained, "is_usable": True} | more


def test_a_replay_states_its_error_and_what_has_a_cause(build, title_text):
    rows = [fits(-0.003, 0.997, step_error_max_ratio=0.005, doubt="fewer than two steps")]
    figure = plot.replay_fidelity(build(REPLAY_FIDELITY, rows))
    title, note = title_text(figure)
    fit = "The replay underestimates by 0.3 %; 99.7 % of the time is explained"
    assert title == f"{fit}; predictions are in doubt"
    assert (
        title_text(plot.replay_fidelity(build(REPLAY_FIDELITY, [rows[0] | {"doubt": ""}])))[0]
        == fit
    )
    assert note == "doubt: fewer than two steps"
    shown = {trace.name: trace.text[0].strip() for trace in figure.data if len(trace.x)}
    assert shown["whole trace"] == "−0.3 %"
    assert shown["worst step"] == "0.5 %"
    assert shown["explained"] == "99.7 %"


def test_several_replays_are_ordered_by_what_they_leave_unexplained(build, title_text):
    rows = [fits(0.01, 0.99, rank=0), fits(-0.02, 0.8, rank=1, is_usable=False)]
    figure = plot.replay_fidelity(build(REPLAY_FIDELITY, rows))
    assert list(figure.layout.yaxis.ticktext) == ["rank 1", "rank 0"]
    assert title_text(figure)[0] == (
        "1 of 2 graphs is refused: replayed 2.0 % off, 80 % of the time is explained"
    )
    poor = next(trace for trace in figure.data if trace.name.startswith("too little"))
    assert (list(poor.x), list(poor.y)) == ([80], [0])


def test_replays_of_several_traces_are_told_apart_by_name(build):
    table = build(REPLAY_FIDELITY, [fits(0.01, 0.99), fits(0.0, 0.98)])
    figure = plot.replay_fidelity(table.assign(trace=["ResNet", "DLRM"]))
    assert list(figure.layout.yaxis.ticktext) == ["DLRM", "ResNet"]


def test_the_step_that_matters_most_is_named(build, title_text):
    rows = [
        fits(0.0, 0.997, without="", step_error_max_ratio=0.005),
        fits(0.0, 0.95, without="gaps", step_error_max_ratio=0.17),
        fits(0.0, 0.84, without="synchronise", step_error_max_ratio=0.0),
        fits(0.0, 0.80, without="inter-stream, residual", step_error_max_ratio=0.3),
    ]
    figure = plot.graph_ablation(build(GRAPH_ABLATION, rows))
    assert title_text(figure) == [
        "Without gaps the largest error of a step grows from 0.5 % to 17 %; "
        "without synchronise 16 % of the time is unexplained",
        "dashed: the whole graph",
    ]
    assert list(figure.layout.yaxis.ticktext) == [
        "without inter-stream and residual",
        "without gaps",
        "without synchronise",
    ]


def test_without_steps_the_error_of_the_whole_is_compared(build, title_text):
    rows = [fits(-0.01, 0.99, without=""), fits(-0.01, 0.99, without="launch")]
    figure = plot.graph_ablation(build(GRAPH_ABLATION, rows))
    assert title_text(figure)[0].startswith("No step alone lessens the error of the whole trace; ")


def test_held_out_steps_stand_beside_the_mean_of_the_others(build, title_text):
    rows = [
        {"step": step, "measured_ns": 100 * MS, "predicted_ns": (100 + error) * MS,
         "naive_ns": 110 * MS, "error_ratio": error / 100, "naive_error_ratio": 0.1,
         "known_share": 1.0}
        for step, error in ((7, 1), (8, -3))
    ]  # fmt: skip
    figure = plot.held_out_steps(build(HELD_OUT_STEPS, rows))
    assert title_text(figure)[0] == (
        "From the other steps, a step is predicted to 2.0 % on average, 3.0 % at worst; "
        "their mean is 10 % and 10 % off"
    )
    assert {trace.name: list(trace.y) for trace in figure.data} == {
        "measured": [100, 100],
        "predicted from the other steps": [101, 97],
        "mean of the other steps": [110, 110],
    }


def test_the_critical_path_is_split_by_kind_and_name(build, title_text):
    rows = [
        {"kind": "GPU work", "name": "gemm", "dur_ns": 60 * MS},
        {"kind": "GPU work", "name": "relu", "dur_ns": 10 * MS},
        {"kind": "CPU", "name": "launch", "dur_ns": 20 * MS},
        {"kind": "inter-thread", "name": "other", "dur_ns": 5 * MS, "is_inferred": True},
        {"kind": "launch", "name": "gemm", "dur_ns": 5 * MS},
    ]
    figure = plot.critical_path(build(CRITICAL_PATH, rows), top=2)
    assert title_text(figure) == [
        "70 % of the critical path is work on the GPU, 25 % is the CPU, 5.0 % is waiting "
        "between them",
        "100 ms in 5 dependencies · 5.0 % guessed from times",
    ]
    names = [text.replace("<b>", "").replace("</b>", "") for text in figure.layout.yaxis.ticktext]
    assert names == [
        "the GPU works", "gemm", "all others", "the CPU works", "launch",
        "another thread of the CPU", "from launch to start",
    ]  # fmt: skip
    bars = {trace.name: list(trace.x) for trace in figure.data if trace.type == "bar"}
    assert bars["kind of dependency"] == [70, 20, 5]
    assert bars["by name of what waited"] == [60, 10, 20]
    assert bars["guessed from times"] == [5]


def test_work_is_told_apart_by_how_much_later_it_could_come(build, title_text):
    rows = [
        {"event": n, "name": f"k{n}", "stream": 7 + n % 2, "start_ns": n * MS, "dur_ns": MS,
         "slack_ns": slack}
        for n, slack in enumerate((0, 9_999, 10_000, 999_999, 5 * MS))
    ]  # fmt: skip
    figure = plot.slack(build(SLACK, rows))
    assert {trace.name: len(trace.x) for trace in figure.data} == {
        "no slack, below 10 µs": 2, "up to 1 ms": 2, "more than 1 ms": 1,
    }  # fmt: skip
    assert title_text(figure)[0] == (
        "1 of 5 kernels and copies could come later by more than 1 ms; 40 % of the GPU time has "
        "no slack"
    )
    assert list(figure.layout.yaxis.ticktext) == ["stream 7", "stream 8"]


def test_long_work_is_never_merged_away(build):
    rows = [
        {"event": n, "name": "k", "stream": 7, "start_ns": n * 2_000, "dur_ns": 1_000}
        for n in range(20_000)
    ]
    rows.append({"event": 9, "stream": 7, "start_ns": 50 * MS, "dur_ns": 1, "slack_ns": 9 * MS})
    figure = plot.slack(build(SLACK, rows))
    assert max(len(trace.x) for trace in figure.data) <= 5_000
    assert figure.data[-1].name == "more than 1 ms"


def answer(question, predicted, **more):
    return {
        "question": question, "measured_ns": 100 * MS, "predicted_ns": predicted * MS,
        "speedup_ratio": 100 / predicted, "step_count": 5, "basis": "scaled",
        "explained_share": 0.99,
    } | more  # fmt: skip


def test_the_question_that_saves_most_is_named(build, title_text):
    rows = [answer("CPU x0.5", 90), answer("compute x0.5", 60, low_ns=55 * MS, high_ns=70 * MS)]
    figure = plot.what_if(build(WHAT_IF, rows))
    assert title_text(figure)[0] == (
        "compute x0.5 saves most: a step takes 60 ms instead of 100 ms, 1.67 × as fast"
    )
    bars = figure.data[0]
    assert list(figure.layout.yaxis.ticktext) == ["compute x0.5", "CPU x0.5"]
    assert (list(bars.x), list(bars.error_x.array), list(bars.error_x.arrayminus)) == (
        [60, 90], [10, 0], [5, 0],
    )  # fmt: skip


def test_a_question_that_was_asked_is_what_the_title_is_about(build, title_text):
    rows = [answer("compute x0.5", 60), answer("compute x2", 150, doubt="too little is explained")]
    figure = plot.what_if(build(WHAT_IF, rows), asked="compute x2")
    title, note = title_text(figure)
    assert title == "In doubt: compute x2: a step takes 150 ms instead of 100 ms, 0.67 × as fast"
    assert "doubt: too little is explained" in note
    assert figure.layout.yaxis.ticktext[1] == "<b>compute x2</b>"
    assert [trace.name for trace in figure.data][:2] == ["predicted", "predicted, unreliable"]


def test_where_nothing_helps_the_title_says_so(build, title_text):
    figure = plot.what_if(build(WHAT_IF, [answer("CPU x2", 120, step_count=1)]))
    assert title_text(figure)[0] == (
        "None of the changes makes the whole shorter; CPU x2: 120 ms instead of 100 ms"
    )
    assert figure.layout.xaxis.title.text == "time [ms]"


def busy(build, shares, *, rank=0):
    rows = [
        {"rank": rank, "start_ns": n * MS, "busy_share": share} for n, share in enumerate(shares)
    ]
    return build(GPU_BUSY, rows)


def test_measured_and_replayed_share_one_axis(build, title_text):
    figure = plot.gpu_busy(busy(build, [1, 0.5, 0]), busy(build, [1, 0.2, 0]))
    assert title_text(figure) == [
        "The GPU is busy 50 % of the time, 40 % in the replay",
        "bins of 1 ms",
    ]
    assert [list(trace.y) for trace in figure.data] == [[100, 50, 0], [100, 20, 0]]
    assert figure.data[0].line.dash != figure.data[1].line.dash


def test_several_ranks_are_averaged_and_said_to_be(build, title_text):
    two_ranks = pd.concat([busy(build, [1, 0]), busy(build, [0, 0], rank=1)], ignore_index=True)
    figure = plot.gpu_busy(two_ranks)
    assert title_text(figure) == [
        "The GPU is busy 25 % of the time",
        "bins of 1 ms · mean of 2 ranks",
    ]
