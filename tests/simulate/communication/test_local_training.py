"""The clock of training across regions, exchange by exchange, against an enumeration by region."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyze.communication.test_local_training import any_regions, made
from workbench import datasets, load, simulate
from workbench.analyze import LocalTrainingJob
from workbench.errors import WorkbenchError
from workbench.tables import LOCAL_TRAINING_EVENTS


@pytest.fixture(scope="module")
def examples():
    return load.regions(datasets.path("local-training") / "regions.csv")


def enumerated(regions, job, until):
    """List pushes and merges of HALoS region by region, which needs no queue of events."""
    matrix = regions.matrix
    bits = 32 * job.parameter_count / 1e9
    pushes = []
    for name in regions.names:
        own = regions.workers[regions.workers["region"] == name]
        updates = []
        for speed in own["speed_ratio"] / regions.workers["speed_ratio"].max():
            steps = max(1, int(np.ceil(job.halos_steps * speed)))
            whole = steps * job.step_s / speed + 2 * bits / matrix.loc[name, name]
            count = int(until / whole)
            updates += [(whole * number, steps) for number in range(1, count + 1)]
        since = gathered = 0
        merge = np.inf
        for time, steps in sorted(updates):
            if time > merge:
                since, merge = 0, np.inf
            since, gathered = since + 1, gathered + steps
            if since == job.updates_per_push:
                arrival = time + bits / matrix.loc[name, regions.names[0]]
                pushes.append((arrival, name, gathered))
                gathered, merge = 0, arrival + bits / matrix.loc[regions.names[0], name]
    return sorted(pushes)


@pytest.mark.oracle
def test_pushes_of_the_examples_are_those_of_an_enumeration(examples):
    job = LocalTrainingJob()
    events = simulate.local_training(examples, "HALoS", job)
    pushes = events[events["event"] == "push"]
    expected = enumerated(examples, job, until=3_000)[: len(pushes)]
    assert pushes["time_s"].tolist() == pytest.approx([time for time, _, _ in expected])
    assert pushes["region"].tolist() == [name for _, name, _ in expected]
    assert pushes["step_count"].tolist() == [steps for _, _, steps in expected]


@pytest.mark.long
@given(any_regions(), st.integers(1, 40))
def test_pushes_of_any_regions_are_those_of_an_enumeration(regions, gathered):
    # Speeds that are not multiples of each other, so that no two events are simultaneous.
    count = len(regions.workers)
    speed = 1 / (1 + 0.37 * np.sqrt(np.arange(2, 2 + count)))
    regions = type(regions)(regions.links, regions.workers.assign(speed_ratio=speed / speed.max()))
    job = LocalTrainingJob(updates_per_push=gathered, step_count=3_000, parameter_count=3_000_000)
    events = simulate.local_training(regions, "HALoS", job)
    end = events["time_s"].iloc[-1]
    pushes = events[events["event"] == "push"]
    # The engine adds up the times of rounds, the enumeration multiplies them.
    listed = enumerated(regions, job, until=end * 1.001)
    expected = [row for row in listed if row[0] <= end * (1 + 1e-9)]
    assert pushes["time_s"].tolist() == pytest.approx([time for time, _, _ in expected])
    assert pushes["step_count"].tolist() == [steps for _, _, steps in expected]


def test_the_slowest_region_works_on_during_the_round_trip(examples):
    """The trap: most of what region 3 does lies in no push, and only merges keep it."""
    events = simulate.local_training(examples, "HALoS")
    own = events[events["region"] == "region 3"]
    pushes = int((own["event"] == "push").sum())
    updates = int((own["event"] == "update").sum())
    assert updates / pushes - LocalTrainingJob().updates_per_push == pytest.approx(43, abs=1)


def test_one_region_with_halos_is_its_server_alone():
    one = made([[5]], [[1, 0.7, 0.3]])
    job = LocalTrainingJob(halos_steps=32, step_count=5_000)
    halos = simulate.local_training(one, "HALoS", job)
    alone = simulate.local_training(one, "Async-Local-SGD", job)
    updates = halos[halos["event"] == "update"].reset_index(drop=True)
    shorter = min(len(updates), len(alone))
    pd.testing.assert_frame_equal(
        updates.drop(columns="scheme").head(shorter), alone.drop(columns="scheme").head(shorter),
        check_categorical=False,
    )  # fmt: skip


def test_regions_that_never_push_never_meet(examples):
    job = LocalTrainingJob(updates_per_push=10**6, step_count=2_000)
    events = simulate.local_training(examples, "HALoS", job)
    assert set(events["event"]) == {"update"}
    assert 4_000 <= events["step_count"].sum() < 4_100


@pytest.mark.long
@given(any_regions(), st.sampled_from(("synchronous", "DiLoCo", "Async-Local-SGD", "HALoS")))
def test_a_run_ends_when_the_global_server_holds_all_steps(regions, scheme):
    job = LocalTrainingJob(step_count=700, parameter_count=1_000_000, updates_per_push=4)
    events = simulate.local_training(regions, scheme, job)
    kind = "push" if scheme == "HALoS" else "update"
    counted = events[events["event"] == kind]
    assert counted["step_count"].sum() >= 700
    last = counted["time_s"].iloc[-1]
    assert counted.loc[counted["time_s"] < last, "step_count"].sum() < 700
    assert (events["time_s"] >= events["start_s"]).all()
    assert events["time_s"].is_monotonic_increasing


def test_nothing_goes_stale_in_rounds(examples):
    events = simulate.local_training(examples, "DiLoCo dynamic", LocalTrainingJob(step_count=999))
    assert events["staleness_count"].eq(0).all()
    assert list(events.columns) == list(LOCAL_TRAINING_EVENTS.columns)


def test_too_many_events_and_unknown_schemes_are_refused(examples):
    with pytest.raises(WorkbenchError, match="about 100,000,000 events; at most 5,000,000"):
        simulate.local_training(examples, "synchronous", LocalTrainingJob(step_count=10**8))
    with pytest.raises(WorkbenchError, match=r"scheme must be one of .*, not 'gossip'"):
        simulate.local_training(examples, "gossip")
