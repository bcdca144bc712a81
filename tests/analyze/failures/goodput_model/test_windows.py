"""The replay against a minute-by-minute evaluator, laws of random histories, and what is refused."""

import math
from collections import defaultdict

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from workbench import simulate
from workbench.analyze import FaultTolerance, goodput_mean, goodput_replay, goodput_windows
from workbench.errors import TableError, WorkbenchError
from workbench.simulate import FailureProcess
from workbench.tables import FAILURE_TIMES, GOODPUT_RUNS, SLOW_TIMES

PHASES = {"detection_min": "detection", "other_min": "recovery"}


def strikes(*rows, **every):
    """Make failures from (run, time, replica, detection, other); replica None hits all."""
    table = pd.DataFrame(
        [
            dict(zip(("run", "time_min", "replica", *PHASES), row, strict=True)) for row in rows
        ] or {name: [] for name in ("run", "time_min", "replica", *PHASES)}
    )  # fmt: skip
    others = dict.fromkeys(
        ("wait_min", "allocation_min", "init_min", "load_min", "first_step_min"), 0.0
    )
    table = table.assign(
        **{"node": 0, "repair_min": np.nan, "is_follow_on": False, **others, **every}
    )
    return FAILURE_TIMES.cast(table.astype({"replica": "Int32"}))


def slow(*rows):
    """Make stragglers from (run, start, duration, speed)."""
    names = ["run", "start_min", "dur_min", "speed_ratio"]
    return SLOW_TIMES.cast(pd.DataFrame(list(rows), columns=names))


def states_of(table, run=0):
    """Give minutes-free shares of one run by state."""
    return table[table["run"] == run].set_index("state")["gpu_time_share"].to_dict()


# --- an evaluator without any cleverness: what happens in each minute? ---


class Naive:
    """One run, minute by minute; times and durations are whole minutes."""

    def __init__(self, rows, job, horizon, stragglers=()):
        self.job, self.horizon, self.stragglers = job, horizon, stragglers
        self.rows = sorted((row for row in rows if row[1] < horizon), key=self._place)
        self.outages = []  # start, end, minutes of its phases, rank among equals
        self.stalls, self.ends = [], []
        for row in self.rows:
            self._strike(row)

    def _place(self, row):
        """Give what orders failures: their time, then the replica, then their phases."""
        _, now, replica, *phases = row
        is_of_all = replica is None or self.job.replicas == 1
        return now, -1 if is_of_all else replica, [min(each, self.horizon - now) for each in phases]

    def _strike(self, row):
        _, now, replica, *phases = row
        self.ends.append(now + sum(phases))
        if replica is None or self.job.replicas == 1:
            self._outage(now, phases, len(self.outages))
            return
        self.stalls.append(now)
        out = [
            place
            for place, each in enumerate(self.rows[: len(self.ends)])
            if self._is_alone(each) and (self.ends[place] > now or place == len(self.ends) - 1)
        ]
        replicas = {self.rows[place][2] for place in out}
        if self.job.min_replicas > 1 and len(replicas) > self.job.replicas - self.job.min_replicas:
            total = sum(phases)
            length = self.job.outage_min
            scaled = [length * each / total for each in phases] if total else [0, length]
            self._outage(now, scaled, 1000 + len(self.outages))
            for place in out:
                self.ends[place] = min(self.ends[place], now + length)

    def _is_alone(self, row):
        return row[2] is not None and self.job.replicas > 1

    def _outage(self, now, phases, rank):
        self.outages.append((now, now + sum(phases), phases, rank))

    def shares(self):
        """Walk through all minutes, keeping books of work that is not saved yet."""
        spent, slowed, undone = defaultdict(float), 0.0, 0.0
        pending, place = 0.0, 0
        work, write = self.job.checkpoint_interval_min, self.job.checkpoint_write_min
        for minute in range(self.horizon):
            if work and any(each[0] == minute for each in self.outages):
                undone += pending
                pending, place = 0.0, 0
            state = self._stopped(minute)
            if state:
                spent[state] += 1
                continue
            up = self._up(minute)
            spent["degraded capacity"] += 1 - up
            slowed += up * (1 - self._speed(minute))
            if work and place >= work:
                spent["checkpoint"] += up
            else:
                pending += up
            place += 1
            if work and place == work + write:
                spent["productive"] += pending
                pending, place = 0.0, 0
        spent["productive"] += pending
        done = spent["productive"] + spent["checkpoint"] + undone
        # A phase of the stall bears the same name here.
        spent["lost work"] += undone
        if slowed:
            # What stragglers cost hits saved and lost work alike.
            spent["straggler"] = slowed * spent["productive"] / done
            spent["productive"] -= spent["straggler"]
        return {state: each / self.horizon for state, each in spent.items() if each > 0}

    def _stopped(self, minute):
        """Say what keeps everybody from working in this minute, if anything does."""
        middle = minute + 0.5
        active = [each for each in self.outages if each[0] < middle < each[1]]
        if active:
            # The one that ends last counts; nobody knows what is beyond the horizon.
            start, _, phases, _ = max(
                active, key=lambda each: (min(each[1], self.horizon), each[0], each[3])
            )
            age, states = middle - start, ("detection", "recovery")
            return states[0] if age < phases[0] else states[1]
        total = self.job.stall_total_min
        recent = [start for start in self.stalls if start < middle < start + total]
        if recent:
            age = middle - max(recent)
            first, second = self.job.stall_phases
            return first if age < self.job.stall_phases[first] else second
        for row, end in zip(self.rows, self.ends, strict=True):
            if self._is_alone(row) and end < middle < end + self.job.rejoin_min:
                return "re-join stall"
        return ""

    def _up(self, minute):
        middle = minute + 0.5
        out = {
            row[2]
            for row, end in zip(self.rows, self.ends, strict=True)
            if self._is_alone(row) and row[1] < middle < end
        }
        return 1 - len(out) / self.job.replicas

    def _speed(self, minute):
        middle = minute + 0.5
        active = [each for each in self.stragglers if each[1] < middle < each[1] + each[2]]
        return min((each[3] for each in active), default=1)


def halves(low, high):
    """Even numbers, so that halved phases are whole minutes too."""
    return st.integers(low, high).map(lambda each: 2 * each)


@st.composite
def histories(draw):
    """Draw a small job, a horizon, failures and stragglers of up to three runs."""
    replicas = draw(st.integers(1, 4))
    every = draw(st.one_of(st.none(), st.integers(1, 9)))
    job = FaultTolerance(
        recovery_min=draw(halves(0, 5)),
        stall_min={"timeout": draw(st.integers(0, 3)), "lost work": draw(st.integers(0, 2))},
        replicas=replicas,
        min_replicas=draw(st.integers(1, replicas)),
        rejoin_min=draw(st.integers(0, 3)),
        global_recovery_min=draw(st.one_of(st.none(), halves(0, 5))),
        checkpoint_interval_min=every,
        checkpoint_write_min=draw(st.integers(0, 3)) if every else 0,
    )
    horizon = draw(st.integers(8, 60))
    runs = draw(st.integers(1, 3))
    whom = st.one_of(st.none(), st.integers(0, replicas - 1))
    long = draw(st.sampled_from([4, 30]))
    # Both phases of a failure are equally long or one is missing: outages scale them.
    phases = st.one_of(
        st.integers(0, long).map(lambda each: (each, each)),
        st.integers(0, long).map(lambda each: (0, each)),
    )
    struck = [
        (run, draw(st.integers(-12, horizon + 3)), draw(whom), *draw(phases))
        for run in range(runs)
        for _ in range(draw(st.integers(0, 7)))
    ]
    struck += [(run, horizon + 1, None, 1, 1) for run in range(runs)]
    slowed = [
        (run, draw(st.integers(-5, horizon)), draw(st.integers(0, 20)),
         draw(st.sampled_from([0, 0.5, 0.8, 1])))
        for run in range(runs)
        for _ in range(draw(st.integers(0, 2)))
    ]  # fmt: skip
    return job, horizon, runs, struck, slowed


ONE_MOMENT = [(0, 0, None, 1, 1), (0, 0, None, 0, 2), (0, 9, None, 1, 1)]
AT_ONCE = FaultTolerance(recovery_min=0, stall_min=0, replicas=1)


@pytest.mark.oracle
@given(history=histories())
@example(history=(AT_ONCE, 8, 1, ONE_MOMENT, []))
def test_the_replay_agrees_with_a_walk_through_every_minute(history):
    job, horizon, runs, struck, slowed = history
    table = goodput_replay(
        strikes(*struck), job, horizon_min=horizon, slow_times=slow(*slowed) if slowed else None
    )
    for run in range(runs):
        mine = [row for row in struck if row[0] == run]
        expected = Naive(mine, job, horizon, [row for row in slowed if row[0] == run]).shares()
        found = {state: each for state, each in states_of(table, run).items() if each > 1e-12}
        assert found == pytest.approx({k: v for k, v in expected.items() if v > 1e-12}, abs=1e-9)
        inside = sum(0 <= row[1] < horizon for row in mine)
        assert (table.loc[table["run"] == run, "failure_count"] == inside).all()


# --- laws of random histories of any length ---

times = st.floats(-30, 130, allow_subnormal=False)
lengths = st.floats(0, 80, allow_subnormal=False)
rows = st.lists(
    st.tuples(st.integers(0, 2), times, st.sampled_from([None, 0, 1, 2]), lengths, lengths),
    min_size=1, max_size=12,
)  # fmt: skip
plans = st.builds(
    FaultTolerance,
    recovery_min=lengths,
    stall_min=st.floats(0, 20),
    replicas=st.sampled_from([1, 3, 5]),
    rejoin_min=st.floats(0, 20),
    checkpoint_interval_min=st.one_of(st.none(), st.floats(0.5, 50)),
)


@given(struck=rows, job=plans, least=st.integers(1, 3), seconds=st.floats(0, 5))
def test_shares_of_every_run_sum_to_1_and_none_is_negative(struck, job, least, seconds):
    values = {name: getattr(job, name) for name in job.__dataclass_fields__ if "phases" not in name}
    values["min_replicas"] = min(least, job.replicas)
    if job.checkpoint_interval_min:
        values["checkpoint_write_min"] = seconds
    late = slow((0, 5, 40, 0.5), (0, 20, 70, 0.9))
    table = goodput_replay(
        strikes(*struck), FaultTolerance(**values), horizon_min=100, slow_times=late
    )
    sums = table.groupby("run")["gpu_time_share"].sum()
    assert len(sums) == max(row[0] for row in struck) + 1
    assert sums.to_numpy() == pytest.approx(1, abs=1e-9)
    assert table["gpu_time_share"].min() >= 0


@given(struck=rows, job=plans, more=lengths)
def test_longer_recoveries_never_help(struck, job, more):
    def share(add):
        longer = [(*row[:4], row[4] + add) for row in struck]
        plain = FaultTolerance(stall_min=job.stall_min, replicas=job.replicas)
        table = goodput_replay(strikes(*longer), plain, horizon_min=100)
        return table.loc[table["state"] == "productive", "gpu_time_share"].to_numpy()

    assert (share(more) <= share(0) + 1e-9).all()


@pytest.mark.long
@settings(max_examples=20)
@given(struck=rows, job=plans)
def test_runs_do_not_know_of_each_other(struck, job):
    together = goodput_replay(strikes(*struck, (3, 200, 0, 1, 1)), job, horizon_min=100)
    for run in range(4):
        alone = [(0, *row[1:]) for row in struck if row[0] == run] + [(0, 200, 0, 1, 1)]
        table = goodput_replay(strikes(*alone), job, horizon_min=100)
        expected, found = states_of(table), states_of(together, run)
        for state in expected | found:
            assert found.get(state, 0) == pytest.approx(expected.get(state, 0), abs=1e-9)


@example(
    struck=[(0, 0, None, 0, 0), (0, 0, None, 1, 38), (0, 0, None, 0, 0), (0, 0, None, 0, 39)],
    job=FaultTolerance(),
    seed=0,
)
@given(struck=rows, job=plans, seed=st.integers(0, 9))
def test_neither_the_order_nor_the_index_of_rows_matters(struck, job, seed):
    table = strikes(*struck)
    mixed = table.sample(frac=1, random_state=seed).set_axis([5] * len(table))
    before, after = (goodput_replay(each, job, horizon_min=100) for each in (table, mixed))
    for run in before["run"].unique():
        assert states_of(before, run) == pytest.approx(states_of(after, run), abs=1e-9)


@given(struck=rows, job=plans, window=st.sampled_from([5.0, 12.5, 50.0, 100.0]))
def test_windows_add_up_to_the_run(struck, job, window):
    plain = FaultTolerance(
        stall_min=job.stall_min, replicas=job.replicas, rejoin_min=job.rejoin_min
    )
    table = goodput_windows(strikes(*struck), plain, horizon_min=100, window_min=window)
    whole = goodput_replay(strikes(*struck), plain, horizon_min=100)
    for run, part in table.groupby("run"):
        assert part["productive_share"].mean() == pytest.approx(
            states_of(whole, run)["productive"], abs=1e-9
        )


def test_books_stay_balanced_over_thousands_of_runs():
    drawn = simulate.failure_times(
        FailureProcess(failure_interval_min=60), horizon_min=77760, seed=1, runs=300, warm_up_min=9
    )
    whole = goodput_replay(drawn, FaultTolerance(), horizon_min=77760)
    last = drawn[drawn["run"] == 299].assign(run=np.int32(0))
    alone = states_of(goodput_replay(last, FaultTolerance(), horizon_min=77760))
    assert states_of(whole, 299) == pytest.approx(alone, abs=1e-9)
    windows = goodput_windows(drawn, FaultTolerance(), horizon_min=77760)
    mine = windows.loc[windows["run"] == 299, "productive_share"]
    assert mine.mean() == pytest.approx(alone["productive"], abs=1e-9)


# --- single cases worth a name ---


def test_failures_of_one_replica_that_overlap_end_with_the_outage():
    job = FaultTolerance(replicas=4, min_replicas=3, stall_min=0)
    table = goodput_replay(
        strikes((0, 0, 0, 0, 50), (0, 5, 0, 0, 60), (0, 10, 1, 0, 50)), job, horizon_min=100
    )
    assert states_of(table) == pytest.approx(
        {"productive": 0.875, "recovery": 0.1, "degraded capacity": 0.025}
    )


def test_a_restart_that_takes_no_time_still_undoes_work():
    job = FaultTolerance(
        recovery_min=0, replicas=1, checkpoint_interval_min=30, checkpoint_write_min=1
    )
    table = goodput_replay(strikes((0, 50, None, 0, 0)), job, horizon_min=100)
    assert states_of(table) == pytest.approx(
        {"productive": 0.79, "checkpoint": 0.02, "lost work": 0.19}
    )


@pytest.mark.parametrize("phase", [0, 1])
@pytest.mark.parametrize("replicas", [1, 4])
def test_a_recovery_without_end_lasts_to_the_end_of_the_run(phase, replicas):
    phases = [0.0, 0.0]
    phases[phase] = math.inf
    job = FaultTolerance(replicas=replicas, rejoin_min=1)
    table = goodput_replay(strikes((0, 60, 0, *phases), (1, 50, 0, 0, 0)), job, horizon_min=100)
    lost = {1: 0.4, 4: 0.03 + (0.4 - 0.03) / 4}[replicas]
    assert states_of(table)["productive"] == pytest.approx(1 - lost)


def test_a_failure_at_the_horizon_is_of_the_next_run():
    job = FaultTolerance(replicas=1)
    table = goodput_replay(strikes((0, 100, 0, 0, 10), (1, 0, 0, 0, 10)), job, horizon_min=100)
    assert states_of(table, 0)["productive"] == 1
    assert states_of(table, 1)["productive"] == pytest.approx(0.9)
    assert table["failure_count"].tolist() == [0, 0, 1, 1]


def test_a_failure_without_a_replica_stops_all_of_them():
    job = FaultTolerance(replicas=12)
    table = goodput_replay(strikes((0, 50, None, 0, 10)), job, horizon_min=100)
    assert states_of(table) == pytest.approx({"productive": 0.9, "recovery": 0.1})


def test_follow_on_rows_are_no_failures_of_their_own():
    table = strikes((0, 50, 0, 0, 10), (0, 50, 1, 0, 10))
    table["is_follow_on"] = [False, True]
    found = goodput_replay(table, FaultTolerance(), horizon_min=100)
    assert found["failure_count"].unique().tolist() == [1]
    assert states_of(found)["degraded capacity"] == pytest.approx(2 * 0.07 / 12)


def test_the_mean_counts_absent_states_as_0_and_gives_an_interval():
    job = FaultTolerance(replicas=1)
    runs = goodput_replay(strikes((0, 50, 0, 0, 10), (1, 500, 0, 0, 1)), job, horizon_min=100)
    mean = goodput_mean(runs).set_index("state")
    assert mean["gpu_time_share"].to_dict() == pytest.approx({"productive": 0.95, "recovery": 0.05})
    # Student's t of one degree of freedom over two runs: 12.7 x sd / sqrt(2), cut at 1.
    assert mean.loc["recovery", ["low_share", "high_share"]].tolist() == pytest.approx(
        [0, 0.05 + 12.7062 * 0.05], abs=1e-4
    )
    one = goodput_mean(runs[runs["run"] == 0])
    assert one[["low_share", "high_share"]].isna().all(axis=None)
    assert one["convention"].eq("replay").all()


# --- what is refused ---


@pytest.mark.parametrize("call", [goodput_replay, goodput_windows])
def test_a_history_needs_runs_a_horizon_and_replicas_that_exist(call):
    job, good = FaultTolerance(replicas=4), strikes((0, 50, 0, 0, 10))
    with pytest.raises(WorkbenchError, match="no failures, so it is unknown how many runs"):
        call(FAILURE_TIMES.empty(), job, horizon_min=100)
    for horizon in (0, -5, math.nan, math.inf):
        with pytest.raises(WorkbenchError, match="horizon_min must be above 0 and finite"):
            call(good, job, horizon_min=horizon)
    with pytest.raises(WorkbenchError, match="hits replica 4, but the job has 4, numbered from 0"):
        call(strikes((0, 50, 4, 0, 10)), job, horizon_min=100)
    with pytest.raises(WorkbenchError, match="no finite time_min"):
        call(strikes((0, -math.inf, 0, 0, 10)), job, horizon_min=100)
    for column, wrong in (("other_min", -1.0), ("wait_min", math.nan), ("time_min", math.nan)):
        with pytest.raises(TableError, match=f"'{column}' has 1"):
            call(good.assign(**{column: wrong}), job, horizon_min=100)


def test_windows_have_a_length_and_fit():
    good, job = strikes((0, 50, 0, 0, 10)), FaultTolerance()
    with pytest.raises(WorkbenchError, match="no window of 1440 min fits into 100 min"):
        goodput_windows(good, job, horizon_min=100)
    with pytest.raises(WorkbenchError, match="window_min must be above 0"):
        goodput_windows(good, job, horizon_min=100, window_min=0)


def test_stragglers_belong_to_runs_that_are_there():
    with pytest.raises(WorkbenchError, match="slow_times has run 7, but failures are of 1 runs"):
        goodput_replay(
            strikes((0, 50, 0, 0, 10)), FaultTolerance(), horizon_min=100,
            slow_times=slow((7, 0, 5, 0.5)),
        )  # fmt: skip
    with pytest.raises(TableError, match="'speed_ratio' has 1 values above 1"):
        goodput_replay(
            strikes((0, 50, 0, 0, 10)), FaultTolerance(), horizon_min=100,
            slow_times=slow((0, 0, 5, 1.5)),
        )  # fmt: skip


def test_too_many_checkpoints_are_refused():
    job = FaultTolerance(replicas=1, checkpoint_interval_min=1e-6)
    with pytest.raises(WorkbenchError, match=r"means .* checkpoints; replay at most 20,000,000"):
        goodput_replay(strikes((0, 50, 0, 0, 10)), job, horizon_min=100)


def test_no_run_has_no_mean():
    with pytest.raises(WorkbenchError, match="there is no run to average"):
        goodput_mean(GOODPUT_RUNS.empty())
