"""Expert loads are read as a matrix or in long form; what could be either is asked."""

import pandas as pd
import pytest

from workbench import analyze, load
from workbench.errors import LoadError

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
        "a,b\n9,7\n5,3\n",
        "layer,a,b\n1,5,3\n0,9,7\n",
    ],
    ids=["long", "matrix", "named columns", "named layers"],
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
    frame[["tokens"]].T.reset_index(drop=True).set_axis(["a", "b"], axis="columns").to_parquet(
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
        ("a,b\n9,-7\n", "column for 'b': 1 values are not a finite number from 0"),
        ("a,b\n9,x\n", "column for 'b'.*'x' in row 0"),
        ("9,7\n5\n", "values are not a finite number from 0"),
        ("layer,expert,load_count\n0,0,1\n0,0,2\n", "expert 0 of layer 0 occurs again in row 1"),
        ("layer,expert,load_count\n0,-1,1\n", "column for 'expert'"),
        ("layer,a\n1,2\n1,3\n", "a layer occurs twice"),
        ("9,7\n5,3,1\n", "cannot be read as Parquet or CSV"),
        ("a,b\n", "0 layers and 2 experts is empty"),
        ("", "cannot be read as Parquet or CSV"),
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
    ],
)
def test_what_is_no_load_is_named(file_of, text, message):
    with pytest.raises(LoadError, match=message):
        load.expert_loads(file_of(text))
