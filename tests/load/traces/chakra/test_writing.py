"""Chakra files written here: read by the public schema, by Chakra's feeder, and by the loader."""

import heapq

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from tests.load.traces.chakra.chakra_files import public_classes, split
from workbench import load
from workbench.errors import LoadError
from workbench.tables import DEPENDENCIES, NODES

HOSTILE = '"; import os\n\x00<b>\u202e\N{PILE OF POO}'


@pytest.fixture(scope="session")
def public():
    """Make the message classes of the public schema, as protoc would."""
    return public_classes()


def feed(path, public):
    """Work a file off as ETFeeder does: nodes whose data dependencies are done, lowest id first."""
    header, *rest = split(path.read_bytes())
    public["GlobalMetadata"].FromString(header)
    nodes = {node.id: node for node in map(public["Node"].FromString, rest)}
    assert len(nodes) == len(rest)
    children, unresolved = {}, {}
    for node in nodes.values():
        assert all(parent in nodes for parent in [*node.data_deps, *node.ctrl_deps])
        unresolved[node.id] = set(node.data_deps)
        for parent in node.data_deps:
            children.setdefault(parent, []).append(node.id)
    ready = [number for number, left in unresolved.items() if not left]
    heapq.heapify(ready)
    issued = []
    while ready:
        number = heapq.heappop(ready)
        issued.append(number)
        for child in dict.fromkeys(children.get(number, ())):
            unresolved[child].discard(number)
            if not unresolved[child]:
                heapq.heappush(ready, child)
    return nodes, issued


def row(number, **more):
    plain = {"rank": 0, "node": number, "name": f"op{number}", "type": "COMP_NODE"}
    return plain | more


def tables(rows, edges=()):
    nodes = pd.DataFrame(rows, columns=list(NODES.columns))
    nodes = nodes.astype(object).where(nodes.notna(), None)
    listed = [(0, node, needs, "data") for node, needs in edges]
    pairs = pd.DataFrame(listed, columns=list(DEPENDENCIES.columns))
    return NODES.cast(nodes), DEPENDENCIES.cast(pairs)


@pytest.fixture
def again(tmp_path):
    """Write tables, and give the file and what the loader reads of it."""

    def write_and_load(nodes, dependencies, **options):
        (file,) = load.write_chakra((nodes, dependencies), tmp_path / "job", **options)
        return file, load.traces(file, progress=False)

    return write_and_load


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        ("kineto-resnet", "linear_et.json.gz"),
        ("kineto-resnet", "resnet_et.json.gz"),
        ("kineto-dlrm-8rank", "dlrm_pytorch_et.tar.gz"),
    ],
)
def test_real_graphs_come_back_exactly_and_are_worked_off(
    real_data, tmp_path, public, dataset, name
):
    trace = load.traces(real_data(dataset) / name, progress=False)
    files = load.write_chakra(trace, tmp_path / "out" / "job")
    back = load.traces(tmp_path / "out", progress=False)
    assert_frame_equal(back.nodes, trace.nodes, check_categorical=False)
    assert_frame_equal(back.dependencies, trace.dependencies)
    assert [file.name for file in files] == [f"job.{rank}.et" for rank in trace.ranks["rank"]]
    for file in files:
        nodes, issued = feed(file, public)
        assert sorted(issued) == sorted(nodes)


@pytest.mark.long
def test_chakras_sample_with_its_gaps_is_refused_unless_asked_for(real_data, again):
    trace = load.traces(real_data("chakra-et") / "feeder_tests_trace.tar.gz", progress=False)
    with pytest.raises(LoadError, match=r"rank 0 can never finish: 1,277 dependencies"):
        again(trace.nodes, trace.dependencies)
    _, back = again(trace.nodes, trace.dependencies, allow_stuck=True)
    assert_frame_equal(back.nodes, trace.nodes, check_categorical=False)
    assert_frame_equal(back.dependencies, trace.dependencies)


numbers = st.none() | st.integers(0, 2**62)
rows_of_one = st.fixed_dictionaries(
    {
        "name": st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9),
        "type": st.sampled_from(["cpu_op", "COMP_NODE", "collective", "COMM_COLL_NODE", "wait"]),
        "parent": st.none() | st.integers(0, 9),
        "start_ns": st.none() | st.integers(-(2**62), 2**62),
        "dur_ns": numbers,
        "record_function": numbers,
        "collective": st.sampled_from([None, "all_reduce", "all_to_allv", "send", "odd"]),
        "group": st.sampled_from([None, "0", HOSTILE]),
        "size_bytes": numbers,
        "is_cpu": st.sampled_from([None, True, False]),
    }
)


@given(st.lists(rows_of_one, min_size=1, max_size=5))
def test_whatever_the_tables_hold_comes_back(tmp_path_factory, rows):
    made = [{"rank": 3, "node": 2 * at} | each for at, each in enumerate(rows)]
    edges = [(2 * at, 2 * at - 2) for at in range(1, len(rows))]
    nodes, dependencies = tables(made, edges)
    dependencies["rank"] = dependencies["rank"] + pd.Series(3, dtype="int32").iloc[0]
    folder = tmp_path_factory.mktemp("chakra")
    load.write_chakra((nodes, dependencies), folder / "job.et")
    back = load.traces(folder, progress=False)
    assert back.nodes["rank"].tolist() == [3] * len(rows)
    assert NODES.cast(back.nodes).astype(object).map(str).equals(nodes.astype(object).map(str))
    assert len(back.dependencies) == len(edges)


def test_a_collective_is_one_for_chakra_too(again, public):
    nodes, edges = tables(
        [
            row(1, type="collective", collective="all_to_allv", size_bytes=64, group="dp"),
            row(2, type="collective", collective="send", is_cpu=False),
            row(3, type="collective", collective="brew_coffee"),
            row(4, dur_ns=1_500, start_ns=7_000, is_cpu=True, size_bytes=5),
        ]
    )
    file, _ = again(nodes, edges)
    made = [public["Node"].FromString(message) for message in [*split(file.read_bytes())][1:]]
    attributes = [{a.name: a for a in node.attr} for node in made]
    assert [node.type for node in made] == [7, 4, 4, 4]
    assert attributes[0]["comm_type"].int64_val == 6
    assert attributes[0]["comm_size"].int64_val == 64
    assert attributes[0]["pg_name"].string_val == "1"
    assert (made[3].start_time_micros, made[3].duration_micros) == (7, 2)
    assert attributes[3]["tensor_size"].uint64_val == 5
    assert attributes[3]["is_cpu_op"].bool_val is True


def test_a_damaged_note_of_the_exact_values_is_counted(again):
    nodes, edges = tables([row(1, type="cpu_op", parent=9), row(2)])
    file, _ = again(nodes, edges)
    file.write_bytes(file.read_bytes().replace(b'"parent":9', b'"parent":z'))
    back = load.traces(file, progress=False)
    found = back.quality.set_index("what")["count"]
    assert found["exact times and types of nodes that cannot be read"] == 1
    assert back.nodes["type"].tolist() == ["COMP_NODE", "COMP_NODE"]


def test_a_cut_file_gives_what_is_whole(again):
    nodes, edges = tables([row(number) for number in range(5)])
    file, _ = again(nodes, edges)
    file.write_bytes(file.read_bytes()[:-3])
    back = load.traces(file, progress=False)
    assert len(back.nodes) == 4
    assert (back.quality["finding"] == "truncated").any()


@pytest.mark.parametrize(
    ("rows", "edges", "message"),
    [
        ([], [], "there are no nodes to write"),
        ([row(1), row(1)], [], "ids of nodes must be unique and not negative, 1 are not"),
        ([row(-1)], [], "ids of nodes must be unique and not negative, -1 are not"),
        ([row(1)], [(2, 1)], "1 dependencies are of nodes that are not there: 2"),
        ([row(1)], [(1, 2)], r"1 dependencies are on nodes that are not there \(2\)"),
        ([row(1), row(2)], [(1, 2), (2, 1)], r"2 nodes are on cycles or between them \(1, 2\)"),
    ],
)
def test_a_graph_that_nobody_can_work_off_is_refused(tmp_path, rows, edges, message):
    with pytest.raises(LoadError, match=message):
        load.write_chakra(tables(rows, edges), tmp_path / "job")
    assert list(tmp_path.iterdir()) == []
