"""Explorers of communication at scale: move a control, read the screen."""

import time

import pytest

from data import make
from workbench import analyze, explore


def test_it_starts_at_64_mb_on_all_numbers_of_ranks(title):
    explorer = explore.collective_scaling()
    assert explorer.message.value == ""
    assert title(explorer).startswith("all-reduce of 64 MB, 200,000 ranks: ")
    assert "closed form" in str(explorer.figure().layout.annotations)


def test_collective_size_and_algorithms_can_be_chosen(title):
    explorer = explore.collective_scaling()
    explorer.controls["compared"].value = "NCCL"
    assert "by tree" in title(explorer)
    explorer.controls["collective"].value = "all-to-all"
    assert "by direct" in title(explorer)
    explorer.controls["size_bytes"].value = 1_000
    assert "all-to-all of 1 kB" in title(explorer)


def test_oversubscription_and_latency_of_own_levels_move_the_time():
    explorer = explore.collective_scaling(analyze.network_levels())
    times = [explorer.draw(**explorer.values()).data[0].y[-1]]
    for name, value in (("oversubscribed", 7.0), ("latency", 4.0)):
        explorer.controls[name].value = value
        times.append(explorer.draw(**explorer.values()).data[0].y[-1])
    assert times == sorted(set(times))


def test_start_up_explorer_answers_to_every_control(title):
    explorer = explore.startup_goodput()
    assert title(explorer).startswith("In doubt: Starting NCCL")
    said = {title(explorer)}
    for name, value in (("rate", 0.5), ("recovery", 20.0), ("replicas", 12.0)):
        explorer.controls[name].value = value
        assert explorer.message.value == ""
        said.add(title(explorer))
    assert len(said) == 4


@pytest.mark.parametrize("name", ["collective_scaling", "startup_goodput"])
def test_a_move_is_answered_at_once(name):
    explorer = getattr(explore, name)()
    values = explorer.values()
    best = min(_timed(explorer, values) for _ in range(3))
    assert best < 0.3


def _timed(explorer, values):
    begin = time.process_time()
    explorer.draw(**values)
    return time.process_time() - begin


def test_places_can_be_seen_by_operation_size_and_view(title):
    job = make.troubled_job({"slow link": 0.1}, seed=1, ranks=16)
    trace = job.bundle.trace
    collectives = analyze.collectives(trace.events, process_groups=trace.process_groups)
    explorer = explore.place_bandwidth(collectives, gpus_per_node=4, source="a job", synthetic=True)
    assert "node" in title(explorer)
    explorer.controls["view"].value = "slow links"
    assert "Slow: node" in title(explorer)
    explorer.controls["operation"].value = "all-to-all"
    explorer.controls["least_bytes"].value = 40_000_000_000
    assert explorer.message.value == ""
    assert "cannot be told" in title(explorer)
