"""Drawn tables follow the distribution they name, and say that they are synthetic."""

import numpy as np
import pytest

from data import make
from workbench.errors import WorkbenchError


def test_the_same_seed_gives_the_same_tables_and_another_seed_others():
    first = make.embedding_tables(100, seed=3)
    assert first.equals(make.embedding_tables(100, seed=3))
    assert not first.equals(make.embedding_tables(100, seed=4))
    assert first["table"].is_unique


def test_many_tables_follow_the_distribution_in_the_notes():
    tables = make.embedding_tables(100_000)
    assert tables["row_count"].between(1_000, 40_000_000).all()
    assert np.log(tables["row_count"]).mean() == pytest.approx(np.log(1e3 * 4e7) / 2, rel=0.01)
    shares = tables["dim_count"].value_counts(normalize=True).sort_index()
    assert shares.index.tolist() == [32, 64, 96, 128, 256]
    assert shares.tolist() == pytest.approx([0.10, 0.35, 0.20, 0.30, 0.05], abs=0.005)
    assert tables["pooling_ratio"].between(1, 200).all()
    assert tables["pooling_ratio"].median() == pytest.approx(np.exp(1.3), rel=0.02)


def test_generated_tables_say_so():
    tables = make.embedding_tables(5)
    assert tables.attrs["synthetic"] is True
    assert tables.attrs["source"]


def test_no_tables_are_refused():
    with pytest.raises(WorkbenchError, match="count must be 1 or more, not 0"):
        make.embedding_tables(0)
