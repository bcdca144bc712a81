"""All single-bit faults of a model in one file: exact, sorted, quick, and refused if damaged."""

import contextlib
import json
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workbench import load
from workbench.errors import LoadError, TableError
from workbench.tables import CAMPAIGN, PARAMETERS, ExhaustiveInjections

SIZES = {"z.weight": 40, "a.bias": 8}
BITS = 32


def truth(sizes, inputs=100, seed=0):
    draw = np.random.default_rng(seed)
    count = sum(sizes.values()) * BITS
    elem = np.concatenate([np.arange(n, dtype=np.int32).repeat(BITS) for n in sizes.values()])
    sdc = np.where(draw.random(count) < 0.01, draw.integers(0, inputs // 2, count), 0)
    due = np.where(draw.random(count) < 0.001, draw.integers(0, inputs // 2, count), 0)
    sites = pd.DataFrame(
        {
            "param": pd.Categorical.from_codes(
                np.arange(len(sizes)).repeat([n * BITS for n in sizes.values()]), list(sizes)
            ),
            "elem": elem,
            "bit": np.tile(np.arange(BITS, dtype=np.int8), count // BITS),
            "sdc_count": sdc.astype(np.int16),
            "due_count": due.astype(np.int16),
        }
    )
    text = pd.Series([""]).dtype
    sites["param"] = sites["param"].cat.rename_categories(pd.Index(list(sizes), dtype=text))
    row = {name: [None] for name in CAMPAIGN.columns} | {
        "campaign_id": ["c"], "tool": ["workbench"], "model_name": ["m"], "input_count": [inputs],
        "created": [pd.Timestamp("2025-01-31T08:00:00.5Z")], "tolerance": [0.1 + 0.2],
        "is_synthetic": [True],
    }  # fmt: skip
    campaign = CAMPAIGN.cast(pd.DataFrame(row, dtype=object))
    parameters = pd.DataFrame(
        {
            "campaign_id": "c", "component": "x", "layer": "l", "param": list(sizes),
            "kind": "weight", "dtype": "fp32", "element_count": list(sizes.values()),
            "bit_count": [n * BITS for n in sizes.values()],
        }
    )  # fmt: skip
    return ExhaustiveInjections(campaign, PARAMETERS.cast(parameters), sites)


def same(first, second):
    for name in ("campaign", "parameters", "sites"):
        pd.testing.assert_frame_equal(
            getattr(first, name), getattr(second, name), check_categorical=name == "sites"
        )


def test_what_is_written_comes_back(tmp_path):
    made = truth(SIZES)
    path = load.write(made, tmp_path / "truth.parquet")
    loaded = load.exhaustive_injections(path)
    same(made, loaded)
    assert loaded.is_synthetic
    loaded.sites.loc[0, "sdc_count"] = 7  # the numbers are the caller's own
    assert "ExhaustiveInjections of m: 1,536 sites x 100 inputs" in repr(loaded)


def test_sites_are_sorted_by_tensor_element_and_bit_when_written(tmp_path):
    made = truth(SIZES)
    mixed = ExhaustiveInjections(
        made.campaign, made.parameters, made.sites.sample(frac=1, random_state=1)
    )
    loaded = load.exhaustive_injections(load.write(mixed, tmp_path / "t.parquet"))
    same(made, loaded)
    assert loaded.sites["param"].cat.categories.tolist() == ["z.weight", "a.bias"]


@pytest.mark.slow
def test_fourteen_million_sites_load_in_a_second_and_take_two_megabytes(tmp_path):
    made = truth({f"table.{n}": 16_000 for n in range(26)} | {"top": 27_601}, inputs=1000)
    assert len(made.sites) == 443_601 * 32
    path = load.write(made, tmp_path / "t.parquet")
    assert path.stat().st_size < 3e6
    times = []
    for _ in range(3):
        start = time.process_time()
        loaded = load.exhaustive_injections(path)
        times.append(time.process_time() - start)
    # Processor time of all threads; a busy machine segments the clock on the wall.
    assert min(times) < 2
    assert loaded.sites["sdc_count"].sum() == made.sites["sdc_count"].sum()
    assert loaded.sites.memory_usage(index=False).sum() / len(loaded.sites) < 10.1


def rewritten(path, change=None, header=None, drop=()):
    table = pq.read_table(path)
    metadata = {key: json.loads(raw) for key, raw in table.schema.metadata.items()}
    frame = table.to_pandas()
    if change:
        frame = change(frame)
    if header:
        metadata = {key: each | header for key, each in metadata.items()}
    new = pa.Table.from_pandas(frame.drop(columns=list(drop)), preserve_index=False)
    raw = {key: json.dumps(each).encode() for key, each in metadata.items()}
    pq.write_table(new.replace_schema_metadata(raw), path)
    return path


@pytest.fixture
def stored(tmp_path):
    return load.write(truth(SIZES), tmp_path / "truth.parquet")


def test_a_site_that_is_there_twice_is_refused(stored):
    rewritten(stored, lambda frame: pd.concat([frame.iloc[:2], frame.iloc[1:]]))
    with pytest.raises(LoadError, match=r"row 3 \(z.weight, element 0, bit 1\) is out of order or"):
        load.exhaustive_injections(stored)


def test_more_wrong_outputs_than_inputs_are_refused(stored):
    rewritten(stored, lambda frame: frame.assign(due_count=np.int16(101)))
    with pytest.raises(LoadError, match=r"has \d+ wrong outputs of 100 inputs"):
        load.exhaustive_injections(stored)


def test_a_later_layout_is_refused(stored):
    with pytest.raises(LoadError, match="layout version 9, this reads 1"):
        load.exhaustive_injections(rewritten(stored, header={"version": 9}))


def test_a_file_without_a_campaign_is_refused(stored):
    with pytest.raises(LoadError, match="has 0 campaigns"):
        load.exhaustive_injections(rewritten(stored, header={"campaign": {"campaign_id": []}}))


def test_parquet_of_something_else_is_refused(stored, tmp_path):
    with pytest.raises(LoadError, match="holds no exhaustive injections of the workbench"):
        load.exhaustive_injections(rewritten(stored, drop=["bit"]))
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(LoadError, match="holds no exhaustive injections"):
        load.exhaustive_injections(tmp_path / "a.parquet")


def test_a_damaged_header_is_refused(stored):
    table = pq.read_table(stored).replace_schema_metadata(
        {b"workbench-exhaustive-injections": b"{"}
    )
    pq.write_table(table, stored)
    with pytest.raises(LoadError, match="its header is damaged"):
        load.exhaustive_injections(stored)


def test_a_damaged_byte_of_the_counts_is_refused_and_never_another_count(stored):
    """Most damage still unpacks, to other counts."""
    with pq.ParquetFile(stored) as file:
        group = file.metadata.row_group(0)
        chunks = [group.column(n) for n in range(file.metadata.num_columns)]
    chunk = next(chunk for chunk in chunks if chunk.path_in_schema == "sdc_count")
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    whole = stored.read_bytes()
    kept = []
    for at in range(start, start + chunk.total_compressed_size, 3):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        stored.write_bytes(damaged)
        with contextlib.suppress(LoadError):
            kept.append(load.exhaustive_injections(stored).sites["sdc_count"].to_numpy())
    stored.write_bytes(whole)
    true = load.exhaustive_injections(stored).sites["sdc_count"].to_numpy()
    assert len(kept) < chunk.total_compressed_size / 12
    assert [counts for counts in kept if not np.array_equal(counts, true)] == []


def test_a_file_that_is_cut_or_absent_is_refused(stored, tmp_path):
    stored.write_bytes(stored.read_bytes()[:-9])
    with pytest.raises(LoadError, match="cannot be read as Parquet"):
        load.exhaustive_injections(stored)
    with pytest.raises(FileNotFoundError, match="no such file"):
        load.exhaustive_injections(tmp_path / "absent")


def test_the_other_door_points_here(stored):
    with pytest.raises(LoadError, match=r"load it with load\.exhaustive_injections"):
        load.injections(stored)


def test_writing_checks_the_sites(tmp_path):
    made = truth(SIZES)
    broken = ExhaustiveInjections(
        made.campaign, made.parameters, made.sites.astype({"bit": "int64"})
    )
    with pytest.raises(TableError, match="'bit' has dtype int64"):
        load.write(broken, tmp_path / "t.parquet")
