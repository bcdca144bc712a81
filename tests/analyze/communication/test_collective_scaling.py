"""Collectives on a network of levels: enumerated cases, laws, printed illustration, refusals."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyze.communication import enumerated
from workbench import analyze
from workbench.errors import PerformanceModelError, TableError
from workbench.tables import NETWORK_LEVELS

FLAT = [(n,) for n in (2, 3, 4, 5, 7, 8, 12, 16, 31, 64)]
NESTED = [(2, 2), (2, 3), (4, 4), (3, 5), (8, 8), (2, 4, 4), (4, 2, 8), (2, 2, 2, 2), (3, 4, 5)]
LATENCY, RATE, RATIO = (1.0, 7.0, 15.0, 30.0), (450.0, 50.0, 50.0, 50.0), (1.0, 1.0, 2.8, 2.8)
SIZE, CONTROL_US = 3_000_000, 1.5


def is_power(counts):
    return all(count & (count - 1) == 0 for count in counts)


def levels_of(counts):
    rows = zip(map(str, range(len(counts))), counts, LATENCY, RATE, RATIO, strict=False)
    return NETWORK_LEVELS.cast(pd.DataFrame(rows, columns=list(NETWORK_LEVELS.columns)))


def network_of(counts):
    per_byte = [ratio / rate / 1e9 for rate, ratio in zip(RATE, RATIO, strict=True)]
    return enumerated.Network(counts, [us / 1e6 for us in LATENCY], per_byte)


def modelled(counts, collective, algorithm, size=SIZE):
    table = analyze.collective_scaling(
        [int(np.prod(counts))], [size], collective=collective, algorithms=[algorithm],
        levels=levels_of(counts), control_us=CONTROL_US,
    )  # fmt: skip
    return table["modelled_ns"].iloc[0] / 1e9


ROUNDS = {"all-reduce": "both", "reduce-scatter": "scatter", "all-gather": "gather"}


@pytest.mark.parametrize("collective", ROUNDS)
@pytest.mark.parametrize("counts", FLAT + NESTED, ids=str)
def test_hierarchical_rings_take_as_long_as_their_messages(counts, collective):
    played = enumerated.reduce_then_gather(
        network_of(counts), SIZE, steps=enumerated.ring_steps, rounds=ROUNDS[collective]
    )
    assert modelled(counts, collective, "hierarchical ring") == pytest.approx(played, rel=1e-9)


@pytest.mark.parametrize("collective", ROUNDS)
@pytest.mark.parametrize("counts", [c for c in FLAT + NESTED if is_power(c)], ids=str)
def test_recursive_doubling_takes_as_long_as_its_messages(counts, collective):
    played = enumerated.reduce_then_gather(
        network_of(counts), SIZE, steps=enumerated.halving_steps, rounds=ROUNDS[collective]
    )
    assert modelled(counts, collective, "recursive doubling") == pytest.approx(played, rel=1e-9)


def flat_ring(counts):
    """Play one ring through all ranks of a nested network."""
    network = network_of(counts)
    order = [list(range(network.ranks))]
    for direction in ("scatter", "gather"):
        for messages in enumerated.ring_steps(order, network.ranks, direction):
            network.step([(a, b, SIZE / network.ranks) for a, b, _ in messages])
    return network.time


@pytest.mark.parametrize("counts", FLAT + NESTED, ids=str)
def test_a_flat_ring_goes_at_the_pace_of_its_slowest_link(counts):
    assert modelled(counts, "all-reduce", "ring") == pytest.approx(flat_ring(counts), rel=1e-9)


@pytest.mark.parametrize("counts", FLAT, ids=str)
def test_bruck_gathers_any_number_of_ranks_in_logarithmic_steps(counts):
    played = enumerated.bruck_gather(network_of(counts), SIZE)
    assert modelled(counts, "all-gather", "PAT") == pytest.approx(played, rel=1e-9)
    assert modelled(counts, "all-gather", "recursive doubling") == pytest.approx(played, rel=1e-9)


@pytest.mark.parametrize("counts", FLAT, ids=str)
def test_an_all_to_all_around_the_ring_forwards_every_share(counts):
    played = enumerated.ring_all_to_all(network_of(counts), SIZE)
    assert modelled(counts, "all-to-all", "ring") == pytest.approx(played, rel=1e-9)


@pytest.mark.parametrize("algorithm", ["direct", "two-phase"])
@pytest.mark.parametrize("counts", FLAT + NESTED, ids=str)
def test_an_all_to_all_takes_as_long_as_its_puts_and_control_messages(counts, algorithm):
    play = getattr(enumerated, f"{algorithm.replace('-', '_')}_all_to_all")
    played = play(network_of(counts), SIZE, CONTROL_US / 1e6)
    assert modelled(counts, "all-to-all", algorithm) == pytest.approx(played, rel=1e-9)


@pytest.mark.parametrize("counts", FLAT, ids=str)
def test_bruck_all_to_all_is_exact_for_powers_of_two_and_a_bound_otherwise(counts):
    played = enumerated.bruck_all_to_all(network_of(counts), SIZE)
    model = modelled(counts, "all-to-all", "Bruck")
    assert model >= played * (1 - 1e-9)
    if is_power(counts):
        assert model == pytest.approx(played, rel=1e-9)


@pytest.mark.parametrize("counts", FLAT, ids=str)
def test_a_tree_of_one_rank_per_node_is_as_deep_as_a_binomial_one(counts):
    nodes = (1, *counts)
    played = enumerated.binomial_tree(network_of(nodes))
    model = modelled(nodes, "all-reduce", "tree", size=0)
    assert model >= played * (1 - 1e-9)
    if is_power(counts):
        assert model == pytest.approx(played, rel=1e-9)


@pytest.mark.parametrize(
    ("size", "flat_s", "nested_s"), [(64e6, 5.905, 3.38e-3), (16e9, 7.69, 0.154)]
)
def test_a_flat_ring_is_no_candidate_at_98_304_ranks(size, flat_s, nested_s):
    """The illustration of the reference, computed before this model was."""
    table = analyze.collective_scaling([98_304], [int(size)]).set_index("algorithm")
    seconds = table["modelled_ns"] / 1e9
    assert seconds["ring"] == pytest.approx(flat_s, rel=2e-3)
    assert seconds["hierarchical ring"] == pytest.approx(nested_s, rel=2e-3)
    assert table["is_chosen"].idxmax() == seconds.idxmin() != "ring"


def test_the_levels_say_which_of_them_takes_most():
    table = analyze.collective_scaling(
        [98_304], [1, 16_000_000_000], algorithms=["hierarchical ring"]
    )
    assert table["slowest_level"].tolist() == ["site", "zone"]


COLLECTIVES = list(analyze.COLLECTIVE_ALGORITHMS)
ranks = st.integers(min_value=1, max_value=200_000)
sizes = st.integers(min_value=0, max_value=10**11)


def times(counts, size, collective, **options):
    table = analyze.collective_scaling(counts, [size], collective=collective, **options)
    return table.pivot_table(index="rank_count", columns="algorithm", values="modelled_ns")


@given(st.sampled_from(COLLECTIVES), st.tuples(ranks, ranks), sizes)
def test_time_never_falls_with_ranks(collective, counts, size):
    table = times(sorted(set(counts)), size, collective)
    assert (table.diff().dropna() >= -1e-9 * table.max()).to_numpy().all()


@given(st.sampled_from(COLLECTIVES), ranks, st.tuples(sizes, sizes))
def test_time_never_falls_with_size_and_every_part_adds_up(collective, count, two):
    table = analyze.collective_scaling([count], sorted({*two}), collective=collective)
    by_size = table.groupby("algorithm")["modelled_ns"]
    assert (by_size.last() >= by_size.first() * (1 - 1e-12)).all()
    parts = table[["latency_ns", "control_ns", "transfer_ns"]].sum(axis=1)
    assert parts.to_numpy() == pytest.approx(table["modelled_ns"].to_numpy())
    assert table.groupby("size_bytes")["is_chosen"].sum().eq(1).all()


@given(st.sampled_from(COLLECTIVES), ranks, sizes, st.floats(min_value=1, max_value=100))
def test_time_never_falls_with_latency(collective, count, size, factor):
    network = analyze.network_levels()
    slower = network.assign(latency_us=network["latency_us"] * factor)
    before, after = (times([count], size, collective, levels=each) for each in (network, slower))
    assert (after >= before * (1 - 1e-12)).to_numpy().all()


@given(st.sampled_from(COLLECTIVES), sizes)
def test_one_rank_needs_no_time(collective, size):
    assert (times([1], size, collective) == 0).to_numpy().all()


@given(st.integers(min_value=2, max_value=4096), sizes)
def test_on_one_level_a_hierarchical_ring_is_the_flat_one(count, size):
    table = times([count], size, "all-reduce", levels=levels_of((4096,)))
    assert table["hierarchical ring"].to_numpy() == pytest.approx(
        table["ring"].to_numpy(), rel=1e-12
    )


@pytest.mark.parametrize("collective", COLLECTIVES[:3])
def test_large_messages_reach_the_bandwidth_and_no_latency_is_left(collective):
    table = analyze.collective_scaling([8], [10**15], collective=collective)
    assert table["bus_gb_per_s"].to_numpy() == pytest.approx(450, rel=1e-4)
    free = analyze.network_levels().assign(latency_us=0.0)
    short = analyze.collective_scaling([4096], [0], collective=collective, levels=free)
    assert (short["modelled_ns"] == 0).all()


def test_groups_that_are_not_full_are_marked():
    table = analyze.collective_scaling([8, 9, 15, 16], [1_000], algorithms=["ring"])
    assert table["doubt"].ne("").tolist() == [False, True, False, False]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank_counts": [0]}, "rank_counts is 0; it must hold whole numbers from 1"),
        ({"rank_counts": []}, "rank_counts is empty"),
        ({"sizes_bytes": [1.5]}, "sizes_bytes is 1.5"),
        ({"collective": "gossip"}, "no algorithm of None for 'gossip'"),
        ({"algorithms": ["direct"]}, r"no algorithm of \['direct'\] for 'all-reduce'"),
        ({"algorithms": ["ring", "guess"]}, "no algorithm of"),
        ({"control_us": -1}, "control_us is -1; it must be a time from 0"),
        ({"rank_counts": [65], "levels": levels_of((8, 8))}, "the levels hold 64 ranks, not 65"),
        ({"levels": levels_of(())}, "levels needs a row"),
        ({"levels": levels_of((2, 2)).assign(gb_per_s=0.0)}, "gb_per_s above 0"),
        ({"levels": levels_of((2, 2)).assign(group_count=pd.array([None, 2], "Int64"))},
         "only the last level may leave group_count empty"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(options, message):
    given_ = {"rank_counts": [8], "sizes_bytes": [8], **options}
    with pytest.raises(PerformanceModelError, match=message):
        analyze.collective_scaling(given_.pop("rank_counts"), given_.pop("sizes_bytes"), **given_)


def test_a_network_without_a_bandwidth_is_refused():
    with pytest.raises(TableError, match="levels is not a valid 'network_levels' table"):
        analyze.collective_scaling([8], [8], levels=levels_of((8,)).drop(columns="gb_per_s"))
