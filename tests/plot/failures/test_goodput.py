"""Figures of goodput: parts add up, titles tell the truth, published numbers are marked."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from workbench import analyze, plot, simulate
from workbench.analyze import FaultTolerance

JOB = FaultTolerance(rejoin_min=1, checkpoint_interval_min=60, checkpoint_write_min=1)
CASES = {"full restart": JOB.synchronous(), "12 replicas": JOB}


def shares(job, convention="poisson"):
    return analyze.goodput(job, failure_interval_min=18, convention=convention)


@pytest.mark.oracle
def test_one_case_is_a_staircase_from_0_to_1():
    table = shares(JOB)
    figure = plot.goodput(table)
    bars = [trace for trace in figure.data if trace.type == "bar"]
    ends = 0.0
    for bar, row in zip(bars, table.to_dict("records"), strict=True):
        assert bar.base[0] == pytest.approx(ends)
        assert bar.x[0] == row["gpu_time_share"]
        ends += bar.x[0]
    assert ends == pytest.approx(1)
    assert list(figure.layout.yaxis.ticktext) == table["state"].tolist()
    assert "random" in figure.layout.title.subtitle.text


def test_several_cases_are_stacks_of_1():
    figure = plot.goodput({name: shares(job) for name, job in CASES.items()})
    stacks = np.sum([trace.x for trace in figure.data], axis=0)
    assert stacks == pytest.approx([1, 1])
    for at, job in enumerate(CASES.values()):
        share = analyze.productive_share(job, failure_interval_min=18, convention="poisson")
        assert figure.data[0].x[at] == pytest.approx(share)
        assert f"{100 * share:.0f} %" in figure.layout.title.text


@pytest.mark.oracle
def test_titles_say_44_and_80_percent():
    plain = FaultTolerance()
    cases = {"all": shares(plain.synchronous(), "interval"), "FT": shares(plain, "interval")}
    assert "Goodput: 44 % (all), 80 % (FT)" in plot.goodput(cases).layout.title.text
    title = plot.goodput(cases["FT"]).layout.title.text
    assert title.startswith("80 % of the GPU time is productive")
    assert "global stall (17 %)" in title


def test_an_interval_is_printed_with_its_state():
    drawn = simulate.failure_times(simulate.FailureProcess(), horizon_min=14_400, seed=1, runs=5)
    mean = analyze.goodput_mean(analyze.goodput_replay(drawn, FaultTolerance(), horizon_min=14_400))
    figure = plot.goodput(mean, synthetic=True)
    half = 50 * (mean["high_share"] - mean["low_share"]).iloc[0]
    assert f"± {half:.2f}" in figure.data[-1].text[0]
    assert f"± {half:.2f}" in figure.data[0].customdata[0]


def test_too_many_states_are_summed_and_too_many_cases_counted():
    phases = {f"phase {at}": 0.1 * (at + 1) for at in range(40)}
    table = shares(replace(JOB, recovery_min=phases, replicas=1))
    bars = [trace for trace in plot.goodput(table).data if trace.type == "bar"]
    assert len(bars) <= 16
    assert sum(bar.x[0] for bar in bars) == pytest.approx(1)
    many = plot.goodput({f"case {at}": table for at in range(20)})
    assert "8 cases not shown" in many.layout.title.subtitle.text


def test_a_name_that_looks_like_a_template_is_no_template():
    table = shares(replace(JOB, stall_min={"%{y} <b>": 3}))
    for figure in (plot.goodput(table), plot.goodput({"a": table, "b": table})):
        assert not any("%{y} " in str(trace.hovertemplate) for trace in figure.data)


@pytest.mark.oracle
def test_a_ladder_marks_what_is_published():
    printed = {"full restart": 0.44, "global stall": 0.80}
    ladder = analyze.goodput_ladder(
        FaultTolerance(), failure_interval_min=18, convention="interval", printed=printed
    )
    figure = plot.goodput_ladder(ladder)
    marks = figure.data[-1]
    assert marks.name == "published"
    assert dict(zip(marks.y, marks.x, strict=True)) == {0: 0.44, 2: 0.80}
    assert "From 44 % to 80 %" in figure.layout.title.text
    assert list(figure.data[0].text) == ["44 %", "95 % (+50.9)", "80 % (-15.3)"]


def test_a_ladder_of_two_conventions_has_a_bar_for_each():
    ladders = [
        analyze.goodput_ladder(FaultTolerance(), failure_interval_min=18, convention=each)
        for each in ("interval", "poisson")
    ]
    figure = plot.goodput_ladder(pd.concat(ladders, ignore_index=True))
    assert [trace.name for trace in figure.data] == [
        "one failure per interval", "failures at random, also during recovery"
    ]  # fmt: skip
    assert all(len(trace.x) == 3 for trace in figure.data)


def test_the_size_that_is_read_off_is_marked():
    sizes = [8_192, 49_152, 98_304, 196_608]
    table = analyze.goodput_at_scale(
        sizes, FaultTolerance(), reference_gpus=98_304, failure_interval_min=18,
        convention="interval",
    )  # fmt: skip
    figure = plot.goodput_at_scale(table, at_gpus=98_304)
    assert "At 98,304 GPUs 44 % of the time is productive" in figure.layout.title.text
    assert figure.layout.shapes[0].x0 == 98_304
    last = plot.goodput_at_scale(table)
    assert "At 196,608 GPUs no answer" in last.layout.title.text


def test_the_best_interval_is_marked_on_its_curve():
    case = {"failure_interval_min": 180, "recovery_min": 5, "write_min": 1}
    curve = analyze.checkpoint_curve(np.geomspace(1, 2_000, 40), **case)
    figure = plot.checkpoint_curve(curve, optimum=analyze.checkpoint_optimum(**case))
    assert "Save every 18" in figure.layout.title.text
    marks = {trace.name.split(":")[0]: trace for trace in figure.data[-3:]}
    assert set(marks) == {"Young", "Daly", "numeric"}
    assert marks["Young"].x[0] == pytest.approx(18.97, abs=0.005)
    formula = next(trace for trace in figure.data if "first-order" in trace.name)
    drawn = np.asarray(formula.y, dtype=float)
    assert np.nanmin(drawn) >= 0
    assert f"at {np.isnan(drawn).sum()} intervals" in figure.layout.title.subtitle.text


def spare_table(shares_, load=20.0):
    count = len(shares_)
    return pd.DataFrame(
        {
            "spare_count": np.arange(count) * 10, "productive_share": shares_,
            "low_share": np.nan, "high_share": np.nan, "wait_min": 1.0,
            "offered_load_ratio": load,
        }
    )  # fmt: skip


def test_the_fewest_spares_that_are_enough_are_named():
    title = plot.spares(spare_table([0.1, 0.5, 0.802, 0.81])).layout.title.text
    assert title.startswith("20 spare nodes are enough (80 % productive)")
    assert plot.spares(spare_table([0.81, 0.81])).layout.title.text.startswith("0 spare nodes")


def test_nodes_that_never_come_back_have_no_mean_in_repair():
    figure = plot.spares(spare_table([0.1, 0.2], load=math.inf))
    assert not figure.layout.shapes


def test_windows_are_cumulative_curves_from_one_window_to_all():
    drawn = simulate.failure_times(simulate.FailureProcess(), horizon_min=77_760, seed=1, runs=3)
    jobs = {"all restart": FaultTolerance(replicas=1), "replicas": FaultTolerance()}
    tables = {
        name: analyze.goodput_windows(drawn, job, horizon_min=77_760) for name, job in jobs.items()
    }
    figure = plot.goodput_windows(tables)
    for trace, table in zip(figure.data, tables.values(), strict=True):
        assert trace.y[-1] == 1
        assert (np.diff(trace.x) >= 0).all()
        assert (np.diff(trace.y) > 0).all()
        assert f"{100 * table['productive_share'].mean():.0f} %" in trace.name
    assert figure.layout.title.text.startswith("24-hour windows of all restart scatter from")
