"""Padded against exact all-to-all, played share by share; and the speed-up a saving needs."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze
from workbench.errors import PerformanceModelError, TableError
from workbench.tables import EXPERT_LOADS


def loads_of(values, layer=0):
    frame = pd.DataFrame({"layer": layer, "expert": range(len(values)), "load_count": values})
    return EXPERT_LOADS.cast(frame)


def played(loads, slot):
    """Send every source's shares: padded to the slot, and exact; count what each rank gets."""
    ranks = len(loads)
    padded, exact = np.zeros(ranks), np.zeros(ranks)
    for _ in range(ranks):
        for receiver in range(ranks):
            padded[receiver] += slot / ranks
            exact[receiver] += loads[receiver] / ranks
    return padded, exact


some = st.lists(st.floats(min_value=0, max_value=1e6), min_size=1, max_size=24)


@given(some, st.floats(min_value=1, max_value=10))
def test_savings_are_those_of_traffic_that_is_counted_share_by_share(values, room):
    values[0] += 1.0
    slot = max(values) * room
    row = analyze.all_to_all_padding(loads_of(values), slot_count=slot).iloc[0]
    padded, exact = played(values, slot)
    assert row["saved_share"] == pytest.approx(1 - exact.sum() / padded.sum(), abs=1e-9)
    busiest = exact.argmax()
    assert row["busiest_saved_share"] == pytest.approx(
        1 - exact[busiest] / padded[busiest], abs=1e-9
    )
    assert row["busiest_saved_share"] <= row["saved_share"] + 1e-9


@pytest.mark.oracle
@pytest.mark.parametrize(("ratio", "saved"), [(1.18, 0.15), (5.0, 0.80)])
def test_printed_gains_need_an_imbalance_of_1_18_and_of_5(ratio, saved):
    values = np.full(64, (64 - ratio) / 63)
    values[7] = ratio
    row = analyze.all_to_all_padding(loads_of(values)).iloc[0]
    assert row["imbalance_ratio"] == pytest.approx(ratio)
    assert row["saved_share"] == pytest.approx(saved, abs=5e-3)


def test_traffic_is_saved_and_the_busiest_rank_still_gets_all_of_its_load():
    """Read naively, 60 % less traffic would be 60 % less time; the rank that decides saves none."""
    row = analyze.all_to_all_padding(loads_of([5.0, 1, 1, 1])).iloc[0]
    assert (row["saved_share"], row["busiest_saved_share"]) == (0.6, 0.0)
    # Only a slot beyond the largest load, as of a captured graph, costs that rank anything.
    row = analyze.all_to_all_padding(loads_of([5.0, 1, 1, 1]), slot_count=20).iloc[0]
    assert row["busiest_saved_share"] == 0.75


def test_experts_of_one_rank_even_out():
    table = analyze.all_to_all_padding(loads_of([5.0, 1, 1, 5]), rank_count=2)
    assert table["imbalance_ratio"].tolist() == [1.0]
    assert table["saved_share"].tolist() == [0.0]


def test_layers_without_load_have_no_row():
    loads = pd.concat([loads_of([0.0, 0.0]), loads_of([1.0, 3.0], layer=1)], ignore_index=True)
    assert analyze.all_to_all_padding(EXPERT_LOADS.cast(loads))["layer"].tolist() == [1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank_count": 3}, "rank_count is 3, which does not divide 4 experts"),
        ({"rank_count": 0}, "rank_count is 0"),
        ({"slot_count": 4.0}, "slot_count is 4, and a rank of layer 0 has a load of 5"),
        ({"slot_count": float("nan")}, "slot_count is nan"),
    ],
)
def test_what_makes_no_sense_is_refused(options, message):
    with pytest.raises(PerformanceModelError, match=message):
        analyze.all_to_all_padding(loads_of([5.0, 1, 1, 1]), **options)


def test_another_table_is_refused():
    with pytest.raises(TableError, match="loads is not a valid 'expert_loads' table"):
        analyze.all_to_all_padding(pd.DataFrame({"layer": [0]}))


@given(st.floats(min_value=0.0, max_value=1.0), st.floats(min_value=0.01, max_value=0.9))
def test_the_speed_up_saves_what_was_asked_or_is_missing(share, saved):
    ratio = analyze.communication_speedup([share], saved_share=saved)["speedup_ratio"].iloc[0]
    if share <= saved:
        assert pd.isna(ratio)
    else:
        assert share - share / ratio == pytest.approx(saved, rel=1e-6)


@pytest.mark.oracle
def test_twelve_percent_of_a_step_with_thirty_exposed_take_a_speed_up_of_1_67():
    table = analyze.communication_speedup([0.1, 0.3])
    assert pd.isna(table["speedup_ratio"].iloc[0])
    assert table["speedup_ratio"].iloc[1] == pytest.approx(1.667, abs=1e-3)


@pytest.mark.parametrize(("shares", "saved"), [([12], 0.1), ([-0.1], 0.1), ([0.3], 1.0)])
def test_shares_that_are_none_are_refused(shares, saved):
    with pytest.raises(PerformanceModelError, match="shares must be between 0 and 1"):
        analyze.communication_speedup(shares, saved_share=saved)
