"""Packing: published imbalance first, then laws, then what is refused."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze, load
from workbench.analyze import PackingPlan
from workbench.errors import WorkbenchError
from workbench.tables import PACKING_BALANCE

K = 1024
STRATEGIES = ("plain", "greedy", "delay queues", "best fit")


def table(lengths):
    return pd.DataFrame({"length_tokens": np.asarray(lengths, dtype=np.int64)})


@pytest.fixture(scope="module")
def corpus(real_data):
    return load.document_lengths(real_data("lengths-documents") / "dist_wlbllm.json")


@pytest.fixture(scope="module")
def stream(corpus):
    return analyze.sample_documents(corpus, token_count=600 * 4 * 128 * K)


def imbalance(lengths, plan):
    balance = analyze.packing_balance(analyze.packing(lengths, plan))
    return PACKING_BALANCE.check(balance).iloc[0]


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("crossover_k", "known"), [(32, 1.385), (49, 1.29), (64, 1.24), (128, 1.135)]
)
def test_a_later_crossover_hides_imbalance(stream, crossover_k, known):
    row = imbalance(stream, PackingPlan(crossover_tokens=crossover_k * K))
    assert row["imbalance_ratio"] == pytest.approx(known, abs=0.03)


@pytest.mark.oracle
def test_attention_alone_is_far_more_uneven_and_tokens_not_at_all(stream):
    row = imbalance(stream, PackingPlan())
    assert row["attention_imbalance_ratio"] == pytest.approx(2.14, abs=0.05)
    assert row["token_imbalance_ratio"] == pytest.approx(1)


@pytest.mark.oracle
def test_more_memory_evens_the_work(stream):
    plan = PackingPlan(strategy="delay queues")
    rows = [imbalance(stream, replace(plan, memory_ratio=ratio)) for ratio in (1.25, 1.5, 2.0)]
    printed = (1.035, 1.021, 1.009)
    for row, ratio in zip(rows, printed, strict=True):
        assert row["imbalance_ratio"] == pytest.approx(ratio, abs=0.03)
    assert rows[0]["imbalance_ratio"] > rows[1]["imbalance_ratio"] > rows[2]["imbalance_ratio"]


@pytest.mark.oracle
def test_a_queue_that_overflows_is_called_so(stream):
    plan = PackingPlan(strategy="delay queues", queues_from_tokens=(4 * K,))
    packed = analyze.packing(stream, plan)
    assert not packed.queues["is_stable"].any()
    row = analyze.packing_balance(packed).iloc[0]
    assert not row["is_stable"]
    assert "the delay grows without bound" in row["note"]
    assert row["delay_batches"] > 5
    assert row["left_share"] > 0.2


documents = st.lists(st.integers(1, 900), min_size=60, max_size=160)
plans = st.builds(
    PackingPlan,
    strategy=st.sampled_from(STRATEGIES),
    context_tokens=st.integers(40, 600),
    batch_sequences=st.integers(1, 5),
    crossover_tokens=st.floats(20, 2_000),
    window_batches=st.integers(1, 3),
    queues_from_tokens=st.sampled_from([(), (50,), (50, 200)]),
    memory_ratio=st.floats(1.01, 3),
)


@given(documents, plans)
def test_every_token_is_packed_once_or_counted_as_left(lengths, plan):
    needed = plan.context_tokens * plan.batch_sequences * plan.window_batches
    if sum(lengths) < needed:
        return
    packed = analyze.packing(table(lengths), plan)
    pieces = packed.documents
    seen = np.zeros(sum(lengths), dtype=int)
    starts = np.cumsum([0, *lengths])
    for document, start, length in zip(
        pieces["document"], pieces["start_tokens"], pieces["length_tokens"], strict=True
    ):
        assert start + length <= lengths[document]
        first = starts[document] + start
        seen[first : first + length] += 1
    assert seen.max(initial=0) <= 1
    assert int((seen == 0).sum()) == packed.left_tokens


@given(documents, plans)
def test_no_micro_batch_exceeds_its_memory(lengths, plan):
    if sum(lengths) < plan.context_tokens * plan.batch_sequences * plan.window_batches:
        return
    packed = analyze.packing(table(lengths), plan)
    most = analyze.micro_batches(packed)["length_tokens"].max()
    limit = plan.memory_ratio if plan.strategy == "delay queues" else 1
    assert not most > limit * plan.context_tokens
    if plan.strategy in {"plain", "greedy"}:
        tokens = analyze.micro_batches(packed)["length_tokens"]
        assert (tokens == plan.context_tokens).all()


def test_plain_packing_is_what_a_loader_does():
    plan = PackingPlan(context_tokens=10, batch_sequences=2)
    pieces = analyze.packing(table([4, 9, 7, 25]), plan).documents
    assert pieces[["batch", "micro_batch", "document", "length_tokens"]].to_numpy().tolist() == [
        [0, 0, 0, 4], [0, 0, 1, 6], [0, 1, 1, 3], [0, 1, 2, 7],
        [1, 0, 3, 10], [1, 1, 3, 10],
    ]  # fmt: skip
    assert pieces["start_tokens"].tolist() == [0, 0, 6, 0, 0, 10]


def test_greedy_balances_squares_and_then_splits():
    plan = PackingPlan("greedy", context_tokens=10, batch_sequences=2, crossover_tokens=5)
    pieces = analyze.packing(table([6, 4, 7, 3]), plan).documents
    loads = pieces.groupby("micro_batch")["length_tokens"].agg(["sum", "max"])
    assert loads["sum"].tolist() == [10, 10]
    assert sorted(loads["max"]) == [6, 7]


def test_a_window_is_regrouped_so_that_equals_train_together():
    lengths = [10, 10, 1, *[1] * 19]
    plan = PackingPlan(
        "greedy", context_tokens=10, batch_sequences=2, window_batches=2, crossover_tokens=5
    )
    work = analyze.micro_batches(analyze.packing(table(lengths), plan))["attention_cost"].tolist()
    assert work[0] == work[1] == 4
    assert work[2] == work[3] == pytest.approx(0.4)


def test_a_long_document_waits_until_every_micro_batch_gets_one():
    plan = PackingPlan(
        "delay queues", context_tokens=10, batch_sequences=2, crossover_tokens=5,
        queues_from_tokens=(8,), memory_ratio=2,
    )  # fmt: skip
    packed = analyze.packing(table([8, *[2] * 6, 8, *[2] * 6]), plan)
    long = packed.documents[packed.documents["length_tokens"] == 8]
    assert long["batch"].tolist() == [1, 1]
    assert sorted(long["micro_batch"]) == [0, 1]
    assert sorted(long["delay_batches"]) == [0, 1]
    assert packed.queues["most_waiting_count"].tolist() == [2]


def test_best_fit_keeps_documents_whole_and_sequences_not_full():
    plan = PackingPlan("best fit", context_tokens=10, batch_sequences=2)
    packed = analyze.packing(table([6, 6, 4, 3, 9, 2, 8, 2, 7, 3]), plan)
    assert packed.cut_count == 0
    assert packed.documents["start_tokens"].eq(0).all()


def test_documents_longer_than_the_context_are_cut_and_counted():
    plan = PackingPlan("delay queues", context_tokens=10, batch_sequences=2, crossover_tokens=5,
                       queues_from_tokens=())  # fmt: skip
    packed = analyze.packing(table([25, 3, 9, 8, 10, 9]), plan)
    assert packed.cut_count == 1
    pieces = packed.documents.query("document == 0").sort_values("start_tokens")
    assert pieces[["start_tokens", "length_tokens"]].to_numpy().tolist() == [
        [0, 10], [10, 10], [20, 5],
    ]  # fmt: skip


@pytest.mark.slow
def test_the_solver_is_at_least_as_even_as_greedy(corpus):
    lengths = analyze.sample_documents(corpus, token_count=3 * 4 * 16 * K, seed=4)
    plan = PackingPlan("greedy", context_tokens=16 * K)
    greedy, solver = (
        analyze.packing(lengths, replace(plan, strategy=strategy, solver_s=20))
        for strategy in ("greedy", "solver")
    )
    worst = [
        analyze.micro_batches(packed).groupby("batch")["attention_cost"].max().sum()
        for packed in (greedy, solver)
    ]
    assert worst[1] <= worst[0] * 1.02
    note = analyze.packing_balance(solver)["note"].iloc[0]
    assert "sequences up to 1.01 of the context" in note


def test_a_solver_without_time_says_so():
    rng = np.random.default_rng(0)
    plan = PackingPlan("solver", context_tokens=1_000, batch_sequences=8, solver_s=1e-6)
    with pytest.raises(WorkbenchError, match="give it more time or more slack"):
        analyze.packing(table(rng.integers(1, 90, 600)), plan)


def test_too_few_documents_are_refused_with_what_is_needed():
    with pytest.raises(WorkbenchError, match=r"hold 30 tokens, too few to fill 40.*2 batches"):
        analyze.packing(
            table([10, 20]),
            PackingPlan("greedy", context_tokens=10, batch_sequences=2, window_batches=2),
        )


def test_every_impossible_setting_is_named_at_once():
    with pytest.raises(WorkbenchError) as error:
        PackingPlan("tetris", context_tokens=0, crossover_tokens=0, memory_ratio=1,
                    queues_from_tokens=(5, 3))  # fmt: skip
    for word in ("tetris", "context_tokens 0", "crossover_tokens 0", "memory_ratio 1", "ascending"):
        assert word in str(error.value)


def test_few_batches_are_flagged():
    row = imbalance(table([5] * 40), PackingPlan(context_tokens=10, batch_sequences=2))
    assert "batches measured" in row["note"]


def test_the_plans_of_the_paper_are_all_different():
    plans = analyze.packing_plans(PackingPlan())
    assert len({plan.label() for plan in plans}) == len(plans) == 8


def test_batches_in_which_all_documents_wait_are_left_out_and_counted():
    plan = PackingPlan("delay queues", context_tokens=10, batch_sequences=4,
                       queues_from_tokens=(9,), crossover_tokens=5)  # fmt: skip
    rows = [*[10] * 3, *[5, 5], *[9] * 100]
    balance = analyze.packing_balance(analyze.packing(table(rows), plan)).iloc[0]
    assert balance["imbalance_ratio"] == pytest.approx(1, abs=0.3)
    few = PackingPlan("delay queues", context_tokens=10, batch_sequences=4,
                      queues_from_tokens=(5, 7), crossover_tokens=5)  # fmt: skip
    lengths = [6, 6, 6, 10, 10, 10, *[6, 10] * 12]
    row = analyze.packing_balance(analyze.packing(table(lengths), few), edge_batches=0).iloc[0]
    assert "batches without documents are dropped" in row["note"]
    assert row["imbalance_ratio"] == 1


def test_documents_that_are_never_packed_are_no_gain():
    rng = np.random.default_rng(0)
    lengths = rng.integers(100, 4_000, 40_000)
    lengths[rng.choice(40_000, 15, replace=False)] = 120_000
    plan = PackingPlan("delay queues", batch_sequences=16)
    row = imbalance(table(lengths), plan)
    assert row["left_square_share"] > 0.4
    assert "of the attention was never packed" in row["note"]


def test_want_of_memory_is_called_so():
    plan = PackingPlan("delay queues", context_tokens=1_000, memory_ratio=1.15,
                       queues_from_tokens=(), crossover_tokens=500)  # fmt: skip
    row = imbalance(table([600] * 4_000), plan)
    assert not row["is_stable"]
    assert "found no memory: the delay grows without bound; raise memory_ratio" in row["note"]


def test_a_whole_context_fits_whatever_the_memory():
    plan = PackingPlan("delay queues", context_tokens=15, memory_ratio=1.05,
                       queues_from_tokens=(), crossover_tokens=5)  # fmt: skip
    packed = analyze.packing(table([15, 10] * 400), plan)
    assert packed.documents["length_tokens"].max() == 15


@pytest.mark.parametrize("count", range(1, 33))
def test_equal_documents_are_even_for_any_number_of_micro_batches(count):
    plan = PackingPlan(batch_sequences=count)
    row = imbalance(table([131_072] * 40 * count), plan)
    assert row["imbalance_ratio"] == pytest.approx(1)


def test_nothing_packed_is_said():
    plan = PackingPlan("delay queues", context_tokens=100, queues_from_tokens=(50, 80),
                       crossover_tokens=50)  # fmt: skip
    packed = analyze.packing(table([100, 60, 90, 55, 95]), plan)
    assert analyze.micro_batches(packed).empty
    with pytest.raises(WorkbenchError, match="no complete global batch"):
        analyze.packing_balance(packed)


@pytest.mark.parametrize(
    "wrong",
    [
        {"context_tokens": 100.0}, {"context_tokens": "128K"}, {"window_batches": 1.5},
        {"queues_from_tokens": 32_768}, {"queues_from_tokens": ("8K",)}, {"crossover_tokens": None},
        {"memory_ratio": float("nan")}, {"slack_ratio": 1}, {"batch_sequences": True},
    ],
    ids=str,
)  # fmt: skip
def test_settings_of_the_wrong_kind_are_named(wrong):
    (name,) = wrong
    with pytest.raises(WorkbenchError, match=name):
        PackingPlan(**wrong)


def test_queues_may_be_a_list_and_edges_not_below_0():
    assert PackingPlan(queues_from_tokens=[5, 7]) == PackingPlan(queues_from_tokens=(5, 7))
    packed = analyze.packing(table([5] * 400), PackingPlan(context_tokens=10))
    with pytest.raises(WorkbenchError, match="edge_batches must be 0 or more"):
        analyze.packing_balance(packed, edge_batches=-5)
