"""Work and roof of operators against brute force, PyTorch's counter and a public table."""

import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.load.conftest import event
from workbench import analyze, inject, load
from workbench.analyze._perfmodel.kernel_models.operator_work import NO_MASK, operator_work
from workbench.errors import WorkbenchError

BF16, FLOAT = "c10::BFloat16", "float"
COUNTED = ["matrix product", "convolution", "attention"]
PEAKS = pd.DataFrame(
    {
        "gpu": "mine", "dtype": ["bfloat16", "float32"], "element_bytes": [2, 4],
        "peak_flop_per_s": [1e14, 1e13], "memory_bytes_per_s": 1e12,
    }
)  # fmt: skip
FLASH = ["", "", "", "", "", "8", "8", "0.", "True", "False"]


def of(name, shapes, types=None, values=None, strides=None):
    types = [FLOAT if shape else "Scalar" for shape in shapes] if types is None else types
    given = [
        None if value is None else json.dumps(value) for value in (shapes, types, strides, values)
    ]
    return operator_work(name, *given)


def recorded(shapes, types=None, values=None):
    types = [BF16 if shape else "Scalar" for shape in shapes] if types is None else types
    values = [""] * len(shapes) if values is None else values
    return {"Input Dims": shapes, "Input type": types, "Concrete Inputs": values}


def started(correlation, ts, *, dur=100, name="gemm"):
    """Make a launch inside an operator, and its kernel long after."""
    return [
        event("cudaLaunchKernel", ts, cat="cuda_runtime", correlation=correlation),
        event(name, ts + 10_000, dur, cat="kernel", pid=0, tid=7, stream=7, device=0,
              correlation=correlation),
    ]  # fmt: skip


@pytest.fixture
def trace_file(tmp_path):
    def write(rows, **metadata):
        path = tmp_path / "trace.json"
        path.write_text(json.dumps({"traceEvents": rows} | metadata))
        return path

    return write


@pytest.fixture
def roof(trace_file):
    def make(rows, **options):
        trace = load.traces(trace_file(rows), progress=False)
        return analyze.roofline(trace.events, **{"peaks": PEAKS, **options})

    return make


PRODUCT = recorded([[64, 32], [32, 16]])


def test_an_operator_inside_another_counts_once(roof):
    # Adding up every operator with shapes would count this product twice.
    rows = [
        event("aten::linear", 0, 50, **recorded([[64, 32], [16, 32], []])),
        event("aten::mm", 10, 30, **PRODUCT),
        *started(1, 15),
    ]
    table = roof(rows)
    assert table["name"].tolist() == ["aten::mm"]
    assert table["flop_count"].tolist() == [2 * 64 * 16 * 32]


def test_an_operator_around_another_keeps_its_time_and_leaves_the_work(roof):
    rows = [
        event("aten::linear", 0, 50, **recorded([[64, 32], [16, 32], []])),
        event("aten::mm", 10, 30, **PRODUCT),
        *started(1, 15),
        *started(2, 45, dur=3, name="fill"),
    ]
    table = roof(rows).set_index("name")
    assert table["kernel_ns"].to_dict() == {"aten::mm": 100_000, "aten::linear": 3_000}
    assert table["flop_count"].count() == 1
    assert "inside" in table.loc["aten::linear", "note"]


def test_the_time_is_that_of_the_kernels_not_of_the_call(roof):
    rows = [event("aten::mm", 0, 9_000, **PRODUCT), *started(1, 5, dur=2)]
    row = roof(rows).iloc[0]
    assert row["kernel_ns"] == 2_000
    assert row["flop_per_s"] == pytest.approx(2 * 64 * 16 * 32 / 2e-6)


def test_the_roof_is_the_longer_of_the_two_times(roof):
    m = 4096
    rows = [event("aten::mm", 0, 9, **recorded([[m, m], [m, m]])), *started(1, 5, dur=2_000)]
    rows += [event("aten::add", 20, 9, **recorded([[m, m], [m, m]])), *started(2, 25, dur=200)]
    table = roof(rows).set_index("name")
    product, added = table.loc["aten::mm"], table.loc["aten::add"]
    assert (product["bound"], added["bound"]) == ("compute", "memory")
    assert product["roof_ns"] == pytest.approx(2 * m**3 / 1e14 * 1e9)
    assert product["roof_ratio"] == pytest.approx(2 * m**3 / 1e14 / 2e-3)
    assert added["roof_ns"] == pytest.approx(3 * 2 * m**2 / 1e12 * 1e9)
    assert table["gain_ns"].tolist() == pytest.approx(
        (table["kernel_ns"] - table["roof_ns"]).tolist()
    )


def test_what_is_above_its_roof_is_flagged(roof):
    m = 4096
    rows = [event("aten::mm", 0, 9, **recorded([[m, m], [m, m]])), *started(1, 5, dur=20)]
    row = roof(rows).iloc[0]
    assert row["roof_ratio"] > 1
    assert not row["is_sure"]
    assert "wrong" in row["note"]
    assert row["gain_ns"] == 0


def test_a_kernel_in_tf32_is_not_held_against_the_peak_of_float32(roof):
    rows = [
        event("aten::mm", 0, 9, **recorded([[64, 64]] * 2, [FLOAT] * 2)),
        *started(1, 5, name="s1688gemm"),
    ]
    row = roof(rows).iloc[0]
    assert row["dtype"] == "tf32"
    assert pd.isna(row["roof_ratio"])
    assert "no peak" in row["note"]


def test_the_peak_is_that_of_the_type_and_the_gpu(trace_file):
    rows = []
    for at, (element, name) in enumerate(
        [(BF16, "k"), ("c10::Half", "k"), (FLOAT, "k"), (FLOAT, "tf32_k"), ("double", "k")], 1
    ):
        shapes = [[64 * at, 64], [64, 64]]
        rows += [event("aten::mm", 99 * at, 9, **recorded(shapes, [element] * 2))]
        rows += started(at, 99 * at, dur=5, name=name)
    path = trace_file(rows, deviceProperties=[{"id": 0, "name": "NVIDIA H100 80GB HBM3"}])
    trace = load.traces(path, progress=False)
    table = analyze.roofline(trace.events, devices=trace.devices).set_index("dtype")
    peaks = (table["peak_flop_per_s"] / 1e12).round(1).dropna().to_dict()
    assert peaks == {"bfloat16": 989.0, "float16": 989.0, "float32": 67.0, "tf32": 494.5}
    assert table.loc["float64", "note"] == "no peak is known for float64"


@pytest.mark.parametrize(
    ("name", "gb_per_s"),
    [("NVIDIA A100-SXM4-80GB", 2039), ("NVIDIA A100-SXM4-40GB", 1555), ("A100-PG509-200", 1555)],
)
def test_two_modules_of_a_chip_differ_in_their_memory(trace_file, name, gb_per_s):
    rows = [event("aten::mm", 0, 9, **PRODUCT), *started(1, 5)]
    trace = load.traces(trace_file(rows, deviceProperties=[{"id": 0, "name": name}]))
    row = analyze.roofline(trace.events, devices=trace.devices).iloc[0]
    assert row["memory_bytes_per_s"] == pytest.approx(gb_per_s * 1e9)
    assert row["peak_flop_per_s"] == 312e12


def test_calls_of_one_shape_are_one_row_and_one_untold_call_leaves_no_sum(roof):
    shapes = [[2, 8, 4, 16]] * 3 + [[]] * 7
    told, untold = recorded(shapes, values=FLASH), recorded(shapes, values=FLASH[:8])
    name = "aten::_flash_attention_forward"
    rows = [event(name, 0, 9, **told), *started(1, 5), event(name, 20, 9, **told), *started(2, 25)]
    row = roof(rows).iloc[0]
    pairs = 8 * 9 // 2
    assert (row["call_count"], row["flop_count"]) == (2, 2 * 2 * 4 * pairs * 2 * 32)
    row = roof([*rows, event(name, 40, 9, **untold), *started(3, 45)]).iloc[0]
    assert row["call_count"] == 3
    assert pd.isna(row["flop_count"])
    assert row["note"] == NO_MASK


def test_callers_can_be_kept_apart(roof):
    rows = []
    for number, name in enumerate(("attention", "mlp")):
        rows += [
            event(name, 100 * number, 50, **recorded([])),
            event("aten::mm", 100 * number + 10, 30, **PRODUCT),
            *started(number + 1, 100 * number + 15),
        ]
    assert len(roof(rows)) == 1
    table = roof(rows, by_caller=True)
    assert sorted(table["operators_around"]) == ["attention", "mlp"]


def test_unknown_gpus_have_speeds_without_a_roof(trace_file):
    rows = [event("aten::mm", 0, 9, **PRODUCT), *started(1, 5)]
    events = load.traces(trace_file(rows)).events
    pcie = load.traces(trace_file(rows, deviceProperties=[{"id": 0, "name": "NVIDIA H100 PCIe"}]))
    for devices in (None, pcie.devices):
        table = analyze.roofline(events, devices=devices)
        assert table["flop_per_s"].notna().all()
        assert table[["roof_ns", "roof_ratio", "gain_ns"]].isna().all(axis=None)
        assert table["note"].str.startswith("no peaks of its GPU are known, only of V100").all()


def test_work_without_shapes_has_times_only(trace_file):
    table = analyze.roofline(load.traces(trace_file(started(1, 5))).events, peaks=PEAKS)
    assert table["kernel_ns"].sum() > 0
    assert table["flop_count"].isna().all()


def test_peaks_of_several_gpus_and_impossible_shares_are_refused(trace_file):
    rows = [event("aten::mm", 0, 9, **PRODUCT), *started(1, 5)]
    events = load.traces(trace_file(rows)).events
    with pytest.raises(WorkbenchError, match="one GPU"):
        analyze.roofline(events, peaks=analyze.matrix_peaks())
    with pytest.raises(WorkbenchError, match="peak_share"):
        analyze.roofline(events, peaks=PEAKS, peak_share=1.1)


OPERATORS = st.sampled_from(["aten::mm", "aten::add", "aten::linear", "custom::op", "aten::copy_"])


@given(
    tree=st.lists(
        st.tuples(OPERATORS, st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=8
    ),
    lost=st.integers(0, 3),
)
def test_the_time_of_all_rows_is_that_of_all_gpu_work(tree, lost, tmp_path_factory):
    rows, correlation = [event("aten::mm", 0, 9, **PRODUCT), *started(99, 1)], 100
    for at, (name, inside, kernels) in enumerate(tree):
        start = 1_000 * (at + 1)
        rows += [event(name, start + 10 * n, 900 - 20 * n, **PRODUCT) for n in range(inside + 1)]
        for number in range(kernels):
            correlation += 1
            rows += started(correlation, start + 100 + 7 * number, dur=1 + number)
    rows += [event("lone", 10 * n, 3, cat="kernel", tid=7, stream=7, device=0) for n in range(lost)]
    path = tmp_path_factory.mktemp("roof") / "trace.json"
    path.write_text(json.dumps({"traceEvents": rows}))
    trace = load.traces(path, progress=False)
    table = analyze.roofline(trace.events, peaks=PEAKS)
    work = trace.events[trace.events["kind"].notna()]
    assert table["kernel_ns"].sum() == work["dur_ns"].sum()
    assert table["kernel_count"].sum() == len(work)
    assert table["time_share"].sum() == pytest.approx(1)


# ---- closed forms against counting ----


@given(
    queries=st.integers(1, 7), keys=st.integers(1, 7), heads=st.integers(1, 3),
    is_causal=st.booleans(), is_last=st.booleans(),
)  # fmt: skip
def test_pairs_of_a_mask_are_those_that_are_counted(queries, keys, heads, is_causal, is_last):
    name = "flash_attn::_flash_attn_forward" if is_last else "aten::_flash_attention_forward"
    values = [""] * 10
    values[5 if is_last else 8] = str(is_causal)
    shapes = [[2, queries, heads, 4], [2, keys, 1, 4], [2, keys, 1, 6], *[[]] * 7]
    told = of(name, shapes, values=values)
    later = keys - queries if is_last else 0
    seen = sum(
        not is_causal or key <= query + later
        for query, key in itertools.product(range(queries), range(keys))
    )
    assert told.flop_count == 2 * 2 * heads * seen * (4 + 6)
    assert told.moved_bytes == 4 * 2 * (heads * queries * (4 + 6) + keys * (4 + 6))


@given(
    image=st.lists(st.integers(3, 6), min_size=1, max_size=2), kernel=st.integers(1, 3),
    stride=st.integers(1, 2), padding=st.integers(0, 1), groups=st.integers(1, 2),
)  # fmt: skip
def test_a_convolution_is_as_many_products_as_brute_force_finds(
    image, kernel, stride, padding, groups
):
    shapes = [[2, 4, *image], [6, 4 // groups, *[kernel] * len(image)], [], [], [], [], [], [], []]
    values = ["", "", "", f"[{stride}]", f"[{padding}]", "[1]", "False", "[0]", str(groups)]
    told = of("aten::convolution", shapes, values=values)
    places = [len(range(0, size + 2 * padding - kernel + 1, stride)) for size in image]
    products = sum(
        4 // groups * kernel ** len(image)
        for _ in itertools.product(range(2), range(6), *map(range, places))
    )
    assert told.flop_count == 2 * products
    sizes = (8 * math.prod(image), 24 // groups * kernel ** len(image), 12 * math.prod(places))
    assert told.moved_bytes == 4 * sum(sizes)


@given(
    one=st.lists(st.integers(1, 3), max_size=3), other=st.lists(st.integers(1, 3), max_size=3),
)  # fmt: skip
def test_elementwise_results_are_broadcast(one, other):
    told = of("aten::add", [one, other, []], [FLOAT, FLOAT, "Scalar"])
    try:
        result = np.broadcast_shapes(one, other)
    except ValueError:
        assert told.flop_count is None
        return
    elements = math.prod(one) + math.prod(other) + math.prod(result)
    assert (told.flop_count, told.moved_bytes) == (math.prod(result), 4 * elements)


def test_an_expanded_input_is_read_once():
    told = of("aten::add", [[8, 4], [8, 4]], strides=[[4, 1], [0, 1]])
    assert told.moved_bytes == 4 * (32 + 4 + 32)


def test_a_tensor_for_the_result_is_not_read():
    told = of("aten::mul", [[8, 4], [], [8, 4]], [FLOAT, "double", FLOAT])
    assert told.moved_bytes == 4 * 2 * 32 + 8


FP8 = "c10::Float8_e4m3fn"
FP8_NEW = [FP8, FP8, FLOAT, FLOAT, "", "", "Scalar", "Scalar"]
FP8_OLD = [FP8, FP8, "", "Scalar", FLOAT, FLOAT, "", "Scalar"]


@pytest.mark.parametrize(
    ("types", "at"), [(FP8_NEW, 6), (FP8_OLD, 3)], ids=["from PyTorch 2.5", "before"]
)
@pytest.mark.parametrize(("dtype", "size"), [("15", 2), ("5", 2), ("6", 4), ("24", 1), ("", 1)])
def test_a_scaled_product_writes_its_result_in_the_type_asked_for(types, at, dtype, size):
    m, k, n = 64, 256, 32
    shapes = [[m, k], [k, n], *([] for _ in range(6))]
    values = ["" if number != at else dtype for number in range(7)] + ["False"]
    told = of("aten::_scaled_mm", shapes, types, values)
    assert told.flop_count == 2 * m * k * n
    assert told.moved_bytes == m * k + k * n + m * n * size + 2 * 4, "both scales are read"


@pytest.mark.parametrize(
    ("name", "shapes", "types", "values"),
    [
        ("aten::mm", [[4, 3], [5, 2]], None, None),
        ("aten::mm", [[4, 3]], None, None),
        ("aten::mm", [[4, -3], [-3, 2]], None, None),
        ("aten::mm", [[4, 1 << 60], [1 << 60, 2]], None, None),
        ("aten::mm", [[[4, 3]], [[3, 2]]], None, None),
        ("aten::mm", 7, "x", None),
        ("aten::div", [[4], [4]], ["int", "int"], None),
        ("aten::cat", [[[4], [4]], []], ["TensorList", "Scalar"], None),
        ("aten::convolution", [[1, 1, 4], [1, 1, 3], [], [], [], [], [], [], []], None, None),
        ("aten::convolution", [[1, 1, 4], [1, 1, 3], [], [], [], [], [], [], []], None,
         ["", "", "", "[0]", "[0]", "[1]", "False", "[0]", "1"]),
        ("aten::_flash_attention_forward", [[4, 2, 8]] * 3, None, FLASH),
        ("aten::index_select", [[9, 4], [], [3]], [FLOAT, "Scalar", "long int"], ["", "1", ""]),
        ("aten::sum", [[9, 4], [], [], []], [FLOAT, "ScalarList", "Scalar", ""], None),
        ("aten::_scaled_mm", [[4, 8], [8, 2], [], [], [], [], [], []], FP8_NEW, None),
        ("aten::_scaled_mm", [[4, 8], [8, 2], [], [], [], [], [], []], FP8_NEW, [""] * 6 + ["99"]),
    ],
)  # fmt: skip
def test_what_cannot_be_told_is_missing_and_says_why(name, shapes, types, values):
    told = of(name, shapes, types, values)
    assert told.flop_count is None
    assert told.moved_bytes is None
    assert told.note


# ---- PyTorch's counter ----


def with_kernels(document):
    """Give each operator of a CPU profile a launch where it begins, and a kernel."""
    rows = [row for row in document["traceEvents"] if row.get("cat") == "cpu_op"]
    added = []
    for number, row in enumerate(rows, start=1):
        ids = {"correlation": number}
        call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": ids}
        added.append(row | call | {"dur": 0})
        work = {"cat": "kernel", "name": "k", "tid": 7, "dur": 1}
        added.append(row | work | {"args": ids | {"stream": 7, "device": 0}})
    return {"traceEvents": rows + added}


def models(torch):
    heads = {"batch_first": True, "dropout": 0.0}
    convolutions = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2, padding=1), torch.nn.ReLU(),
        torch.nn.ConvTranspose2d(8, 4, 2, stride=2), torch.nn.BatchNorm2d(4),
        torch.nn.Conv2d(4, 4, 3, dilation=2), torch.nn.Flatten(), torch.nn.LazyLinear(5),
    )  # fmt: skip
    yield "convolutions", convolutions, torch.randn(2, 3, 16, 16)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, **heads)
    yield "transformer", layer, torch.randn(2, 9, 32)
    yield (
        "mlp",
        torch.nn.Sequential(torch.nn.Linear(7, 9), torch.nn.GELU(), torch.nn.Linear(9, 3)),
        torch.randn(4, 7),
    )


def profiled(torch, step, path):
    """Profile a step on the CPU, with a kernel for each operator."""
    with torch.profiler.profile(record_shapes=True) as profile:
        step()
    profile.export_chrome_trace(str(path))
    path.write_text(json.dumps(with_kernels(json.loads(path.read_text()))))
    table = analyze.roofline(load.traces(path, progress=False).events, peaks=PEAKS)
    counted = table[table["family"].isin(COUNTED)]
    is_inside = counted["note"].fillna("").str.contains("inside")
    assert (counted["flop_count"].notna() | is_inside).all()
    return counted.groupby("family", observed=True)["flop_count"].sum()


@pytest.mark.oracle
@pytest.mark.parametrize("at", range(3))
def test_operations_are_those_of_pytorchs_counter(at, tmp_path):
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import (
        FlopCounterMode,
        sdpa_backward_flop_count,
        sdpa_flop_count,
    )

    torch.manual_seed(0)
    name, model, batch = list(models(torch))[at]
    model(batch)
    with FlopCounterMode(display=False) as counter:
        model(batch).sum().backward()
    found = profiled(torch, lambda: model(batch).sum().backward(), tmp_path / "trace.json")
    # The counter passes over attention on CPUs, so its formula is asked.
    heads = [(2, 4, 9, 8)] * 4
    attention = sdpa_flop_count(*heads[:3]) + sdpa_backward_flop_count(*heads)
    assert found.get("attention", 0) == attention * (name == "transformer")
    assert found.drop("attention", errors="ignore").sum() == counter.get_total_flops()


@pytest.mark.oracle
@pytest.mark.parametrize("name", inject.SHIPPED)
def test_operations_of_shipped_models_are_those_of_pytorchs_counter(name, tmp_path, torch_here):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    model = inject.shipped_model(name).requires_grad_(True)
    inputs, _ = inject.shipped_inputs(name, 5)

    def step():
        # As matrix products, which the counter has on CPUs too.
        with sdpa_kernel(SDPBackend.MATH):
            model(*inputs).sum().backward()

    with FlopCounterMode(display=False) as counter:
        step()
    found = profiled(torch_here, step, tmp_path / "trace.json")
    assert found.sum() == counter.get_total_flops() > 0


# ---- a public table ----


@pytest.mark.oracle
def test_attention_of_a_public_trace_has_the_work_that_tracelens_prints(real_data):
    # AMD-AGI/TraceLens, SDPA_fwd.csv: it halves all pairs; of 559 queries a causal mask leaves
    # 559 * 560 / 2. Matrix products are compared by `python -m claims`.
    path = real_data("kineto-h100") / "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
    trace = load.traces(path, progress=False)
    table = analyze.roofline(trace.events, devices=trace.devices).set_index("name")
    attention = table.loc["aten::_flash_attention_forward"]
    assert attention["flop_count"] / 24 == pytest.approx(10.239377408e9 * 560 / 559, rel=1e-12)
    assert attention["moved_bytes"] / 24 == 69.875 * 2**20
    assert attention["kernel_ns"] == pytest.approx(2722.704345703125e3, rel=1e-4)
    assert table["is_sure"].all()


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("dataset", "file"),
    [
        ("kineto-dlrm-8rank", "dlrm_kineto.tar.gz"),
        ("kineto-h100", "Falconsai_nsfw_image_detection__1016002.json.gz"),
        ("kineto-h100", "gaunernst_bert-small-uncased__1016001.json.gz"),
        ("kineto-hta", "amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz"),
    ],
)
def test_no_time_of_a_real_trace_is_lost_and_nothing_beats_its_roof(real_data, dataset, file):
    trace = load.traces(real_data(dataset) / file, progress=False)
    peaks = PEAKS.assign(peak_flop_per_s=[9.9e14, 6.7e13], memory_bytes_per_s=3.35e12)
    table = analyze.roofline(trace.events, peaks=peaks)
    work = trace.events[trace.events["kind"].notna()]
    spent = work.groupby("rank")["dur_ns"].sum().to_dict()
    assert table.groupby("rank")["kernel_ns"].sum().to_dict() == spent
    assert table["is_sure"].all()
    assert table.loc[table["flop_count"].isna(), "note"].notna().all()
