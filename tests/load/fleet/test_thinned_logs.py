"""Logs of which lines are missing, whose clock was set back, or that pass a repeated hour.

A job is computed step by step; the same job is written as every reader of steps takes it.
"""

import itertools
import json
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.load.fleet.test_job_scalars import VERSION, event, records
from workbench import analyze, load
from workbench.analyze import energy_waste
from workbench.errors import LoadError
from workbench.tables import POWER

T0 = 1_790_000_000
BERLIN = ZoneInfo("Europe/Berlin")
# The clock of Berlin shows 02:00 to 03:00 twice.
CHANGE = int(datetime(2026, 10, 25, 1, tzinfo=UTC).timestamp())


def job(*runs, step_s=2.0, pause_s=40.0):
    """Return (step, end in s, duration in s) of runs of ``range``, with a pause between two."""
    at, rows = float(T0), []
    for number, run in enumerate(runs):
        at += pause_s * (number > 0)
        for step in run:
            at += step_s
            rows.append((step, at, step_s))
    return rows


def stamp(at, zone=UTC):
    return datetime.fromtimestamp(at, zone).strftime("%Y-%m-%d %H:%M:%S.%f")


def megatron(rows, zone=UTC):
    return "".join(
        f" [{stamp(at, zone)}] iteration {step:8d}/ 9999 | elapsed time per iteration (ms): "
        f"{1e3 * took:.1f} | global batch size: 8 | lm loss: {at:.3f} |\n"
        for step, at, took in rows
    )


def table(rows, zone=UTC):
    lines = [f"{step},{stamp(at, zone)},{took}" for step, at, took in rows]
    return "\n".join(["step,time,step_time_s", *lines, ""])


def bare_table(rows, zone=UTC):
    lines = [f"{step},{stamp(at, zone)},2.0" for step, at, _ in rows]
    return "\n".join(["step,time,loss", *lines, ""])


def history(rows):
    lines = [f"{n},{step},{at},2.0" for n, (step, at, _) in enumerate(rows)]
    return "\n".join([",_step,_timestamp,train/loss", *lines, ""])


def json_lines(rows, zone=UTC):
    return "".join(
        json.dumps({"step": step, "time": stamp(at, zone), "step_time_s": took}) + "\n"
        for step, at, took in rows
    )


def events(rows, zone=UTC):
    return "".join(
        json.dumps({"event": "step", "time": stamp(at, zone), "step": step, "step_time_s": took})
        + "\n"
        for step, at, took in rows
    )


def tensorboard(rows):
    payloads = [
        event(step, at - 1_700_000_000, train__loss=2.0, **{"iteration-time": took})
        for step, at, took in rows
    ]
    return records(VERSION, *payloads)


def mlflow(rows):
    return "".join(f"{round(1e3 * at)} {took} {step}\n" for step, at, took in rows)


STATED = {"megatron.log": megatron, "steps.csv": table, "steps.jsonl": json_lines}
STATED |= {"events.jsonl": events}
LOCAL = STATED | {"bare.csv": bare_table}
TIMED = STATED | {"run/events.out.tfevents.1": tensorboard, "run/metrics/step_time_s": mlflow}
EVERY = TIMED | {"bare.csv": bare_table, "history.csv": history}


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """Write rows as a reader takes them, and load them."""

    def load_rows(name, rows, *, tz="UTC", **options):
        path = tmp_path_factory.mktemp("job") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = EVERY[name](rows, **options)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return load.job_log(path.parents[name.count("/")], tz=tz, progress=False)

    return load_rows


def lengths(log):
    return ((log.steps["end_ns"] - log.steps["start_ns"]) / 1e9).to_numpy()


def rules(log):
    return set(analyze.findings(log).findings["rule"])


def useful_share(log):
    waste = energy_waste(POWER.empty(), log.steps, log.spans).set_index("state")
    return waste["time_share"].get("useful steps", 0.0)


def goodput(rows):
    """Compute step by step which of them no later run repeats, and what they take of the run."""
    useful, lowest, last = 0.0, float("inf"), float("inf")
    for step, _, took in reversed(rows):
        # Read backwards: a number that does not fall belongs to the run before.
        if step >= last:
            lowest = min(lowest, last)
        useful += took * (step < lowest)
        last = step
    return useful / (rows[-1][1] - (rows[0][1] - rows[0][2]))


@pytest.mark.long
@given(
    name=st.sampled_from(sorted(EVERY)),
    every=st.integers(2, 25),
    count=st.integers(8, 30),
    step_s=st.sampled_from([0.25, 1.0, 2.0, 31.0]),
)
def test_a_log_of_every_kth_step_has_the_same_steps_and_findings(read, name, every, count, step_s):
    whole = job(range(1, every * count + 1), step_s=step_s)
    thinned = read(name, whole[every - 1 :: every])
    assert lengths(thinned) == pytest.approx(step_s, rel=1e-3)
    # Without a duration the first line only tells when the steps after it begin.
    first = 1 if name in TIMED else every + 1
    assert thinned.steps["step"].tolist() == list(range(first, every * count + 1))
    assert useful_share(thinned) == pytest.approx(1.0)
    assert rules(thinned) == set()


@pytest.mark.long
@given(
    name=st.sampled_from(sorted(EVERY)),
    every=st.integers(1, 10),
    last=st.integers(150, 300),
    back=st.integers(1, 100),
)
def test_a_restart_is_found_and_costs_the_same_in_a_thinned_log(read, name, every, last, back):
    whole = job(range(1, last + 1), range(last - back + 1, last + 201))
    thinned = [row for row in whole if row[0] % every == 0]
    log = read(name, thinned)
    if not any(after[0] <= before[0] for before, after in itertools.pairwise(thinned)):
        assert set(log.steps["attempt"]) == {1}
        return
    assert set(log.steps["attempt"]) == {1, 2}
    run_s = whole[-1][1] - T0
    # At most the lines beside the restart are a matter of where the log was thinned.
    assert abs(useful_share(log) - goodput(whole)) <= 3 * every * 2.0 / run_s + 0.002
    assert goodput(whole) == pytest.approx(useful_share(read(name, whole)), abs=4.1 / run_s)


@pytest.mark.long
@given(
    name=st.sampled_from(sorted(EVERY)),
    at=st.integers(1, 118),
    back_s=st.one_of(st.floats(0.5, 60), st.floats(60, 90_000)),
    every=st.integers(1, 3),
)
def test_a_clock_set_back_changes_no_count(read, name, at, back_s, every):
    # Set back by less than what lies between two lines, a clock shows no fall: that gap is shorter.
    hidden_s = back_s if back_s <= 2.0 * every else 0
    rows = job(range(1, 61), range(41, 101))
    changed = [
        (step, end - back_s * (place >= at), took) for place, (step, end, took) in enumerate(rows)
    ]
    before, after = (read(name, lines[::every]) for lines in (rows, changed))
    for log in (before, after):
        assert log.steps["attempt"].nunique() == 2
        # Where one gap between lines holds the restart, too, nothing tells how far the run came.
        slack = every - 1 if abs(at - 60) < every or hidden_s else 0
        assert abs(len(log.steps) - len(before.steps)) <= slack
        assert analyze.incident_energy(POWER.empty(), log.steps, log.spans).shape[0] <= 1
    whole_s = lengths(before).sum()
    assert lengths(after).sum() == pytest.approx(whole_s, abs=max(0.02 * whole_s, hidden_s))


@pytest.mark.parametrize("name", EVERY)
def test_a_clock_set_back_in_one_run_is_told_with_its_amount(read, name):
    rows = job(range(1, 601))
    log = read(name, [(n, at - 900 * (n >= 300), took) for n, at, took in rows])
    assert set(log.steps["attempt"]) == {1}
    assert lengths(log) == pytest.approx(2.0)
    (told,) = log.quality[log.quality["what"].str.contains("clock was set back")].itertuples()
    assert told.count == 1
    assert told.where.endswith("set back by 900 s")
    assert rules(log) == set()


@pytest.mark.parametrize("name", LOCAL)
@pytest.mark.parametrize("step_s", [30.0, 60.0, 600.0])
def test_in_the_hour_that_comes_twice_the_order_of_the_lines_decides(read, name, step_s):
    count = round(3 * 3600 / step_s)
    rows = [(n, CHANGE - 5400 + n * step_s, step_s) for n in range(1, count + 1)]
    log = read(name, rows, tz="Europe/Berlin", zone=BERLIN)
    own = read(name, rows)
    assert log.steps["end_ns"].tolist() == own.steps["end_ns"].tolist()
    assert lengths(log) == pytest.approx(step_s)


def test_an_hour_that_the_order_cannot_tell_stays_without_a_time(read):
    rows = [(n, CHANGE + 60 * n, 60.0) for n in range(1, 20)]
    with pytest.raises(LoadError, match="no step and no span of a job found"):
        read("steps.csv", rows, tz="Europe/Berlin", zone=BERLIN)


def test_a_stall_in_a_sampled_history_costs_what_it_took(read):
    at, rows = float(T0), []
    for step in range(1, 3001):
        at += 61.0 if step == 1500 else 1.0
        rows.append((step, at, 1.0))
    for lines in (rows, rows[6::13], [row for row in rows if row[0] * 7919 % 10 == 3]):
        log = read("history.csv", lines)
        (row,) = analyze.findings(log).findings.itertuples()
        assert row.rule == "outlier_steps"
        assert row.cost == pytest.approx(60.0, abs=0.5)
        assert row.time_share == pytest.approx(60 / 3060, rel=0.02)


def test_a_first_line_is_no_interval(read):
    rows = [(1, T0 + 30.0, 30.0), (10, T0 + 48.0, 4.8)]
    rows += [(n, T0 + 48.0 + 2 * (n - 10), 2.0) for n in range(20, 401, 10)]
    log = read("megatron.log", rows)
    assert log.steps["step"].tolist() == list(range(1, 401))
    assert lengths(log) == pytest.approx([30.0, *[2.0] * 399])
    assert not log.quality["what"].str.startswith("the first line of a run taken").any()


def test_durations_of_single_steps_that_spread_leave_no_gaps(read):
    spread = [0.97, 1.02, 1.05, 0.96, 1.0]
    ends = [T0 + 2.0 * n for n in range(1001)]
    rows = [(n, ends[n], 2.0 * spread[n // 10 % 5]) for n in range(10, 1001, 10)]
    log = read("steps.csv", rows)
    assert useful_share(log) > 0.995
    assert rules(log) == set()


def test_a_pause_between_lines_on_means_stays_a_pause(read):
    rows = [(n, T0 + 2.0 * n + 100.0 * (n > 200), 2.0) for n in range(10, 401, 10)]
    log = read("megatron.log", rows)
    assert lengths(log) == pytest.approx(2.0)
    assert useful_share(log) == pytest.approx(800 / 900)
    assert rules(log) == {"time_not_told"}


def test_numbers_that_leap_ahead_are_not_steps(read):
    rows = [(n + 500 * (n > 50), T0 + 2.0 * n, 2.0) for n in range(1, 101)]
    for name in ("steps.csv", "bare.csv"):
        log = read(name, rows)
        assert len(log.steps) == 100 - (name == "bare.csv")
        assert lengths(log) == pytest.approx(2.0)


def test_a_finding_on_a_doubted_log_says_the_doubt(read):
    rows = [(n, T0 + 2.0 * n + 400.0 * (n > 50), 2.0) for n in range(1, 101)]
    sure = analyze.findings(read("steps.csv", rows)).findings.iloc[0]
    # A step that begins while the one before it runs is suspicious to the loader.
    rows[10] = (11, T0 + 21.0, 2.0)
    log = read("steps.csv", rows)
    (what,) = log.quality[log.quality["finding"] == "suspicious"]["what"]
    doubted = analyze.findings(log).findings.iloc[0]
    assert what in doubted["doubt"]
    assert what not in sure["doubt"]
