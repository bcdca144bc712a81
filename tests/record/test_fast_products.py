"""Timing of fast multiplication: the product is right, the runs alternate, bad sizes are named."""

import numpy as np
import pytest

from workbench import record
from workbench.errors import RecordError, WorkbenchError
from workbench.record import fast_products


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_the_fast_product_is_the_product(levels):
    rng = np.random.default_rng(levels)
    a, b = rng.uniform(-1, 1, (2, 48, 48))
    c = np.full_like(a, np.nan)
    work = [np.full((3, 48 >> level, 48 >> level), np.nan) for level in range(1, levels + 1)]
    fast_products._winograd(a, b, c, work)
    assert np.abs(c - a @ b).max() < 1e-12


def test_seven_products_and_fifteen_additions_per_level(monkeypatch):
    counts = {"matmul": 0, "add": 0, "subtract": 0}

    def counted(name):
        own = getattr(np, name)

        def run(*args, **kwargs):
            counts[name] += 1
            return own(*args, **kwargs)

        return run

    for name in counts:
        monkeypatch.setattr(np, name, counted(name))
    a, b, c = np.ones((3, 8, 8))
    fast_products._winograd(a, b, c, [np.empty((3, 4, 4))])
    assert counts["matmul"] == 7
    assert counts["add"] + counts["subtract"] == 15


def test_pairs_of_runs_come_as_a_table():
    table = record.fast_matmul_times((16, 32), levels=2, repeats=3, dtype="float64")
    assert table["n_count"].tolist() == [16] * 3 + [32] * 3
    assert table["repeat"].tolist() == [1, 2, 3] * 2
    assert (table["error_ratio"] < 1e-13).all()


def test_sizes_that_do_not_divide_and_odd_types_are_refused():
    with pytest.raises(RecordError, match=r"sizes \[30\] must divide by 4"):
        record.fast_matmul_times((30,), levels=2)
    with pytest.raises(RecordError, match="not 'int8'"):
        record.fast_matmul_times((32,), dtype="int8")
    with pytest.raises(WorkbenchError, match="repeats must be 1 or more"):
        record.fast_matmul_times((32,), repeats=0)
