"""Context sharding: published evenness, laws, refusals."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze, load
from workbench.analyze import PackingPlan
from workbench.errors import WorkbenchError

K = 1024
WAYS = ("per sequence", "per document", "adaptive", "hybrid")


def table(lengths):
    return pd.DataFrame({"length_tokens": np.asarray(lengths, dtype=np.int64)})


@pytest.fixture(scope="module")
def packed(real_data):
    lengths = load.document_lengths(real_data("lengths-documents") / "dist_wlbllm.json")

    def make(context):
        stream = analyze.sample_documents(lengths, token_count=1_000 * context)
        return analyze.packing(stream, PackingPlan(context_tokens=context))

    return make


@pytest.mark.oracle
@pytest.mark.parametrize(("context_k", "mean", "p95"), [(64, 1.35, 1.97), (128, 1.50, 2.3)])
def test_cutting_sequences_is_uneven_and_cutting_documents_is_not(packed, context_k, mean, p95):
    sharding = analyze.context_sharding(
        packed(context_k * K), ranks=4, tile_tokens=1, launch_tokens=0
    )
    assert sharding["per_sequence_ratio"].mean() == pytest.approx(mean, abs=0.05)
    assert sharding["per_sequence_ratio"].quantile(0.95) == pytest.approx(p95, abs=0.15)
    assert sharding["per_document_ratio"].max() <= 1.001


lengths = st.lists(st.integers(1, 3_000), min_size=1, max_size=30)


@given(lengths, st.integers(1, 9), st.sampled_from(WAYS))
def test_every_query_is_computed_once_with_all_its_keys(lengths, ranks, way):
    chunks = analyze.context_chunks(
        table(lengths), ranks=ranks, strategy=way, tile_tokens=1, launch_tokens=0
    )
    for document, length in enumerate(lengths):
        mine = chunks[chunks["document"] == document].sort_values("start_tokens")
        ends = (mine["start_tokens"] + mine["length_tokens"]).tolist()
        assert mine["start_tokens"].tolist() == [0, *ends[:-1]]
        assert ends[-1] == length
    pairs = sum(each * (each + 1) / 2 for each in lengths)
    assert chunks["pair_count"].sum() == pytest.approx(pairs)
    assert chunks["rank"].between(0, ranks - 1).all()


@given(lengths, st.integers(1, 6), st.integers(0, 600))
def test_the_table_of_all_micro_batches_agrees_with_the_chunks_of_one(lengths, ranks, launch):
    plan = PackingPlan(context_tokens=sum(lengths), batch_sequences=1, crossover_tokens=500)
    one = analyze.packing(table(lengths), plan)
    row = analyze.context_sharding(one, ranks=ranks, launch_tokens=launch, seed=3).iloc[0]
    per_document = analyze.context_chunks(
        table(lengths), ranks=ranks, strategy="per document", launch_tokens=launch
    )
    worst = per_document.groupby("rank")["pair_count"].sum().max()
    assert row["per_document_cost"] == pytest.approx(2 * worst / 500**2)
    assert row["adaptive_cost"] == min(row["per_sequence_cost"], row["per_document_cost"])
    assert row["even_cost"] <= row["per_document_cost"] * (1 + 1e-12)


def test_one_rank_has_nothing_to_share():
    one = analyze.packing(table([100, 50]), PackingPlan(context_tokens=75, batch_sequences=2))
    sharding = analyze.context_sharding(one, ranks=1, tile_tokens=1, launch_tokens=0)
    assert sharding["per_sequence_cost"].tolist() == pytest.approx(sharding["even_cost"].tolist())
    assert sharding["per_sequence_ratio"].tolist() == [1, 1]


def test_a_micro_batch_without_tokens_costs_nothing():
    plan = PackingPlan(
        "delay queues", context_tokens=10, batch_sequences=2, queues_from_tokens=(),
        crossover_tokens=5,
    )  # fmt: skip
    packed = analyze.packing(table([10, 10, 10, 10, 10, 10]), plan)
    empty = packed.documents[packed.documents["micro_batch"] == 0]
    sharding = analyze.context_sharding(
        replace(packed, documents=empty.reset_index(drop=True)), ranks=2
    )
    idle = sharding[sharding["length_tokens"] == 0]
    assert len(idle) > 0
    assert idle["adaptive_cost"].eq(0).all()
    assert idle["per_document_ratio"].eq(1).all()


@pytest.mark.parametrize("wrong", [{"ranks": 0}, {"tile_tokens": 0}, {"launch_tokens": -1}])
def test_impossible_sizes_are_refused(wrong):
    with pytest.raises(WorkbenchError, match="must be at least 1"):
        analyze.context_chunks(table([10]), **{"ranks": 2, **wrong})


def test_an_unknown_strategy_is_refused():
    with pytest.raises(ValueError, match="strategy must be one of"):
        analyze.context_chunks(table([10]), ranks=2, strategy="by mood")


@pytest.mark.parametrize("tokens", [4_095, 4_096, 4_097, 8_191, 32_767])
def test_a_remainder_does_not_fall_to_one_rank(tokens):
    chunks = analyze.context_chunks(table([tokens]), ranks=64, tile_tokens=1, launch_tokens=0)
    load = chunks.groupby("rank")["pair_count"].sum()
    assert load.max() / load.mean() < 1.04
    assert chunks["rank_count"].eq(64).all()
