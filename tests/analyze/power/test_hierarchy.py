"""Limits, coincidence and headroom along the delivery tree: laws, coverage, refusals."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import linprog

from tests.analyze.power.power_rows import grid, mlperf_job, topology
from workbench import analyze
from workbench.errors import TableError, WorkbenchError
from workbench.tables import POWER_HIERARCHY

RACK = topology(
    ("row", None, "row", None, 2_000.0),
    ("rack", "row", "rack", None, 1_000.0),
    ("n1", "rack", "node", 600.0, 600.0),
    ("n2", "rack", "node", 700.0, 600.0),
)


def hierarchy(feeds, least_covered_share=1.0, **series):
    tree = analyze.power_tree(grid(**series), feeds, least_covered_share=least_covered_share)
    return analyze.power_hierarchy(tree, feeds).set_index("entity")


@st.composite
def trees(draw, *, with_gaps=False):
    """Draw a tree of up to nine things with limits, and the power of its leaves."""
    size = draw(st.integers(2, 9))
    parents = [None, *(draw(st.integers(0, at - 1)) for at in range(1, size))]
    number = st.integers(1, 1_000).map(float)
    limit = st.one_of(st.none(), number) if with_gaps else number
    rows = [
        (f"e{at}", None if parent is None else f"e{parent}", "x", None, draw(limit))
        for at, parent in enumerate(parents)
    ]
    leaves = [f"e{at}" for at in range(size) if at not in parents]
    power = {leaf: draw(st.lists(number, min_size=3, max_size=3)) for leaf in leaves}
    return topology(*rows), power


@pytest.mark.oracle
def test_nodes_of_one_job_peak_together(real_data):
    power, start_ns, end_ns = mlperf_job(real_data("power-mlperf-gpt3-512gpu"))
    names = power["entity"].unique()
    feeds = topology(
        ("hall", None, "hall", None, 500_000.0),
        *((name, "hall", "node", None, 8_000.0) for name in names),
    )
    cells = analyze.power_grid(power, period_s=2, start_ns=start_ns, end_ns=end_ns)
    table = analyze.power_hierarchy(analyze.power_tree(cells, feeds), feeds)
    hall = table.iloc[0]
    assert hall["diversity_ratio"] == pytest.approx(1.013, abs=0.002)
    assert hall["peaks_w"] == pytest.approx(464_700, rel=2e-3)
    assert hall["peak_w"] == pytest.approx(458_800, rel=2e-3)
    assert hall["load_factor_share"] == pytest.approx(438.3 / 458.8, abs=2e-3)
    assert hall["common_share"] == pytest.approx(1_704 / 1_706)
    assert table["mean_w"].iloc[1:].between(6_700, 7_000).all()


@given(trees())
def test_peaks_that_do_not_coincide_make_diversity_1_or_more(case):
    feeds, power = case
    table = hierarchy(feeds, **power)
    known = table["child_count"] > 0
    assert (table.loc[known, "diversity_ratio"] >= 1).all()
    assert (table.loc[known, "peaks_w"] >= table.loc[known, "peak_w"] * (1 - 1e-9)).all()
    assert (table["coincidence_share"].dropna() <= 1).all()
    assert (table["load_factor_share"] <= 1).all()


@given(trees(with_gaps=True))
def test_usable_headroom_is_the_most_that_fits_within_all_limits(case):
    feeds, power = case
    table = hierarchy(feeds, **power)
    parents = dict(zip(feeds["entity"], feeds["parent"], strict=True))
    leaves = list(power)
    above = {}
    for leaf in leaves:
        chain, at = [], leaf
        while isinstance(at, str):
            chain.append(at)
            at = parents[at]
        above[leaf] = chain
    limited = table["limit_w"].notna()
    room = table["headroom_w"].clip(lower=0)[limited]
    holds = np.array([[name in above[leaf] for leaf in leaves] for name in room.index])
    for name, row in table.iterrows():
        reached = np.array([name in above[leaf] for leaf in leaves], dtype=float)
        bounds = [(0, None if reach else 0) for reach in reached]
        best = linprog(
            -reached,
            A_ub=holds if len(room) else None,
            b_ub=room.to_numpy() if len(room) else None,
            bounds=bounds,
        )
        if best.status == 3:
            assert np.isnan(row["usable_headroom_w"]), "nothing limits it"
        else:
            assert row["usable_headroom_w"] == pytest.approx(-best.fun, abs=1e-6)


@given(trees())
def test_headroom_is_either_usable_or_stranded(case):
    feeds, power = case
    table = hierarchy(feeds, **power)
    assert np.allclose(
        table["usable_headroom_w"] + table["stranded_w"], table["headroom_w"].clip(lower=0)
    )
    assert (table["usable_headroom_w"] >= 0).all()


@given(trees(), st.data())
def test_a_peak_that_is_unknown_never_makes_headroom_wrong(case, data):
    feeds, power = case
    gone = data.draw(st.sampled_from(list(power)))
    some = {name: each for name, each in power.items() if name != gone}
    assume(some)
    whole = hierarchy(feeds, **power)["usable_headroom_w"]
    peaks = hierarchy(feeds, **power)["peak_w"]
    # The feeds have meters of their own, so that only the peak of one leaf is unknown.
    metered = {name: [peaks[name]] * 3 for name in feeds["entity"] if name not in power}
    before = hierarchy(feeds, **power, **metered)["usable_headroom_w"]
    after = hierarchy(feeds, **some, **metered)["usable_headroom_w"]
    known = after.notna()
    assert np.allclose(before, whole)
    assert np.allclose(after[known], before[known])
    assert np.isnan(after[gone]) or after[gone] == 0


def test_headroom_is_stranded_by_limits_above_and_below():
    table = hierarchy(RACK, n1=[500, 500], n2=[100, 100])
    assert table["headroom_w"].tolist() == [1_400, 400, 100, 500]
    assert table["usable_headroom_w"].tolist() == [400, 400, 100, 400]
    assert table["stranded_w"].tolist() == [1_000, 0, 0, 100]


def test_what_is_over_its_limit_has_no_headroom_and_strands_all_above():
    table = hierarchy(RACK, n1=[900, 900], n2=[500, 500])
    assert table.loc["rack", "headroom_w"] == -400
    assert table.loc["rack", "peak_limit_ratio"] == pytest.approx(1.4)
    assert table.loc["n2", ["usable_headroom_w", "stranded_w"]].tolist() == [0, 100]
    assert table.loc["row", "stranded_w"] == 600


def test_oversubscription_is_by_nameplate_and_by_what_was_measured():
    table = hierarchy(RACK, n1=[500, 300], n2=[200, 400])
    rack = table.loc["rack"]
    assert rack["nameplates_limit_ratio"] == pytest.approx(1.3)
    assert table.loc["row", "nameplates_limit_ratio"] == pytest.approx(0.65), "of what is below"
    p99 = np.percentile([500, 300], 99) + np.percentile([200, 400], 99)
    assert rack["p99s_limit_ratio"] == pytest.approx(p99 / 1_000)
    assert rack["diversity_ratio"] == pytest.approx(900 / 700)
    assert table.loc["n2", "peak_nameplate_ratio"] == pytest.approx(400 / 700)


def test_a_child_without_a_meter_makes_its_parents_unknown_and_says_so():
    table = hierarchy(RACK, n1=[500, 300])
    rack = table.loc["rack"]
    assert (rack["child_count"], rack["known_count"]) == (2, 1)
    assert rack["covered_share"] == 0
    assert rack[["peak_w", "headroom_w", "usable_headroom_w", "p99s_limit_ratio"]].isna().all()
    assert rack["peaks_w"] == 500, "of the children that are known"
    assert table.loc["n2", "known_count"] == 0
    partly = hierarchy(RACK, least_covered_share=0.5, n1=[500, 300]).loc["rack"]
    assert (partly["peak_w"], partly["covered_share"]) == (500, 0.5)


def test_power_of_nothing_has_no_ratios():
    table = hierarchy(RACK, n1=[0, 0], n2=[0, 0])
    assert table.loc["rack", ["diversity_ratio", "load_factor_share"]].isna().all()
    assert table.loc["rack", "headroom_w"] == 1_000


def test_equal_power_everywhere_keeps_shares_within_their_limits():
    table = hierarchy(RACK, n1=[0.1, 0.1, 0.1], n2=[0.1, 0.1, 0.1])
    POWER_HIERARCHY.check(table.reset_index())
    assert table["load_factor_share"].tolist() == pytest.approx([1] * 4)


def test_the_tree_of_another_topology_is_refused():
    cells = grid(n1=[1, 1], n2=[1, 1])
    tree = analyze.power_tree(cells, RACK)
    with pytest.raises(WorkbenchError, match="the tree is of another topology"):
        analyze.power_hierarchy(
            tree, pd.concat([RACK, topology(("n3", "rack", "node", None, 1.0))], ignore_index=True)
        )
    with pytest.raises(WorkbenchError, match="entities of the tree are not in the topology"):
        analyze.power_hierarchy(tree, RACK.iloc[:3])
    with pytest.raises(TableError, match="'parts_w' is missing"):
        analyze.power_hierarchy(cells, RACK)
