"""Chakra execution traces: what the files state, every generation, then damage."""

import gzip
import json
import struct
import tarfile
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.load.traces.chakra.chakra_files import read_varint, split
from workbench import tables
from workbench.errors import LoadError
from workbench.load._files.archive import sources
from workbench.load._traces.chakra.reader import chakra, looks_like
from workbench.load._traces.execution import reader as execution_trace

TYPES = ["INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE"]
TYPES += ["COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE"]
COMPUTE, COLLECTIVE = 4, 7

# --- protobuf by hand: an encoder and a decoder that know the wire format only -------------


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


def encode(*pairs):
    """Encode (field, value) pairs: numbers as varints, floats as doubles, the rest by length."""
    out = b""
    for field, value in pairs:
        if isinstance(value, int):
            out += varint(field << 3) + varint(value)
        elif isinstance(value, float):
            out += varint(field << 3 | 1) + struct.pack("<d", value)
        else:
            raw = value.encode() if isinstance(value, str) else value
            out += varint(field << 3 | 2) + varint(len(raw)) + raw
    return out


def packed(*numbers):
    return b"".join(varint(number) for number in numbers)


def delimited(*messages):
    return b"".join(varint(len(message)) + message for message in messages)


def decode(message):
    """Return field number to list of values (numbers or bytes)."""
    found, at = {}, 0
    while at < len(message):
        key, at = read_varint(message, at)
        if key & 7 == 0:
            value, at = read_varint(message, at)
        elif key & 7 == 2:
            length, at = read_varint(message, at)
            value, at = message[at : at + length], at + length
        else:
            size = 8 if key & 7 == 1 else 4
            value, at = message[at : at + size], at + size
        found.setdefault(key >> 3, []).append(value)
    return found


def numbers(raw):
    at, found = 0, []
    while at < len(raw):
        number, at = read_varint(raw, at)
        found.append(number)
    return found


HEADER = encode((1, "0.0.4"), (2, encode((1, "pid"), (13, 7))))


def node(number, kind=COMPUTE, *, name=None, data=(), control=(), us=0, start=0, attrs=()):
    pairs = [(1, number)] if number else []
    pairs += [(2, name or f"op{number}"), (3, kind)]
    pairs += [(4, packed(*control))] if control else []
    pairs += [(5, packed(*data))] if data else []
    pairs += [(6, start)] if start else []
    pairs += [(7, us)] if us else []
    pairs += [(8, encode((1, "[]"), (2, "[]"), (3, "[]")))]
    pairs += [(10, encode((1, key), value)) for key, value in attrs]
    return encode(*pairs)


@pytest.fixture
def load(tmp_path):
    def write_and_load(data, name="model.0.et", **options):
        path = tmp_path / name
        path.write_bytes(data)
        return chakra(path, **options)

    return write_and_load


def findings(trace, *kinds):
    wanted = trace.quality[trace.quality["finding"].isin(kinds)]
    return dict(zip(wanted["what"], wanted["count"], strict=True))


def member(path, suffix):
    with tarfile.open(path) as archive:
        (info,) = [entry for entry in archive if entry.name.endswith(suffix)]
        return archive.extractfile(info).read()


# --- what the files state -----------------------------------------------------------------


@pytest.fixture(scope="module")
def feeder(real_data):
    """Give messages and loaded trace of Chakra's own sample."""
    path = real_data("chakra-et") / "feeder_tests_trace.tar.gz"
    return list(split(member(path, ".et"))), chakra(path)


@pytest.mark.oracle
def test_the_sample_has_the_published_number_of_messages(feeder):
    messages, trace = feeder
    assert len(messages) == 3665
    assert len(trace.nodes) == 3664


@pytest.mark.oracle
def test_protobuf_nodes_are_those_of_the_file(feeder):
    messages, trace = feeder
    nodes = trace.nodes.set_index("node")
    stated = [decode(message) for message in messages[1:]]
    assert Counter(nodes["type"]) == Counter(TYPES[fields[3][0]] for fields in stated)
    assert Counter(nodes["name"]) == Counter(fields[2][0].decode() for fields in stated)
    durations = [fields.get(7, [0])[0] for fields in stated]
    assert nodes["dur_ns"].sum() == 1000 * sum(durations)
    assert nodes["dur_ns"].notna().sum() == sum(map(bool, durations))
    assert nodes["start_ns"].isna().all()
    for fields in stated[::11]:
        row = nodes.loc[fields[1][0]]
        attrs = {entry[1][0]: entry for entry in map(decode, fields[10])}
        assert row["name"] == fields[2][0].decode()
        assert row["is_cpu"] == bool(attrs[b"is_cpu_op"][27][0])
        if b"rf_id" in attrs:
            assert row["record_function"] == attrs[b"rf_id"][9][0]


@pytest.mark.oracle
def test_protobuf_dependencies_are_those_of_the_file(feeder):
    messages, trace = feeder
    stated = {"data": Counter(), "control": Counter()}
    for fields in map(decode, messages[1:]):
        for kind, field in (("control", 4), ("data", 5)):
            for needs in numbers(b"".join(fields.get(field, []))):
                stated[kind][fields[1][0], needs] += 1
    for kind, edges in stated.items():
        chosen = trace.dependencies[trace.dependencies["edge"] == kind]
        assert Counter(zip(chosen["node"], chosen["needs"], strict=True)) == edges
    known = {decode(message)[1][0] for message in messages[1:]}
    dangling = sum(needs not in known for edges in stated.values() for _, needs in edges)
    assert findings(trace, "suspicious")["dependencies on nodes that the trace lacks"] == dangling


@pytest.mark.oracle
def test_protobuf_collectives_are_those_of_the_file(feeder):
    messages, trace = feeder
    sizes = {"all_reduce": 0, "broadcast": 0}
    for fields in map(decode, messages[1:]):
        attrs = {entry[1][0]: entry for entry in map(decode, fields[10])}
        if b"comm_type" in attrs:
            kind = {0: "all_reduce", 5: "broadcast"}[attrs[b"comm_type"][9][0]]
            sizes[kind] += attrs[b"comm_size"][9][0]
    found = trace.nodes.groupby("collective", observed=True)["size_bytes"].sum()
    assert found.to_dict() == sizes
    assert sizes["all_reduce"] == 102_228_128


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["/chakra.0.json", "small_chakra.0.json"])
def test_json_nodes_and_dependencies_are_those_of_the_file(name, real_data):
    path = real_data("chakra-et") / "json_trace.tar.gz"
    stated = json.loads(member(path, name))["workload_graph"]
    chosen = [source for source in sources(path) if source.label.endswith(name)]
    trace = chakra(chosen)
    assert len(trace.nodes) == len(stated)
    assert Counter(trace.nodes["type"]) == Counter(TYPES[entry["NodeType"]] for entry in stated)
    assert Counter(trace.nodes["name"]) == Counter(entry["Name"] for entry in stated)
    assert trace.nodes["dur_ns"].sum() == 1000 * sum(entry.get("runtime", 0) for entry in stated)
    edges = Counter(trace.dependencies["edge"])
    assert edges["data"] == sum(len(entry["data_deps"]) for entry in stated)
    assert edges["control"] == sum(len(entry.get("ctrlDeps", [])) for entry in stated)


@pytest.mark.oracle
def test_protobuf_and_json_of_one_run_agree(feeder, real_data):
    found = sources(real_data("chakra-et") / "json_trace.tar.gz")
    from_json = chakra([s for s in found if s.label.endswith("/chakra.0.json")])
    from_protobuf = feeder[1]
    columns = ["rank", "node", "dur_ns", "is_cpu"]
    left = from_protobuf.nodes[columns].fillna({"dur_ns": 0})
    assert left.equals(from_json.nodes[columns].fillna({"dur_ns": 0}))
    data = from_protobuf.dependencies.query("edge == 'data'").reset_index(drop=True)
    assert data[["node", "needs"]].equals(from_json.dependencies[["node", "needs"]])


@pytest.mark.oracle
def test_real_files_are_recognised_by_content(real_data, dlrm):
    for name in ("feeder_tests_trace.tar.gz", "json_trace.tar.gz"):
        for source in sources(real_data("chakra-et") / name):
            assert looks_like(source.head(), source.label)
            assert not execution_trace.looks_like(source.head(), source.label)
    others = [*sources(dlrm), *sources(real_data("kineto-resnet"))]
    others += sources(real_data("stragglers-bytedance"))
    for source in others:
        assert not looks_like(source.head(), source.label)


# --- the generations of the schema ----------------------------------------------------------


def test_every_kind_of_number_can_be_an_attribute(load):
    values = [(5, b"\0"), (7, 64), (9, 64), (11, 64), (13, 64), (15, 128), (17, 128), (3, 64.0)]
    nodes = [
        node(at + 1, COLLECTIVE, attrs=[("comm_size", value), ("comm_type", (9, 2))])
        for at, value in enumerate(values[1:])
    ]
    trace = load(delimited(HEADER, *nodes))
    assert trace.nodes["size_bytes"].tolist() == [64] * 7
    assert set(trace.nodes["collective"]) == {"all_gather"}


def test_a_node_with_id_0_and_lists_as_attributes_is_read(load):
    attrs = [("involved_dim", (28, encode((1, b"\1\1")))), ("pg_name", (29, "tp")),
             ("is_cpu_op", (27, 0)), ("rf_id", (13, 9)), ("comm_type", (9, 0))]  # fmt: skip
    trace = load(delimited(HEADER, node(0, COLLECTIVE, us=3, start=2, attrs=attrs)))
    row = trace.nodes.iloc[0]
    assert row[["node", "group", "is_cpu", "record_function"]].tolist() == [0, "tp", False, 9]
    assert row[["start_ns", "dur_ns", "collective"]].tolist() == [2000, 3000, "all_reduce"]


def test_dependencies_may_be_packed_or_not(load):
    unpacked = encode((1, 3), (2, "c"), (3, 4), (4, 1), (5, 1), (5, 2), (10, encode((1, "x"))))
    trace = load(delimited(HEADER, node(1), node(2, data=[1]), unpacked))
    edges = trace.dependencies[["node", "needs", "edge"]].to_numpy().tolist()
    assert sorted(edges) == [[2, 1, "data"], [3, 1, "control"], [3, 1, "data"], [3, 2, "data"]]


def test_storage_nodes_of_2026_keep_the_present_layout(load):
    storage = encode((1, 5), (2, "read"), (3, 8), (11, encode((1, 1), (10, encode((1, 3))))))
    trace = load(delimited(HEADER, storage))
    assert trace.nodes["type"].tolist() == ["STORAGE_NODE"]
    assert "schema 0.0.4" in findings(trace, "read")


def test_a_node_type_that_nobody_knows_is_kept_and_told(load):
    trace = load(delimited(HEADER, node(1, 77)))
    assert trace.nodes["type"].tolist() == ["NODE_TYPE_77"]
    assert "node types that the schema does not know" in findings(trace, "suspicious")


def test_an_unknown_version_is_read_and_told(load):
    trace = load(delimited(encode((1, "0.9.9")), node(1)))
    assert "schema 0.9.9 is not known; read like 0.0.4" in findings(trace, "suspicious")


def attr_2023(name, kind, field, value):
    return (11, encode((1, name), (2, kind), (field, value)))


@pytest.mark.parametrize("with_texts", [True, False])
def test_the_layout_of_2023_is_read(with_texts, load):
    header = encode((1, encode((1, "schema"), (2, 4), (8, "1.0.1"))))
    texts = [(5, "[]"), (6, "[]"), (7, "[]")] if with_texts else []
    compute = encode((1, 1), (2, "aten::mm"), (3, 4), *texts, attr_2023("runtime", 3, 7, 12))
    collective = encode(
        (1, 2), (2, "nccl"), (3, 7), (4, 1), *texts,
        attr_2023("comm_type", 3, 7, 1), attr_2023("comm_size", 2, 6, 4096),
        attr_2023("pg_name", 4, 8, "dp"), attr_2023("is_cpu_op", 0, 4, 0),
    )  # fmt: skip
    trace = load(delimited(header, compute, collective))
    assert "schema 2023" in findings(trace, "read")
    assert trace.nodes["type"].tolist() == ["COMP_NODE", "COMM_COLL_NODE"]
    assert trace.nodes["dur_ns"].tolist()[0] == 12_000
    row = trace.nodes.iloc[1]
    assert row[["collective", "size_bytes", "group"]].tolist() == ["all_to_all", 4096, "dp"]
    assert row["is_cpu"] == False  # noqa: E712 - a nullable truth value
    assert trace.dependencies[["node", "needs", "edge"]].to_numpy().tolist() == [[2, 1, "data"]]


@pytest.mark.parametrize(
    ("schema", "compute", "collective"), [("2022", 3, 6), ("early 2023", 4, 7)]
)
def test_the_layouts_before_attributes_are_read(schema, compute, collective, load):
    first = encode((1, 1), (2, "mm"), (3, compute), (5, 1), (6, 512), (7, 12), (12, 1000))
    second = encode((1, 2), (2, "ar"), (3, collective), (4, 1), (13, 1), (14, 1), (18, 4096))
    trace = load(delimited(first, second))
    assert f"schema {schema}" in findings(trace, "read")
    assert trace.nodes["type"].tolist() == ["COMP_NODE", "COMM_COLL_NODE"]
    assert trace.nodes["dur_ns"].tolist()[0] == 12_000
    assert trace.nodes["size_bytes"].tolist() == [512, 4096]
    assert trace.nodes["collective"].tolist()[1] == "all_reduce"
    assert len(trace.dependencies) == 1
    assert not findings(trace, "suspicious")


def test_the_present_layout_without_metadata_is_read_and_told(load):
    trace = load(delimited(node(1), node(2, data=[1])))
    assert len(trace.nodes) == 2
    assert any("metadata" in what for what in findings(trace, "suspicious"))


def test_protobuf_printed_as_json_is_read(load):
    messages = [
        {"version": "0.0.4"},
        {"name": "first", "type": "COMP_NODE", "durationMicros": "5", "attr": [
            {"name": "is_cpu_op", "boolVal": True}, {"name": "rf_id", "int64Val": "8"}]},
        {"id": "2", "name": "ar", "type": "COMM_COLL_NODE", "dataDeps": ["0"], "ctrlDeps": ["0"],
         "attr": [{"name": "comm_type", "int64Val": "0"}, {"name": "comm_size", "int64Val": "64"}]},
    ]  # fmt: skip
    data = "".join(json.dumps(message, indent=2) for message in messages).encode()
    assert looks_like(data[:4096], "model.json")
    trace = load(data, "model.3.json")
    assert trace.ranks["rank"].tolist() == [3]
    first, second = trace.nodes.to_dict("records")
    assert (first["node"], first["dur_ns"], first["is_cpu"]) == (0, 5000, True)
    assert first["record_function"] == 8
    assert (second["collective"], second["size_bytes"]) == ("all_reduce", 64)
    assert sorted(trace.dependencies["edge"]) == ["control", "data"]


# --- ranks and dependencies -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rank", "source"),
    [
        ("llama.7.et", 7, "file name"), ("llama.12.et.gz", 12, "file name"),
        ("rank_3.et", 3, "file name"), ("worker5.et", 5, "file name"), ("llama.et", 0, "assumed"),
    ],
)  # fmt: skip
def test_the_rank_is_that_of_the_name(name, rank, source, load):
    data = delimited(HEADER, node(1))
    trace = load(gzip.compress(data) if name.endswith("gz") else data, name)
    assert trace.ranks.loc[0, ["rank", "rank_source"]].tolist() == [rank, source]
    assert bool(findings(trace, "assumed")) == (source == "assumed")


def test_the_argument_goes_before_the_name(load):
    trace = load(delimited(HEADER, node(1)), "llama.7.et", rank=2)
    assert trace.ranks.loc[0, ["rank", "rank_source"]].tolist() == [2, "argument"]


def test_two_files_of_one_rank_are_refused_by_name(tmp_path):
    for name in ("a.1.et", "b.1.et"):
        (tmp_path / name).write_bytes(delimited(HEADER, node(1)))
    with pytest.raises(LoadError, match=r"two files are rank 1: .*a\.1\.et .* and .*b\.1\.et"):
        chakra(tmp_path)


def test_ranks_are_put_together_in_order(tmp_path):
    for rank in (10, 9, 0):
        (tmp_path / f"m.{rank}.et").write_bytes(delimited(HEADER, node(rank), node(3, data=[1])))
    trace = chakra(tmp_path)
    assert trace.ranks["rank"].tolist() == [0, 9, 10]
    assert trace.nodes["rank"].tolist() == [0, 0, 9, 9, 10, 10]
    tables.NODES.check(trace.nodes)
    tables.DEPENDENCIES.check(trace.dependencies)


def test_circles_and_loose_ends_are_kept_and_counted(load):
    nodes = [node(1, data=[3]), node(2, data=[1]), node(3, data=[2]), node(4, data=[3]),
             node(5, data=[4, 99, 98]), node(6)]  # fmt: skip
    trace = load(delimited(HEADER, *nodes))
    assert len(trace.dependencies) == 7
    assert findings(trace, "suspicious") == {
        "dependencies on nodes that the trace lacks": 2,
        "nodes on cycles of data dependencies, or between them": 3,
    }
    where = trace.quality.set_index("what")["where"]
    assert where["dependencies on nodes that the trace lacks"] == "node 5"


def test_a_circle_through_control_dependencies_is_told_apart(load):
    trace = load(delimited(HEADER, node(1, control=[2]), node(2, data=[1])))
    assert findings(trace, "suspicious") == {
        "nodes on cycles of data and control dependencies, or between them": 2
    }


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=40))
def test_as_many_nodes_on_circles_as_reach_themselves_or_lie_between(tmp_path_factory, edges):
    path = tmp_path_factory.mktemp("circles") / "m.0.et"
    needed = {number: [b for a, b in edges if a == number] for number in range(13)}
    path.write_bytes(delimited(HEADER, *(node(n, data=needed[n]) for n in range(13))))
    counted = findings(chakra(path), "suspicious").get(
        "nodes on cycles of data dependencies, or between them", 0
    )

    def reach(start, follow):
        seen, todo = set(), [start]
        while todo:
            for other in follow[todo.pop()]:
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        return seen

    users = {number: [a for a, b in edges if b == number] for number in range(13)}
    on = {number for number in range(13) if number in reach(number, needed)}
    between = {
        number
        for number in range(13)
        if (reach(number, needed) | {number}) & on and (reach(number, users) | {number}) & on
    }
    assert counted == len(between)


def test_node_ids_that_occur_again_are_told(load):
    trace = load(delimited(HEADER, node(1), node(1), node(2)))
    assert findings(trace, "suspicious") == {"node ids that occur again": 1}


# --- damage ---------------------------------------------------------------------------------

WHOLE = delimited(HEADER, *(node(i, data=[i - 1] if i > 1 else [], us=i) for i in range(1, 40)))


@pytest.mark.parametrize("cut", range(40, len(WHOLE), 37))
def test_a_truncated_file_gives_its_whole_nodes(cut, load):
    ends, at = [], 0
    for message in split(WHOLE):
        at += len(varint(len(message))) + len(message)
        ends.append(at)
    whole = sum(end <= cut for end in ends) - 1
    if whole < 1:
        with pytest.raises(LoadError, match=r"model\.0\.et: 0 of 0 nodes|no whole"):
            load(WHOLE[:cut])
        return
    trace = load(WHOLE[:cut])
    assert trace.nodes["node"].tolist() == list(range(1, whole + 1))
    told = trace.quality[trace.quality["finding"] == "truncated"]
    assert len(told) == (cut not in ends)
    if len(told):
        assert told["where"].iloc[0] == f"byte {ends[whole]:,} of {cut:,}"


def test_a_node_that_cannot_be_decoded_is_left_out_and_counted(load):
    at = WHOLE.index(b"op20") - 2
    broken = bytearray(WHOLE)
    broken[at] = 0x0F  # a field of a kind that does not exist
    trace = load(bytes(broken))
    assert 20 not in trace.nodes["node"].tolist()
    assert len(trace.nodes) == 38
    assert findings(trace, "dropped") == {"nodes that cannot be decoded": 1}


def test_padding_is_left_out_and_counted(load):
    trace = load(WHOLE + b"\0" * 5000)
    assert len(trace.nodes) == 39
    assert findings(trace, "dropped") == {"empty messages, or NUL padding": 5000}


def test_names_that_are_no_text_are_replaced_and_counted(load):
    trace = load(delimited(HEADER, node(1, name=b"op\xff")))
    assert trace.nodes["name"].tolist() == ["op\ufffd"]
    assert sum(findings(trace, "repaired").values()) == 1


def test_times_beyond_any_clock_are_left_out_and_counted(load):
    trace = load(delimited(HEADER, node(1, us=1 << 63), node(2, us=(1 << 63) - 1), node(3, us=1)))
    assert trace.nodes["dur_ns"].isna().tolist() == [True, True, False]
    assert findings(trace, "dropped") == {"durations that are negative or no time": 2}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (HEADER, "model.0.et"),
        (delimited(HEADER), "0 of 0 nodes cannot be decoded"),
        (b"\xff" * 400, "holds no whole message"),
        (b"PK not a trace at all", "model.0.et"),
        (b'{"workload_graph": []}', "holds no readable node"),
        (b'{"workload_graph": {}}', "has no list 'workload_graph'"),
        (b'{"workload_graph": [1, null, {"Name": "x"}]}', "holds no readable node"),
        (b'{"a": 1}', "holds no readable node"),
    ],
)
def test_what_is_no_chakra_trace_is_one_clear_error(data, message, load):
    with pytest.raises(LoadError, match=message):
        load(data)


GRAPH = json.dumps(
    {
        "workload_graph": [
            {"Id": i, "Name": f"op{i}", "NodeType": 7, "runtime": i, "data_deps": [i - 1],
             "ctrlDeps": [0], "is_cpu_op": False, "comm_type": 0, "comm_size": 8}
            for i in range(1, 20)
        ],
        "ngpus": 8,
    },
    indent=1,
).encode()  # fmt: skip


def test_a_truncated_workload_graph_gives_its_whole_nodes(load):
    trace = load(GRAPH[: GRAPH.index(b'"op9"')], "model.0.json")
    assert trace.nodes["node"].tolist() == list(range(1, 9))
    assert "the file ends inside a node, which is dropped" in findings(trace, "truncated")


def test_a_workload_graph_tells_the_size_of_the_job(load):
    assert load(GRAPH, "model.0.json").ranks["world_size"].tolist() == [8]


@pytest.mark.parametrize("whole", [WHOLE, GRAPH], ids=["protobuf", "json"])
@given(data=st.data())
def test_no_damage_raises_anything_but_a_load_error(whole, data, tmp_path_factory):
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 5))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(1, len(damaged)))]
    path = tmp_path_factory.mktemp("fuzz") / "model.0.et"
    path.write_bytes(damaged)
    looks_like(bytes(damaged[:4096]), "model.0.et")
    try:
        trace = chakra(path)
    except LoadError as error:
        message = str(error)
        if "model.0.et" not in message:
            raise
        return
    tables.NODES.check(trace.nodes)
    tables.DEPENDENCIES.check(trace.dependencies)


@given(head=st.binary(max_size=200))
def test_recognition_never_fails(head):
    assert looks_like(head, "x.et") in (True, False)
    assert execution_trace.looks_like(head, "x.json") in (True, False)
