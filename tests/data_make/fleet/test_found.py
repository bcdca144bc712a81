"""The analyses find what the simulation injected: right answers known beforehand."""

import pytest

from data import make
from data.make._fleet.program import Cluster
from workbench import analyze, load


@pytest.fixture(scope="module")
def events(fleet_demo):
    return load.traces(fleet_demo / "traces", progress=False).events


@pytest.fixture(scope="module")
def truth(fleet_demo):
    return make.fleet_truth(fleet_demo).drop_duplicates("what").set_index("what")


@pytest.fixture(scope="module")
def waits(events):
    return analyze.collective_waits(events)


def test_the_slow_rank_is_blamed_for_most_of_the_waiting(waits, truth):
    blame = analyze.straggler_attribution(waits).groupby("blamed_rank")["wait_ns"].sum()
    assert blame.idxmax() == truth.loc["slow rank", "rank"]
    assert blame.max() > 0.75 * blame.sum()


def test_before_the_rank_slows_down_the_late_host_is_to_blame(waits, truth):
    slow, late = truth.loc["slow rank"], truth.loc["late host"]
    early = waits[waits["step"] < slow["first_step"]]
    blame = analyze.straggler_attribution(early).groupby("blamed_rank")["wait_ns"].sum()
    assert blame.idxmax() == late["rank"]
    expected = 7 * late["size"] * 1e6  # seven ranks wait for as long as the host is late
    assert blame.max() == pytest.approx(expected, rel=0.1)


def test_every_collective_is_matched_with_high_confidence(events):
    matched = analyze.collectives(events)
    assert set(matched["confidence"]) == {"high"}
    assert matched["is_complete"].all()
    assert (matched["rank_count"] == matched["group_size"]).all()


@pytest.mark.parametrize(
    ("operation", "bandwidth"),
    [
        ("all-gather", Cluster().job_bus_bytes_per_s),
        ("reduce-scatter", Cluster().job_bus_bytes_per_s),
        ("all-to-all", Cluster().node_bus_bytes_per_s),
    ],
)
def test_the_bus_bandwidth_is_that_of_the_simulated_network(events, operation, bandwidth):
    matched = analyze.collectives(events)
    matched = matched[matched["operation"] == operation]["bus_gb_per_s"]
    assert matched.median() == pytest.approx(bandwidth / 1e9, rel=0.03)
    assert len(matched) > 100


def test_the_late_host_shows_as_idle_time_of_its_gpu(events, truth):
    idle = analyze.idle_time(events)
    late = idle[idle["cause"] == "host late"].groupby("rank")["idle_ns"].sum()
    late_rank = truth.loc["late host", "rank"]
    usual = late.drop(late_rank).median()
    assert late.idxmax() == late_rank
    assert late.max() - usual == pytest.approx(2 * truth.loc["late host", "size"] * 1e6, rel=0.05)
    assert late.drop(late_rank).max() < 1.1 * usual


def test_the_slow_and_the_capped_gpu_compute_longest(events, truth):
    compute = analyze.time_breakdown(events).set_index("rank")["compute_ns"]
    order = compute.sort_values(ascending=False).index.tolist()
    assert order[:2] == [truth.loc["slow rank", "rank"], truth.loc["power cap", "rank"]]
    assert compute[order[2:]].max() < 1.001 * compute[order[2:]].min()


def test_copies_run_at_the_speed_of_the_simulated_bus(events):
    table = analyze.copy_bandwidth(events)
    speed = table[table["direction"] == "HtoD"]["mean_gb_per_s"].to_numpy(dtype=float)
    assert speed == pytest.approx([Cluster().host_copy_bytes_per_s / 1e9] * 8, rel=0.02)
