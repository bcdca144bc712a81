"""Training across regions: the printed clock, the engine beside the closed form, then laws."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench import analyze, datasets, load, simulate
from workbench._shared.local_training import SCHEMES
from workbench.analyze import LocalTrainingJob
from workbench.errors import WorkbenchError
from workbench.tables import (
    LOCAL_TRAINING,
    LOCAL_TRAINING_LOSSES,
    REGION_LINKS,
    REGION_WORKERS,
    Regions,
)

THREE_DIGITS = 0.005  # what rounding to three digits changes at most


def made(matrix, speeds):
    """Make regions of a matrix and lists of speeds."""
    names = [f"r{number}" for number in range(len(matrix))]
    pairs = itertools.product(enumerate(names), enumerate(names))
    links = [(a, b, float(matrix[i][j])) for (i, a), (j, b) in pairs]
    workers = [(name, speed) for name, own in zip(names, speeds, strict=True) for speed in own]
    table = pd.DataFrame(workers, columns=["region", "speed_ratio"])
    return Regions(
        REGION_LINKS.cast(pd.DataFrame(links, columns=list(REGION_LINKS.columns))),
        REGION_WORKERS.cast(table.assign(worker=range(len(table)))),
    )


@pytest.fixture(scope="module")
def examples():
    return load.regions(datasets.path("local-training") / "regions.csv")


@st.composite
def any_regions(draw, most=4):
    count = draw(st.integers(1, most))
    links = st.floats(0.05, 100)
    matrix = draw(st.lists(st.lists(links, min_size=count, max_size=count),
                           min_size=count, max_size=count))  # fmt: skip
    speeds = draw(st.lists(st.lists(st.floats(0.1, 1), min_size=1, max_size=4),
                           min_size=count, max_size=count))  # fmt: skip
    return made(matrix, speeds)


def ratios(regions, **job):
    table = analyze.local_training_rate(regions, LocalTrainingJob(**job))
    return dict(zip(table["scheme"], table["halos_ratio"], strict=True))


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("scheme", "rate", "total", "ratio"),
    [
        ("synchronous", 0.4533, 216_841, 89.7),
        ("DiLoCo", 5.228, 18_804, 7.77),
        ("DiLoCo dynamic", 7.801, 12_601, 5.21),
        ("Async-Local-SGD", 24.02, 4_092, 1.69),
        ("HALoS", 40.64, 2_419, 1.0),
    ],
)
def test_the_clock_of_the_examples(examples, scheme, rate, total, ratio):
    """Worked out by hand from the bandwidths and speeds of the authors' examples."""
    row = analyze.local_training_rate(examples).set_index("scheme").loc[scheme]
    assert row["steps_per_s"] == pytest.approx(rate, rel=5e-4)
    assert row["total_s"] == pytest.approx(total, rel=5e-4)
    assert row["halos_ratio"] == pytest.approx(ratio, rel=THREE_DIGITS)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        ("link factor", 0.25, (343, 15.7, 17.7, 2.53)),
        ("link factor", 4, (26.3, 5.79, 2.09, 1.23)),
        ("link factor", 16, (10.4, 5.30, 1.31, 1.05)),
        ("local steps", 128, (89.7, 5.79, 2.09, 1.23)),
        ("local steps", 512, (89.7, 5.30, 1.25, 1.05)),
    ],
)
def test_the_speed_up_is_no_constant(examples, parameter, value, expected):
    """With fast links and local steps by speed, nothing of a factor of seven is left."""
    table = analyze.local_training_sweep(examples, parameter, [value])
    assert table["halos_ratio"].tolist()[:4] == pytest.approx(expected, rel=THREE_DIGITS)


@pytest.mark.oracle
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_closed_form_is_the_engine_within_one_per_cent(examples, scheme):
    rates = analyze.local_training_rate(examples).set_index("scheme")
    events = simulate.local_training(examples, scheme)
    assert events["time_s"].iloc[-1] == pytest.approx(rates.loc[scheme, "total_s"], rel=0.01)


@settings(max_examples=10)
@given(any_regions(), st.sampled_from(SCHEMES[:4]))
def test_rate_of_any_regions_is_that_of_a_long_run(regions, scheme):
    """HALoS is left out: where links are very slow its pushes lag behind by whole rounds."""
    job = LocalTrainingJob(step_count=60_000, parameter_count=1_000_000)
    rates = analyze.local_training_rate(regions, job).set_index("scheme")
    events = simulate.local_training(regions, scheme, job)
    done = events["step_count"].sum() / events["time_s"].iloc[-1]
    assert done == pytest.approx(rates.loc[scheme, "steps_per_s"], rel=0.02)


@given(any_regions(), st.sampled_from(SCHEMES[3:]))
def test_updates_of_a_worker_come_at_multiples_of_its_round(regions, scheme):
    job = LocalTrainingJob(step_count=500, parameter_count=1_000_000)
    events = simulate.local_training(regions, scheme, job)
    updates = events[events["event"] == "update"]
    for _, own in updates.groupby("worker"):
        times = own["time_s"].to_numpy()
        assert times == pytest.approx(times[0] * np.arange(1, len(times) + 1))


@given(any_regions(most=5))
def test_the_ring_is_the_best_of_all_rings(regions):
    matrix = regions.matrix.to_numpy()
    count = len(matrix)
    rings = [
        min(matrix[a, b] for a, b in zip(ring, (*ring[1:], ring[0]), strict=True))
        for ring in ((0, *order) for order in itertools.permutations(range(1, count)))
    ]
    sizes = regions.workers.groupby("region").size()
    inside = [matrix[at, at] for at, name in enumerate(regions.names) if sizes[name] > 1]
    best = min([max(rings)] * (count > 1) + inside, default=np.inf)
    job = LocalTrainingJob(parameter_count=1_000_000)
    workers = len(regions.workers)
    slowest = (
        job.step_s / (regions.workers["speed_ratio"] / regions.workers["speed_ratio"].max()).min()
    )
    row = analyze.local_training_rate(regions, job).iloc[0]
    expected = slowest + 2 * (workers - 1) / workers * 0.032 / best
    assert row["longest_round_s"] == pytest.approx(expected)


@given(any_regions())
def test_shares_add_up_and_compute_is_the_rate_over_the_capacity(regions):
    table = analyze.local_training_rate(regions)
    assert (table[["compute_share", "transfer_share", "wait_share"]].sum(axis=1)).tolist() == (
        pytest.approx([1] * 5)
    )
    speed = regions.workers["speed_ratio"] / regions.workers["speed_ratio"].max()
    capacity = speed.sum() / LocalTrainingJob().step_s
    assert table["compute_share"].tolist() == pytest.approx(
        (table["steps_per_s"] / capacity).tolist()
    )


@given(any_regions(), st.floats(1, 100))
def test_faster_links_never_slow_anybody(regions, factor):
    before = analyze.local_training_rate(regions)["steps_per_s"]
    scaled = analyze.scaled_regions(regions, link_factor=factor)
    assert (analyze.local_training_rate(scaled)["steps_per_s"] >= before * (1 - 1e-12)).all()


@given(any_regions(), st.integers(2, 8))
def test_fewer_exchanges_are_worth_as_much_faster_links(regions, times):
    """Exact for DiLoCo between regions of one worker, whose ring has links between regions only."""
    single = Regions(regions.links, regions.workers.drop_duplicates("region").assign(
        worker=lambda table: np.arange(len(table), dtype="int32")))  # fmt: skip
    faster = analyze.scaled_regions(single, link_factor=times)
    rarer = LocalTrainingJob(local_steps=32 * times)
    rate = analyze.local_training_rate(faster)["steps_per_s"][1]
    assert analyze.local_training_rate(single, rarer)["steps_per_s"][1] == pytest.approx(rate)


def test_equal_workers_without_transfers_all_have_one_rate():
    free = made(np.full((3, 3), np.inf), [[1, 1], [1], [1, 1, 1]])
    rates = analyze.local_training_rate(free)["steps_per_s"]
    assert rates.tolist() == pytest.approx([6 / LocalTrainingJob().step_s] * 5)


def test_a_slow_direction_counts_where_models_travel_in_it():
    speeds = [[1], [1]]
    slow_in, slow_out = made([[9, 9], [0.1, 9]], speeds), made([[9, 0.1], [9, 9]], speeds)
    # Reading and sending back use both directions once, whichever is the slow one.
    assert ratios(slow_in) == pytest.approx(ratios(slow_out))
    both = made([[9, 0.1], [0.1, 9]], speeds)
    assert ratios(both)["Async-Local-SGD"] > 1.09 * ratios(slow_in)["Async-Local-SGD"]


def test_the_place_of_the_server_matters_to_the_asynchronous_scheme_alone(examples):
    first, last = ratios(examples), ratios(examples, server_region="region 3")
    assert last["Async-Local-SGD"] > 1.2 * first["Async-Local-SGD"]
    assert {**last, "Async-Local-SGD": 0} == {**first, "Async-Local-SGD": 0}


def changed_rate(regions, factor, job):
    regions = analyze.scaled_regions(regions, link_factor=factor)
    return analyze.local_training_rate(regions, LocalTrainingJob(**job))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"link_factor": 0}, "link_factor must be above 0"),
        ({"matrix": [[1, 0], [1, 1]]}, "a bandwidth that is missing or 0; load.regions says where"),
        ({"speeds": [[1], [0]]}, "a worker of speed 0"),
        ({"speeds": [[], []]}, "no workers"),
        ({"matrix": np.ones((13, 13)), "speeds": [[1]] * 13}, "13 regions; at most 12"),
        ({"job": {"server_region": "mars"}}, r"server_region must be one of \['r0', 'r1'\]"),
        ({"job": {"local_steps": 0}}, "local_steps must be 1 or more"),
        ({"job": {"merge_weight_share": 2}}, "merge_weight_share must be 0 or more and at most 1"),
    ],
)
def test_what_has_no_clock_is_refused(change, message):
    regions = made(change.get("matrix", np.ones((2, 2))), change.get("speeds", [[1], [1]]))
    with pytest.raises(WorkbenchError, match=message):
        changed_rate(regions, change.get("link_factor", 1), change.get("job", {}))


def test_workers_of_a_region_without_links_and_unknown_inputs_are_refused(examples):
    astray = replace(examples, workers=examples.workers.assign(region="mars"))
    with pytest.raises(WorkbenchError, match=r"workers in regions without links: \['mars'\]"):
        analyze.local_training_rate(astray)
    with pytest.raises(
        WorkbenchError, match=r"parameter must be one of .*'local steps'\), not 'speed'"
    ):
        analyze.local_training_sweep(examples, "speed", [1])


# -- losses on a clock ------------------------------------------------------------------------


def losses(runs, *, staleness_count=0.0):
    """Make losses of a dictionary: scheme and seed to steps and losses."""
    frames = [
        pd.DataFrame({"scheme": scheme, "seed": seed, "step_count": steps, "loss": values})
        for (scheme, seed), (steps, values) in runs.items()
    ]
    table = pd.concat(frames).assign(staleness_count=staleness_count, model="made up")
    return LOCAL_TRAINING_LOSSES.check(LOCAL_TRAINING_LOSSES.cast(table.reset_index(drop=True)))


def curves(runs):
    """Make curves of a dictionary: scheme and seed to steps, times and losses."""
    frames = [
        pd.DataFrame({"scheme": scheme, "seed": seed, "step_count": a, "time_s": b, "loss": c})
        for (scheme, seed), (a, b, c) in runs.items()
    ]
    table = pd.concat(frames, ignore_index=True).assign(model="made up", doubt="")
    return LOCAL_TRAINING.check(LOCAL_TRAINING.cast(table))


def test_losses_get_the_time_at_which_the_global_model_holds_the_steps(examples):
    events = simulate.local_training(examples, "DiLoCo", LocalTrainingJob(step_count=2_048))
    table = analyze.local_training(losses({("DiLoCo", 0): ([0, 512, 2_048], [4, 3, 2])}), events)
    assert table["time_s"].tolist() == pytest.approx([0, 97.9365, 4 * 97.9365], rel=1e-5)
    assert table["doubt"].tolist() == [""] * 3


def test_halos_counts_what_was_pushed_and_not_what_regions_did(examples):
    job = LocalTrainingJob(step_count=4_000)
    events = simulate.local_training(examples, "HALoS", job)
    runs = losses({("HALoS", 0): ([0, 4_000], [4, 3])}, staleness_count=3.0)
    table = analyze.local_training(runs, events)
    pushes = events[events["event"] == "push"]
    assert pushes["step_count"].sum() >= 4_000
    assert table["time_s"].iloc[-1] <= pushes["time_s"].iloc[-1]
    assert table["time_s"].iloc[-1] > pushes["time_s"].iloc[-2]


def test_another_staleness_puts_the_loss_in_doubt(examples):
    job = LocalTrainingJob(step_count=2_000)
    events = simulate.local_training(examples, "Async-Local-SGD", job)
    runs = losses({("Async-Local-SGD", 0): ([0, 2_000], [4, 3])}, staleness_count=5.0)
    doubt = analyze.local_training(runs, events)["doubt"]
    assert doubt.str.contains("trained at a mean staleness of 5.0, here it is 1[345]").all()


@pytest.mark.parametrize("step_count", [0, 1_000])
def test_losses_beyond_the_events_are_refused(examples, step_count):
    events = simulate.local_training(examples, "DiLoCo", LocalTrainingJob(step_count=1_024))
    events = events[: 2 * 16] if step_count else events[:0]
    held = f"the events hold {step_count and 1_024:,} local steps, the losses 5,000"
    with pytest.raises(WorkbenchError, match=held):
        analyze.local_training(losses({("DiLoCo", 0): ([0, 5_000], [4, 3])}), events)


def test_a_ratio_of_times_is_a_ratio_of_clocks_times_a_ratio_of_steps():
    made_up = curves({
        ("HALoS", 0): ([0, 100, 200], [0, 10, 20], [4, 3, 2]),
        # Three times the time per step, and half the steps to the same loss.
        ("DiLoCo", 0): ([0, 50, 100], [0, 15, 30], [4, 3, 2]),
    })  # fmt: skip
    table = analyze.time_to_loss(made_up, [3.5, 2.0]).set_index(["scheme", "loss"])
    for level in (3.5, 2.0):
        row = table.loc[("DiLoCo", level)]
        assert row[["time_ratio", "step_ratio", "clock_ratio"]].tolist() == [1.5, 0.5, 3.0]
    assert table.loc[("HALoS", 3.5), "time_s"] == 5


def test_intervals_are_those_of_the_seeds_and_a_run_that_never_arrives_leaves_none():
    made_up = curves({
        ("HALoS", 0): ([0, 100], [0, 10], [4, 2]),
        ("HALoS", 1): ([0, 100], [0, 10], [4, 2]),
        ("DiLoCo", 0): ([0, 100], [0, 40], [4, 2]),
        ("DiLoCo", 1): ([0, 100], [0, 60], [4, 3]),
    })  # fmt: skip
    table = analyze.time_to_loss(made_up, [3.0, 2.5]).set_index(["scheme", "loss"])
    row = table.loc[("DiLoCo", 3.0)]
    assert row[["low_s", "time_s", "high_s"]].tolist() == [20, 40, 60]
    assert row[["low_time_ratio", "high_time_ratio"]].tolist() == [4, 12]
    short = table.loc[("DiLoCo", 2.5)]
    assert (short["seed_count"], short["run_count"]) == (1, 2)
    assert pd.isna(short["time_s"])
    assert pd.isna(short["high_time_ratio"])


def test_noise_after_a_level_does_not_take_it_back():
    made_up = curves({("HALoS", 0): ([0, 1, 2, 3], [0, 1, 2, 3], [4, 2, 3.5, 1])})
    table = analyze.time_to_loss(made_up, [3.0, 1.5])
    assert table["time_s"].tolist() == [0.5, 2.5]


def test_the_reference_must_be_there():
    only = curves({("DiLoCo", 0): ([0, 1], [0, 1], [4, 2])})
    with pytest.raises(WorkbenchError, match="no run of 'HALoS'; choose another reference="):
        analyze.time_to_loss(only)
    assert analyze.time_to_loss(only, reference="DiLoCo")["time_ratio"].dropna().eq(1).all()


# -- staleness --------------------------------------------------------------------------------


def test_equal_workers_of_one_server_are_one_round_of_the_others_behind():
    equal = made([[100]], [[1] * 7])
    events = simulate.local_training(equal, "Async-Local-SGD", LocalTrainingJob(step_count=20_000))
    counts = events.astype({"staleness_count": float}).groupby("worker", observed=True)[
        "staleness_count"
    ]
    assert counts.median().tolist() == [6] * 7


def test_a_slow_worker_works_on_the_oldest_model(examples):
    events = simulate.local_training(examples, "Async-Local-SGD")
    counts = events.astype({"staleness_count": float}).groupby("region", observed=True)[
        "staleness_count"
    ]
    assert counts.median().idxmax() == "region 3"
    assert events["staleness_count"].astype(float).mean() == pytest.approx(15, abs=0.1)
