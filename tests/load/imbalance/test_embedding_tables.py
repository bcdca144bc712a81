"""Sizes of embedding tables come as whole numbers, or say what is wrong with them."""

import pandas as pd
import pytest

from data import make
from workbench import load
from workbench.errors import LoadError

ROW = {"table": "ads", "row_count": 1000, "dim_count": 64, "pooling_ratio": 2.5, "element_bytes": 4}


@pytest.fixture
def file_of(tmp_path):
    def write(*rows, name="tables.csv", **renamed):
        frame = pd.DataFrame([ROW | row for row in rows]).rename(columns=renamed)
        path = tmp_path / name
        frame.to_csv(path, index=False) if name.endswith("csv") else frame.to_parquet(path)
        return path

    return write


@pytest.mark.parametrize("name", ["tables.csv", "tables.parquet"])
def test_what_is_written_is_read_back(tmp_path, name):
    drawn = make.embedding_tables(20)
    drawn.attrs.clear()
    path = tmp_path / name
    drawn.to_csv(path, index=False) if name.endswith("csv") else drawn.to_parquet(path)
    pd.testing.assert_frame_equal(load.embedding_tables(path), drawn)


def test_other_names_are_understood(file_of):
    path = file_of({}, row_count="num_embeddings", dim_count="embedding_dim")
    table = load.embedding_tables(
        path, columns={"row_count": "num_embeddings", "dim_count": "embedding_dim"}
    )
    assert table[["row_count", "dim_count"]].iloc[0].tolist() == [1000, 64]


def test_names_that_look_like_numbers_stay_names(file_of):
    path = file_of({"table": 7}, {"table": "007"}, {"table": "NA"})
    assert load.embedding_tables(path)["table"].tolist() == ["7", "007", "NA"]


def test_bytes_per_element_are_asked_for_once(file_of):
    path = file_of({}, element_bytes="unused")
    assert load.embedding_tables(path, element_bytes=2)["element_bytes"].tolist() == [2]
    with pytest.raises(LoadError, match="does not say the bytes per element; pass element_bytes="):
        load.embedding_tables(path)
    with pytest.raises(LoadError, match="has a column for the bytes per element; leave out"):
        load.embedding_tables(file_of({}), element_bytes=2)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"row_count": 0}, "column for 'row_count': 1 values are not a whole number from 1"),
        ({"row_count": 2.5}, "column for 'row_count'.*'2.5' in row 1"),
        ({"dim_count": "wide"}, "column for 'dim_count'.*'wide' in row 1"),
        ({"pooling_ratio": -1}, "column for 'pooling_ratio': 1 values are not a finite number"),
        ({"pooling_ratio": float("inf")}, "column for 'pooling_ratio'"),
        ({"row_count": None}, "column for 'row_count'"),
        ({"table": None}, "the name of the table in row 1 is missing"),
        ({"table": "news"}, "the name of the table in row 1 is there before .'news'"),
    ],
    ids=["none", "half", "text", "negative", "infinite", "missing", "nameless", "twice"],
)
def test_values_that_cannot_be_are_named_with_their_row(file_of, row, message):
    with pytest.raises(LoadError, match=message):
        load.embedding_tables(file_of({"table": "news"}, row))


def test_what_cannot_be_read_is_one_clear_error(file_of, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        load.embedding_tables(tmp_path / "nowhere.csv")
    (tmp_path / "noise.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(LoadError, match="cannot be read as Parquet or CSV"):
        load.embedding_tables(tmp_path / "noise.parquet")
    with pytest.raises(LoadError, match=r"no column \['dim_count'\]; it has .* Say which is which"):
        load.embedding_tables(file_of({}, dim_count="d"))
    with pytest.raises(LoadError, match=r"columns= names \['rows'\], which the table does not"):
        load.embedding_tables(file_of({}), columns={"rows": "row_count"})
    path = tmp_path / "ragged.csv"
    path.write_text(file_of({}).read_text() + "more,1,1,1,4,9\n")
    with pytest.raises(LoadError, match=r"cannot be read as Parquet or CSV .*Expected 5 fields"):
        load.embedding_tables(path)
    path.write_text("table,table\na,b\n")
    with pytest.raises(LoadError, match=r"columns \['table'\] occur twice"):
        load.embedding_tables(path)
