"""Titles of the packing figures stay true when not everything is drawn, or packed."""

import numpy as np
import pandas as pd
import pytest

from workbench import analyze, plot
from workbench.analyze import PackingPlan, Parallelism


def table(lengths):
    return pd.DataFrame({"length_tokens": np.asarray(lengths, dtype=np.int64)})


def test_the_idle_share_counts_passes_that_are_not_drawn():
    forward = 1 + np.random.default_rng(3).random(1_024) * 0.2
    costs = pd.DataFrame(
        {
            "batch": 0, "micro_batch": np.arange(1_024), "length_tokens": 10,
            "forward_cost": forward, "backward_cost": 2 * forward,
        }
    )  # fmt: skip
    shape = Parallelism(pipeline=8)
    figure = plot.pipeline(analyze.pipeline(costs, shape, batch=0))
    share = analyze.training_steps(costs, shape)["bubble_share"].iloc[0]
    assert f"{100 * share:.1f} %" in figure.layout.title.text
    assert "4,000 of 16,384 passes are drawn" in figure.layout.title.subtitle.text


def test_the_worst_micro_batch_is_found_among_those_not_drawn():
    plan = PackingPlan(context_tokens=1_000, batch_sequences=2_510, crossover_tokens=100)
    packed = analyze.packing(table([10] * 250_000 + [1_000] * 10), plan)
    figure = plot.micro_batches(analyze.micro_batches(packed))
    assert "9.65 times the mean" in figure.layout.title.text
    assert "of 2,510 micro-batches are drawn" in figure.layout.title.subtitle.text


def test_the_longest_hundredth_is_a_hundredth():
    shares = analyze.length_shares(table([1] * 9_800 + [1_000] * 199 + [2_000]))
    title = plot.length_shares(shares).layout.title.text
    assert "hold 48 % of the tokens and 51 % of the attention" in title


def test_a_plan_that_never_packs_some_documents_wins_no_title():
    rng = np.random.default_rng(0)
    lengths = rng.integers(100, 4_000, 40_000)
    lengths[rng.choice(40_000, 15, replace=False)] = 120_000
    plans = [PackingPlan(batch_sequences=16), PackingPlan("delay queues", batch_sequences=16)]
    balance = analyze.packing_balance([analyze.packing(table(lengths), each) for each in plans])
    figure = plot.packing_balance(balance)
    assert figure.layout.title.text.startswith("Plain: 1.6")
    assert "1 plan with documents that are never packed" in figure.layout.title.subtitle.text
    speed = analyze.training_speed(table(lengths), plans[1], Parallelism(data=4, chunks=2))
    assert "elay queues" not in plot.training_speed(speed).layout.title.text


def test_idle_ranks_count_in_the_mean():
    chunks = analyze.context_chunks(table([1]), ranks=64)
    assert "64.00 times the mean" in plot.context_chunks(chunks).layout.title.text


@pytest.mark.parametrize("cut", [None, 10])
def test_cut_documents_are_pieces(cut):
    shares = analyze.length_shares(table([25, 3]), cut_tokens=cut)
    assert shares["length_tokens"].tolist() == ([3, 25] if cut is None else [3, 5, 10])
