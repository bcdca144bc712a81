"""Nodes that serve recommendation models: rooflines by hand, placement, queue, capacity."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze, simulate
from workbench.analyze import InferenceNode, RecommendationModel, ServiceGoal
from workbench.analyze._imbalance.inference_capacity import _queue
from workbench.errors import WorkbenchError
from workbench.tables import EMBEDDING_TABLES

NNP = analyze.inference_card("NNP-I 1100")
IDEAL = {"compute_share": 1.0, "memory_share": 1.0, "pcie_share": 1.0, "launch_us": 0.0}


def tables(*sizes, dim=64, pooling=1.0, element_bytes=1):
    frame = pd.DataFrame({"row_count": sizes, "pooling_ratio": pooling})
    frame["table"] = [f"t{n}" for n in range(len(sizes))]
    frame = frame.assign(dim_count=dim, element_bytes=element_bytes)
    return EMBEDDING_TABLES.cast(frame)


def model(*sizes, **changed):
    options = {"bottom": (32,), "top": (16, 1), "dense": 4, "interaction": "concatenation"}
    widths = {name: changed.pop(name) for name in [*changed] if name in options}
    return RecommendationModel(tables(*sizes, **changed), **options | widths)


def busy(own, node):
    table = analyze.inference_node(own, node)
    return table.set_index("resource")["busy_ns"] / 1e9


@pytest.mark.oracle
def test_one_layer_and_one_bag_are_the_roofline_by_hand():
    own = RecommendationModel(tables(1000, dim=64, pooling=50), (), (8,), 0, "concatenation")
    node = InferenceNode(NNP, 1, 10, weights_on_chip=True, **IDEAL)
    times = busy(own, node)
    assert own.weight_count == 64 * 8
    assert times["compute"] == pytest.approx(10 * 2 * 64 * 8 / 50e12, rel=1e-12)
    assert times["memory"] == pytest.approx(10 * 50 * (64 + 8) / 67.2e9, rel=1e-12)
    assert times["PCIe"] == pytest.approx(10 * 50 * 4 / 3.94e9, rel=1e-12)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "card", "thousands"),
    [
        ("DLRM, one-hot", "NNP-I 1100", {"compute": 10_366, "memory": 19_005}),
        ("DLRM, one-hot", "L4", {"compute": 50_169, "memory": 84_842}),
        ("DLRM v2", "NNP-I 1100", {"compute": 1_555, "memory": 2_309}),
        ("DLRM v2", "MTIA v1", {"compute": 3_172, "memory": 6_047}),
    ],
)
def test_peaks_agree_with_a_separate_count(name, card, thousands):
    """To 2 %: the other count took half of the pairs of the dot product, and dot for cross."""
    ideal = InferenceNode(analyze.inference_card(card), 1, 1 << 14, weights_on_chip=True, **IDEAL)
    table = analyze.inference_node(analyze.recommendation_model(name), ideal)
    rates = table.set_index("resource")["throughput_per_s"] / 1e3
    assert rates[list(thousands)].to_dict() == pytest.approx(thousands, rel=0.02)
    assert table.loc[table["is_binding"], "resource"].tolist() == ["compute"]


@pytest.mark.long
@pytest.mark.oracle
def test_operations_of_the_shipped_network_are_those_that_torch_counts():
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    from workbench.inject.models.networks import DLRM

    rows, batch = (50, 40, 30), 8
    network = DLRM(5, rows, 16, bottom=(24,), top=(20, 12))
    with FlopCounterMode(display=False) as counter:
        network(torch.zeros(batch, 5), torch.zeros(batch, 3, dtype=torch.int64))
    own = RecommendationModel(tables(*rows, dim=16), (24, 16), (20, 12, 1), 5, "dot")
    assert batch * own.flop_count == counter.get_total_flops()
    weights = [p for n, p in network.named_parameters() if p.ndim == 2 and "tables" not in n]
    assert own.weight_count == sum(p.numel() for p in weights)
    held = sum(p.numel() for n, p in network.named_parameters() if "tables" in n)
    needed = analyze.inference_node(own, InferenceNode(NNP, 1, row_extra_bytes=0))["needed_bytes"]
    assert needed.iloc[0] == held + own.weight_count


def test_every_look_up_and_every_vector_is_somewhere():
    """Message by message: bytes in and out of each card of a small node, counted one by one."""
    own = model(10**8, 9 * 10**7, 8 * 10**7, 100, pooling=3.0)
    node = InferenceNode(NNP, 3, 300, pcie_share=1.0)
    received, sent = np.zeros(3), np.zeros(3)
    for sample in range(300):
        home = sample % 3
        received[home] += 4 * 4 + 3 * 4  # dense features; indices of the small table, on every card
        for card in range(3):  # one large table on each
            received[card] += 3 * 4
            if card != home:
                sent[card] += 64 * 2
                received[home] += 64 * 2
    expected = max(received.max(), sent.max()) / 3.94e9
    assert busy(own, node)["PCIe"] == pytest.approx(expected, rel=1e-12)


def test_a_second_card_can_lower_what_pcie_carries():
    """The naive reading, twice the lanes carry twice as much, forgets the exchange of vectors."""
    own = analyze.recommendation_model("DLRM, one-hot")
    card = replace(NNP, memory_gb=64)
    rates = [
        analyze.inference_node(own, InferenceNode(card, cards, 4096)).set_index("resource")
        for cards in (1, 2)
    ]
    rates = [table["throughput_per_s"] for table in rates]
    assert rates[1]["compute"] == pytest.approx(2 * rates[0]["compute"])
    assert rates[1]["PCIe"] < rates[0]["PCIe"]


def test_two_replicas_double_throughput_and_memory_but_not_the_latency():
    own = model(10_000, 20_000)
    one, two = (
        analyze.inference_node(own, InferenceNode(NNP, n, placement="replicated")) for n in (1, 2)
    )
    assert (two["throughput_per_s"] / one["throughput_per_s"]).tolist() == pytest.approx([2.0] * 4)
    assert (two["held_bytes"] / one["held_bytes"]).tolist() == [2.0] * 4
    assert two["latency_ns"].tolist() == one["latency_ns"].tolist()


SHARES = st.floats(0.05, 1.0)


@given(batch=st.sampled_from([1, 16, 256]), cards=st.integers(1, 6), more=st.floats(1.1, 4),
       hit=st.floats(0, 0.9), resource=st.sampled_from(["int8_tops", "memory_gb_per_s", "pcie_gb_per_s"]))  # fmt: skip
def test_more_of_a_resource_never_lowers_throughput(batch, cards, more, hit, resource):
    own = model(10**6, 2 * 10**6, 300, pooling=20.0)
    node = InferenceNode(NNP, cards, batch, hit_share=hit)
    better = replace(node, card=replace(NNP, **{resource: more * getattr(NNP, resource)}))
    before, after = (
        analyze.inference_node(own, n)["throughput_per_s"].min() for n in (node, better)
    )
    assert after >= before * (1 - 1e-12)


@given(batch=st.integers(1, 64), factor=st.integers(2, 16), cards=st.integers(1, 6))
def test_a_larger_batch_is_never_slower_per_sample(batch, factor, cards):
    own = model(10**6, 2 * 10**6, pooling=5.0)
    small, large = (
        analyze.inference_node(own, InferenceNode(NNP, cards, size))["throughput_per_s"].min()
        for size in (batch, factor * batch)
    )
    assert large >= small * (1 - 1e-12)


def test_what_binds_depends_on_the_model_and_the_efficiency():
    heavy = model(*[10**6] * 20, pooling=50.0)
    dense = model(1000, bottom=(4096, 4096), top=(4096, 4096, 1))
    bound = {
        name: analyze.inference_node(own, InferenceNode(NNP, 1, 1024, weights_on_chip=True))
        for name, own in (("heavy", heavy), ("dense", dense))
    }
    names = {
        name: table.loc[table["is_binding"], "resource"].tolist() for name, table in bound.items()
    }
    assert names == {"heavy": ["memory"], "dense": ["compute"]}


def test_a_model_that_does_not_fit_is_said_and_large_tables_are_split():
    own = analyze.recommendation_model("DLRM v2")
    assert not analyze.inference_node(own, InferenceNode(NNP, 1))["fits"].any()
    assert analyze.inference_node(own, InferenceNode(NNP, 2))["fits"].all()
    wide = model(4 * 10**8, pooling=2.0)  # 28.8 GB in one table
    table = analyze.inference_node(wide, InferenceNode(NNP, 2))
    assert table["fits"].all()
    assert table["doubt"].str.contains("rows are spread over all cards").all()


def test_the_network_of_the_host_is_shared_by_replicas():
    own = model(1000, pooling=100.0)
    rates = [
        analyze.inference_node(
            own, InferenceNode(NNP, n, placement="replicated", network_gb_per_s=6.25)
        ).set_index("resource").loc["network", "throughput_per_s"]
        for n in (1, 6)
    ]  # fmt: skip
    assert rates[0] == pytest.approx(rates[1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: analyze.inference_card("A7"), "no card 'A7'; there are"),
        (lambda: analyze.recommendation_model("GPT"), "no model 'GPT'; there are"),
        (lambda: replace(NNP, int8_tops=0), "int8_tops must be above 0"),
        (lambda: InferenceNode(NNP, cards=0), "cards must be 1 or more"),
        (lambda: InferenceNode(NNP, compute_share=1.5), "compute_share must be above 0"),
        (lambda: InferenceNode(NNP, hit_share=-1), "hit_share must be 0 or more"),
        (lambda: InferenceNode(NNP, placement="odd"), "placement must be sharded or replicated"),
        (lambda: model(10, interaction="odd"), "an interaction of"),
        (lambda: model(10, top=()), "a model needs tables, a top"),
        (lambda: ServiceGoal(0), "rate_per_s must be above 0"),
        (lambda: ServiceGoal(1, latency_share=1), "latency_share must be between"),
        (lambda: ServiceGoal(1, samples=0), "samples must be 1 or more"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(WorkbenchError, match=message):
        make()


# --- the queue ------------------------------------------------------------------------------


@pytest.mark.oracle
@pytest.mark.parametrize("use", [0.3, 0.5, 0.7])
def test_single_queries_wait_as_the_formula_of_m_d_1_says(use):
    assert _queue(1, use, 0.99).wait == pytest.approx(use / (2 * (1 - use)), rel=0.02)


@pytest.mark.oracle
@pytest.mark.parametrize(("batch", "use"), [(1, 0.8), (4, 0.6), (16, 0.9)])
def test_the_queue_agrees_with_one_that_is_simulated_query_by_query(batch, use):
    rng = np.random.default_rng(5)
    arrivals = np.cumsum(rng.exponential(1 / (use * batch), 150_000 // batch * batch))
    free, waits = 0.0, []
    for first in range(0, len(arrivals), batch):
        full = arrivals[first + batch - 1]
        start = max(free, full)
        free = start + 1
        waits.extend(start - arrivals[first : first + batch])
    queue = _queue(batch, use, 0.9)
    assert queue.latency == pytest.approx(np.quantile(waits[len(waits) // 20 :], 0.9), rel=0.06)
    assert queue.fill == pytest.approx((batch - 1) / 2 / (use * batch), rel=0.02, abs=1e-9)


def plan(rate, latency, **changed):
    own = analyze.recommendation_model("DLRM v2")
    goal = ServiceGoal(rate, latency, **changed)
    return analyze.inference_capacity(own, InferenceNode(NNP), goal)


def test_the_fewest_nodes_are_chosen_and_keep_the_latency():
    table = plan(50_000, 100, samples=100)
    ready = table[table["node_count"].notna()]
    assert (ready["latency_ns"] <= 100e6).all()
    assert ready["utilization_share"].between(0, 1, inclusive="neither").all()
    assert table.loc[table["is_best"], "node_count"].tolist() == [ready["node_count"].min()]
    single = table.iloc[0]
    assert single["wait_ns"] == pytest.approx(single["md1_wait_ns"], rel=0.25)
    assert table["md1_wait_ns"].notna().sum() == 1
    assert ready["node_count"].iloc[0] > 3 * ready["node_count"].min()


def test_one_node_less_would_be_too_busy_or_too_slow():
    table = plan(50_000, 20, samples=100).dropna(subset=["node_count"])
    limit = 20e6
    for row in table.to_dict("records"):
        fewer = row["node_count"] - 1
        if not fewer:
            continue
        use = row["utilization_share"] * row["node_count"] / fewer
        if use < 0.985:
            queue = _queue(row["batch_count"], use, 0.99)
            assert queue.latency * row["interval_ns"] + row["idle_latency_ns"] > limit * 0.98


def test_large_batches_fill_too_slowly_and_that_is_said():
    table = plan(2_000, 10).set_index("batch_count")
    assert table.loc[1, "verdict"] == "feasible"
    assert table.loc[1024, "verdict"] == "the batch fills too slowly"
    assert plan(2_000, 0.01)["verdict"].unique().tolist() == ["a batch alone takes longer"]
    table = analyze.inference_capacity(
        analyze.recommendation_model("DLRM v2"), InferenceNode(NNP, 1), ServiceGoal(10)
    )
    assert set(table["verdict"]) == {"the model does not fit into the memory of a node"}
    assert not table["is_best"].any()


def test_replicas_behind_a_single_queue_have_a_doubt():
    own, goal = model(1000), ServiceGoal(1_000)
    shared = InferenceNode(NNP, placement="replicated")
    table = analyze.inference_capacity(own, shared, goal, batches=[1])
    assert "taken as a single server" in table["doubt"].iloc[0]


def test_busy_nodes_have_a_doubt():
    table = plan(50_000, 100, samples=100)
    noisy = table["latency_error_ratio"] > 0.05
    assert table.loc[noisy.fillna(value=False), "doubt"].str.contains("uncertain by more").all()


# --- caches ---------------------------------------------------------------------------------


@pytest.mark.oracle
@pytest.mark.parametrize("exponent", [0.7, 1.05])
def test_hits_of_a_cache_are_those_of_a_simulated_one(exponent):
    popularity = simulate.row_popularity(4_000, exponent)
    sizes = [50, 400, 2_000]
    table = analyze.row_cache(popularity, cached_rows=sizes)
    each = np.repeat(popularity["lookup_share"] / popularity["row_count"], popularity["row_count"])
    stream = np.random.default_rng(2).choice(len(each), 150_000, p=each / each.sum())
    for size, expected in zip(sizes, table["lru_share"], strict=True):
        held, hits = {}, 0
        for number, row in enumerate(stream.tolist()):
            if row in held:
                hits += number >= 30_000
                del held[row]
            elif len(held) == size:
                del held[next(iter(held))]
            held[row] = None
        assert hits / 120_000 == pytest.approx(expected, abs=0.01)


@given(sizes=st.lists(st.integers(0, 6_000), min_size=2, max_size=5))
def test_a_larger_cache_serves_more_and_the_hottest_rows_serve_most(sizes):
    popularity = simulate.row_popularity(5_000, 0.9)
    table = analyze.row_cache(popularity, cached_rows=sorted(sizes))
    assert table["lru_share"].is_monotonic_increasing
    assert (table["lru_share"] <= table["hottest_share"] + 1e-9).all()
    whole = table.loc[table["cached_row_count"] >= 5_000, "lru_share"]
    assert (whole > 1 - 1e-9).all()


def test_a_cache_size_is_a_whole_number():
    with pytest.raises(WorkbenchError, match="cached_rows must be"):
        analyze.row_cache(simulate.row_popularity(100, 1), cached_rows=[-1])
