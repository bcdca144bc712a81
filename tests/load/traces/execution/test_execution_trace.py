"""PyTorch execution traces: what the files state, then laws, then damage."""

import gzip
import io
import json
import tarfile
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import tables
from workbench.errors import LoadError
from workbench.load._files.archive import sources
from workbench.load._traces.execution.reader import execution_trace, looks_like, tensor_edges

FILES = [
    ("kineto-resnet", "linear_et.json.gz"),
    ("kineto-resnet", "resnet_et.json.gz"),
    ("kineto-resnet", "1.1.0-chakra.0.0.4/resnet_2gpu_et.json.gz"),
    ("chakra-et", "1.0.2-chakra.0.0.4.tgz"),
]


def documents(path):
    """Read the JSON of a file or of the members of an archive, with the standard library."""
    if path.name.endswith((".tgz", ".tar.gz")):
        with tarfile.open(path) as archive:
            for member in archive:
                if member.isfile() and not member.name.rsplit("/", 1)[-1].startswith("."):
                    yield json.load(archive.extractfile(member))
    else:
        with gzip.open(path) as file:
            yield json.load(file)


@pytest.fixture(scope="module")
def case(real_data):
    """Give document and loaded trace of a real file; each is read once."""
    known = {}

    def read(dataset, name):
        if (dataset, name) not in known:
            path = real_data(dataset) / name
            (document,) = documents(path)
            known[dataset, name] = document, execution_trace(path)
        return known[dataset, name]

    return read


def attribute(node, name):
    listed = {entry["name"]: entry["value"] for entry in node.get("attrs", [])}
    return listed.get(name, node.get(name))


def flat_node(number, name="aten::add", parent=1, **more):
    node = {"name": name, "id": number, "rf_id": number, "parent": parent, "scope": 0}
    return node | {"inputs": [], "outputs": []} | more


def listed_node(number, name="aten::add", parent=1, *, inputs=(), outputs=(), **attrs):
    return {
        "id": number,
        "name": name,
        "ctrl_deps": parent,
        "inputs": {"values": list(inputs), "shapes": [], "types": []},
        "outputs": {"values": list(outputs), "shapes": [], "types": []},
        "attrs": [{"name": key, "type": "x", "value": value} for key, value in attrs.items()],
    }


def tensor(number, elements=10, item_bytes=4):
    return [number, 100 + number, 0, elements, item_bytes, "cuda:0"]


def allreduce(number, group, rank, **attrs):
    inputs = [[tensor(5)], 17, group, rank, "allreduce", [], [], 0, 1, 2]
    return listed_node(number, "record_param_comms", inputs=inputs, **attrs)


def groups_node(*groups):
    return listed_node(2, "## process_group:init ##", inputs=[json.dumps(groups)], scope=7)


def content(nodes, schema="1.1.0-chakra.0.0.4"):
    root = "[pytorch|profiler|execution_trace|process]"
    document = {"schema": schema, "pid": 1, "time": "", "start_ts": 1}
    return json.dumps(document | {"nodes": [listed_node(1, root), *nodes], "finish_ts": 2}).encode()


@pytest.fixture
def load(tmp_path):
    def write_and_load(data, name="et.json", **options):
        path = tmp_path / name
        path.write_bytes(data)
        return execution_trace(path, **options)

    return write_and_load


def findings(trace, *kinds):
    wanted = trace.quality[trace.quality["finding"].isin(kinds)]
    return dict(zip(wanted["what"], wanted["count"], strict=True))


# --- what the files state -----------------------------------------------------------------


@pytest.mark.long
@pytest.mark.oracle
@pytest.mark.parametrize(("dataset", "name"), FILES)
def test_nodes_are_those_of_the_file(dataset, name, case):
    document, trace = case(dataset, name)
    nodes = trace.nodes.set_index("node")
    assert len(nodes) == len(document["nodes"])
    assert nodes.index.is_unique
    assert Counter(nodes["name"]) == Counter(node["name"] for node in document["nodes"])
    for node in document["nodes"][:: max(1, len(nodes) // 300)]:
        row = nodes.loc[node["id"]]
        assert row["name"] == node["name"]
        parent = node.get("ctrl_deps", node.get("parent"))
        assert row["parent"] == parent if parent != node["id"] else row.isna()["parent"]
        recorded = attribute(node, "rf_id")
        assert row["record_function"] == recorded if recorded else row.isna()["record_function"]


@pytest.mark.oracle
@pytest.mark.parametrize(("dataset", "name"), FILES)
def test_node_types_follow_scope_and_name(dataset, name, case):
    document, trace = case(dataset, name)
    types = Counter(trace.nodes["type"])
    user = [node["name"] for node in document["nodes"] if attribute(node, "scope") == 7]
    roots = sum(text.startswith("[pytorch|profiler|execution_") for text in user)
    calls = sum(node["name"] == "record_param_comms" for node in document["nodes"])
    assert types["root"] == roots > 0
    assert types["annotation"] == len(user) - roots
    assert types["collective"] + types["wait"] == calls
    assert types["cpu_op"] == len(document["nodes"]) - len(user) - calls


@pytest.fixture(scope="module")
def dlrm_et(real_data):
    return execution_trace(real_data("kineto-dlrm-8rank") / "dlrm_pytorch_et.tar.gz")


@pytest.mark.oracle
def test_dlrm_has_the_published_nodes_and_collectives(dlrm_et):
    trace = dlrm_et
    assert trace.nodes.groupby("rank").size().to_dict() == dict.fromkeys(range(8), 1675)
    zero = trace.nodes[trace.nodes["rank"] == 0]
    assert Counter(zero["type"])["wait"] == 5
    called = Counter(zero.loc[zero["type"] == "collective", "collective"])
    assert called == {"all_to_all": 1, "all_to_allv": 4, "all_reduce": 3}
    assert trace.ranks["rank_source"].tolist() == ["trace"] * 8
    assert all(
        f"dlrm_eg_{r}.json" in s for r, s in zip(range(8), trace.ranks["source"], strict=True)
    )


@pytest.mark.oracle
def test_dlrm_collectives_carry_the_bytes_of_their_tensors(dlrm_et):
    nodes = dlrm_et.nodes
    sizes = nodes[(nodes["rank"] == 0) & (nodes["type"] == "collective")]["size_bytes"].tolist()
    # all_to_all of 6144 float, 24 long, 384 int, 3392 int, 6144 float; 3 all_reduce of floats
    assert sizes == [24576, 192, 1536, 13568, 1576964, 24576, 448, 907840]


@pytest.mark.oracle
def test_the_second_gpu_of_resnet_is_rank_1_of_2(case):
    _, trace = case(*FILES[2])
    ranks = trace.ranks.iloc[0]
    assert (ranks["rank"], ranks["rank_source"]) == (1, "trace")
    assert (ranks["world_size"], ranks["backend"]) == (2, "cuda:nccl")
    assert trace.process_groups["group"].tolist() == ["0"]
    collectives = trace.nodes[trace.nodes["type"] == "collective"]
    assert Counter(collectives["collective"]) == {"all_reduce": 15, "broadcast": 6}
    assert set(collectives["group"]) == {"0"}


@pytest.mark.oracle
@pytest.mark.parametrize(("dataset", "name"), FILES)
def test_real_traces_are_recognised_and_fit_their_tables(dataset, name, case, real_data):
    (source,) = sources(real_data(dataset) / name)
    assert looks_like(source.head(), source.label)
    trace = case(dataset, name)[1]
    tables.NODES.check(trace.nodes)
    tables.DEPENDENCIES.check(trace.dependencies)
    tables.RANKS.check(trace.ranks)
    tables.QUALITY.check(trace.quality)
    assert trace.events.empty
    assert len(trace.dependencies) > 100
    known = set(trace.nodes["node"])
    assert set(trace.dependencies["node"]) | set(trace.dependencies["needs"]) <= known
    assert (trace.dependencies["needs"] < trace.dependencies["node"]).all()
    assert not findings(trace, "dropped", "repaired", "truncated", "suspicious")


def test_kineto_traces_are_not_taken_for_execution_traces(dlrm):
    source = sources(dlrm)[0]
    assert not looks_like(source.head(), source.label)


# --- schemas ------------------------------------------------------------------------------


def test_flat_and_listed_attributes_give_the_same_nodes(load):
    flat = {
        "schema": "1.0.1", "pid": 1, "nodes": [
            flat_node(3, "## forward ##", 2, scope=7), flat_node(4, "aten::mm", 3),
        ],
    }  # fmt: skip
    listed = [
        listed_node(3, "## forward ##", 2, scope=7, rf_id=3),
        listed_node(4, "aten::mm", 3, scope=0, rf_id=4),
    ]
    old = load(json.dumps(flat).encode()).nodes
    new = load(content(listed)).nodes.iloc[1:].reset_index(drop=True)
    columns = ["node", "parent", "record_function"]
    assert old[columns].equals(new[columns])
    assert old["type"].astype(str).tolist() == new["type"].astype(str).tolist()
    assert old["type"].astype(str).tolist() == ["annotation", "cpu_op"]


def test_linked_traces_carry_times_and_gpu_work(load):
    kernel = listed_node(3, "ncclKernel", 2) | {
        "cat": "kernel", "ts": 1690000000000123.5, "inclusive_dur": 7, "stream": 7,
    }  # fmt: skip
    row = load(content([listed_node(2, "aten::mm"), kernel])).nodes.iloc[2]
    assert (row["type"], row["is_cpu"]) == ("kernel", False)
    assert (row["start_ns"], row["dur_ns"]) == (1690000000000123500, 7000)


def test_an_unknown_schema_is_read_and_told(load):
    trace = load(content([listed_node(2)], schema="2.0.0-chakra.9"))
    assert len(trace.nodes) == 2
    assert any("2.0.0-chakra.9 is not known" in what for what in findings(trace, "suspicious"))


def test_waits_and_barriers_move_no_data(load):
    nodes = [
        listed_node(2, "record_param_comms", inputs=[17, ["", ""], 0, name, [], []])
        for name in ("wait", "barrier")
    ]
    rows = load(content(nodes)).nodes.iloc[1:]
    assert rows["type"].tolist() == ["wait", "wait"]
    assert rows["size_bytes"].isna().all()


# --- ranks --------------------------------------------------------------------------------


def test_the_rank_in_a_group_becomes_a_global_rank(load):
    world = {"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 8}
    pair = {"pg_name": "3", "pg_desc": "tp", "ranks": [4, 5], "group_size": 2}
    nodes = [groups_node(world, pair), allreduce(3, ["3", "tp"], 1, pg_name="3")]
    trace = load(content(nodes))
    assert trace.ranks.loc[0, ["rank", "rank_source", "world_size"]].tolist() == [5, "trace", 8]
    assert trace.process_groups["members"].tolist() == ["", "4,5"]
    assert trace.process_groups["group_size"].tolist() == [8, 2]


def test_first_rank_and_stride_give_the_global_rank_where_no_group_is_listed(load):
    call = allreduce(3, ["3", ""], 2, pg_name="3", global_rank_start=1, global_rank_stride=4)
    assert load(content([call])).ranks.loc[0, "rank"] == 9


def test_the_root_of_a_broadcast_is_not_the_rank(load):
    call = allreduce(3, ["0", "default_pg"], 3)
    call["inputs"]["values"][4] = "broadcast"
    assert load(content([call])).ranks.loc[0, "rank_source"] == "assumed"


def test_addresses_of_old_schemas_lead_to_their_group(load):
    world = {"pg_name": "0", "backend_id": 4711, "ranks": [], "group_size": 4}
    trace = load(content([groups_node(world), allreduce(3, 4711, 2)], "1.0.2-chakra.0.0.4"))
    assert trace.ranks.loc[0, "rank"] == 2
    assert trace.nodes["group"].dropna().tolist() == ["0"]


def test_a_group_known_only_by_address_counts_as_the_world_and_says_so(load):
    trace = load(content([allreduce(3, 94594108284448, 6)]))
    assert trace.ranks.loc[0, ["rank", "rank_source"]].tolist() == [6, "trace"]
    assert any("has all ranks" in what for what in findings(trace, "assumed"))
    assert trace.nodes["group"].isna().all()


def test_collectives_that_disagree_tell_no_rank(load):
    trace = load(content([allreduce(3, 1, 0), allreduce(4, 2, 5)]))
    assert trace.ranks.loc[0, "rank_source"] == "assumed"
    world = {"pg_name": "0", "ranks": [], "group_size": 4}
    calls = [allreduce(3, ["0", ""], 0), allreduce(4, ["0", ""], 3)]
    trace = load(content([groups_node(world), *calls]), "et_rank2.json")
    assert trace.ranks.loc[0, ["rank", "rank_source"]].tolist() == [2, "file name"]
    assert "collectives state different ranks: [0, 3]" in findings(trace, "suspicious")


def test_the_argument_goes_before_all_else_and_contradiction_is_told(load):
    trace = load(content([allreduce(3, 4711, 2)]), rank=5)
    assert trace.ranks.loc[0, ["rank", "rank_source"]].tolist() == [5, "argument"]
    assert any("the trace says rank 2" in what for what in findings(trace, "suspicious"))


def test_no_rank_at_all_is_an_assumption(load):
    trace = load(content([listed_node(2)]))
    assert trace.ranks.loc[0, ["rank", "rank_source"]].tolist() == [0, "assumed"]
    assert "rank by the order of the files; not found in the metadata or the file name" in findings(
        trace, "assumed"
    )


def test_two_files_of_one_rank_are_refused_by_name(tmp_path):
    for name in ("a_rank1.json", "b_rank1.json"):
        (tmp_path / name).write_bytes(content([listed_node(2)]))
    with pytest.raises(LoadError, match=r"two files are rank 1: .*a_rank1.* and .*b_rank1"):
        execution_trace(tmp_path)
    with pytest.raises(LoadError, match=r"rank= names \['c_'\], which no file name has"):
        execution_trace(tmp_path, rank={"a_": 0, "b_": 1, "c_": 2})
    trace = execution_trace(tmp_path, rank={"a_": 0, "b_": 1})
    assert trace.ranks["rank"].tolist() == [0, 1]
    assert len(trace.nodes) == 4


def test_files_without_rank_beside_files_with_one_are_refused(tmp_path):
    for name in ("a_rank1.json", "b.json"):
        (tmp_path / name).write_bytes(content([listed_node(2)]))
    with pytest.raises(
        LoadError, match=r"b\.json: rank not found in the metadata or the file name"
    ):
        execution_trace(tmp_path)


@pytest.mark.parametrize("rank", [-1, 1 << 31, [0, 1], {"et": 1, "json": 2}])
def test_a_rank_that_does_not_fit_is_refused(rank, load):
    with pytest.raises(LoadError):
        load(content([listed_node(2)]), rank=rank)


# --- dependencies -------------------------------------------------------------------------


def test_a_node_needs_the_last_writer_of_what_it_reads(load):
    nodes = [
        listed_node(2, "write", outputs=[tensor(9)]),
        listed_node(3, "overwrite", inputs=[tensor(9)], outputs=[tensor(9)]),
        listed_node(4, "read", inputs=[[tensor(9), tensor(8)]]),
    ]
    trace = load(content(nodes))
    edges = trace.dependencies[["node", "needs", "edge"]].to_numpy().tolist()
    assert edges == [[3, 2, "data"], [4, 3, "data"]]


def test_of_nested_writers_the_outermost_counts_and_callers_never():
    callers = {1: None, 2: 1, 3: 2, 4: 3, 5: 1, 6: 5}
    writes = {2: [7], 3: [7], 4: [7], 5: [7]}
    reads = {5: [7], 6: [7]}
    assert tensor_edges(reads, writes, callers) == [(5, 2), (6, 2)]


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.lists(st.integers(0, 5)), st.lists(st.integers(0, 5))),
        max_size=30,
    )
)
def test_derived_dependencies_point_back_to_a_writer(calls):
    callers = {node: caller for node, (caller, _, _) in enumerate(calls)}
    reads = {node: read for node, (_, read, _) in enumerate(calls)}
    writes = {node: written for node, (_, _, written) in enumerate(calls)}
    edges = tensor_edges(reads, writes, callers)
    assert len(set(edges)) == len(edges)
    for node, needs in edges:
        assert needs < node
        assert set(reads[node]) & set(writes[needs])
        above, chain = callers[node], set()
        while above is not None and above not in chain and above in callers and above < node:
            chain.add(above)
            above = callers[above] if callers[above] < above else None
        assert needs not in chain


def test_missing_callers_are_told(load):
    trace = load(content([listed_node(5, parent=99)]))
    assert findings(trace, "suspicious") == {"callers that the trace lacks": 1}


# --- damage -------------------------------------------------------------------------------

WHOLE = content([listed_node(i, f"aten::op{i}", scope=0) for i in range(2, 40)])


@pytest.mark.parametrize("pretty", [False, True])
def test_a_truncated_trace_gives_its_whole_nodes(pretty, load):
    document = json.loads(WHOLE)
    whole = json.dumps(document, indent=2 if pretty else None).encode()
    first, last = whole.index(b'"nodes"') + 40, len(whole) - 30
    for cut in range(first, last, len(whole) // 40):
        data = whole[:cut]
        try:
            trace = load(data)
        except LoadError as error:
            assert "holds no readable node" in str(error)  # noqa: PT017
            continue
        ends = data.count(b'"attrs"') - 1
        assert ends - 1 <= len(trace.nodes) <= ends + 1
        assert trace.nodes["name"].iloc[-1] in whole[:cut].decode()
        (row,) = trace.quality[trace.quality["finding"] == "truncated"].to_dict("records")
        assert 0 < int(row["where"].split()[1].replace(",", "")) <= cut


def test_the_place_of_truncation_is_the_byte_where_the_broken_node_starts(load):
    cut = WHOLE.index(b'"aten::op7"') + 4
    trace = load(WHOLE[:cut])
    (where,) = trace.quality.loc[trace.quality["finding"] == "truncated", "where"]
    at = int(where.split()[1].replace(",", ""))
    assert WHOLE[at : at + 9] == b'{"id": 7,'
    assert trace.nodes["node"].max() == 6


def test_a_truncated_gzip_gives_its_whole_nodes(load):
    packed = gzip.compress(WHOLE)
    trace = load(packed[: len(packed) * 3 // 4], "et.json.gz")
    assert 1 < len(trace.nodes) < 39
    told = findings(trace, "truncated")
    assert any("packed data end in the middle" in what for what in told)
    assert "the file ends inside a node, which is dropped" in told


@pytest.mark.parametrize(
    ("whole", "broken", "what"),
    [
        (b'"aten::op7"', b'"aten::\x01op7"', "control characters"),
        (b'"aten::op7"', b'"C:\\work\\op7"', "backslashes"),
        (b'"aten::op7"', b'"at"en::op7"', "quotes"),
    ],
)
def test_broken_texts_are_mended_and_counted(whole, broken, what, load):
    trace = load(WHOLE.replace(whole, broken))
    assert len(trace.nodes) == 39
    (told,) = findings(trace, "repaired")
    assert what in told


def test_bytes_that_are_no_text_are_replaced_and_counted(load):
    trace = load(WHOLE.replace(b"aten::op7", b"aten::\xff\xfe7"))
    assert "aten::\ufffd\ufffd7" in set(trace.nodes["name"])
    assert sum(findings(trace, "repaired").values()) >= 1


@pytest.mark.parametrize("damage", [b"!", b', "finish_ts": }'])
def test_damage_behind_the_nodes_is_told(damage, load):
    trace = load(WHOLE[: WHOLE.rindex(b"]") + 1] + damage)
    assert len(trace.nodes) == 39
    assert any("around the list 'nodes'" in what for what in findings(trace, "suspicious"))


def test_damage_beyond_repair_names_the_byte(load):
    at = WHOLE.index(b'{"id": 7')
    with pytest.raises(LoadError, match=rf"et\.json, byte {at + 8:,}: "):
        load(WHOLE[: at + 8] + b"!!" + WHOLE[at + 8 :])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{}", "has no list 'nodes' at its top level"),
        (b"[]", "has no list 'nodes' at its top level; found a list"),
        (b'{"nodes": 3}', "has no list 'nodes'"),
        (b'{"nodes": []}', "holds no readable node"),
        (b'{"nodes": [1, null, {"name": "x"}]}', "holds no readable node"),
        (b'{"nodes": [[[', "holds no readable node"),
        (b'{"no": !', r"is not JSON with a list 'nodes' \(byte 7"),
        (b"[" * 100_000, "is not JSON with a list 'nodes'"),
        (b'{"nodes": ' + b"[" * 100_000, "et.json"),
        (b'{"nodes": [{"id": ' + b"9" * 5000 + b"}]}", "et.json"),
    ],
)
def test_what_is_no_execution_trace_is_one_clear_error(data, message, load):
    with pytest.raises(LoadError, match=message):
        load(data)


def test_nonsense_in_single_fields_never_stops_a_load(load):
    nonsense = [None, True, "x", -1, 1e400, 1 << 70, [], [[[]]], {}, [1, 2, 3, 4, 5, "x"], "\ud800"]
    nodes = []
    for at, value in enumerate(nonsense):
        node = listed_node(at + 2, "record_param_comms", inputs=[value, value, 0, "allreduce"])
        for key in (
            "name",
            "ctrl_deps",
            "inputs",
            "outputs",
            "attrs",
            "ts",
            "cat",
            "inclusive_dur",
        ):
            nodes.append({**node, "id": len(nodes) + 2, key: value})
        nodes.append(listed_node(len(nodes) + 2, rf_id=value, scope=value, collective_name=value))
        nodes.append(listed_node(value, "no id"))
    groups = [{"pg_name": value, "ranks": value, "group_size": value} for value in nonsense]
    nodes.append(groups_node(*groups, *nonsense) | {"id": 10_000})
    trace = load(content(nodes))
    tables.NODES.check(trace.nodes)
    tables.PROCESS_GROUPS.check(trace.process_groups)
    assert (
        len(trace.nodes) + findings(trace, "dropped")["nodes without a usable id"] == len(nodes) + 1
    )


FUZZED = json.dumps(
    {
        "schema": "1.1.0-chakra.0.0.4", "pid": 1, "nodes": [
            listed_node(1, "[pytorch|profiler|execution_trace|process]"),
            groups_node({"pg_name": "0", "ranks": [], "group_size": 2}),
            allreduce(3, ["0", "default_pg"], 1, pg_name="0", rf_id=7),
            *(listed_node(i, f"aten::op{i}", 1, inputs=[tensor(i), [1, 2]]) for i in range(4, 9)),
        ],
    }
).encode()  # fmt: skip


@given(data=st.data())
def test_no_damage_raises_anything_but_a_load_error(data, tmp_path_factory):
    damaged = bytearray(FUZZED)
    for _ in range(data.draw(st.integers(0, 5))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(1, len(damaged)))]
    path = tmp_path_factory.mktemp("fuzz", numbered=True) / "et.json"
    path.write_bytes(damaged)
    try:
        trace = execution_trace(path)
    except LoadError as error:
        message = str(error)
        if "et.json" not in message:
            raise
        return
    tables.NODES.check(trace.nodes)
    lost = findings(trace, "truncated", "dropped", "repaired", "suspicious")
    assert lost or len(trace.nodes) == 8


def test_members_of_an_archive_are_read_together(tmp_path):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for rank in (2, 0, 1):
            data = content([allreduce(3, 4711, rank)])
            info = tarfile.TarInfo(f"et/some_{rank}.json")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    path = tmp_path / "all.tar.gz"
    path.write_bytes(file.getvalue())
    trace = execution_trace(path)
    assert trace.ranks["rank"].tolist() == [0, 1, 2]
    assert trace.nodes["rank"].is_monotonic_increasing
