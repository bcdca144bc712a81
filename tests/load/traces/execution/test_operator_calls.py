"""Operators of execution traces and the scripts that replay them: real files, then hostile ones."""

import json
import subprocess
import sys

import pytest

from workbench import load
from workbench.errors import LoadError
from workbench.load._traces.execution import operator_script as schemas

ADD = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
EMBEDDING = (
    "aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, "
    "bool scale_grad_by_freq=False, bool sparse=False) -> Tensor"
)
HOSTILE = '"""); __import__("os").system("touch owned") #\n@DATA@'


def tensor(number, shape, kind="float"):
    elements = 1
    for size in shape:
        elements *= size
    return [number, 100 + number, 0, elements, 4, "cpu"], list(shape), f"Tensor({kind})"


def number(value, kind="Int"):
    return value, [], kind


def node(number, name, schema, *arguments, parent=2, **more):
    values, shapes, types = zip(*arguments, strict=True) if arguments else ((), (), ())
    return {
        "name": name, "id": number, "rf_id": number, "parent": parent, "scope": 0, "tid": 1,
        "op_schema": schema, "inputs": list(values), "input_shapes": list(shapes),
        "input_types": list(types), "outputs": [], "output_shapes": [], "output_types": [],
    } | more  # fmt: skip


def add(number_, shape=(2, 3), name="aten::add", schema=ADD, **more):
    arguments = (tensor(5, shape), tensor(6, shape), number(1))
    return node(number_, name, schema, *arguments, **more)


@pytest.fixture
def calls(tmp_path):
    def read(*nodes, cut=0):
        root = node(2, "[pytorch|profiler|execution_graph|thread]", "", parent=1)
        document = {"schema": "1.0.1", "pid": 1, "nodes": [root, *nodes]}
        text = json.dumps(document)
        path = tmp_path / "rank0_et.json"
        path.write_text(text[: len(text) - cut])
        return load.operator_calls(path)

    return read


def replay(script, *options):
    """Run a generated script on its own, as a user would, and read what it prints."""
    out = script.with_suffix(".json")
    command = [sys.executable, "-I", str(script), "--out", str(out), "--threads", "1", *options]
    subprocess.run(command, check=True, capture_output=True, cwd=script.parent, timeout=300)
    return load.operator_replay(out)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("dataset", "name", "count", "replayed"),
    [
        ("kineto-resnet", "linear_et.json.gz", 320, 320),
        ("kineto-resnet", "resnet_et.json.gz", 3_711, 3_684),
        ("kineto-dlrm-8rank", "dlrm_pytorch_et.tar.gz", 5_200, 4_928),
    ],
)
def test_the_outermost_operators_of_real_traces_are_found(
    real_data, dataset, name, count, replayed
):
    table = load.operator_calls(real_data(dataset) / name)
    assert (len(table), int(table["is_replayed"].sum())) == (count, replayed)
    assert table["reason"].isna().equals(table["is_replayed"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "name", "share"),
    [
        ("kineto-resnet", "linear_et.json.gz", 1),
        ("kineto-resnet", "resnet_et.json.gz", 0.9),
        ("kineto-dlrm-8rank", "dlrm_pytorch_et.tar.gz", 0.9),
    ],
)
def test_real_traces_are_replayed_on_a_cpu_to_the_end(
    real_data, torch_here, tmp_path, dataset, name, share
):
    table = load.operator_calls(real_data(dataset) / name)
    table = table[table["rank"] == 0]
    # The large operators of ResNet take minutes on a CPU.
    table = table[table["input_bytes"] < 1 << 22] if "resnet_et" in name else table
    script = load.write_operator_benchmark(table, tmp_path / "replay.py")
    done = replay(script, "--unique", "--iterations", "1", "--warmup", "0")
    assert len(done) == table["is_replayed"].sum()
    assert done["host_ns"].notna().mean() >= share
    assert done["reason"].isna().equals(done["host_ns"].notna())


def test_names_and_values_of_a_trace_never_become_code(calls, torch_here, tmp_path):
    table = calls(
        add(3), add(4, name=HOSTILE), add(5, schema=HOSTILE), add(6, name="aten::" + HOSTILE),
        node(7, "aten::from_file", "aten::from_file(str filename, bool? shared=None) -> Tensor",
             number("owned", "String"), number(True, "Bool")),
        node(8, "aten::save", "aten::save(t item, str filename) -> ()", tensor(1, [2]),
             number("owned", "String")),
    )  # fmt: skip
    assert table["is_replayed"].tolist() == [True, False, False, False, False, False]
    script = load.write_operator_benchmark(table, tmp_path / "replay.py")
    assert "owned" not in script.read_text()
    done = replay(script)
    assert done["name"].tolist() == ["aten::add"]
    assert not (tmp_path / "owned").exists()


def test_a_call_that_a_frame_only_claims_to_be_harmless_is_refused(calls, tmp_path):
    table = calls(add(3))
    forged = "aten::from_file(str filename, bool? shared=None) -> Tensor"
    table["op_schema"] = table["op_schema"].cat.rename_categories({ADD: forged})
    with pytest.raises(LoadError, match="node 3: is_replayed, but takes a str"):
        load.write_operator_benchmark(table, tmp_path / "replay.py")
    assert [file.name for file in tmp_path.iterdir()] == ["rank0_et.json"]


def test_positions_stay_inside_what_they_point_into(calls, torch_here, tmp_path):
    rows, few = 7, tensor(2, [500], "long int")
    embedding = (tensor(1, [rows, 4]), few, number(-1), number(False, "Bool"))
    gather = "aten::index_select(Tensor self, int dim, Tensor index) -> Tensor"
    loss = "aten::nll_loss_nd(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, SymInt ignore_index=-100) -> Tensor"
    table = calls(
        node(3, "aten::embedding", EMBEDDING, *embedding, number(False, "Bool")),
        node(4, "aten::index_select", gather, tensor(1, [3, rows]), number(0), few),
        node(5, "aten::nll_loss_nd", loss, tensor(1, [500, 2]), few, number("<None>", "None"),
             number(1), number(-100)),
    )  # fmt: skip
    done = replay(load.write_operator_benchmark(table, tmp_path / "replay.py"))
    assert done["reason"].dropna().tolist() == []
    assert (done["run_count"] == 3).all()


def test_what_cannot_run_is_said_and_does_not_stop_the_rest(calls, torch_here, tmp_path):
    other = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar beta=1) -> Tensor"
    gone = "aten::no_such_operator(Tensor self, Tensor other, Scalar alpha) -> Tensor"
    table = calls(
        add(3, shape=(10**9, 10**9)), add(4, schema=other), add(5, shape=(0, 3)),
        add(6, name="aten::no_such_operator", schema=gone),
        node(7, "aten::mm", "aten::mm(Tensor self, Tensor mat2) -> Tensor", tensor(1, [2, 3]),
             tensor(2, [2, 3])),
    )  # fmt: skip
    done = replay(load.write_operator_benchmark(table, tmp_path / "replay.py")).set_index("node")
    said = done["reason"].astype(object)
    assert "GiB; see --max-gib" in said[3]
    assert "its schema differs in PyTorch" in said[4]
    assert done.loc[5, "host_ns"] > 0
    assert "has no such operator" in said[6]
    assert said[7].startswith("failed: RuntimeError")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (add(3, schema=""), "no schema was recorded"),
        (add(3, schema="aten::add("), "its schema cannot be read"),
        (add(3, name="record_param_comms", schema=""), "communication"),
        (add(3, kernel_backend="triton"), "fused kernel"),
        (add(3, schema=ADD.replace("aten", "fbgemm")), "custom operator"),
        (add(3, name="aten::mul"), "its name is not that of its schema"),
        (add(3, shape=(-1,)), "whose shape was not recorded"),
        (add(3, input_types=["Tensor(elephant)"] * 3), "of a type that is not known"),
        (add(3, input_types=[]), "do not fit each other"),
        (add(3, inputs=[], input_shapes=[], input_types=[]), "another number of arguments"),
    ],
)
def test_every_call_that_is_not_replayed_has_its_reason(calls, bad, reason):
    table = calls(add(9), bad)
    assert table["is_replayed"].tolist() == [False, True]
    assert reason in str(table["reason"].iloc[0])


def test_what_an_operator_calls_is_part_of_it_and_annotations_are_looked_through(calls):
    table = calls(
        node(3, "## forward ##", ""), add(4, parent=3), add(5, parent=4), add(6, parent=5)
    )
    assert table["node"].tolist() == [4]


def test_strides_come_from_the_view_that_made_a_tensor(calls):
    made = {"outputs": [tensor(5, [3, 2])[0]], "output_shapes": [[3, 2]]}
    given = tensor(1, [2, 3]), number([3, 2], "GenericList[Int,Int]")
    view = node(3, "aten::as_strided", "", *given, number([1, 3], "GenericList[Int,Int]"), **made)
    table = calls(view | {"parent": 9}, add(4, shape=(3, 2)))
    first, second, _ = json.loads(table["arguments"].iloc[-1])
    assert first["stride"] == [1, 3]
    assert "stride" not in second
    assert table["assumed_stride_count"].iloc[-1] == 1


def test_a_cut_trace_gives_what_is_whole_and_says_so(calls):
    table = calls(add(3), add(4), cut=60)
    assert table["node"].tolist() == [3]
    assert "truncated" in {row["finding"] for row in table.attrs["quality"]}


def test_a_trace_without_operators_is_refused(calls):
    with pytest.raises(LoadError, match="holds not a single operator; record it with"):
        calls(node(3, "## forward ##", ""))


def test_a_script_without_a_call_is_refused(calls, tmp_path):
    with pytest.raises(LoadError, match=r"none of 1 calls can be replayed: communication \(1\)"):
        load.write_operator_benchmark(
            calls(add(3, name="record_param_comms")), tmp_path / "replay.py"
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no whole JSON"),
        ("[]", "is not what a script of write_operator_benchmark prints"),
        ('{"format": "workbench operator replay", "version": 9}', "version 9 is not 1"),
        ('{"format": "workbench operator replay", "version": 1}', "lacks its list of calls"),
        (
            '{"format": "workbench operator replay", "version": 1, "device": "cpu", "calls": [{}]}',
            "call 0: has no rank, node and name",
        ),
    ],
)
def test_another_file_is_no_replay(tmp_path, text, message):
    path = tmp_path / "replay.json"
    path.write_text(text)
    with pytest.raises(LoadError, match=message):
        load.operator_replay(path)


def test_schemas_with_odd_defaults_are_read_whole():
    text = (
        'aten::odd(Tensor(a!)[] self, int[2] size=[0, 1], *, str mode="a, (b", bool? c=None) -> ()'
    )
    names = [(each.type, each.name, each.is_keyword) for each in schemas.parse(text).arguments]
    assert names == [
        ("Tensor[]", "self", False), ("int[]", "size", False), ("str", "mode", True),
        ("bool?", "c", True),
    ]  # fmt: skip
