"""Losses of accuracy are paired by seed, with the interval of a paired test."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from claims.communication import accuracy
from workbench import datasets


@pytest.mark.oracle
def test_the_tolerance_is_half_of_the_interval_of_a_paired_t_test():
    folder = datasets.path("compressed-exchange")
    scores = pd.read_csv(folder / "accuracy.csv")
    runs = scores.pivot_table(index="seed", columns=["kind", "bound"], values="auc")
    assert len(runs) >= 8
    readings = list(accuracy(folder))
    assert len(readings) == runs.shape[1] - 1
    for reading, column in zip(readings, runs.columns.drop(("absolute", 0.0)), strict=True):
        test = stats.ttest_rel(runs["absolute", 0.0], runs[column])
        low, high = test.confidence_interval(0.95)
        assert reading.here == pytest.approx((low + high) / 2)
        assert reading.tolerance == pytest.approx((high - low) / 2)
        # A limit is missed by a loss whose interval is above 0.
        assert reading.holds() == (low <= 0)


def test_a_loss_that_seeds_hide_is_found_in_pairs(tmp_path):
    """Seeds differ by ten times what the bound costs; unpaired means would show nothing."""
    seeds = np.random.default_rng(0).normal(0.8, 0.01, 16)
    cost = 0.001 + np.random.default_rng(1).normal(0, 0.0002, 16)
    cases = {("absolute", 0.0): seeds, ("absolute", 0.1): seeds - cost}
    rows = [
        (seed, kind, bound, auc)
        for (kind, bound), runs in cases.items()
        for seed, auc in enumerate(runs)
    ]
    table = pd.DataFrame(rows, columns=["seed", "kind", "bound", "auc"])
    table.sample(frac=1, random_state=2).sort_values("bound").to_csv(tmp_path / "accuracy.csv")
    (reading,) = accuracy(tmp_path)
    assert not reading.holds()
    assert reading.here == pytest.approx(0.001, abs=2e-4)
    assert stats.ttest_ind(seeds, seeds - cost).pvalue > 0.5
