"""Figures of a job: what their titles say, and what is drawn."""

import numpy as np
import pandas as pd
import pytest

from data import make
from workbench import analyze, plot

SHAPE = (8, 4, 8, 6)


@pytest.fixture(scope="module")
def operations():
    causes = {"slow worker": 1.6, "sequence lengths": 0.08}
    return make.pipeline_job(causes, seed=7, shape=SHAPE).operations


def words(figure):
    return " ".join(str(each.text) for each in figure.layout.annotations)


def test_the_verdict_says_what_to_do(operations):
    slowdown = analyze.job_slowdown(operations)
    figure = plot.job_slowdown(slowdown)
    assert figure.layout.title.text.endswith("a few workers are slow")
    assert "test and replace those hosts" in figure.layout.title.subtitle.text
    assert f"S = {slowdown['slowdown_ratio'].iloc[0]:.2f}" in words(figure)
    assert f"{slowdown['worst_workers_ratio'].iloc[0]:.2f} of the excess gone" in words(figure)


def test_the_bars_of_the_verdict_add_up_to_the_step(operations):
    table = analyze.job_slowdown(operations)
    slowdown = table.iloc[0]
    ideal, excess, delay = (trace.x for trace in plot.job_slowdown(table).data)
    assert (ideal + excess + delay)[0] == pytest.approx(slowdown["actual_ns"] / 1e9)
    assert (ideal + excess)[1] == pytest.approx(slowdown["replay_ns"] / 1e9)
    assert ideal[-1] == pytest.approx(slowdown["ideal_ns"] / 1e9)


def test_a_verdict_on_part_of_a_job_says_what_was_left_out(operations):
    cut = operations.drop(index=operations.index[-5:]).reset_index(drop=True)
    figure = plot.job_slowdown(analyze.job_slowdown(cut, incomplete="leave out"))
    text = figure.layout.title.subtitle.text.replace("<br>", " ")
    assert "of 6 steps (5) that lack or double operations" in text


def test_the_map_shows_every_worker_of_a_small_job(operations):
    table = analyze.job_slowdown_by(operations, "worker")
    figure = plot.job_slowdown_by(table)
    worst = table.iloc[0]
    assert figure.layout.title.text.startswith(
        f"Rank {worst['dp_rank']} on stage {worst['stage']} alone"
    )
    assert np.shape(figure.data[0].z) == (4, 8)
    assert figure.data[0].z[worst["stage"], worst["dp_rank"]] == worst["slowdown_ratio"]


def test_the_map_of_a_large_job_shows_the_worst_ranks_and_the_worst_of_the_others():
    ranks, stages = 1_000, 16
    table = pd.DataFrame(
        [(rank, stage, None, 1 + (rank * 7 + stage) % 997 / 1e4, None)
         for rank in range(ranks) for stage in range(stages)],
        columns=["dp_rank", "stage", "operation", "slowdown_ratio", "bound_ratio"],
    ).astype({"dp_rank": "Int32", "stage": "Int32", "operation": "category",
              "bound_ratio": "Float64"})  # fmt: skip
    figure = plot.job_slowdown_by(table)
    assert np.shape(figure.data[0].z) == (16, 61)
    assert figure.layout.xaxis.ticktext[-1] == "others"
    assert np.nanmax(figure.data[0].z) == table["slowdown_ratio"].max()
    assert "940 others" in figure.layout.title.subtitle.text


@pytest.mark.parametrize("part", ["stage", "dp_rank", "operation"])
def test_other_parts_are_bars_with_the_worst_first(operations, part):
    table = analyze.job_slowdown_by(operations, part)
    (bar,) = plot.job_slowdown_by(table).data
    assert bar.x.tolist() == pytest.approx((100 * (table["slowdown_ratio"] - 1)).tolist())
    assert bar.x[0] == max(bar.x)


def test_the_schedule_shows_every_pass_once_per_version(operations):
    table = analyze.job_schedule(operations)
    figure = plot.job_schedule(table)
    drawn = {trace.name: trace for trace in figure.data}
    assert set(drawn) == {"idle", "forward", "backward", "transfer", "other"}
    assert len(drawn["forward"].x) == len(drawn["backward"].x) == 2 * 4 * 8
    assert len(figure.layout.yaxis.ticktext) == 2 * 4
    assert "replayed and" in figure.layout.title.text
    assert "recorded: " in figure.layout.title.subtitle.text


def test_versions_of_the_schedule_can_be_chosen(operations):
    table = analyze.job_schedule(operations)
    figure = plot.job_schedule(table, versions=["recorded"])
    assert [text.split(",")[0] for text in figure.layout.yaxis.ticktext] == ["recorded"] * 4
    assert not plot.job_schedule(table, versions=["nothing"]).data


def test_the_schedule_of_many_stages_shows_the_first_and_the_last():
    job = make.pipeline_job(seed=1, shape=(1, 24, 8, 1)).operations
    figure = plot.job_schedule(analyze.job_schedule(job))
    assert len(figure.layout.yaxis.ticktext) == 2 * 16
    assert "8 stages in the middle dropped" in figure.layout.title.subtitle.text


def test_the_scatter_prints_the_correlation_and_sets_the_longest_rank_apart(operations):
    table = analyze.job_micro_batches(operations, stage=2)
    figure = plot.job_micro_batches(table, correlation=0.987)
    assert "r = 0.99" in figure.layout.title.text
    assert figure.data[1].name.startswith("rank 6,")
    assert "r =" not in plot.job_micro_batches(table).layout.title.text


def test_the_measures_stand_beside_the_truth(operations):
    table = analyze.job_dispersion(operations)
    figure = plot.job_dispersion(table)
    assert figure.layout.title.text.startswith("The what-if calls 2")
    shown = dict(zip(figure.data[1].y, figure.data[1].text, strict=True))
    assert shown[6].strip().endswith("(no share)")
    assert len(figure.data[0].x) + len(figure.data[1].x) == len(table)


def test_the_steps_are_sorted_lines(operations):
    figure = plot.job_steps(analyze.job_steps(operations))
    replayed = figure.data[1].y
    assert replayed.tolist() == sorted(replayed)
    assert len(set(figure.data[2].y)) == 1


def test_a_share_that_is_missing_says_why():
    one_stage = make.pipeline_job({"slow worker": 1.6}, seed=7, shape=(8, 1, 8, 6)).operations
    assert "there is one stage only" in words(plot.job_slowdown(analyze.job_slowdown(one_stage)))
    assert "there are none" in words(
        plot.job_slowdown(
            analyze.job_slowdown(
                make.pipeline_job({"last stage": 1.6}, seed=7, shape=SHAPE).operations
            )
        )
    )
