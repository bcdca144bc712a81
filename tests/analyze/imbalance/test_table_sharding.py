"""Embedding tables on ranks: torchrec's costs first, then laws, then what is refused."""

import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claims.registry import published
from data import make
from workbench import analyze
from workbench.analyze import ShardingAssumptions
from workbench.errors import TableError, WorkbenchError
from workbench.tables import EMBEDDING_TABLES, TABLE_SHARDING

PLANNERS = ("greedy", "in order", "round-robin", "random")
SCHEMES = ("table", "column", "auto-column", "row", "table-row")

sizes = st.lists(
    st.tuples(
        st.integers(1, 10**6), st.integers(1, 300), st.floats(0, 200), st.sampled_from([1, 2, 4])
    ),
    min_size=1,
    max_size=30,
)


def tables(*rows):
    frame = pd.DataFrame(
        list(rows), columns=["row_count", "dim_count", "pooling_ratio", "element_bytes"]
    )
    frame = frame.astype({"pooling_ratio": "float64"})
    frame.insert(0, "table", [f"t{number}" for number in range(len(frame))])
    return EMBEDDING_TABLES.check(frame)


def ratio(shards):
    loads = analyze.shard_balance(shards)["perf_ms"]
    return loads.max() / loads.mean()


@pytest.mark.oracle
@pytest.mark.parametrize("row", published("sharding_torchrec_perf"), ids=lambda row: row["scheme"])
def test_costs_are_those_that_torchrec_expects_of_itself(row):
    table = tables((int(row["row_count"]), int(row["dim_count"]), float(row["pooling_ratio"]), 4))
    shards = analyze.table_sharding(table, ranks=int(row["ranks"]), scheme=row["scheme"])
    parts = [
        float(row[f"{way}_{part}_ms"])
        for way in ("forward", "backward")
        for part in ("compute", "communication")
    ]
    assert shards["perf_ms"].tolist() == pytest.approx([sum(parts)] * len(shards), rel=1e-12)
    both_ways = 2 * float(row["forward_communication_ms"])
    assert shards["communication_ms"].tolist() == pytest.approx(
        [both_ways] * len(shards), rel=1e-12
    )


@pytest.mark.oracle
def test_a_table_above_the_mean_rank_cannot_be_balanced_without_cutting_it():
    drawn = make.embedding_tables()
    whole = analyze.table_sharding(drawn, ranks=256)
    loads = analyze.shard_balance(whole)["perf_ms"]
    assert loads.max() == whole["perf_ms"].max()
    cut = analyze.table_sharding(drawn, ranks=256, scheme="auto-column")
    assert ratio(whole) > 1.5
    assert ratio(cut) < 1.13
    # Cutting costs time of its own: indices are read twice, and few columns are slow.
    assert cut["perf_ms"].sum() > whole["perf_ms"].sum()


def test_a_plan_of_a_large_model_takes_milliseconds():
    drawn = make.embedding_tables()
    seconds = []
    for _ in range(5):
        start = time.process_time()
        analyze.table_sharding(drawn, ranks=256)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.03


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("planner", PLANNERS)
@settings(max_examples=15)
@given(rows=sizes, ranks=st.sampled_from([1, 3, 8, 16]))
def test_every_element_lies_on_exactly_one_rank(scheme, planner, rows, ranks):
    given_tables = tables(*rows)
    shards = analyze.table_sharding(given_tables, ranks=ranks, planner=planner, scheme=scheme)
    TABLE_SHARDING.check(shards)
    assert shards["rank"].max() < ranks
    ends = shards.assign(
        elements=shards["row_count"] * shards["dim_count"],
        last_row=shards["first_row"] + shards["row_count"],
        last_dim=shards["first_dim"] + shards["dim_count"],
    )
    extents = ends.groupby("table", sort=False).agg(
        elements=("elements", "sum"), rows=("last_row", "max"), dims=("last_dim", "max")
    )
    sizes = given_tables.set_index("table").loc[extents.index]
    assert extents["elements"].equals(sizes["row_count"] * sizes["dim_count"])
    assert extents["rows"].equals(sizes["row_count"].rename("rows"))
    assert extents["dims"].equals(sizes["dim_count"].rename("dims"))
    assert not shards.duplicated(["table", "first_row", "first_dim"]).any()


@given(rows=sizes, ranks=st.integers(1, 20))
def test_greedy_keeps_the_bound_of_longest_first(rows, ranks):
    shards = analyze.table_sharding(tables(*rows), ranks=ranks)
    loads = analyze.shard_balance(shards)["perf_ms"]
    best = max(loads.mean(), shards["perf_ms"].max())
    assert loads.max() <= (2 - 1 / ranks) * best * (1 + 1e-9)


@given(rows=sizes, ranks=st.integers(1, 20))
def test_auto_column_leaves_nothing_that_could_be_cut(rows, ranks):
    given_tables = tables(*rows)
    whole = analyze.table_sharding(given_tables, ranks=ranks)
    shards = analyze.table_sharding(given_tables, ranks=ranks, scheme="auto-column")
    most = 0.6 * whole["perf_ms"].sum() / ranks
    asked = given_tables.set_index("table")["dim_count"]
    parts = shards.groupby("table").size()
    widest = shards.groupby("table")["perf_ms"].max()
    could_be_cut = asked // (2 * parts) >= 32
    assert not (could_be_cut & (widest > most * (1 + 1e-9))).any()
    assert (shards.loc[shards["table"].duplicated(keep=False), "dim_count"] >= 32).all()


@given(rows=sizes, ranks=st.integers(1, 20), balance_by=st.sampled_from(["size", "dim", "lookup"]))
def test_ranks_add_up_to_the_shards(rows, ranks, balance_by):
    shards = analyze.table_sharding(tables(*rows), ranks=ranks, balance_by=balance_by)
    balance = analyze.shard_balance(shards)
    assert len(balance) == ranks
    assert balance["memory_bytes"].sum() == shards["memory_bytes"].sum()
    assert balance["shard_count"].sum() == len(shards)
    assert balance["perf_ms"].sum() == pytest.approx(shards["perf_ms"].sum())


def test_the_same_call_gives_the_same_plan_and_leaves_the_tables_alone():
    drawn = make.embedding_tables(50)
    before = drawn.copy(deep=True)
    first = analyze.table_sharding(drawn, ranks=8, planner="random")
    assert first.equals(analyze.table_sharding(drawn, ranks=8, planner="random"))
    assert drawn.equals(before)


@pytest.mark.parametrize("planner", PLANNERS)
def test_no_planner_puts_more_on_a_rank_than_fits(planner):
    small = ShardingAssumptions(memory_gib=2.5 * 1024 / 2**30)
    table = tables(*[(256, 1, 1, 4)] * 8)
    shards = analyze.table_sharding(table, ranks=4, planner=planner, assumptions=small)
    assert analyze.shard_balance(shards)["memory_bytes"].tolist() == [2048] * 4


def test_rows_are_spread_over_all_ranks_or_over_one_host():
    table = tables((1000, 64, 2, 4), (10, 64, 2, 4))
    rows = analyze.table_sharding(table, ranks=16, scheme="row")
    assert rows.groupby("table")["rank"].nunique().tolist() == [16, 10]
    hosts = analyze.table_sharding(table, ranks=16, scheme="table-row")
    # Ten rows make five blocks of two; each has more of its table's look-ups, so it goes first.
    assert hosts[hosts["table"] == "t1"]["rank"].tolist() == list(range(5))
    assert hosts[hosts["table"] == "t0"]["rank"].tolist() == list(range(8, 16))


def test_several_hosts_talk_over_the_slow_links():
    table = tables((1000, 128, 1, 4))
    one, two = (analyze.table_sharding(table, ranks=ranks) for ranks in (8, 16))
    per_sample = two["communication_ms"] / 16 / (one["communication_ms"] / 8)
    assert per_sample.tolist() == pytest.approx([600 / 12.5])


def test_no_tables_make_no_shards():
    for scheme in SCHEMES:
        shards = analyze.table_sharding(EMBEDDING_TABLES.empty(), ranks=8, scheme=scheme)
        assert shards.empty
    assert analyze.shard_balance(shards).empty


def test_a_table_that_does_not_fit_is_named_with_what_is_missing():
    table = tables((100, 1, 1, 4), (2**28, 100, 1, 4))
    with pytest.raises(
        WorkbenchError, match=r"table 't1' needs 100 GiB .* 80 GiB left: 20 GiB too little"
    ):
        analyze.table_sharding(table, ranks=2)
    with pytest.raises(WorkbenchError, match=r"'t1' \(34 columns\) needs 34 GiB"):
        analyze.table_sharding(
            table, ranks=2, scheme="column", assumptions=ShardingAssumptions(memory_gib=20)
        )
    assert len(analyze.table_sharding(table, ranks=2, scheme="row")) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": 0}, "ranks must be 1 or more, not 0"),
        ({"ranks": 2.5}, "ranks must be a whole number from 1, not 2.5"),
        ({"ranks": "8"}, "ranks must be a whole number from 1, not '8'"),
        ({"ranks": float("nan")}, "ranks must be a whole number from 1, not nan"),
        ({"planner": "lucky"}, r"planner must be one of .*'greedy'.*, not 'lucky'"),
        ({"balance_by": "mood"}, "balance_by must be one of"),
        ({"scheme": "diagonal"}, "scheme must be one of"),
        ({"ranks": 12, "scheme": "table-row"}, "12 ranks do not fill hosts of 8"),
    ],
    ids=["ranks", "half a rank", "text", "nan", "planner", "balance_by", "scheme", "hosts"],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(WorkbenchError, match=message):
        analyze.table_sharding(tables((10, 10, 1, 4)), **{"ranks": 2, **options})


def test_tables_that_cannot_be_are_refused():
    table = tables((10, 10, 1, 4), (10, 10, 1, 4))
    with pytest.raises(WorkbenchError, match=r"1 names of tables occur twice, e\.g\. 'x'"):
        analyze.table_sharding(table.assign(table="x"), ranks=2)
    with pytest.raises(WorkbenchError, match="'t0' has a size or a pooling_ratio that cannot be"):
        analyze.table_sharding(table.assign(pooling_ratio=np.inf), ranks=2)
    with pytest.raises(WorkbenchError, match="'t0' has a size"):
        analyze.table_sharding(table.assign(row_count=1 << 60), ranks=2)
    with pytest.raises(TableError, match="'dim_count' is missing"):
        analyze.table_sharding(table.drop(columns="dim_count"), ranks=2)


@pytest.mark.parametrize("number", [0, -1, float("nan"), float("inf")])
def test_assumptions_that_cannot_be_are_refused(number):
    with pytest.raises(WorkbenchError, match="memory_gib must be a finite number above 0"):
        ShardingAssumptions(memory_gib=number)
    with pytest.raises(WorkbenchError, match="batch_count must be a whole number above 0"):
        ShardingAssumptions(batch_count=number or 0.5)
    with pytest.raises(WorkbenchError, match="batch_count must be a whole number above 0, not '5"):
        ShardingAssumptions(batch_count="512")


def test_shards_of_different_jobs_do_not_add_up():
    shards = [analyze.table_sharding(tables((10, 10, 1, 4)), ranks=ranks) for ranks in (2, 4)]
    with pytest.raises(WorkbenchError, match="shards of one job are needed"):
        analyze.shard_balance(pd.concat(shards))
    with pytest.raises(WorkbenchError, match="the highest is 9"):
        analyze.shard_balance(shards[0].assign(rank=np.int32(9)).astype({"rank": "int32"}))
