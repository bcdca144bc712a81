"""Rows of unequal popularity: known values first, then laws, then what is refused."""

import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims.registry import published
from workbench import analyze, load, simulate
from workbench.errors import WorkbenchError
from workbench.tables import REUSE_HISTOGRAM, ROW_POPULARITY, ROW_SHARDING

PLACEMENTS = ["contiguous", "random", "round-robin", "LPT"]


@st.composite
def popularities(draw):
    rows = draw(st.lists(st.integers(1, 50), min_size=1, max_size=20))
    weights = draw(st.lists(st.integers(1, 10**6), min_size=len(rows), max_size=len(rows)))
    return popularity(rows, weights)


def popularity(rows, weights):
    shares = np.array(weights, dtype=float) / sum(weights)
    return ROW_POPULARITY.check(pd.DataFrame({"row_count": rows, "lookup_share": shares}))


def ratios(table):
    return table.set_index("placement")["max_to_mean_ratio"]


@pytest.mark.oracle
@pytest.mark.parametrize("exponent", ["0.7", "0.9", "1.05", "1.2"])
def test_reproduces_the_imbalance_of_a_million_rows(exponent):
    table = analyze.row_sharding(simulate.row_popularity(1_000_000, float(exponent)), units=256)
    measured = {**ratios(table), "bound": table["bound_ratio"].iloc[0]}
    rows = [row for row in published("sharding_rows") if row["exponent"] == exponent]
    for row in rows:
        # A random placement is one draw of many.
        near = 0.5 if row["placement"] == "random" else 0.5 * 10.0 ** -int(row["digits"])
        assert measured[row["placement"]] == pytest.approx(
            float(row["max_to_mean_ratio"]), abs=near
        ), row
    assert len(rows) == 4


@pytest.mark.oracle
def test_real_look_ups_balance_over_256_units_without_caching(real_data):
    histogram = load.reuse_histogram(real_data("dlrm-locality") / "2021" / "locality_stats.txt")
    real = analyze.row_popularity(histogram[histogram["batch"] == "fbgemm_t856_bs65536.pt"])
    measured = ratios(analyze.row_sharding(real, units=256))
    assert measured["LPT"] < 1.001
    assert measured["random"] < 1.2
    # In the order of popularity the same rows are far from balance.
    assert measured["contiguous"] > 90


def test_lpt_reaches_the_bound_when_it_places_every_row():
    table = simulate.row_popularity(100_000, 0.8)
    few, all_ = (
        analyze.row_sharding(table, units=256, lpt_rows=rows).set_index("placement").loc["LPT"]
        for rows in (20_000, 100_000)
    )
    assert few["max_to_mean_ratio"] > all_["max_to_mean_ratio"]
    assert all_["max_to_mean_ratio"] == pytest.approx(all_["bound_ratio"], rel=1e-6)


def test_a_row_per_unit_and_twice_as_popular_a_first_row_by_hand():
    table = analyze.row_sharding(popularity([1, 3], [2, 3]), units=2)
    # Shares .4 .2 .2 .2: blocks .6 .4; in turn .6 .4; largest first .4+.2, .2+.2
    assert ratios(table)[["contiguous", "round-robin", "LPT"]].tolist() == pytest.approx([1.2] * 3)
    assert table["bound_ratio"].tolist() == [1] * 4
    assert table["top_row_share"].tolist() == pytest.approx([0.4] * 4)
    cached = analyze.row_sharding(popularity([1, 3], [2, 3]), units=2, hot_rows=1)
    # .2 .2 .2 are left, mean .3; in blocks of two the first one has lost its hot row
    assert ratios(cached)[["contiguous", "LPT"]].tolist() == pytest.approx([4 / 3, 4 / 3])
    assert cached["hot_share"].tolist() == pytest.approx([0.4] * 4)
    copied = analyze.row_sharding(popularity([1, 3], [2, 3]), units=2, hot_rows=1, copies=2)
    assert ratios(copied)[["contiguous", "LPT"]].tolist() == pytest.approx([1.2, 1.2])


@given(popularities(), st.integers(1, 8), st.integers(0, 9), st.integers(0, 8))
def test_no_placement_beats_the_bound(table, units, hot, copies):
    rows = int(table["row_count"].sum())
    units = min(units, rows)
    table_ = analyze.row_sharding(
        table, units=units, hot_rows=min(hot, rows - 1), copies=min(copies, units)
    )
    ROW_SHARDING.check(table_)
    assert table_["placement"].tolist() == PLACEMENTS
    assert (table_["max_to_mean_ratio"] >= table_["bound_ratio"] - 1e-9).all()
    assert (table_["max_to_mean_ratio"] <= units + 1e-9).all()


@given(popularities(), st.integers(1, 8))
def test_classes_of_equal_rows_are_the_same_as_their_rows(table, units):
    units = min(units, int(table["row_count"].sum()))
    single = np.repeat(table["lookup_share"] / table["row_count"], table["row_count"])
    rows = pd.DataFrame({"row_count": 1, "lookup_share": single.to_numpy()})
    packed, plain = (
        ratios(analyze.row_sharding(each, units=units, hot_rows=0)).drop("random")
        for each in (table, rows)
    )
    np.testing.assert_allclose(packed, plain, rtol=1e-9)


@given(popularities(), st.integers(1, 8))
def test_several_numbers_of_hot_rows_are_the_same_as_one_by_one(table, units):
    rows = int(table["row_count"].sum())
    units, hot = min(units, rows), sorted({0, rows // 3, rows - 1})
    together = analyze.row_sharding(table, units=units, hot_rows=hot)
    together = together[together["placement"] != "random"].reset_index(drop=True)
    apart = pd.concat([analyze.row_sharding(table, units=units, hot_rows=each) for each in hot])
    apart = apart[apart["placement"] != "random"].reset_index(drop=True)
    pd.testing.assert_frame_equal(together, apart)


@given(popularities(), st.integers(1, 8), st.integers(0, 30))
def test_lpt_with_a_tail_in_turn_is_within_one_row_of_the_mean_or_the_bound(table, units, single):
    units = min(units, int(table["row_count"].sum()))
    placed = analyze.row_sharding(table, units=units, lpt_rows=single)
    top = placed["top_row_share"].iloc[0] * units
    assert ratios(placed)["LPT"] <= 1 + 2 * top + 1e-9


def test_copies_on_every_unit_leave_only_the_cold_rows_unequal():
    table = simulate.row_popularity(10_000, 1.2)
    few = analyze.row_sharding(table, units=64, hot_rows=[0, 1, 16, 256], copies=64)
    lpt = few[few["placement"] == "LPT"]["max_to_mean_ratio"].tolist()
    assert lpt == sorted(lpt, reverse=True)
    assert lpt[-1] < 1.05


def test_equal_rows_are_in_balance_however_they_are_placed():
    measured = ratios(analyze.row_sharding(popularity([1000], [1]), units=10)).drop("random")
    assert measured.tolist() == pytest.approx([1, 1, 1])


def test_a_histogram_keeps_its_look_ups_and_its_rows(real_data):
    for year in ("2021", "2022"):
        table = load.reuse_histogram(real_data("dlrm-locality") / year / "locality_stats.txt")
        for _, batch in table.groupby("batch"):
            classes = analyze.row_popularity(batch)
            assert classes["lookup_share"].sum() == pytest.approx(1)
            rows = batch["unique_count"].iloc[0]
            assert classes["row_count"].sum() == pytest.approx(rows, rel=0.01)


def histogram(**columns):
    row = {
        "batch": "a", "sample_count": 4, "above_count": 1, "upto_count": 2, "row_share": 1.0,
        "lookup_share": 1.0, "lookup_count": 20, "unique_count": 10, "reuse_ratio": 2.0,
    }  # fmt: skip
    frame = pd.DataFrame([row | columns])
    return REUSE_HISTOGRAM.cast(frame)


def test_a_bin_is_a_class_and_the_open_bin_ends_at_twice_its_start():
    assert analyze.row_popularity(histogram())["row_count"].tolist() == [10]
    rounded = histogram(row_share=0.0)
    assert analyze.row_popularity(rounded)["row_count"].tolist() == [round(20 / 2**0.5)]
    endless = histogram(above_count=8, upto_count=None, row_share=0.0, lookup_count=160)
    assert analyze.row_popularity(endless)["row_count"].tolist() == [round(160 / 8 / 2**0.5)]


def test_a_histogram_of_no_batch_or_of_two_is_refused():
    two = pd.concat([histogram(), histogram(batch="b")], ignore_index=True)
    with pytest.raises(WorkbenchError, match="one batch is needed, these are 2"):
        analyze.row_popularity(two)
    with pytest.raises(WorkbenchError, match="these are 0"):
        analyze.row_popularity(REUSE_HISTOGRAM.empty())
    with pytest.raises(WorkbenchError, match="'a' has no look-ups"):
        analyze.row_popularity(histogram(lookup_share=0.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"units": 0}, "units must be 1 or more, not 0"),
        ({"units": 7}, "7 units for 4 rows: some would get none"),
        ({"copies": -1}, "copies must be 0 or more"),
        ({"copies": 3}, "3 copies need as many units, there are 2"),
        ({"lpt_rows": -1}, "lpt_rows must be 0 or more"),
        ({"hot_rows": 4}, "hot_rows must be from 0 to 3"),
        ({"hot_rows": [-1, 2]}, "hot_rows must be 0 or more, not -1"),
        ({"hot_rows": []}, "hot_rows must be from 0 to 3"),
        ({"units": 2.5}, "units must be a whole number from 1, not 2.5"),
        ({"units": True}, "units must be a whole number from 1, not True"),
        ({"hot_rows": 1.5}, "hot_rows must be a whole number from 0, not 1.5"),
        ({"hot_rows": "3"}, "hot_rows must be a whole number from 0, not '3'"),
        ({"hot_rows": [0, None]}, "hot_rows must be a whole number from 0, not None"),
    ],
    ids=[
        "no unit",
        "many units",
        "copies",
        "many copies",
        "lpt",
        "all hot",
        "negative",
        "none",
        "half a unit",
        "a truth",
        "half a row",
        "text",
        "nothing",
    ],
)
def test_numbers_that_cannot_be_are_refused(options, message):
    with pytest.raises(WorkbenchError, match=message):
        analyze.row_sharding(popularity([1, 3], [1, 1]), **{"units": 2, **options})


def test_shares_that_do_not_add_up_are_refused():
    half = popularity([1, 3], [1, 1]).assign(lookup_share=0.25)
    with pytest.raises(WorkbenchError, match=r"add up to 0\.5, not to 1"):
        analyze.row_sharding(half, units=2)
    with pytest.raises(WorkbenchError, match="add up to 0, not to 1"):
        analyze.row_sharding(ROW_POPULARITY.empty(), units=2)


def test_a_cache_that_takes_all_look_ups_is_refused_by_the_name_of_what_to_change():
    cold = popularity([1, 3], [1, 0])
    with pytest.raises(WorkbenchError, match="a cache of hot_rows=1 rows takes all look-ups"):
        analyze.row_sharding(cold, units=2, hot_rows=1)
    assert analyze.row_sharding(cold, units=2, hot_rows=1, copies=2)["bound_ratio"].iloc[0] == 1


def test_copies_of_a_million_rows_are_placed_in_a_second_and_as_even():
    table = simulate.row_popularity(1_100_000, 0.9)
    start = time.process_time()
    placed = analyze.row_sharding(table, units=256, hot_rows=10**6, copies=4)
    assert time.process_time() - start < 3
    assert ratios(placed)["LPT"] == pytest.approx(placed["bound_ratio"].iloc[0], rel=0.01)


@given(popularities(), st.integers(2, 6), st.integers(1, 5), st.integers(0, 40))
def test_copies_that_fill_up_units_are_as_even_as_copies_one_by_one(table, units, copies, single):
    count = int(table["row_count"].sum())
    units = min(units, count)
    options = {"units": units, "copies": min(copies, units), "hot_rows": count - 1}
    one_by_one = ratios(analyze.row_sharding(table, **options, lpt_rows=count))
    placed = analyze.row_sharding(table, **options, lpt_rows=single)
    top = placed["top_row_share"].iloc[0] * units
    assert abs(ratios(placed)["LPT"] - one_by_one["LPT"]) <= 2 * top + 1e-9
