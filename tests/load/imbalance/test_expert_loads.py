"""Expert loads are read as a matrix or in long form; what could be either is asked."""

import pandas as pd
import pytest

from workbench import analyze, load
from workbench.errors import LoadError, WorkbenchError

# The sample of the README of deepseek-ai/EPLB: 2 layers of 12 experts.
EPLB = """90,132,40,61,104,165,39,4,73,56,183,86
20,107,104,64,19,197,187,157,172,86,16,27
"""


@pytest.fixture
def file_of(tmp_path):
    def write(text, name="loads.csv"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_a_matrix_of_layers_and_experts_is_unrolled(file_of):
    table = load.expert_loads(file_of(EPLB))
    assert len(table) == 24
    assert table["load_count"].iloc[[0, 1, 12, 23]].tolist() == [90, 132, 20, 27]
    measured = analyze.load_imbalance(table, value="load_count", by="layer")
    worst = measured[measured["measure"] == "max / mean"].set_index("layer")["value_ratio"]
    assert worst.tolist() == pytest.approx([183 * 12 / 1033, 197 * 12 / 1156])


@pytest.mark.parametrize(
    "text",
    [
        "layer,expert,load_count\n1,0,5\n0,1,7\n1,1,3\n0,0,9\n",
        "9,7\n5,3\n",
        "e0,e1\n9,7\n5,3\n",
        "layer,expert_1,Expert 0\n1,3,5\n0,7,9\n",
        ",e0,e1\n0,9,7\n1,5,3\n",
        "Unnamed: 0,0,1\n1,5,3\n0,9,7\n",
    ],
    ids=["long", "matrix", "named columns", "named layers", "unnamed layers", "read again"],
)
def test_every_form_gives_the_same_table(file_of, text):
    table = load.expert_loads(file_of(text))
    assert table.to_numpy().tolist() == [[0, 0, 9], [0, 1, 7], [1, 0, 5], [1, 1, 3]]


def test_other_names_and_parquet_are_understood(tmp_path):
    frame = pd.DataFrame({"l": [0, 0], "e": [0, 1], "tokens": [2.5, 3.5]})
    frame.to_parquet(tmp_path / "loads.parquet")
    names = {"layer": "l", "expert": "e", "load_count": "tokens"}
    table = load.expert_loads(tmp_path / "loads.parquet", columns=names)
    assert table["load_count"].tolist() == [2.5, 3.5]
    frame[["tokens"]].T.reset_index(drop=True).set_axis(["e0", "e1"], axis="columns").to_parquet(
        tmp_path / "matrix.parquet"
    )
    assert load.expert_loads(tmp_path / "matrix.parquet")["load_count"].tolist() == [2.5, 3.5]


def test_a_first_line_that_counts_could_be_either(file_of):
    path = file_of("0,1\n9,7\n")
    with pytest.raises(LoadError, match="names of columns, or loads\\? Say header=True or"):
        load.expert_loads(path)
    assert len(load.expert_loads(path, header=True)) == 2
    assert len(load.expert_loads(path, header=False)) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("e0,e1\n9,-7\n", "column for 'e1': 1 values are not a finite number from 0"),
        ("e0,e1\n9,x\n", "column for 'e1'.*'x' in row 0"),
        ("9,7\n5\n", "values are not a finite number from 0"),
        ("layer,expert,load_count\n0,0,1\n0,0,2\n", "expert 0 of layer 0 occurs again in row 1"),
        ("layer,expert,load_count\n0,-1,1\n", "column for 'expert'"),
        ("layer,e0\n1,2\n1,3\n", "a layer occurs twice"),
        ("9,7\n5,3,1\n", "cannot be read as Parquet or CSV"),
        ("e0,e1\n", "0 layers and 2 experts is empty"),
        ("", "is empty"),
        ("layer,0,1,total\n0,9,7,16\n", r"columns \['total'\] are not called after an expert"),
        ("a,b\n9,7\n", r"columns \['a', 'b'\] are not called after an expert"),
        ("e1,expert_1\n9,7\n", "expert 1 has two columns"),
        ("12,,7\n4,5,6\n", "values are not a finite number from 0, the first is nan in row 0"),
        (",5,7\n4,5,6\n", "values are not a finite number from 0, the first is nan in row 0"),
        ("e0,e1\n1,2,3\n4,5,6\n", "cannot be read as Parquet or CSV"),
    ],
    ids=[
        "negative",
        "text",
        "ragged",
        "longer",
        "twice",
        "no expert",
        "layers",
        "no layer",
        "empty",
        "a total",
        "other names",
        "expert twice",
        "empty cell",
        "empty first cell",
        "rows longer than the header",
    ],
)
def test_what_is_no_load_is_named(file_of, text, message):
    with pytest.raises(LoadError, match=message):
        load.expert_loads(file_of(text))


def test_what_pandas_writes_keeps_its_index_as_layers(tmp_path):
    frame = pd.DataFrame([[30, 10], [5, 6]])
    frame.to_csv(tmp_path / "counted.csv")
    assert load.expert_loads(tmp_path / "counted.csv")["load_count"].tolist() == [30, 10, 5, 6]
    frame.set_axis([4, 2]).to_parquet(tmp_path / "chosen.parquet")
    table = load.expert_loads(tmp_path / "chosen.parquet")
    assert table.to_numpy().tolist() == [[2, 0, 5], [2, 1, 6], [4, 0, 30], [4, 1, 10]]


def test_numbers_in_the_header_are_the_numbers_of_the_experts(file_of):
    table = load.expert_loads(file_of("layer,3,1,2,0\n0,30,10,20,0\n"))
    assert table["load_count"].tolist() == [0, 10, 20, 30]
    assert load.expert_loads(file_of("layer,1,2\n0,5,6\n"))["expert"].tolist() == [1, 2]


@pytest.mark.parametrize("first", ["1,2,3", "3,1,2", "2,0,1", ",0,1"])
def test_a_first_line_that_counts_from_anywhere_is_asked_about(file_of, first):
    with pytest.raises(LoadError, match="names of columns, or loads\\? Say header=True or"):
        load.expert_loads(file_of(f"{first}\n9,7,8\n"))


def test_an_expert_that_one_layer_does_not_list_has_no_load_there_and_is_counted(file_of):
    text = "layer,expert,load_count\n0,0,1\n0,1,1\n0,2,1\n0,3,1\n1,0,8\n1,2,8\n"
    table = load.expert_loads(file_of(text))
    assert table["load_count"].tolist() == [1, 1, 1, 1, 8, 0, 8, 0]
    assert table.attrs["filled_count"] == 2
    measured = analyze.load_imbalance(table, value="load_count", by="layer")
    worst = measured[measured["measure"] == "max / mean"]["value_ratio"]
    assert worst.tolist() == [1, 2]
    assert load.expert_loads(file_of(EPLB)).attrs["filled_count"] == 0


def test_an_expert_whose_number_no_table_holds_is_refused(tmp_path):
    path = tmp_path / "loads.csv"
    path.write_text(f"layer,e{'9' * 400},e1\n0,1,2\n1,3,4\n")
    with pytest.raises(WorkbenchError, match="'expert' of table 'expert_loads' holds 9"):
        load.expert_loads(path)
