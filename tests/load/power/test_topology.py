"""The tree that delivers power: units, order, and what is not a tree."""

import json

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import datasets, load
from workbench.errors import LoadError
from workbench.tables import POWER_TOPOLOGY


def write(tmp_path, text, name="tree.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.oracle
def test_the_published_trees_load_with_their_limits():
    tree = load.power_topology(datasets.path("published") / "power_trees.csv").set_index("entity")
    limits = tree["limit_w"].dropna()
    dynamo = limits[limits.index.str.startswith("dynamo/")]
    assert dynamo.tolist() == [30e6, 2.5e6, 1.25e6, 190e3, pytest.approx(12.6e3)]
    assert tree.loc[["dps/utility", "dps/switchboard1"], "limit_w"].tolist() == [750e3, 1.6e6]
    assert (tree.loc[tree["level"] == "pdu", "limit_w"] == 450e3).sum() == 4
    assert tree["parent"].isna().sum() == 2


def test_units_stand_in_the_names_of_the_columns(tmp_path):
    path = write(tmp_path, "entity,parent,limit_kw,nameplate_MW\nmsb,,2500,2.5\nrack,msb,12.6,\n")
    tree = load.power_topology(path)
    assert tree["limit_w"].tolist() == [2.5e6, 12.6e3]
    assert tree["nameplate_w"].iloc[0] == 2.5e6
    assert tree["nameplate_w"].isna().tolist() == [False, True]
    assert tree["level"].tolist() == ["unknown", "unknown"]


def test_losses_are_read_where_a_file_has_them_and_checked(tmp_path):
    text = "entity,parent,loss_share\ngpu,ups,\nups,,0.04\n"
    tree = load.power_topology(write(tmp_path, text))
    assert tree["loss_share"].fillna(-1).tolist() == [0.04, -1]
    for bad in ("1", "4 %", "-0.1"):
        with pytest.raises(
            LoadError, match=r"line 3: 1 rows have a loss_share that is not a share"
        ):
            load.power_topology(write(tmp_path, text.replace("0.04", bad)))
    assert "loss_share" not in load.power_topology(write(tmp_path, "entity,parent\na,\n"))


def test_parents_come_before_their_children(tmp_path):
    path = write(tmp_path, "entity,parent,level\ngpu0,n1,GPU\nn1,r1,node\nr1,,rack\nr2,,rack\n")
    tree = load.power_topology(path)
    assert tree["entity"].tolist() == ["r1", "r2", "n1", "gpu0"]
    assert tree["level"].tolist() == ["rack", "rack", "node", "gpu"]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.randoms())
def test_any_tree_in_any_order_is_put_in_order(tmp_path_factory, feeds, random):
    rows = [(str(n), "" if feed >= n else str(feed)) for n, feed in enumerate(feeds)]
    random.shuffle(rows)
    text = "entity,parent\n" + "".join(f"{entity},{parent}\n" for entity, parent in rows)
    path = write(tmp_path_factory.mktemp("tree"), text)
    tree = POWER_TOPOLOGY.check(load.power_topology(path))
    seen = set()
    for entity, parent in zip(tree["entity"], tree["parent"], strict=True):
        assert pd.isna(parent) or parent in seen
        seen.add(entity)
    assert len(tree) == len(rows)


@pytest.mark.parametrize("wrap", [lambda rows: rows, lambda rows: {"tree": rows, "version": 1}])
def test_json_and_parquet_say_the_same_as_csv(tmp_path, wrap):
    rows = [
        {"entity": 1, "parent": None, "level": "rack", "limit_w": 1000},
        {"entity": 2, "parent": 1, "level": "node", "limit_w": None},
    ]
    expected = load.power_topology(
        write(tmp_path, "entity,parent,level,limit_w\n1,,rack,1000\n2,1,node,\n")
    )
    as_json = load.power_topology(write(tmp_path, json.dumps(wrap(rows)), "tree.json"))
    pd.DataFrame(rows).to_parquet(tmp_path / "tree.parquet")
    as_parquet = load.power_topology(tmp_path / "tree.parquet")
    for other in (as_json, as_parquet):
        pd.testing.assert_frame_equal(other, expected)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("entity,parent\na,\nb,x\n", r"line 3: 1 rows have a parent that is not an entity; .*'x'"),
        ("entity,parent\na,b\nb,a\n", r"line 2: entities feed each other in a ring: a <- b <- a"),
        ("entity,parent\na,a\n", "ring: a <- a"),
        ("entity,parent\na,\nb,\nc,a\nc,b\n", "line 5: 1 rows give an entity a second parent"),
        ("entity,parent\na,\na,\n", "line 3: 1 rows list an entity again; the first is 'a'"),
        ("entity,parent\na,\n ,a\n", "line 3: 1 rows name no entity"),
        ("entity,feed\na,\n", r"no column \['parent'\]; it has \['entity', 'feed'\]"),
        ("entity,parent,limit\na,,5\n", "column 'limit' names no unit; call it limit_w"),
        ("entity,parent,limit_w,limit_kw\na,,5,5\n", "say the same; keep one"),
        ("entity,parent,limit_kw\na,,5\nb,a,many\n", "line 3: 1 rows have a limit that is not power"),
        ("entity,parent,limit_kw\na,,-5\n", "line 2: 1 rows have a limit that is not power"),
        ("entity,parent,nameplate_w\na,,1e13\n", "have a nameplate that is not power"),
        ("", "is empty"),
    ],
)  # fmt: skip
def test_what_is_no_tree_is_refused_with_its_line(tmp_path, text, words):
    with pytest.raises(LoadError, match=words):
        load.power_topology(write(tmp_path, text))


@pytest.mark.parametrize("text", ["{", "5", '["a"]', '{"a": 1}', "[" * 100_000])
def test_json_that_is_no_list_of_objects_is_refused(tmp_path, text):
    with pytest.raises(LoadError, match=r"cannot be read as JSON|holds no list of objects"):
        load.power_topology(write(tmp_path, text, "tree.json"))


@pytest.mark.parametrize("name", ["none.csv", "none.json", "none.parquet"])
def test_an_absent_file_is_named(tmp_path, name):
    with pytest.raises(FileNotFoundError, match=f"{name}: there is no such file"):
        load.power_topology(tmp_path / name)
