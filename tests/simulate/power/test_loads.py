"""A made delivery tree: its truth is what it says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import simulate
from workbench.errors import WorkbenchError


@pytest.mark.long
@given(st.integers(0, 5), st.floats(0, 0.3))
def test_only_the_row_that_is_said_is_short_by_as_much_as_is_said(seed, share):
    loads, tree = simulate.power_loads(shortage_share=share, seed=seed)
    peak = dict(loads.groupby("entity", observed=True)["demand_w"].max())
    peak = {str(name): watts for name, watts in peak.items()}
    # Everything peaks at one instant, so peaks add up.
    for row in tree[::-1].itertuples():
        peak[row.entity] = peak[row.entity] / (1 - row.loss_share)
        if isinstance(row.parent, str):
            peak[row.parent] = peak.get(row.parent, 0) + peak[row.entity]
    over = tree.set_index("entity")["limit_w"].dropna()
    ratio = {name: limit / peak[name] for name, limit in over.items()}
    assert ratio.pop("msb1/sb1/row1") == pytest.approx(1 - share)
    assert min(ratio.values()) == pytest.approx(1.05)


def test_a_share_that_floors_do_not_allow_is_refused():
    with pytest.raises(WorkbenchError, match="shortage_share must be 0 or more and at most 0"):
        simulate.power_loads(shortage_share=0.5)
