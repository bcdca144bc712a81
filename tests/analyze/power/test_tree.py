"""Sums along the delivery tree, residuals and PUE: laws, coverage, and what is refused."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyze.power.power_rows import SECOND, grid, topology
from workbench import analyze
from workbench.errors import TableError, WorkbenchError
from workbench.tables import POWER_RESIDUAL, POWER_TREE, PUE

HALL = topology(
    ("hall", None, "hall", None, None),
    ("rack1", "hall", "rack", None, 900.0),
    ("rack2", "hall", "rack", None, 900.0),
    ("n1", "rack1", "node", 500.0, None),
    ("n2", "rack1", "node", 500.0, None),
    ("n3", "rack2", "node", 500.0, None),
)
levels = st.lists(st.floats(0, 1e4), min_size=4, max_size=4)


def tree_of(least_covered_share=1.0, **series):
    return analyze.power_tree(grid(**series), HALL, least_covered_share=least_covered_share)


def of(tree, entity, column="power_w"):
    return tree.loc[tree["entity"] == entity, column].tolist()


@given(levels, levels, levels)
def test_every_feed_draws_what_its_children_draw(one, two, three):
    tree = tree_of(n1=one, n2=two, n3=three)
    wide = tree.pivot_table(index="time_ns", columns="entity", values="power_w", observed=False)
    assert np.allclose(wide["rack1"], wide["n1"] + wide["n2"])
    assert np.allclose(wide["hall"], wide["rack1"] + wide["rack2"])
    assert (tree["covered_share"] == 1).all()


@given(levels, levels, levels, levels)
def test_nothing_counts_twice_where_a_rack_and_its_nodes_are_metered(rack, one, two, three):
    tree = tree_of(rack1=rack, n1=one, n2=two, n3=three)
    assert of(tree, "hall") == pytest.approx(np.add(rack, three))
    assert of(tree, "hall", "expected_count") == [2] * 4, "a meter and the node without rack"


def test_a_node_without_a_meter_is_expected_and_not_nothing():
    tree = tree_of(n1=[100] * 2, n3=[50] * 2)
    assert np.isnan(of(tree, "rack1")).all()
    assert np.isnan(of(tree, "hall")).all()
    assert of(tree, "rack2") == [50, 50]
    assert of(tree, "rack1", "covered_share") == [0.5, 0.5]
    assert of(tree, "n2", "covered_share") == [0, 0]
    known = tree_of(n1=[100] * 2, n3=[50] * 2, least_covered_share=0.5)
    assert of(known, "hall") == [150, 150]
    assert of(known, "hall", "entity_count") == [2, 2]
    assert of(known, "hall", "expected_count") == [3, 3]


def test_a_meter_that_fails_for_a_while_is_not_replaced_by_its_parts():
    tree = tree_of(rack1=[200, np.nan, 200], n1=[90] * 3, n2=[90] * 3)
    assert np.array_equal(of(tree, "rack1"), [200, np.nan, 200], equal_nan=True)


def test_the_order_of_rows_is_that_of_the_topology():
    tree = tree_of(n3=[1], n1=[1], n2=[1])
    assert tree["entity"].tolist() == HALL["entity"].tolist()
    assert list(POWER_TREE.check(tree).columns) == list(POWER_TREE.columns)


def test_a_residual_is_what_the_meter_shows_beyond_its_parts():
    residual = analyze.power_residual(tree_of(rack1=[200], n1=[90], n2=[90]))
    (row,) = POWER_RESIDUAL.check(residual).to_dict("records")
    assert (row["entity"], row["residual_w"], row["residual_ratio"]) == ("rack1", 20, 0.1)
    assert not row["is_negative"]


def test_a_negative_residual_stays_and_is_flagged():
    (row,) = analyze.power_residual(tree_of(rack1=[100], n1=[90], n2=[90])).to_dict("records")
    assert (row["residual_w"], row["is_negative"]) == (-80, True)


def test_a_meter_that_shows_just_its_parts_is_not_flagged_for_its_rounding():
    watts = np.random.default_rng(0).uniform(300, 700, (2, 99))
    tree = tree_of(rack1=np.nextafter(watts.sum(axis=0), 0), n1=watts[0], n2=watts[1])
    residual = analyze.power_residual(tree)
    assert (residual["residual_w"] < 0).any()
    assert not residual["is_negative"].any()
    same = totals(watts.sum(axis=0))
    below = analyze.pue(same.assign(power_w=np.nextafter(same["power_w"], 0)), same)
    assert not below["is_below_one"].item()


def test_a_residual_is_missing_where_a_part_is():
    (row,) = analyze.power_residual(tree_of(rack1=[200], n1=[90])).to_dict("records")
    assert np.isnan(row["residual_w"])
    assert row["covered_share"] == 0.5
    assert not row["is_negative"]
    (row,) = analyze.power_residual(tree_of(rack1=[200], n1=[90], least_covered_share=0)).to_dict(
        "records"
    )
    assert row["residual_w"] == 110, "with the node that has no meter in it"


def test_without_a_meter_above_others_there_is_no_residual():
    assert analyze.power_residual(tree_of(n1=[1, 1], n2=[1, 1])).empty


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", None), ("a", None)], "has 'a' twice"),
        ([("a", "b"), ("b", None)], "no row for 'b' above 'a'"),
        ([("a", "a")], "no row for 'a' above 'a'"),
        ([("a", "gone")], "no row for 'gone' above 'a'"),
        ([("b", None)], r"1 entities of the grid are not in the topology, e.g. \['a'\]"),
        ([], "the topology is empty"),
    ],
)
def test_what_is_no_tree_of_the_grid_is_refused(rows, message):
    wrong = topology(*((name, parent, "x", 1.0, 1.0) for name, parent in rows))
    with pytest.raises(WorkbenchError, match=message):
        analyze.power_tree(grid(a=[1]), wrong)


def test_other_tables_are_refused():
    with pytest.raises(TableError, match="'level' is missing"):
        analyze.power_tree(grid(a=[1]), HALL.drop(columns="level"))
    with pytest.raises(ValueError, match="least_covered_share is a share"):
        analyze.power_tree(grid(a=[1]), HALL, least_covered_share=2)
    with pytest.raises(TableError, match="'parts_w' is missing"):
        analyze.power_residual(grid(a=[1]))


def totals(values, start_s=0, period_s=1):
    table = pd.DataFrame({"power_w": np.array(values, dtype=float)})
    times = ((start_s + period_s * np.arange(len(values))) * SECOND).astype(np.int64)
    return table.assign(time_ns=times, entity_count=1, expected_count=1, covered_share=1.0)


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(1, 3)), min_size=2, max_size=20))
def test_pue_is_a_ratio_of_sums_and_lies_between_the_ratios_of_cells(cells):
    it = np.array([power for power, _ in cells])
    facility = it * [ratio for _, ratio in cells]
    (row,) = analyze.pue(totals(facility), totals(it)).to_dict("records")
    assert row["pue_ratio"] == pytest.approx(facility.sum() / it.sum())
    ratios = [ratio for _, ratio in cells]
    assert min(ratios) * (1 - 1e-9) <= row["pue_ratio"] <= max(ratios) * (1 + 1e-9)


def test_windows_of_pue_hold_the_energy_of_all_cells():
    facility, it = totals([12, 14, 16, 18, 20]), totals([10] * 5)
    table = PUE.check(analyze.pue(facility, it, window_s=2))
    assert table["pue_ratio"].tolist() == pytest.approx([1.3, 1.7, 2.0])
    assert table["facility_j"].sum() == 80
    assert ((table["end_ns"] - table["start_ns"]) // SECOND).tolist() == [2, 2, 1]


def test_a_cell_that_one_of_both_lacks_is_left_out_of_both():
    table = analyze.pue(totals([12, 99, 12]), totals([10, np.nan, 10]))
    (row,) = table.to_dict("records")
    assert row["pue_ratio"] == pytest.approx(1.2)
    assert row["covered_share"] == pytest.approx(2 / 3)
    later = analyze.pue(totals([12] * 4), totals([10] * 4, start_s=2))
    assert later["covered_share"].item() == pytest.approx(2 / 6)


def test_a_window_without_both_has_no_pue():
    table = analyze.pue(totals([12, 12]), totals([10, np.nan]), window_s=1)
    for column in ("facility_j", "it_j", "pue_ratio"):
        assert table[column].isna().tolist() == [False, True]
    assert table["covered_share"].tolist() == [1, 0]


def test_a_facility_that_draws_less_than_its_it_is_flagged():
    assert analyze.pue(totals([9, 9]), totals([10, 10]))["is_below_one"].item()


def test_totals_that_do_not_fit_each_other_are_refused():
    with pytest.raises(WorkbenchError, match="do not fit each other"):
        analyze.pue(totals([1, 1]), totals([1, 1], start_s=0.5))
    with pytest.raises(WorkbenchError, match="do not fit each other"):
        analyze.pue(totals([1, 1, 1], period_s=2), totals([1, 1, 1], period_s=3))
    with pytest.raises(WorkbenchError, match="PUE needs totals of two cells"):
        analyze.pue(totals([1]), totals([1]))
    with pytest.raises(ValueError, match=r"window_s is 0\.5, but one cell alone is 1 s long"):
        analyze.pue(totals([1, 1]), totals([1, 1]), window_s=0.5)
    with pytest.raises(ValueError, match=r"window_s is inf, but one cell alone is 1 s long"):
        analyze.pue(totals([1, 1]), totals([1, 1]), window_s=float("inf"))
