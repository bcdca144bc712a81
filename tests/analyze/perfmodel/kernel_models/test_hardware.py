"""The hardware table: dense peaks with sources, and ratios between GPUs."""

import pandas as pd
import pytest

from workbench import analyze, load
from workbench.errors import PerformanceModelError
from workbench.tables import HARDWARE

# Peaks without sparsity; data sheets print twice as much with it.
DENSE_BF16 = {"A100": 312, "H100": 989, "H200": 989, "B200": 2_250, "GB200": 2_500, "MI300X": 1_307}


@pytest.mark.oracle
@pytest.mark.parametrize(("gpu", "dense"), DENSE_BF16.items())
def test_no_peak_is_the_one_with_sparsity(gpu, dense):
    row = analyze.hardware().set_index("gpu").loc[gpu]
    assert row["bf16_flop_per_s"] / 1e12 == pytest.approx(dense, rel=0.01)
    assert row["fp16_flop_per_s"] == row["bf16_flop_per_s"]
    if not pd.isna(row["fp8_flop_per_s"]):
        assert row["fp8_flop_per_s"] == pytest.approx(2 * row["bf16_flop_per_s"], rel=0.01)
    assert 0.5 < row["measured_flop_per_s"] / row["bf16_flop_per_s"] < 1


def test_every_number_names_its_source():
    sources = analyze.hardware_sources()
    assert (sources["source"].str.len() > 10).all()
    assert not sources.duplicated(["gpu", "quantity"]).any()
    assert set(sources["quantity"]) <= set(HARDWARE.columns)
    assert set(sources["gpu"]) == set(DENSE_BF16)


def test_what_is_given_out_can_be_changed():
    table = analyze.hardware()
    table["memory_bytes"] = 0.0
    assert (analyze.hardware()["memory_bytes"] > 7e10).all()


@pytest.mark.oracle
def test_the_packages_own_peaks_are_the_same(kernel_package):
    times = load.gemm_times(gpus=["A100", "B200"], framework="sglang")
    peak = times["gpu"].map(analyze.hardware().set_index("gpu")["bf16_flop_per_s"])
    rate = 2e9 * times["m_count"] * times["n_count"] * times["k_count"] / times["dur_ns"]
    assert (rate < peak).all(), "nothing measured is faster than a dense peak"


def test_the_roofline_is_the_larger_of_two_times():
    flops = analyze.kernel_time("A100", flop_count=312e12, moved_bytes=1)
    moved = analyze.kernel_time("A100", flop_count=1, moved_bytes=2.039e12)
    assert (flops, moved) == (pytest.approx(1e9), pytest.approx(1e9))
    half = analyze.kernel_time("A100", flop_count=312e12, moved_bytes=1, achieved_share=0.5)
    assert half == pytest.approx(2e9)


@pytest.mark.parametrize(
    ("gpu", "named", "message"),
    [
        ("K80", {}, "no GPU is called 'K80'"),
        ("A100", {"dtype": "fp8"}, "A100 has no matrix units for 'fp8'"),
        ("A100", {"dtype": "odd"}, "no peak is known"),
        ("A100", {"achieved_share": 0}, "above 0 and at most 1"),
        ("A100", {"moved_bytes": -1}, "must be finite"),
    ],
)
def test_rooflines_that_make_no_sense_are_refused(gpu, named, message):
    with pytest.raises(PerformanceModelError, match=message):
        analyze.kernel_time(gpu, **{"flop_count": 1, "moved_bytes": 1, **named})


def kernels():
    rows = [
        ("nvjet_tst_256x128", "compute"),
        ("vectorized_elementwise_kernel", "compute"),
        ("ncclDevKernel_AllReduce", "communication"),
        ("Memcpy DtoD (Device -> Device)", "memory"),
        ("Memcpy HtoD (Pinned -> Device)", "memory"),
        ("unheard of", "other"),
    ]
    return pd.DataFrame(rows, columns=["name", "kind"]).assign(total_ns=1_000_000)


def test_each_kernel_is_scaled_by_what_binds_it():
    found = analyze.scaled_kernel_times(kernels(), "A100", "H100")
    memory = 2.039 / 3.35
    assert found["time_ratio"].tolist() == pytest.approx(
        [312 / 989, memory, 300 / 450, memory, 1, 1]
    )
    assert found["bound"].tolist() == [
        "compute", "memory", "communication", "memory", "other", "other",
    ]  # fmt: skip
    assert set(found["basis"]) == {"scaled"}
    assert "told from its name" in found["doubt"].iloc[0]
    assert "host" in found["doubt"].iloc[4]
    across = analyze.scaled_kernel_times(kernels(), "A100", "H100", crosses_nodes=True)
    assert across["time_ratio"].iloc[2] == pytest.approx(0.5)


def test_there_and_back_is_where_it_began():
    there = analyze.scaled_kernel_times(kernels(), "H100", "B200")["time_ratio"]
    back = analyze.scaled_kernel_times(kernels(), "B200", "H100")["time_ratio"]
    assert (there * back).tolist() == pytest.approx([1.0] * len(there))
    same = analyze.scaled_kernel_times(kernels(), "H100", "H100")
    assert same["scaled_ns"].tolist() == [1_000_000] * len(same)


def test_products_and_collectives_are_scaled_by_their_sizes():
    products = pd.DataFrame(
        {"m_count": [8_192, 1], "n_count": 8_192, "k_count": 8_192, "dur_ns": 1_000}
    ).assign(gpu="H100", dtype="bfloat16", source="?")
    found = analyze.scaled_kernel_times(products, "H100", "H200")
    assert found["time_ratio"].tolist() == pytest.approx([1, 3.35 / 4.8])
    assert found["bound"].tolist() == ["compute", "memory"]
    reduces = pd.DataFrame({"collective": "all-reduce", "size_bytes": [8, 8], "dur_ns": 100})
    found = analyze.scaled_kernel_times(reduces.assign(node_count=[1, 2]), "H100", "B200")
    assert found["time_ratio"].tolist() == pytest.approx([0.5, 0.5])


def test_what_cannot_be_scaled_says_why():
    with pytest.raises(PerformanceModelError, match="lack a time"):
        analyze.scaled_kernel_times(kernels().drop(columns="total_ns"), "A100", "H100")
    with pytest.raises(PerformanceModelError, match=r"lack \['kind'\]"):
        analyze.scaled_kernel_times(kernels().drop(columns="kind"), "A100", "H100")
    with pytest.raises(PerformanceModelError, match=r"measured on \['H200'\], not on 'A100'"):
        analyze.scaled_kernel_times(kernels().assign(gpu="H200"), "A100", "H100")
    with pytest.raises(PerformanceModelError, match="no GPU is called 'K80'"):
        analyze.scaled_kernel_times(kernels(), "A100", "K80")
