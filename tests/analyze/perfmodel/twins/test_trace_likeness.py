"""Likeness: a trace is like itself, and order alone makes another one unlike."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulate.traces.profiles import EXPOSED, overlapped
from tests.simulate.traces.test_traces_like import profiles
from workbench import analyze, load, simulate
from workbench.analyze import LikenessLimits
from workbench.analyze._perfmodel.twins.leaks import longest_run, run_by_chance
from workbench.analyze._perfmodel.twins.likeness import ks_distance
from workbench.errors import WorkbenchError
from workbench.tables import TRACE_LIKENESS

VALUES = st.lists(st.integers(0, 5), min_size=1, max_size=25)


def scores(table, name):
    return table[table["score"] == name].set_index("kind")


@pytest.mark.long
@given(profiles())
@settings(max_examples=10)
def test_a_trace_is_like_itself_in_every_score_and_leaks(made):
    trace = simulate.traces_like(made, ranks=2, repeats=1)
    table = TRACE_LIKENESS.check(analyze.trace_likeness(trace, trace))
    alike = table[(table["score"] != "leak") & (table["kind"] != "perplexity under its chain")]
    assert alike["used_ratio"].max() == pytest.approx(0, abs=1e-9)
    assert alike["verdict"].eq("pass").all()
    assert scores(table, "leak").loc["share of source names", "value"] == 1
    assert scores(table, "leak").loc["share of source names", "verdict"] == "FAIL"


@pytest.mark.long
def test_a_copy_is_caught_by_its_longest_run(dlrm_trace):
    """Renamed and shifted, so that no name and no time stamp is left of the source."""
    events = dlrm_trace.events
    renamed = events.assign(
        name=("copy " + events["name"].astype(str)).astype("category"),
        start_ns=events["start_ns"] + 12_345,
    )
    leak = scores(analyze.trace_likeness(dlrm_trace, replace(dlrm_trace, events=renamed)), "leak")
    assert leak.loc["longest exact run", "verdict"] == "FAIL"
    assert leak.loc["longest exact run", "value"] > 200
    assert leak.loc["nearest source / held-out", "value"] == 0


@pytest.mark.oracle
def test_equal_kernels_in_another_order_pass_mix_and_shape_and_fail_behaviour():
    """The same kernels; one order hides communication, the other exposes all of it."""
    hidden, exposed = (simulate.traces_like(overlapped(*order)) for order in ((), (EXPOSED,)))
    table = analyze.trace_likeness(hidden, exposed)
    assert scores(table, "mix")["verdict"].eq("pass").all()
    durations = scores(table, "shape").filter(like="duration", axis=0)
    assert len(durations) == 2
    assert durations["verdict"].eq("pass").all()
    behaviour = scores(table, "behaviour")
    assert behaviour.loc["exposed communication share", "value"] > 0.3
    assert behaviour.loc["exposed communication share", "verdict"] == "FAIL"
    assert behaviour.loc["time of a step", "value"] == pytest.approx(1_500 / 900, rel=0.1)


def test_a_move_that_only_one_of_both_makes_fails():
    plain = simulate.traces_like(overlapped())
    slow = simulate.traces_like(overlapped(), change=simulate.TwinChange(communication_ratio=4))
    behaviour = scores(analyze.trace_likeness(plain, slow), "behaviour")
    assert behaviour.loc["communication x2", "verdict"] == "FAIL"
    assert behaviour.loc["job, communication x2", "verdict"] == "FAIL"


@pytest.mark.long
@pytest.mark.oracle
def test_a_twin_of_eight_ranks_behaves_like_them(dlrm_trace):
    twin = simulate.traces_like(analyze.trace_profile(dlrm_trace))
    table = analyze.trace_likeness(dlrm_trace, twin)
    assert scores(table, "behaviour")["verdict"].eq("pass").all()
    assert scores(table, "leak")["verdict"].eq("pass").all()
    # Where ranks differ in their order, that of most of them is not that of all: told.
    assert scores(table, "order").loc["share of the order predicted", "verdict"] == "FAIL"


@pytest.mark.long
def test_limits_decide_on_verdicts_alone(dlrm_trace):
    twin = simulate.traces_like(analyze.trace_profile(dlrm_trace))
    wide = LikenessLimits(order_share=0.0, mix_share=1, shape_distance=1)
    tables = [analyze.trace_likeness(dlrm_trace, twin, limits=way) for way in (None, wide)]
    assert tables[0]["value"].equals(tables[1]["value"])
    assert (tables[1]["verdict"] == "FAIL").sum() < (tables[0]["verdict"] == "FAIL").sum()
    with pytest.raises(WorkbenchError, match="move_ratio must be 0 or more"):
        LikenessLimits(move_ratio=-1)


@given(VALUES, VALUES)
def test_the_longest_run_is_that_of_all_pairs_of_places(first, second):
    longest = 0
    for start in range(len(first)):
        for other in range(len(second)):
            length = 0
            while (
                start + length < len(first)
                and other + length < len(second)
                and first[start + length] == second[other + length]
            ):
                length += 1
            longest = max(longest, length)
    assert longest_run(np.array(first), np.array(second)) == longest


@given(VALUES, VALUES)
def test_the_distance_of_distributions_is_the_largest_at_any_value(first, second):
    sides = np.array(first, float), np.array(second, float)
    largest = max(abs(np.mean(sides[0] <= x) - np.mean(sides[1] <= x)) for x in range(6))
    assert ks_distance(*sides) == pytest.approx(largest)
    assert ks_distance(*sides, tolerance=0.1) <= ks_distance(*sides) + 1e-12


@pytest.mark.oracle
def test_runs_of_independent_sequences_seldom_exceed_those_of_chance():
    rng = np.random.default_rng(0)
    pairs = [(rng.integers(0, 4, 300), rng.integers(0, 4, 300)) for _ in range(200)]
    beyond = [longest_run(*pair) > run_by_chance(*pair) for pair in pairs]
    assert np.mean(beyond) <= 0.03
    assert run_by_chance(np.array([1, 2]), np.array([3])) == 0
    assert run_by_chance(np.array([1, 1]), np.array([1])) == 1


def test_a_score_that_nothing_can_tell_is_not_checked():
    one = simulate.traces_like(overlapped(), ranks=1)
    row = scores(analyze.trace_likeness(one, one), "leak").loc["nearest source / held-out"]
    assert row["verdict"] == "not checked"
    assert pd.isna(row["limit"])


def test_a_trace_without_its_host_is_scored(fleet_demo):
    path = fleet_demo / "traces" / "synthetic_rank_0.pt.trace.json.gz"
    trace = load.traces(path, progress=False)
    work = trace.events[trace.events["kind"].notna()].reset_index(drop=True)
    alone = replace(trace, events=work.assign(launch=pd.array([pd.NA] * len(work), "Int64")))
    table = analyze.trace_likeness(alone, simulate.traces_like(analyze.trace_profile(alone)))
    assert scores(table, "behaviour").loc["CPU x0.5", "value"] == pytest.approx(1)
