"""Pictures of power: means and maxima over equally many cells."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from workbench import analyze
from workbench.tables import POWER_GRID

powers = arrays.arrays(
    np.float64,
    st.tuples(st.integers(1, 4), st.integers(1, 20)),
    elements=st.one_of(st.floats(0, 5_000), st.just(np.nan)),
)


def grid_of(power):
    rows, cells = power.shape
    flat = power.ravel()
    return pd.DataFrame(
        {
            "time_ns": np.tile(np.arange(cells) * 1_000, rows),
            "entity": pd.Categorical(np.repeat([f"gpu{n}" for n in range(rows)], cells)),
            "power_w": flat,
            "covered_share": np.where(np.isnan(flat), 0.0, 1.0),
        }
    )


@given(powers, st.integers(1, 30))
def test_every_column_is_mean_and_maximum_of_what_is_known(power, columns):
    shown = analyze.power_heatmap(grid_of(power), column_count=columns)
    width = -(-power.shape[1] // columns)
    assert shown.groupby("entity", observed=True).size().eq(-(-power.shape[1] // width)).all()
    for row in shown.itertuples():
        place = int(row.entity.removeprefix("gpu"))
        some = power[place, row.time_ns // 1_000 :][:width]
        known = some[~np.isnan(some)]
        assert row.covered_share == pytest.approx(len(known) / len(some))
        if len(known):
            assert abs(row.mean_w - known.mean()) <= 0.5 + 1e-6
            assert abs(row.max_w - known.max()) <= 0.5 + 1e-6
        else:
            assert row.mean_w is pd.NA
            assert row.max_w is pd.NA


def test_order_of_the_rows_of_the_grid_does_not_matter():
    grid = grid_of(np.arange(12.0).reshape(3, 4))
    mixed = grid.sample(frac=1, random_state=1)
    expected = analyze.power_heatmap(grid, column_count=2)
    pd.testing.assert_frame_equal(analyze.power_heatmap(mixed, column_count=2), expected)


def test_an_empty_grid_gives_an_empty_picture():
    assert analyze.power_heatmap(POWER_GRID.empty()).empty


@pytest.mark.parametrize("count", [0, -1, True, 2.5, float("nan")])
def test_a_picture_without_columns_is_refused(count):
    with pytest.raises(ValueError, match=r"column_count is .*; a picture needs"):
        analyze.power_heatmap(grid_of(np.ones((1, 2))), column_count=count)
