"""Lengths from whatever holds them, and a clear word where it does not."""

import gzip
import json
import time

import numpy as np
import pandas as pd
import pytest

from workbench import load
from workbench.errors import LoadError


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("data_set", "file", "count", "longest"),
    [
        ("lengths-documents", "dist_wlbllm.json", 99_519, 124_913),
        ("lengths-wikipedia", "wikipedia.txt", 1_000_000, 1_823_777),
        ("lengths-requests", "AzureLLMInferenceTrace_code.csv", 8_819, 7_437),
        ("lengths-requests", "AzureLLMInferenceTrace_conv.csv", 19_366, 14_050),
    ],
)
def test_public_files_are_read_whole(real_data, data_set, file, count, longest):
    lengths = load.document_lengths(real_data(data_set) / file)
    assert len(lengths) == count
    assert lengths["length_tokens"].max() == longest


@pytest.mark.oracle
@pytest.mark.parametrize(("file", "longest"), [("code", 7_841), ("conv", 14_089)])
def test_two_columns_of_a_request_log_add_up(real_data, file, longest):
    path = real_data("lengths-requests") / f"AzureLLMInferenceTrace_{file}.csv"
    both = load.document_lengths(path, column=["ContextTokens", "GeneratedTokens"])
    assert both["length_tokens"].max() == longest
    assert both.attrs["column"] == "ContextTokens + GeneratedTokens"


CONTENTS = {
    "list.json": "[5, 0, 7]",
    "lines.jsonl": '{"timestamp": 1, "input_length": 5}\n{"input_length": 0}\n{"input_length": 7}\n',
    "objects.json": '[{"length": 5}, {"length": 0}, {"length": 7}]',
    "plain.txt": "5\n0\n7\n",
    "table.csv": "id, num_prefill_tokens\n1,5\n2,0\n3,7\n",
    "bom.txt": "\ufeff5\n0\n7\n",
    "windows.txt": "5\r\n0\r\n7\r\n",
    "floats.txt": "5.0\n0.0\n7.0\n",
    "semicolons.csv": "id;length\n1;5\n2;0\n3;7\n",
    "tabs.tsv": "id\tlength\n1\t5\n2\t0\n3\t7\n",
}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzipped"])
@pytest.mark.parametrize("name", CONTENTS)
def test_every_form_of_text_is_recognised_by_content(tmp_path, name, packed):
    path = tmp_path / "lengths"
    text = CONTENTS[name].encode("utf-8")
    path.write_bytes(gzip.compress(text) if packed else text)
    lengths = load.document_lengths(path)
    assert lengths["length_tokens"].tolist() == [5, 7]
    assert lengths.attrs["left_out"] == {"empty documents": 1}


def test_parquet_is_recognised_by_content(tmp_path):
    path = tmp_path / "lengths"
    pd.DataFrame({"length_tokens": [3, 4]}).to_parquet(path)
    assert load.document_lengths(path)["length_tokens"].tolist() == [3, 4]


def test_a_series_is_as_good_as_a_file():
    assert load.document_lengths(pd.Series([1, 2], index=[7, 9]))["length_tokens"].tolist() == [
        1,
        2,
    ]


BROKEN = {
    "negative": ("5\n-3\n", "1 of 2 values are not whole numbers from 0, the first is .*-3.* at 2"),
    "text in between": ("length\n5\nmany\n", "the first is 'many' at 2"),
    "fractions": ("[1.5, 2]", r"1 of 2 values .* 1\.5"),
    "missing": ('[{"length": 5}, {"size": 6}]', "the first is nan at 2"),
    "nothing": ("", "is empty"),
    "only zeros": ("0\n0\n", "no document is longer than 0"),
    "no known column": ("id,words\n1,5\n", r"no column of lengths among \['id', 'words'\]"),
    "broken JSON": ("[1, 2", "neither a JSON list nor one JSON object per line"),
    "an object over several lines": ('{\n"length": [1, 2]\n}', "neither a JSON list nor one"),
    "thousands separators": ("length\n1,024\n2,048\n", "more fields than the header"),
    "a separator at the end": ("length,x\n5,6,\n8,9,\n", "more fields than the header"),
    "half truth values": ("[true, 1]", "not lengths"),
    "several numbers": ("1 2 3\n4 5 6\n", "no column of lengths"),
    "a second number": ("5\n6,7\n", "cannot be read as Parquet or CSV"),
    "truth values": ("[true, false]", "not lengths"),
    "nested": ("[[1, 2], [3]]", "not whole numbers"),
    "beyond any document": ("[1e300]", "not whole numbers"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_bad_content_is_refused_with_the_place(tmp_path, name):
    content, words = BROKEN[name]
    path = tmp_path / "lengths.txt"
    path.write_text(content)
    with pytest.raises(LoadError, match=words) as error:
        load.document_lengths(path)
    assert "lengths.txt" in str(error.value)


def test_a_truncated_gzip_file_is_refused(tmp_path):
    path = tmp_path / "lengths.json.gz"
    path.write_bytes(gzip.compress(json.dumps(list(range(9_999))).encode())[:-400])
    with pytest.raises(LoadError, match="is damaged or cut off"):
        load.document_lengths(path)


def test_a_column_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "lengths.csv"
    path.write_text("id,length\n1,5\n")
    with pytest.raises(LoadError, match=r"no column \['tokens'\]; it has \['id', 'length'\]"):
        load.document_lengths(path, column="tokens")


def test_a_folder_and_an_absent_file_are_told_apart(tmp_path):
    with pytest.raises(LoadError, match="is a folder"):
        load.document_lengths(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such file"):
        load.document_lengths(tmp_path / "absent.json")


def test_utf_16_is_named(tmp_path):
    path = tmp_path / "lengths.txt"
    path.write_text("5\n7\n", encoding="utf-16")
    with pytest.raises(LoadError, match="is UTF-16 text; save it as UTF-8"):
        load.document_lengths(path)


def test_damaged_gzip_and_deep_nesting_are_refused(tmp_path):
    path = tmp_path / "lengths.json.gz"
    packed = bytearray(gzip.compress(json.dumps(list(range(9_999))).encode()))
    packed[60:80] = bytes(20)
    path.write_bytes(packed)
    with pytest.raises(LoadError, match=r"is damaged or cut off|neither a JSON list"):
        load.document_lengths(path)
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000)
    with pytest.raises(LoadError, match="cannot be read as lengths"):
        load.document_lengths(path)


@pytest.mark.parametrize(
    "source",
    [pd.DataFrame({"length": [1]}), np.ones((2, 2)), {1, 2}],
    ids=lambda s: type(s).__name__,
)
def test_what_is_no_list_of_numbers_is_refused(source):
    with pytest.raises(LoadError, match="are a file, a Series or a list of numbers, not a"):
        load.document_lengths(source)


@pytest.mark.parametrize("values", [["1s"], [1 + 2j]], ids=["times", "complex"])
def test_values_of_other_kinds_are_refused(values):
    series = pd.Series(pd.to_timedelta(values) if values == ["1s"] else values)
    with pytest.raises(LoadError, match="are not lengths"):
        load.document_lengths(series)


def test_a_column_of_what_has_none_is_refused(tmp_path):
    path = tmp_path / "lengths.txt"
    path.write_text("5\n7\n")
    with pytest.raises(LoadError, match="plain list without columns"):
        load.document_lengths(path, column="length")
    with pytest.raises(LoadError, match="chooses a column of a file"):
        load.document_lengths([5, 7], column="length")
    path.write_text("length\n5\n")
    with pytest.raises(LoadError, match="must be a name or several"):
        load.document_lengths(path, column=0)


@pytest.mark.parametrize("cell", ["x", "", "length"])
def test_a_first_line_of_many_thousand_fields_is_no_header(tmp_path, cell):
    path = tmp_path / "lengths.csv"
    path.write_text("length," + f"{cell}," * 300_000 + "\n5\n6\n")
    began = time.process_time()
    with pytest.raises(
        LoadError, match="300,002 fields, more than the 10,000 columns of any table"
    ):
        load.document_lengths(path)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("before", ["", "7\n", "# tokens\n7\n"])
def test_a_line_of_many_fields_is_refused_at_once(tmp_path, before):
    """Columns of a row that no header announces are numbered one by one."""
    path = tmp_path / "lengths.txt"
    path.write_text(f"{before}{',1' * 300_000}\n8\n")
    began = time.process_time()
    with pytest.raises(LoadError, match=r"300,001 fields, more than the 10,000 columns"):
        load.document_lengths(path)
    assert time.process_time() - began < 5
