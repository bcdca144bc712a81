"""The hardware table: dense peaks with sources, and ratios between GPUs."""

import pandas as pd
import pytest

from claims._kernel_times import gemm_times
from workbench import datasets
from workbench.analyze._perfmodel.kernel_models.hardware import hardware, peak_of
from workbench.analyze._perfmodel.replays.change import time_ratios
from workbench.errors import PerformanceModelError
from workbench.tables import HARDWARE

# Peaks without sparsity; data sheets print twice as much with it.
DENSE_BF16 = {"A100": 312, "H100": 989, "H200": 989, "B200": 2_250, "GB200": 2_500, "MI300X": 1_307}


@pytest.mark.oracle
@pytest.mark.parametrize(("gpu", "dense"), DENSE_BF16.items())
def test_no_peak_is_the_one_with_sparsity(gpu, dense):
    row = hardware().set_index("gpu").loc[gpu]
    assert row["bf16_flop_per_s"] / 1e12 == pytest.approx(dense, rel=0.01)
    assert row["fp16_flop_per_s"] == row["bf16_flop_per_s"]
    if not pd.isna(row["fp8_flop_per_s"]):
        assert row["fp8_flop_per_s"] == pytest.approx(2 * row["bf16_flop_per_s"], rel=0.01)
    assert 0.5 < row["measured_flop_per_s"] / row["bf16_flop_per_s"] < 1


def test_every_number_names_its_source():
    sources = pd.read_csv(datasets.path("published") / "hardware.csv")
    assert (sources["source"].str.len() > 10).all()
    assert not sources.duplicated(["gpu", "quantity"]).any()
    assert set(sources["quantity"]) <= set(HARDWARE.columns)
    assert set(sources["gpu"]) == set(DENSE_BF16)


def test_what_is_given_out_can_be_changed():
    table = hardware()
    table["memory_bytes"] = 0.0
    assert (hardware()["memory_bytes"] > 7e10).all()


@pytest.mark.oracle
def test_the_packages_own_peaks_are_the_same(kernel_package):
    times = gemm_times(gpus=["A100", "B200"], framework="sglang")
    peak = times["gpu"].map(hardware().set_index("gpu")["bf16_flop_per_s"])
    rate = 2e9 * times["m_count"] * times["n_count"] * times["k_count"] / times["dur_ns"]
    assert (rate < peak).all(), "nothing measured is faster than a dense peak"


@pytest.mark.parametrize(
    ("gpu", "dtype", "message"),
    [
        ("K80", "bfloat16", "no GPU is called 'K80'"),
        ("A100", "fp8", "A100 has no matrix units for 'fp8'"),
        ("A100", "odd", "no peak is known"),
    ],
)
def test_peaks_that_no_gpu_has_are_refused(gpu, dtype, message):
    with pytest.raises(PerformanceModelError, match=message):
        peak_of(gpu, dtype)


KERNELS = pd.DataFrame(
    [
        ("nvjet_tst_256x128", "compute"),
        ("vectorized_elementwise_kernel", "compute"),
        ("ncclDevKernel_AllReduce", "communication"),
        ("Memcpy DtoD (Device -> Device)", "memory"),
        ("Memcpy HtoD (Pinned -> Device)", "memory"),
        ("unheard of", "other"),
    ],
    columns=["name", "kind"],
)


def ratios(from_gpu, to_gpu):
    return time_ratios(KERNELS["name"], KERNELS["kind"], from_gpu, to_gpu)


def test_each_kernel_is_scaled_by_what_binds_it():
    memory = 2.039 / 3.35
    expected = [312 / 989, memory, 300 / 450, memory, 1, 1]
    assert ratios("A100", "H100").tolist() == pytest.approx(expected)


def test_there_and_back_is_where_it_began():
    forward, back = ratios("H100", "B200"), ratios("B200", "H100")
    assert (forward * back).tolist() == pytest.approx([1.0] * len(forward))
    assert ratios("H100", "H100").tolist() == [1.0] * len(forward)


def test_a_gpu_that_is_not_in_the_table_is_refused():
    with pytest.raises(PerformanceModelError, match="no GPU is called 'K80'"):
        ratios("A100", "K80")
