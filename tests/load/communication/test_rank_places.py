"""A file of places: every wrong cell is named."""

import pytest

from workbench import load
from workbench.errors import LoadError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rank,host\n0,a\n", r"no column \['node'\].*columns="),
        ("rank,node\n0,a\n0,b\n", r"ranks \[0\] occur twice"),
        ("rank,node\n-1,a\n", "1 values are not a whole number from 0"),
        ("rank,node\n0,\n", "not a name of a node"),
        ("rank,node,rail\n0,a,1\n1,a,\n", "column for 'rail': 1 values are not a whole number"),
        ("rank,node,switch\n0,a,s\n1,a,\n", r"nodes \['a'\] hang on several switches"),
        ("rank,node,switch\n0,a,s\n1,a,t\n", r"nodes \['a'\] hang on several switches"),
    ],
)
def test_what_is_wrong_in_a_file_of_places_is_named(tmp_path, text, message):
    path = tmp_path / "places.csv"
    path.write_text(text)
    with pytest.raises(LoadError, match=message):
        load.rank_places(path)


def test_rails_and_switches_may_be_left_out(tmp_path):
    path = tmp_path / "places.csv"
    path.write_text("rank,node\n0,a\n1,b\n")
    table = load.rank_places(path)
    assert table[["rail", "switch"]].isna().all().all()
    assert set(table["basis"]) == {"topology file"}


def test_a_last_line_without_an_end_is_counted(tmp_path):
    path = tmp_path / "places.csv"
    path.write_text("rank,node,rail,switch\n0,a,0,s0\n1,b,1,s0")
    assert sum(load.rank_places(path).attrs["left_out"].values()) == 1
