"""Figures of sharding: their titles state the finding, their data are the table's."""

import numpy as np
import pandas as pd
import pytest

from data import make
from workbench import analyze, plot, simulate


@pytest.fixture(scope="module")
def drawn():
    return make.embedding_tables()


def text(figure):
    return str(figure.layout.title.text).replace("<br>", " ")


def note(figure):
    return str(figure.layout.title.subtitle.text).replace("<br>", " ")


def test_a_table_that_is_the_bound_is_named(drawn):
    shards = analyze.table_sharding(drawn, ranks=256)
    largest = shards.sort_values("perf_ms").iloc[-1]
    figure = plot.table_sharding(shards)
    assert text(figure).endswith(f"× the mean of 256 ranks, for {largest['table']} alone")
    assert text(figure).startswith(f"Rank {largest['rank']} takes {largest['perf_ms']:.1f} ms")


def test_ranks_are_stacked_slowest_first_and_the_mean_is_a_line(drawn):
    shards = analyze.table_sharding(drawn, ranks=16, balance_by="size")
    balance = analyze.shard_balance(shards).sort_values("perf_ms", ascending=False)
    lookup, communication = plot.table_sharding(shards).data
    assert (lookup.name, communication.name) == ("lookup", "communication")
    np.testing.assert_allclose(lookup.y, balance["lookup_ms"])
    np.testing.assert_allclose(communication.y, balance["communication_ms"])
    (line,) = plot.table_sharding(shards).layout.shapes
    assert line.y0 == pytest.approx(balance["perf_ms"].mean())


def test_ranks_without_a_shard_are_drawn_and_count(drawn):
    shards = analyze.table_sharding(drawn.head(3), ranks=12)
    figure = plot.table_sharding(shards)
    assert len(figure.data[0].y) == 12
    assert "the mean of 12 ranks" in text(figure)


def test_a_balanced_plan_says_so_and_lists_measures_and_tables(drawn):
    shards = analyze.table_sharding(drawn, ranks=64)
    imbalance = analyze.load_imbalance(analyze.shard_balance(shards)["perf_ms"])
    figure = plot.table_sharding(shards, imbalance=imbalance)
    assert text(figure).startswith("64 ranks in balance: the slowest, rank ")
    value = imbalance.set_index("measure").loc["KL divergence", "value_ratio"]
    assert f"KL divergence {value:.2g}" in note(figure)
    slowest = analyze.shard_balance(shards).sort_values("perf_ms").iloc[-1]["rank"]
    mine = shards[shards["rank"] == slowest].sort_values("perf_ms", ascending=False)
    for name in mine["table"].head(5):
        assert name in note(figure)


def test_a_plan_that_costs_nothing_is_drawn(drawn):
    shards = analyze.table_sharding(drawn.head(2), ranks=2)
    free = shards.assign(lookup_ms=0.0, communication_ms=0.0, perf_ms=0.0)
    assert text(plot.table_sharding(free)) == "2 ranks with shards that cost nothing"


def test_a_cache_for_hot_rows_is_drawn_against_their_number():
    popularity = simulate.row_popularity(20_000, 1.05)
    table = analyze.row_sharding(popularity, units=64, hot_rows=[0, 4, 64])
    figure = plot.row_sharding(table)
    assert [trace.name for trace in figure.data] == [
        "contiguous", "random", "round-robin", "LPT", "no placement can be better",
    ]  # fmt: skip
    assert list(figure.layout.xaxis.ticktext) == ["0", "4", "64"]
    assert figure.layout.xaxis.title.text == "most popular rows in a cache [rows]"
    assert text(figure).startswith(
        "A cache for the 64 most popular rows: at best the busiest of 64"
    )
    copied = plot.row_sharding(
        analyze.row_sharding(popularity, units=64, hot_rows=[0, 4], copies=8)
    )
    assert copied.layout.xaxis.title.text == "most popular rows with 8 copies [rows]"
    assert text(copied).startswith("8 copies of the 4 most popular rows")


def test_several_popularities_are_drawn_against_their_most_popular_row():
    tables = [
        analyze.row_sharding(simulate.row_popularity(20_000, exponent), units=64)
        for exponent in (0.5, 0.9, 1.2)
    ]
    figure = plot.row_sharding(pd.concat(tables, ignore_index=True))
    assert figure.layout.xaxis.title.text == "look-ups on the most popular row [% of all]"
    assert "one row alone has 20 % of the look-ups" in text(figure)
    even = plot.row_sharding(analyze.row_sharding(simulate.row_popularity(20_000, 0), units=64))
    assert text(even).endswith("the rows can be balanced")


def test_several_numbers_of_units_are_drawn_against_them():
    popularity = simulate.row_popularity(20_000, 0.7)
    tables = [analyze.row_sharding(popularity, units=units) for units in (8, 512)]
    figure = plot.row_sharding(pd.concat(tables, ignore_index=True))
    assert list(figure.layout.xaxis.ticktext) == ["8", "512"]
    assert text(figure).startswith("At best the busiest of 8 units has ")
