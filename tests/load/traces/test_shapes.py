"""Shapes, types, strides and values of operators' inputs stay in the tables."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest

from tests.load.conftest import event
from workbench import load
from workbench.load._traces import parquet

COLUMNS = ["input_shapes", "input_types", "input_strides", "input_values"]
ARGUMENTS = {
    "Input Dims": [[4, 3], [3, 2]], "Input type": ["float", "float"],
    "Input Strides": [[3, 1], [2, 1]], "Concrete Inputs": ["", "0.5"],
}  # fmt: skip
ROWS = [
    event("aten::mm", 1, cat="cpu_op", **ARGUMENTS),
    event("aten::mm", 5, cat="cpu_op", **ARGUMENTS),
    event("call", 9, cat="cuda_runtime"),
]


def shapes_of(trace):
    return trace.events[COLUMNS].astype(object).where(trace.events[COLUMNS].notna(), None)


@pytest.mark.parametrize("engine", ["compiled", "python"])
def test_equal_texts_are_one_category_and_are_missing_elsewhere(trace_file, engine):
    trace = load.traces(trace_file(ROWS), engine=engine)
    assert shapes_of(trace).iloc[0].tolist() == [
        "[[4,3],[3,2]]", '["float","float"]', "[[3,1],[2,1]]", '["","0.5"]',
    ]  # fmt: skip
    assert [trace.events[name].cat.codes.tolist() for name in COLUMNS] == [[0, 0, -1]] * 4
    assert all(trace.events[name].cat.codes.dtype == np.int8 for name in COLUMNS)


def test_a_file_without_shapes_has_no_such_columns(trace_file):
    assert not set(COLUMNS) & set(load.traces(trace_file(ROWS[2:])).events)


def test_the_spelling_of_old_files_is_known(trace_file):
    row = event("aten::mm", 1, cat="cpu_op", **{"Input dims": [[4, 3]]})
    assert load.traces(trace_file([row])).events["input_shapes"].tolist() == ["[[4,3]]"]


def test_ranks_with_and_without_shapes_are_joined(trace_file, tmp_path):
    for rank, rows in enumerate((ROWS, ROWS[2:])):
        trace_file(rows, name=f"job/rank{rank}.json", distributedInfo={"rank": rank})
    trace = load.traces(tmp_path / "job")
    assert trace.events["input_shapes"].notna().tolist() == [True, True, False, False]


def test_every_way_to_store_a_trace_keeps_them(trace_file, tmp_path):
    trace = load.traces(trace_file(ROWS), cache=tmp_path / "cache")
    again = load.traces(trace_file(ROWS), cache=tmp_path / "cache")
    stored = load.traces(parquet.write(trace, tmp_path / "stored.parquet"))
    written = load.traces(load.write_chrome_trace(trace.events, tmp_path / "written.json"))
    for other in (again, stored, written):
        pd.testing.assert_frame_equal(shapes_of(other), shapes_of(trace))


def test_an_obfuscated_copy_holds_none(trace_file, tmp_path):
    rows = [event("aten::mm", 1, cat="cpu_op", **{"Input Dims": [[5117, 3119]]})]
    copy = load.write_obfuscated(trace_file(rows), tmp_path / "out")
    text = gzip.decompress(copy[0].read_bytes()).decode()
    assert "5117" not in text
    assert "Input" not in text
    assert not set(COLUMNS) & set(load.traces(copy[0]).events)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("[" * 64 + "]" * 64, True),
        ("[" * 65 + "]" * 65, False),
        ("[" * 900 + "]" * 900, False),
        ('["\\ud800"]', True),
        ('"\\ud800"', True),
    ],
)  # fmt: skip
def test_odd_values_end_alike_in_both_parsers(tmp_path, value, kept):
    head = '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 2, "args": '
    path = tmp_path / "trace.json"
    path.write_text(f'{head}{{"Input Dims": {value}, "Input type": ["float"]}}}}]}}')
    one, other = (load.traces(path, engine=engine) for engine in ("compiled", "python"))
    pd.testing.assert_frame_equal(one.events, other.events)
    pd.testing.assert_frame_equal(one.quality, other.quality)
    assert ("input_shapes" in one.events) is kept
    assert one.quality["what"].str.contains("not of its type|not UTF-8").any() == (
        len(value) != 128
    )


def test_shapes_are_those_of_plain_json(real_data):
    path = real_data("kineto-h100") / "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
    rows = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    wanted = [row["args"]["Input Dims"] for row in rows if row.get("cat") == "cpu_op"]
    events = load.traces(path).events
    kept = events.loc[events["category"] == "cpu_op", "input_shapes"]
    assert sorted(map(str, map(json.loads, kept))) == sorted(map(str, wanted))
