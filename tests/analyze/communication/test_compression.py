"""Compression of the exchange: ratios by an independent count, bounds by table, where it pays."""

import collections
import math
import sqlite3

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from data import make
from workbench import analyze, datasets, load
from workbench.errors import PerformanceModelError, TableError
from workbench.tables import EmbeddingOutputs

VALUES = st.floats(-2, 2, width=32)
BLOCKS = arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=8), elements=VALUES)
SIDE = 8 + 5  # of a block: in the exchange of sizes, and of its header


@pytest.fixture(scope="module")
def flights():
    return load.embedding_outputs(datasets.path("compressed-exchange") / "outputs.npz")


def of(**arrays):
    return EmbeddingOutputs({name: np.asarray(rows, np.float32) for name, rows in arrays.items()})


def by_stage(table, column="ratio"):
    return dict(zip(table["stage"], table[column], strict=True))


# --- the ratio ------------------------------------------------------------------------------


@pytest.mark.oracle
@pytest.mark.parametrize("bits", [1, 2, 4, 6])
def test_an_entropy_coder_of_equally_likely_bins_takes_their_bits(bits):
    """32 / b, since a float32 has 32 bits and a bin b."""
    centres = np.arange(2**bits, dtype=np.float32) * 0.04 * 255 / 256
    rows = np.random.default_rng(0).permutation(np.repeat(centres, 2**15)).reshape(-1, 32)
    table = analyze.compression(of(users=rows), bounds=[0.02], destinations=[1])
    assert by_stage(table)["entropy"] == pytest.approx(32 / bits, rel=0.01)
    # Single values, no repeats: nothing that a real coder could find beyond the entropy.
    assert by_stage(table)["zstd"] <= by_stage(table)["entropy"] * 1.01


def test_the_ratio_of_real_outputs_falls_with_destinations(flights):
    table = analyze.compression(flights, destinations=[1, 8, 32, 128], by_table=False)
    ratios = table.set_index(["stage", "destination_count"])["ratio"]
    assert ratios["zstd"].is_monotonic_decreasing
    assert ratios["distinct rows"].is_monotonic_decreasing
    # In small blocks few rows repeat, and a coder of single values is the better one.
    assert ratios["zstd"][1] > ratios["entropy"][1]
    assert ratios["zstd"][128] < ratios["entropy"][128]


def independent(outputs, bound, destinations):
    """Count bytes again: plain loops, SQL for distinct rows, a counter for the entropy."""
    width, sums = 2 * bound * 255 / 256, collections.Counter()
    for rows in outputs.arrays.values():
        for block in np.array_split(rows, destinations):
            bins = [round(float(value) / width) for value in block.ravel()]
            assert max(map(abs, bins)) <= 127
            database = sqlite3.connect(":memory:")
            database.execute("create table sent (row blob)")
            database.executemany("insert into sent values (?)", [(row.tobytes(),) for row in block])
            (distinct,) = database.execute("select count(distinct row) from sent").fetchone()
            index = 1 if distinct <= 256 else 2
            counts = collections.Counter(bins).values()
            bits = -sum(n * math.log2(n / len(bins)) for n in counts)
            packed = pa.compress(np.array(bins, np.int8).tobytes(), codec="zstd", asbytes=True)
            raw = block.nbytes
            sums["distinct rows"] += SIDE + min(
                raw, distinct * block[0].nbytes + len(block) * index
            )
            sums["quantized"] += SIDE + len(bins)
            sums["entropy"] += SIDE + bits / 8
            sums["zstd"] += SIDE + min(raw, len(packed))
    return sums


@pytest.mark.parametrize("destinations", [1, 32])
def test_bytes_are_those_of_an_independent_count(flights, destinations):
    table = analyze.compression(flights, bounds=[0.05], destinations=[destinations], by_table=False)
    sent = by_stage(table, "sent_bytes")
    again = independent(flights, 0.05, destinations)
    for stage in ("distinct rows", "quantized", "entropy"):
        assert sent[stage] == pytest.approx(again[stage], rel=1e-9)
    # Arrow's default level is 1 as well.
    assert sent["zstd"] == pytest.approx(again["zstd"], rel=0.002)


@given(BLOCKS, st.sampled_from([0.0, 1e-6, 0.01, 0.3]), st.integers(1, 8))
def test_no_stage_sends_more_than_the_rows_and_the_headers(rows, bound, count):
    count = min(count, len(rows))
    table = analyze.compression(of(users=rows), bounds=[bound], destinations=[count])
    assert (table["sent_bytes"] <= rows.nbytes + SIDE * count).all()
    assert (table["max_error"] <= bound).all()
    assert by_stage(table, "max_error")["distinct rows"] == 0
    ratio = by_stage(table)
    assert ratio["entropy"] >= ratio["quantized"] * (1 - 1e-12)
    assert (table["distinct_count"] <= len(rows)).all()


@given(BLOCKS, BLOCKS)
def test_the_sum_over_tables_is_the_sum_of_the_tables(users, items):
    count = min(len(users), len(items))
    outputs = of(users=users[:count], items=items[:count])
    single = analyze.compression(outputs, destinations=[1])
    total = analyze.compression(outputs, destinations=[1], by_table=False)
    for column in ("sent_bytes", "raw_bytes", "row_count", "escaped_count"):
        sums = single.groupby("stage", observed=True)[column].sum()
        assert by_stage(total, column) == pytest.approx(sums.to_dict())


def test_a_ratio_of_the_whole_batch_is_not_that_of_the_exchange():
    """Every row occurs once per destination: the whole batch repeats, a block does not."""
    distinct = np.random.default_rng(1).uniform(-1, 1, (16, 32))
    outputs = of(users=np.tile(distinct, (64, 1)))
    table = analyze.compression(outputs, bounds=[0.01], destinations=[1, 64])
    whole, split = (by_stage(rows) for _, rows in table.groupby("destination_count"))
    assert whole["zstd"] > 100
    assert split["zstd"] < 5
    assert split["distinct rows"] < 1


def test_the_sizes_that_are_exchanged_first_are_counted():
    table = analyze.compression(of(users=np.zeros((64, 1))), destinations=[64])
    # One value of 4 bytes in a block: with its size, no block is smaller than before.
    assert by_stage(table, "sent_bytes")["quantized"] == 64 * (SIDE + 1)
    assert by_stage(table)["quantized"] == pytest.approx(4 / 14)


@pytest.mark.oracle
def test_distinct_rows_of_drawn_outputs_are_those_that_probability_expects():
    sizes = {"users": 5_000, "regions": 50}
    outputs = make.embedding_outputs(sizes, row_count=4_096, skew=1.1)
    table = analyze.compression(outputs, destinations=[1])
    rows = table[table["stage"] == "distinct rows"].set_index("table")
    for name, size in sizes.items():
        chance = np.arange(1, size + 1) ** -1.1
        chance /= chance.sum()
        expected = (1 - (1 - chance) ** 4_096).sum()
        assert rows.loc[name, "distinct_count"] == pytest.approx(expected, abs=4 * expected**0.5)


# --- bounds by table ------------------------------------------------------------------------


def test_the_higher_ratio_is_that_of_a_table_that_was_lost():
    """One bound for a small and a large scale: the better ratio is worth nothing, and says so."""
    generator = np.random.default_rng(2)
    rows = generator.uniform(-1, 1, (256, 32))
    outputs = of(large=rows, small=0.01 * rows)
    one = analyze.compression(outputs, bounds=[0.05], destinations=[1])
    own = analyze.table_bounds(outputs, bound_ratio=0.05)
    by_table = analyze.compression(outputs, bounds=own, destinations=[1])
    ratios = [
        table[table["stage"] == "zstd"].set_index("table")["ratio"] for table in (one, by_table)
    ]
    assert ratios[0]["small"] > 50 * ratios[1]["small"]
    doubts = one[one["stage"] == "zstd"].set_index("table")["doubt"]
    assert "too wide" in doubts["small"]
    assert doubts["large"] == ""
    assert (by_table["doubt"] == "").all()
    total = analyze.compression(outputs, bounds=[0.05], destinations=[1], by_table=False)
    assert by_stage(total, "doubt")["zstd"].startswith("small: errors are nearly as large")
    assert by_stage(total, "doubt")["distinct rows"] == ""


@given(BLOCKS, st.floats(1e-3, 0.99), st.sampled_from([1e-30, 1e-3, 1.0, 1e30]))
def test_with_relative_bounds_no_table_arrives_as_zeros(rows, ratio, unit):
    outputs = of(users=rows * np.float32(unit))
    bounds = analyze.table_bounds(outputs, bound_ratio=ratio)
    table = analyze.compression(outputs, bounds=bounds, destinations=[1])
    largest = np.abs(outputs.arrays["users"]).max()
    error = by_stage(table, "max_error")["zstd"]
    assert error <= bounds["bound"].iloc[0] < largest or largest == 0
    assert table["setting"].iloc[0].endswith("of the scale of a table")


def test_a_bound_of_each_table_is_its_share_of_the_root_mean_square():
    outputs = of(users=[[3.0, 4.0]], items=[[0.0, 0.0]])
    table = analyze.table_bounds(outputs, bound_ratio=0.2)
    assert table["scale"].tolist() == [pytest.approx(12.5**0.5), 0]
    assert table["bound"].tolist() == [pytest.approx(0.2 * 12.5**0.5), 0]
    assert analyze.compression(outputs, bounds=table, destinations=[1])["max_error"].max() > 0


# --- does it pay ----------------------------------------------------------------------------


@pytest.mark.oracle
def test_the_published_speed_up_is_a_curve_of_share_and_ratio():
    """1.38 means that share x (1 - 1 / ratio) is 0.275: 1.85 at 60 % of the step, 12 at 30 %."""
    table = analyze.compression_speedup(
        [1.85, 12.0], communication_shares=[0.6, 0.3], compress_gb_per_s=[math.inf]
    ).set_index(["ratio", "communication_share"])["speedup_ratio"]
    assert table[1.85, 0.6] == pytest.approx(1.38, abs=0.005)
    assert table[12.0, 0.3] == pytest.approx(1.38, abs=0.005)


def replayed(row, raw=64e9):
    """Run a step as a sequence of times: rest, compress, transfer, decompress."""
    transfer = raw / (row["link_gb_per_s"] * 1e9)
    rest = transfer / row["communication_share"] - transfer
    clock = rest + raw / (row["compress_gb_per_s"] * 1e9)
    clock += raw / row["ratio"] / (row["link_gb_per_s"] * 1e9)
    clock += raw / (row["decompress_gb_per_s"] * 1e9)
    return (rest + transfer) / clock


POSITIVE = st.floats(0.01, 1e3)


@given(st.floats(0.01, 100), st.floats(0.01, 1), POSITIVE, POSITIVE, POSITIVE)
def test_a_step_takes_the_time_of_its_parts(ratio, share, link, codec, back):
    row = analyze.compression_speedup(
        [ratio], communication_shares=[share], link_gb_per_s=[link], compress_gb_per_s=[codec],
        decompress_gb_per_s=back,
    ).iloc[0]  # fmt: skip
    assert row["speedup_ratio"] == pytest.approx(replayed(row), rel=1e-9)
    assert row["is_faster"] == (row["effective_ratio"] > 1) or row["effective_ratio"] == (
        pytest.approx(1)
    )


@given(st.floats(1.01, 100), POSITIVE, POSITIVE)
def test_at_the_break_even_bandwidth_nothing_is_won(ratio, codec, back):
    options = {"compress_gb_per_s": [codec], "decompress_gb_per_s": back}
    limit = analyze.compression_speedup([ratio], **options)["break_even_gb_per_s"].iloc[0]
    table = analyze.compression_speedup(
        [ratio], link_gb_per_s=[limit * 0.99, limit, limit * 1.01], **options
    )
    assert table["effective_ratio"].iloc[1] == pytest.approx(1)
    assert table["is_faster"].iloc[[0, 2]].tolist() == [True, False]


def test_at_the_limits_a_codec_costs_nothing_or_all():
    free = analyze.compression_speedup([8.0], compress_gb_per_s=[math.inf]).iloc[0]
    assert (free["effective_ratio"], free["break_even_gb_per_s"]) == (8.0, math.inf)
    # R without limit, and the codec as fast as the link in both directions together.
    even = analyze.compression_speedup(
        [math.inf], link_gb_per_s=[1.0], compress_gb_per_s=[2.0], decompress_gb_per_s=2.0
    ).iloc[0]
    assert (even["effective_ratio"], bool(even["is_faster"])) == (1.0, False)
    one_way = analyze.compression_speedup(
        [8.0], link_gb_per_s=[1.0], compress_gb_per_s=[math.inf], decompress_gb_per_s=8.0
    )
    assert one_way["effective_ratio"].iloc[0] == 4.0
    larger = analyze.compression_speedup([0.5], compress_gb_per_s=[math.inf]).iloc[0]
    assert (larger["break_even_gb_per_s"], bool(larger["is_faster"])) == (0.0, False)


def test_a_high_ratio_on_a_fast_link_makes_the_step_longer():
    """30 times fewer bytes, and slower: one core against 100 Gbit/s."""
    row = analyze.compression_speedup([30.0], link_gb_per_s=[12.5]).iloc[0]
    assert row["speedup_ratio"] < 0.5
    assert not row["is_faster"]
    assert row["break_even_gb_per_s"] < 1


# --- errors ---------------------------------------------------------------------------------

TWO = of(users=np.eye(4, 2), items=np.eye(4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bounds": [-0.1]}, "bounds: -0.1; pass numbers from 0"),
        ({"bounds": [math.nan]}, "bounds: nan"),
        ({"bounds": []}, "bounds: empty"),
        ({"destinations": [0]}, "destinations: 0; pass whole numbers from 1 to 4"),
        ({"destinations": [5]}, "destinations: 5"),
        ({"destinations": [1.5]}, "destinations: 1.5"),
        ({"destinations": [math.nan]}, "destinations: nan"),
        ({"destinations": []}, "destinations: empty"),
        ({"destinations": [4] * 250_001}, "2,000,008 blocks would take hours"),
        ({"bounds": analyze.table_bounds(of(users=np.eye(2)))}, r"no bound for tables \['items'\]"),
    ],
)
def test_bounds_and_destinations_that_make_no_sense_are_named(options, message):
    with pytest.raises(PerformanceModelError, match=message):
        analyze.compression(TWO, **options)


def test_bounds_of_another_form_are_refused():
    with pytest.raises(TableError, match="'bound_ratio' is missing"):
        analyze.compression(TWO, bounds=pd.DataFrame({"table": ["users"], "bound": [0.1]}))
    with pytest.raises(PerformanceModelError, match=r"bound_ratio is 1; .* e\.g\. 0\.1"):
        analyze.table_bounds(TWO, bound_ratio=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ratios": []}, "every list needs a number"),
        ({"ratios": [0]}, "ratio of 0: shares"),
        ({"communication_shares": [1.5]}, "a communication share of 1.5"),
        ({"communication_shares": [math.nan]}, "a communication share of nan"),
        ({"link_gb_per_s": [math.inf]}, "link_gb_per_s of inf"),
        ({"compress_gb_per_s": [-1]}, "compress_gb_per_s of -1; decompress_gb_per_s of -3"),
        ({"decompress_gb_per_s": 0}, "decompress_gb_per_s of 0"),
    ],
)
def test_cases_that_make_no_sense_are_named(options, message):
    with pytest.raises(PerformanceModelError, match=message):
        analyze.compression_speedup(**{"ratios": [2.0], **options})


def test_outputs_are_checked_wherever_they_come_from():
    with pytest.raises(TableError, match="'users' has dtype float64, needs float32"):
        EmbeddingOutputs({"users": np.zeros((2, 2))})
    with pytest.raises(TableError, match="'users' is a list; needs a NumPy array"):
        EmbeddingOutputs({"users": [[0.0]]})
    with pytest.raises(TableError, match="no tables at all"):
        EmbeddingOutputs({})
    with pytest.raises(TableError, match="row 1, column 0 is inf"):
        of(users=[[0.0], [np.inf]])
