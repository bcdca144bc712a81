"""Goodput by closed form: the published numbers, then the laws, then what is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import simulate
from workbench.analyze import (
    FaultTolerance,
    goodput,
    goodput_mean,
    goodput_replay,
    productive_share,
)
from workbench.errors import WorkbenchError
from workbench.simulate import FailureProcess

DAYS_54 = 54 * 1440.0
PUBLISHED = FaultTolerance(recovery_min=10, stall_min=3, replicas=12)
SYNCHRONOUS = PUBLISHED.synchronous()


def productive(job, convention, interval=18.0):
    return productive_share(job, failure_interval_min=interval, convention=convention)


def shares(job, convention="poisson", interval=18.0):
    table = goodput(job, failure_interval_min=interval, convention=convention)
    return table.set_index("state")["gpu_time_share"].to_dict()


# --- published numbers ---


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("convention", "recovery", "synchronous", "replicated"),
    [("interval", 10, 0.4444, 0.8009), ("poisson", 10, 0.5738, 0.8195), ("poisson", 15, 0.4346, 0.8007)],
)  # fmt: skip
def test_the_published_case_under_every_way_of_counting(
    convention, recovery, synchronous, replicated
):
    job = replace(PUBLISHED, recovery_min=recovery)
    assert productive(job.synchronous(), convention) == pytest.approx(synchronous, abs=5e-5)
    assert productive(job, convention) == pytest.approx(replicated, abs=5e-5)


@pytest.mark.oracle
def test_nothing_fails_during_recovery_in_a_renewal():
    assert productive(SYNCHRONOUS, "renewal") == pytest.approx(0.6429, abs=5e-5)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("changes", "convention", "expected"),
    [
        ({"rejoin_min": 100 / 60}, "interval", 0.708),
        ({"rejoin_min": 100 / 60}, "poisson", 0.747),
        ({"stall_min": 1.5}, "interval", 0.877),
        ({"stall_min": 1.5, "rejoin_min": 100 / 60}, "interval", 0.785),
    ],
)
def test_stalls_at_the_failure_and_at_rejoin(changes, convention, expected):
    assert productive(replace(PUBLISHED, **changes), convention) == pytest.approx(
        expected, abs=0.0005
    )


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("replicas", "interval", "poisson"),
    [(1, 44, 57), (2, 64, 70), (4, 74, 77), (8, 78, 81), (12, 80, 82), (24, 82, 83), (96, 83, 84)],
)
def test_more_replicas_help_until_the_stall_is_what_is_left(replicas, interval, poisson):
    job = replace(PUBLISHED, replicas=replicas)
    assert round(100 * productive(job, "interval")) == interval
    assert round(100 * productive(job, "poisson")) == poisson


@pytest.mark.oracle
def test_rarer_and_shorter_failures_of_the_scenarios():
    assert productive(PUBLISHED, "poisson", 51) == pytest.approx(0.932, abs=0.005)
    job = replace(PUBLISHED, stall_min=1, recovery_min=5)
    assert productive(job, "poisson") == pytest.approx(0.929, abs=0.005)


def monte_carlo(*, seed=7, runs=24, replicas=12, job=PUBLISHED, draw=None, **process):
    """Replay drawn failures over 54 days; give the mean share of every state."""
    drawn = simulate.failure_times(
        FailureProcess(**process), horizon_min=DAYS_54, seed=seed, runs=runs, replicas=replicas,
        **(draw or {}),
    )  # fmt: skip
    job = replace(job, replicas=replicas)
    table = goodput_mean(goodput_replay(drawn, job, horizon_min=DAYS_54))
    return table.set_index("state")["gpu_time_share"]


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ({}, 0.819),
        ({"job": replace(PUBLISHED, rejoin_min=2)}, 0.736),
        ({"job": replace(PUBLISHED, stall_min=1, rejoin_min=2)}, 0.815),
        ({"together_share": 0.1}, 0.817),
        ({"job": replace(PUBLISHED, min_replicas=10)}, 0.799),
        ({"job": replace(PUBLISHED, min_replicas=11)}, 0.723),
        ({"draw": {"recovery_spread": 0.8}}, 0.820),
        ({"failure_interval_min": 51}, 0.932),
        ({"job": replace(PUBLISHED, stall_min=1), "draw": {"recovery_min": 5}}, 0.929),
    ],
)
def test_scenarios_replayed(case, expected):
    states = monte_carlo(**case)
    assert states["productive"] == pytest.approx(expected, abs=0.005)
    if not case:
        assert states["global stall"] == pytest.approx(0.154, abs=0.005)
        assert states["degraded capacity"] == pytest.approx(0.027, abs=0.005)


@pytest.mark.oracle
def test_stragglers_of_the_scenarios():
    drawn = simulate.failure_times(FailureProcess(), horizon_min=DAYS_54, seed=1, runs=24)
    slow = simulate.slow_times(
        per_day=1, dur_min=30, speed_ratio=0.8, horizon_min=DAYS_54, seed=1, runs=24
    )
    table = goodput_mean(goodput_replay(drawn, PUBLISHED, horizon_min=DAYS_54, slow_times=slow))
    states = table.set_index("state")["gpu_time_share"]
    assert states["productive"] == pytest.approx(0.816, abs=0.005)
    assert states["straggler"] == pytest.approx(states.sum() * 30 / 1440 * 0.2 * 0.819, rel=0.1)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("shape", "failures", "synchronous", "replicated"),
    [(1.0, 4280, 0.576, 0.821), (0.7, 7366, 0.40, 0.72), (1.5, 2260, 0.75, 0.90)],
)
def test_new_nodes_that_wear_in_or_out_fail_more_or_less_often_at_first(
    shape, failures, synchronous, replicated
):
    process = FailureProcess(
        process="weibull", weibull_shape=shape, lemon_share=0.012, lemon_failure_share=0.15
    )
    drawn = simulate.failure_times(process, horizon_min=DAYS_54, seed=1, runs=4)
    for job, expected in ((SYNCHRONOUS, synchronous), (PUBLISHED, replicated)):
        runs = goodput_replay(drawn, job, horizon_min=DAYS_54)
        assert runs["failure_count"].mean() == pytest.approx(failures, rel=0.03)
        share = runs.loc[runs["state"] == "productive", "gpu_time_share"].mean()
        assert share == pytest.approx(expected, abs=0.01)


@pytest.mark.oracle
def test_runs_of_54_days_and_single_days_scatter_as_published():
    from workbench.analyze import goodput_windows

    drawn = simulate.failure_times(
        FailureProcess(), horizon_min=DAYS_54, seed=5, runs=60, warm_up_min=10
    )
    for job, points in ((SYNCHRONOUS, 0.005), (PUBLISHED, 0.002)):
        runs = goodput_replay(drawn, job, horizon_min=DAYS_54)
        share = runs.loc[runs["state"] == "productive", "gpu_time_share"]
        assert share.std() == pytest.approx(points, abs=0.001)
    windows = goodput_windows(drawn, SYNCHRONOUS, horizon_min=DAYS_54)["productive_share"]
    assert windows.quantile(0.05) == pytest.approx(0.51, abs=0.015)
    assert windows.quantile(0.95) == pytest.approx(0.65, abs=0.015)


# --- simulation against closed form ---

CASES = {
    "interval, synchronous": ("interval", SYNCHRONOUS),
    "interval, replicas": ("interval", PUBLISHED),
    "poisson, synchronous": ("poisson", SYNCHRONOUS),
    "poisson, replicas": ("poisson", PUBLISHED),
    "poisson, re-join": ("poisson", replace(PUBLISHED, rejoin_min=2)),
    "poisson, stall outlasts recovery": ("poisson", replace(PUBLISHED, stall_min=6, rejoin_min=1, recovery_min=4)),
    "poisson, D = 15, synchronous": ("poisson", replace(SYNCHRONOUS, recovery_min=15)),
    "poisson, D = 15, replicas": ("poisson", replace(PUBLISHED, recovery_min=15)),
    "renewal, synchronous": ("renewal", SYNCHRONOUS),
}  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES)
def test_simulation_finds_the_closed_form_as_often_as_its_interval_promises(case):
    convention, job = CASES[case]
    # No whole number of intervals: else every run of the interval process is the same.
    horizon, inside = 10 * 1440.0 + 7, 0
    for seed in range(20):
        drawn = simulate.failure_times(
            FailureProcess(process=convention), horizon_min=horizon, seed=seed, runs=10,
            replicas=job.replicas, recovery_min=job.recovery_total_min, warm_up_min=200,
        )  # fmt: skip
        table = goodput_mean(goodput_replay(drawn, job, horizon_min=horizon))
        found = table.set_index("state").loc["productive"]
        inside += found["low_share"] <= productive(job, convention) <= found["high_share"]
    # 20 intervals of 95 %: fewer than 16 inside happens once in 400 times.
    assert inside >= 16


def test_every_state_of_a_simulation_has_the_share_of_the_closed_form():
    job = FaultTolerance(
        recovery_min={"detection": 1, "allocation": 4, "NCCL init": 3, "first step": 2},
        stall_min={"timeout": 1, "reconfiguration": 2},
        rejoin_min=1,
    )
    for each in (job, job.synchronous()):
        drawn = simulate.failure_times(
            FailureProcess(), horizon_min=DAYS_54, seed=2, runs=20, replicas=each.replicas,
            recovery_min=job.phases, warm_up_min=20,
        )  # fmt: skip
        found = goodput_mean(goodput_replay(drawn, each, horizon_min=DAYS_54))
        expected = shares(each)
        assert set(found["state"]) == set(expected)
        for row in found.to_dict("records"):
            assert row["gpu_time_share"] == pytest.approx(expected[row["state"]], abs=0.002)


# --- laws ---

minutes = st.floats(0, 60, allow_subnormal=False)
jobs = st.builds(
    FaultTolerance,
    recovery_min=st.one_of(minutes, st.fixed_dictionaries({"detection": minutes, "load": minutes})),
    stall_min=st.one_of(minutes, st.fixed_dictionaries({"timeout": minutes, "lost work": minutes})),
    replicas=st.integers(1, 40),
    rejoin_min=minutes,
    checkpoint_interval_min=st.one_of(st.none(), st.floats(0.1, 500)),
)
saving = jobs.map(
    lambda job: job if job.checkpoint_interval_min is None else replace(job, checkpoint_write_min=1)
)
intervals = st.floats(0.5, 5000)
conventions = st.sampled_from(["interval", "poisson", "renewal"])


def answer(job, interval, convention):
    try:
        return productive(job, convention, interval)
    except WorkbenchError:
        return None


@given(job=saving, interval=intervals, convention=conventions)
def test_the_states_share_all_the_time_and_agree_with_the_productive_share(
    job, interval, convention
):
    try:
        table = goodput(job, failure_interval_min=interval, convention=convention)
    except WorkbenchError:
        assert convention != "poisson"
        return
    assert table["gpu_time_share"].sum() == pytest.approx(1, abs=1e-9)
    assert not table.duplicated(["state", "scope"]).any()
    assert table["low_share"].isna().all()
    row = table[table["state"] == "productive"]
    assert row["gpu_time_share"].item() == productive(job, convention, interval)


@given(
    job=saving, interval=intervals, convention=conventions, more=minutes,
    what=st.sampled_from(["recovery_min", "stall_min", "rejoin_min", "interval"]),
)  # fmt: skip
def test_longer_recoveries_and_stalls_and_more_failures_never_help(
    job, interval, convention, more, what
):
    before = answer(job, interval, convention)
    if what == "interval":
        after = answer(job, interval / (1 + more), convention)
    else:
        total = {"recovery_min": job.recovery_total_min, "stall_min": job.stall_total_min,
                 "rejoin_min": job.rejoin_min}[what]  # fmt: skip
        after = answer(replace(job, **{what: total + more}), interval, convention)
    # Where gaps are all equally long, a shorter one may fit its checkpoints better.
    fits = convention == "interval" and job.replicas == 1 and job.checkpoint_interval_min
    # And a later re-join may fall into the next stall, again and again: then both count once.
    meets = (
        convention == "interval"
        and job.replicas > 1
        and job.rejoin_min > 0
        and what in ("recovery_min", "interval")
    )
    if before is None or after is None or fits or meets:
        return
    assert after <= before + 1e-9


@pytest.mark.parametrize("interval", [38, 60, 75])
@pytest.mark.parametrize("recovery", [39, 40, 41, 45, 74])
def test_regular_failures_give_what_counting_every_instant_gives(interval, recovery):
    """Of a job with long re-joins: where these fall into the next stall, longer recovery helps."""
    job = FaultTolerance(recovery_min=recovery, stall_min=1, rejoin_min=35, replicas=12)
    # Ages of the failures before many instants, spread evenly between two failures.
    instants = (np.arange(20_000) + 0.5) / 20_000 * interval
    ages = instants + interval * np.arange(5)[:, None]
    is_stopped = ((ages < 1) | ((ages >= recovery) & (ages < recovery + 35))).any(axis=0)
    out = (ages < recovery).sum(axis=0)
    counted = np.where(is_stopped, 0, (11 / 12) ** out).mean()
    assert productive(job, "interval", interval) == pytest.approx(counted, abs=1e-4)
    later = productive(replace(job, recovery_min=41), "interval", 75)
    assert later > productive(replace(job, recovery_min=40), "interval", 75)


@given(job=jobs, interval=intervals, more=st.integers(1, 60))
def test_more_replicas_never_hurt_where_recovery_outlasts_the_stall(job, interval, more):
    job = replace(job, checkpoint_interval_min=None, rejoin_min=0.0)
    down = max(job.recovery_total_min, job.stall_total_min)
    job = replace(job, recovery_min=down)
    bigger = replace(job, replicas=job.replicas + more)
    for convention in ("interval", "poisson"):
        before, after = (answer(each, interval, convention) for each in (job, bigger))
        if before is not None:
            assert after >= before - 1e-12


def test_overlapping_losses_count_once_where_recovery_outlasts_the_failure_interval():
    # Failures at 0, 1, 2, ... min; each takes one of two replicas out for 4 min, so that at
    # any time four recoveries run and a replica works with probability 1/2 to the fourth.
    job = FaultTolerance(recovery_min=4, stall_min=0.5, replicas=2)
    states = shares(job, "interval", 1)
    assert states["productive"] == pytest.approx(0.5 * 0.5**4)
    assert states["global stall"] == pytest.approx(0.5)
    assert states["degraded capacity"] == pytest.approx(0.5 * (1 - 0.5**4))


@given(
    interval=st.floats(2, 40),
    recovery=st.floats(0.1, 5),
    stall=st.floats(0, 0.9),
    rejoin=st.one_of(st.just(0.0), st.floats(0, 0.9)),
    replicas=st.integers(1, 30),
)
def test_an_interval_has_the_shares_that_a_replay_of_it_finds(
    interval, recovery, stall, rejoin, replicas
):
    """Recovery, stall and re-join are drawn in intervals: most recoveries outlast one."""
    job = FaultTolerance(
        recovery_min=recovery * interval, stall_min=stall * interval,
        rejoin_min=rejoin * interval, replicas=replicas,
    )  # fmt: skip
    if answer(job, interval, "interval") is None:
        assert recovery >= 1 if replicas == 1 else stall + rejoin >= 1
        return
    expected = shares(job, "interval", interval)
    assert all(0 <= share <= 1 for share in expected.values())
    assert sum(expected.values()) == pytest.approx(1, abs=1e-9)
    horizon = 1500 * interval
    drawn = simulate.failure_times(
        FailureProcess(process="interval", failure_interval_min=interval), horizon_min=horizon,
        seed=1, runs=4, replicas=replicas, recovery_min=job.recovery_total_min,
        warm_up_min=8 * interval,
    )  # fmt: skip
    replayed = goodput_mean(goodput_replay(drawn, job, horizon_min=horizon))
    for row in replayed.to_dict("records"):
        assert row["gpu_time_share"] == pytest.approx(expected.get(row["state"], 0), abs=0.02)


@given(job=saving, interval=intervals, convention=conventions)
def test_a_single_replica_is_a_synchronous_job(job, interval, convention):
    alone = replace(job, replicas=1)
    assert answer(alone, interval, convention) == answer(job.synchronous(), interval, convention)


@given(job=jobs, interval=intervals)
def test_failures_that_never_come_together_are_the_pessimist(job, interval):
    # A re-join may fall into the next stall, again and again where failures are regular.
    job = replace(job, checkpoint_interval_min=None, rejoin_min=0.0)
    pessimist = answer(job, interval, "interval")
    if pessimist is not None:
        assert pessimist <= productive(job, "poisson", interval) + 1e-12
        if job.replicas == 1:
            renewal = productive(job, "renewal", interval)
            assert productive(job, "poisson", interval) <= renewal + 1e-12


@given(interval=st.floats(30, 1000), convention=conventions)
def test_phases_add_up_to_the_recovery_they_are_phases_of(interval, convention):
    phases = {"detection": 1.0, "allocation": 5.0, "first step": 4.0}
    parts = shares(replace(SYNCHRONOUS, recovery_min=phases), convention, interval)
    whole = shares(SYNCHRONOUS, convention, interval)
    assert parts["productive"] == pytest.approx(whole["productive"])
    assert sum(parts[name] for name in phases) == pytest.approx(whole["recovery"])


@given(interval=st.floats(15, 1000), every=st.floats(1, 500), write=st.floats(0, 5))
def test_checkpoints_take_their_part_of_the_time_up_and_no_more(interval, every, write):
    for plain in (SYNCHRONOUS, PUBLISHED):
        job = replace(plain, checkpoint_interval_min=every, checkpoint_write_min=write)
        for convention in ("poisson", "interval"):
            with_, without = shares(job, convention, interval), shares(plain, convention, interval)
            saved = [with_.get(name, 0.0) for name in ("productive", "lost work", "checkpoint")]
            assert sum(saved) == pytest.approx(without["productive"])
            assert with_.get("global stall", 0) == pytest.approx(without.get("global stall", 0))


def test_work_undone_on_average_is_half_an_interval_where_failures_are_rare():
    job = replace(SYNCHRONOUS, checkpoint_interval_min=10)
    rare = shares(job, "poisson", 1e6)
    assert rare["lost work"] * 1e6 == pytest.approx(5, rel=1e-3)


def test_extremes_have_an_answer():
    assert productive(PUBLISHED, "poisson", 1e-3) == 0
    assert productive(PUBLISHED, "interval", 1e12) == pytest.approx(1)
    free = FaultTolerance(recovery_min=0, stall_min=0, replicas=1)
    assert productive(free, "poisson") == productive(free, "renewal") == 1
    never_saved = replace(SYNCHRONOUS, checkpoint_interval_min=1e6)
    assert productive(never_saved, "poisson") == 0
    assert shares(never_saved)["lost work"] == pytest.approx(math.exp(-10 / 18))


def test_a_stall_called_like_another_state_is_added_to_it():
    job = replace(PUBLISHED, rejoin_min=1, stall_min={"re-join stall": 2, "redo": 1})
    for convention in ("interval", "poisson"):
        table = goodput(job, failure_interval_min=18, convention=convention)
        assert table["state"].is_unique
        assert table["gpu_time_share"].sum() == pytest.approx(1)


def test_counts_may_be_written_as_floats():
    job = FaultTolerance(replicas=12.0, min_replicas=1.0)
    assert (job.replicas, type(job.replicas)) == (12, int)


# --- what is refused ---


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, -math.inf, "three", None, True])
@pytest.mark.parametrize(
    "name",
    ["recovery_min", "stall_min", "rejoin_min", "global_recovery_min", "checkpoint_write_min"],
)
def test_minutes_are_numbers_from_0(name, value):
    if name == "global_recovery_min" and value is None:
        return
    with pytest.raises(WorkbenchError, match=f"{name} must be 0 or more and finite, not"):
        FaultTolerance(**{name: value})


def test_minutes_of_a_phase_are_numbers_from_0_and_phases_have_names_of_their_own():
    with pytest.raises(WorkbenchError, match=r"recovery_min\['init'\] must be 0 or more"):
        FaultTolerance(recovery_min={"init": -2})
    with pytest.raises(WorkbenchError, match="stall_min names no phase"):
        FaultTolerance(stall_min={})
    with pytest.raises(WorkbenchError, match="stall_min has a phase 'productive'"):
        FaultTolerance(stall_min={"productive": 1})


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "often"])
def test_time_between_checkpoints_is_above_0(value):
    with pytest.raises(WorkbenchError, match="checkpoint_interval_min must be above 0"):
        FaultTolerance(checkpoint_interval_min=value)


def test_writing_needs_an_interval():
    with pytest.raises(WorkbenchError, match="checkpoint_write_min needs checkpoint_interval_min"):
        FaultTolerance(checkpoint_write_min=1)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "1 or more, not 0"),
        (-3, "1 or more, not -3"),
        (1.5, "a whole number from 1, not 1.5"),
        (math.nan, "a whole number from 1, not nan"),
        (math.inf, "a whole number from 1, not inf"),
        ("many", "a whole number from 1, not 'many'"),
        (None, "a whole number from 1, not None"),
        (True, "a whole number from 1, not True"),
    ],
)
@pytest.mark.parametrize("name", ["replicas", "min_replicas"])
def test_replicas_are_whole_numbers_from_1(name, value, words):
    with pytest.raises(WorkbenchError, match=f"^{name} must be {words}$"):
        FaultTolerance(**{name: value})


def test_no_more_replicas_are_needed_than_there_are():
    with pytest.raises(WorkbenchError, match="min_replicas is 13, but there are only 12 replicas"):
        FaultTolerance(min_replicas=13)


@pytest.mark.parametrize("value", [0, -18, math.nan, math.inf, "18"])
def test_failures_come_at_a_positive_interval(value):
    if value == "18":
        value = "often"
    with pytest.raises(WorkbenchError, match="failure_interval_min must be above 0 and finite"):
        productive(PUBLISHED, "poisson", value)


def test_a_convention_is_one_of_three():
    for call in (goodput, productive_share):
        with pytest.raises(ValueError, match=r"convention must be one of .* not 'replay'"):
            call(PUBLISHED, failure_interval_min=18, convention="replay")


@pytest.mark.parametrize(
    ("job", "interval"),
    [
        (SYNCHRONOUS, 10),
        (PUBLISHED, 3),
        (replace(PUBLISHED, replicas=1000, stall_min=5), 5),
        (replace(PUBLISHED, recovery_min=11, stall_min=3, rejoin_min=1), 4),
    ],
)
def test_a_job_that_would_never_run_is_refused(job, interval):
    with pytest.raises(WorkbenchError, match="would never run; use convention='poisson'"):
        productive(job, "interval", interval)


def test_what_has_no_closed_form_is_refused():
    with pytest.raises(WorkbenchError, match="'renewal' has no closed form with replicas"):
        productive(PUBLISHED, "renewal")
    with pytest.raises(WorkbenchError, match="min_replicas=2 has no closed form"):
        productive(replace(PUBLISHED, min_replicas=2), "poisson")
