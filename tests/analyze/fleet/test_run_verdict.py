"""One verdict on two runs: a job that takes twice as long is never taken for an unchanged one."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.analyze.findings.jobs import even, failure_log, job_log, steps_of, trace
from workbench import analyze, plot
from workbench._shared.run_verdict import plain_digits
from workbench.cli import app
from workbench.tables import Bundle


def of_job(lengths_s):
    return Bundle(job=job_log(list(lengths_s)))


def of_trace(lengths_us):
    return trace(steps_of(np.array(lengths_us, dtype=float).reshape(-1, 1))[0])


def verdict(first, second, **options):
    table = analyze.run_comparison(first, second, **options)
    return table.attrs["outcome"], table.attrs["verdict"]


def test_one_step_each_that_doubled_is_not_resolved():
    word, sentence = verdict(of_trace([16_000]), of_trace([32_000]))
    assert word == "cannot be resolved"
    assert sentence.startswith("cannot be resolved: 1 step each; step 16.")
    assert " -> 32." in sentence


@pytest.mark.long
def test_several_steps_that_doubled_are_slower_and_halved_ones_faster():
    first, second = of_trace([1_000] * 8), of_trace([2_200] * 8)
    assert verdict(first, second)[0] == "slower"
    assert verdict(second, first)[0] == "faster"
    assert verdict(first, first) == ("equal", verdict(first, first)[1])


@pytest.mark.long
@given(
    lengths=st.lists(st.integers(900, 1_100), min_size=1, max_size=12),
    ratio=st.sampled_from([0.25, 0.5, 2.0, 3.0, 10.0]),
)
@settings(max_examples=40, deadline=None)
def test_scaling_all_times_is_slower_or_faster_by_that_ratio_or_not_resolved(lengths, ratio):
    """Steps of 10 % spread: never equal, never the wrong direction, and resolved from 4 on."""
    first = [length / 1_000 for length in lengths]
    word, sentence = verdict(of_job(first), of_job([ratio * length for length in first]))
    assert word in ("slower" if ratio > 1 else "faster", "cannot be resolved")
    if len(lengths) >= 8:
        assert word != "cannot be resolved"
        expected = plain_digits(100 * abs(ratio - 1)).removesuffix(".0")
        assert f"by {expected} %" in sentence
    if len(lengths) == 1:
        assert "1 step each" in sentence


@given(lengths=st.lists(st.integers(500, 5_000), min_size=1, max_size=12))
@settings(max_examples=25, deadline=None)
def test_a_run_equals_itself_at_any_number_of_steps(lengths):
    run = of_job([length / 1_000 for length in lengths])
    word, sentence = verdict(run, run)
    assert word == "equal"
    assert sentence.startswith("equal in all ")


def test_steps_of_a_small_spread_are_equal_within_it():
    draws = np.random.default_rng(3).standard_normal((2, 200))
    first, second = (of_job(1 + 0.01 * noise) for noise in draws)
    word, sentence = verdict(first, second)
    assert word == "equal"
    assert sentence.startswith("equal within ")


def test_the_step_time_comes_first_then_the_rest_by_share():
    rows, _ = steps_of(even())
    slower = [row | ({"name": "other_kernel"} if row.get("kind") == "compute" else {})
              for row in rows]  # fmt: skip
    table = analyze.run_comparison(trace(rows), trace(slower))
    assert table["quantity"].iloc[0] == "step time"
    for _, of_verdict in table.iloc[1:].groupby("verdict", observed=True):
        share = of_verdict["step_ratio"].abs().dropna()
        assert share.is_monotonic_decreasing
    assert "other quantities changed" in table.attrs["verdict"]


def test_few_failures_resolve_nothing_and_say_so():
    sides = [Bundle(failures=failure_log([{"at_h": hour, "node": "node001"} for hour in range(count)]))
             for count in (1, 2)]  # fmt: skip
    word, sentence = verdict(*sides)
    assert word == "cannot be resolved"
    assert "so few events" in sentence


@pytest.mark.parametrize(
    ("lengths", "word", "code"),
    [([1.0], "cannot be resolved: 1 step each; step 1,000 -> 2,000 ms", 2),
     ([1.0, 1.01] * 6, "slower by 100 %", 1)],
)  # fmt: skip
def test_command_json_and_page_say_the_same(tmp_path, lengths, word, code):
    paths = []
    for name, ratio in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        end, lines = 1_768_204_800.0, []
        for step, length in enumerate(lengths):
            end += ratio * length
            lines.append({"time": end, "event": "step", "step": step,
                          "step_time_ms": 1_000 * ratio * length})  # fmt: skip
        (tmp_path / name / "steps.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
        paths.append(str(tmp_path / name))
    page = tmp_path / "page.html"
    shown = CliRunner().invoke(app, ["compare", *paths, "--html", str(page)])
    assert shown.exit_code == code, shown.output
    first, second, *_ = shown.stdout.splitlines()
    assert first.startswith(word)
    assert " step " in second
    answer = CliRunner().invoke(app, ["compare", *paths, "--json"])
    assert answer.exit_code == code
    assert json.loads(answer.stdout)["verdict"] == first
    title = first[0].upper() + first[1:].replace(">", "&gt;")
    assert f"<h1>{title}</h1>" in page.read_text()


def test_three_runs_of_which_the_last_doubled_are_not_called_unchanged():
    runs = {name: of_job([length] * 5) for name, length in (("a", 1.0), ("b", 1.0), ("c", 2.0))}
    trend = analyze.run_trend(runs)
    page = plot.run_trend_page(trend, analyze.run_changes(trend))
    assert "Cannot be resolved: 3 of 3 runs have steps, 4 are needed; step 1,000 to 2,000" in page
