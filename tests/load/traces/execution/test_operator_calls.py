"""Operators of execution traces: real files, then hostile ones."""

import json

import pytest

from workbench import load
from workbench.errors import LoadError
from workbench.load._traces.execution import operator_calls as schemas

ADD = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
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


def test_what_could_run_code_or_reach_a_file_is_never_called(calls):
    table = calls(
        add(3), add(4, name=HOSTILE), add(5, schema=HOSTILE), add(6, name="aten::" + HOSTILE),
        node(7, "aten::from_file", "aten::from_file(str filename, bool? shared=None) -> Tensor",
             number("owned", "String"), number(True, "Bool")),
        node(8, "aten::save", "aten::save(t item, str filename) -> ()", tensor(1, [2]),
             number("owned", "String")),
    )  # fmt: skip
    assert table["is_replayed"].tolist() == [True, False, False, False, False, False]


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


def test_schemas_with_odd_defaults_are_read_whole():
    text = (
        'aten::odd(Tensor(a!)[] self, int[2] size=[0, 1], *, str mode="a, (b", bool? c=None) -> ()'
    )
    names = [(each.type, each.name, each.is_keyword) for each in schemas.parse(text).arguments]
    assert names == [
        ("Tensor[]", "self", False), ("int[]", "size", False), ("str", "mode", True),
        ("bool?", "c", True),
    ]  # fmt: skip
