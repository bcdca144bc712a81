"""Measured kernel times: a package, four projects' files, and what a wrong file says."""

import pandas as pd
import pytest

from claims import _kernel_times
from claims._kernel_times import gemm_times
from workbench.errors import LoadError, MissingExtraError


@pytest.mark.oracle
def test_the_package_has_35742_products_per_gpu(kernel_package):
    times = gemm_times(gpus=["H100", "H200"])
    assert times.groupby("gpu").size().to_dict() == {"H100": 35_742, "H200": 35_742}
    assert not times.duplicated(["gpu", "m_count", "n_count", "k_count"]).any()
    left = {row["what"]: row["count"] for row in times.attrs["quality"]}
    assert left["type fp8 not requested"] == 71_484
    rate = 2 * times["m_count"] * times["n_count"] * times["k_count"] / times["dur_ns"] / 1e3
    assert 930 < rate[times["gpu"] == "H200"].max() < 989, "TFLOP/s, below the dense peak"


@pytest.mark.oracle
def test_sizes_of_the_package_are_elements(kernel_package):
    """Half of N/2 elements takes as long as int8 of N; read as bytes it would take half."""
    times = _kernel_times.collective_times(gpus=["H200"])
    wide = times.pivot_table(
        index=["collective", "rank_count", "size_bytes"], columns="dtype", values="dur_ns"
    )
    large = wide[wide.index.get_level_values("size_bytes") >= 1 << 22]
    assert (large["half"] / large["int8"]).median() == pytest.approx(1, abs=0.02)
    assert wide.index.get_level_values("size_bytes").max() == 1 << 29


def test_versions_are_chosen_and_repeats_are_told(kernel_package):
    twice = _kernel_times.collective_times(gpus=["H100"], version="2.27.3")
    assert [row["count"] for row in twice.attrs["quality"]] == [504]
    assert _kernel_times.collective_times(gpus=["H100"]).attrs["quality"] == []
    assert len(pd.concat([twice, twice.head(3)])) == len(twice) + 3, "attributes compare"
    with pytest.raises(LoadError, match=r"no version 9.9 .* there are \['0.24.0'\]"):
        gemm_times(gpus=["H100"], version="9.9")
    with pytest.raises(LoadError, match=r"no GPU \['K80'\]; pass some of"):
        gemm_times(gpus=["K80"])
    with pytest.raises(LoadError, match="no GPU"):
        gemm_times(gpus="H100")
    with pytest.raises(LoadError, match=r"no rows of type \['fp3'\]"):
        gemm_times(gpus=["H100"], dtypes=["fp3"])


def test_versions_are_ordered_as_numbers(tmp_path):
    for version in ("0.9.0", "0.10.0", "0.10.0rc1", "0.9.0.post2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "x").write_text("")
    assert _kernel_times.newest(tmp_path, None, "x").parent.name == "0.10.0"


def test_without_the_package_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(_kernel_times, "PACKAGE", "no-such-distribution")
    with pytest.raises(MissingExtraError, match=r"pip install 'ai-infra-workbench\[kernels\]'"):
        gemm_times()


@pytest.mark.oracle
@pytest.mark.parametrize("operation", ["all-reduce", "all-gather", "reduce-scatter"])
def test_nccl_tests_of_distca_agree_with_the_bandwidth_it_prints(real_data, operation):
    path = real_data("profiles-h100") / "nccl_perf.csv"
    times = _kernel_times.collective_times(path, gpus=["H100"])
    own_gb_per_s = times["collective"] == operation
    printed = pd.read_csv(path, index_col=False)["algbw_out_gbs"]
    rate = times["size_bytes"] / times["dur_ns"]
    assert (rate[own_gb_per_s] / printed[own_gb_per_s] - 1).abs().max() < 0.001


@pytest.mark.oracle
def test_other_projects_count_as_their_programs_say(real_data):
    gathers = _kernel_times.collective_times(
        real_data("profiles-h100") / "network-allgather-H100-8.csv"
    )
    assert gathers["size_bytes"].iloc[0] == 32 * 2 * 8, "elements per GPU, of 2 bytes, 8 of them"
    assert "rounded to 10" in gathers.attrs["quality"][0]["what"]
    reduces = _kernel_times.collective_times(
        real_data("profiles-h100") / "network-allreduce-H100-8.csv"
    )
    assert reduces["size_bytes"].iloc[0] == 32 * 2
    vidur = _kernel_times.collective_times(
        real_data("profiles-h100-llama2") / "all_reduce.csv", gpus=["H100"]
    )
    assert set(vidur["rank_count"]) == {2, 4, 8}
    last = vidur[vidur["rank_count"] == 8].sort_values("size_bytes").iloc[-1]
    assert last["size_bytes"] / last["dur_ns"] * 1.75 < 450, "no more than the link carries"
    vtrain = _kernel_times.collective_times(
        real_data("iterations-vtrain") / "AR_GPU8_1M_1024M_LUT", gpus=["A100"]
    )
    assert vtrain.iloc[0][["size_bytes", "dur_ns", "rank_count"]].tolist() == [1 << 20, 92_790, 8]


def write(folder, text, name="times.csv"):
    path = folder / name
    path.write_text(text)
    return path


def test_own_files_are_read_in_any_unit(tmp_path):
    text = "gpu,dtype,m,n,k,latency\nX,fp8,1,2,3,0.5\n"
    times = gemm_times(write(tmp_path, text), dtypes=None)
    assert times["dur_ns"].tolist() == [500_000]
    text = "m_count,n_count,k_count,time_us\n1,2,3,7\n1,2,3,9\n"
    times = gemm_times(write(tmp_path, text), gpus=["X"])
    assert times[["gpu", "dtype", "dur_ns"]].to_numpy().tolist() == [
        ["X", "bfloat16", 7_000],
        ["X", "bfloat16", 9_000],
    ]
    assert [row["what"] for row in times.attrs["quality"]] == [
        "the same was measured before; analyses take the median"
    ]
    text = "collective,rank_count,size_bytes,dur_ns,gpu\nAllReduce,8,64,5,X\n"
    times = _kernel_times.collective_times(write(tmp_path, text))
    assert times[["collective", "node_count", "dtype"]].iloc[0].tolist() == [
        "all-reduce", 1, "not told",
    ]  # fmt: skip


@pytest.mark.parametrize("value", ["0", "-1", "nan", "fast", "inf", "1e-9"])
def test_a_time_that_is_none_is_named_with_its_row(tmp_path, value):
    text = f"gpu,dtype,m,n,k,latency\nX,bfloat16,1,2,3,1\nX,bfloat16,1,2,3,{value}\n"
    with pytest.raises(LoadError, match=r"'latency': 1 times are not a number above 0.* in row 1"):
        gemm_times(write(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m,n,latency\n1,2,3\n", "no column k_count or k"),
        ("m,n,k\n1,2,3\n", "one column with times is needed"),
        ("m,n,k,latency,dur_ns\n1,2,3,4,5\n", "one column with times is needed"),
        ("m,n,k,latency\n1,2,3,4\n", r"does not say its gpu; pass gpus=\[...\]"),
        ("gpu,m,n,k,latency\nX,0,2,3,4\n", "not a whole number from 1"),
    ],
)
def test_products_that_cannot_be_read_say_why(tmp_path, text, message):
    with pytest.raises(LoadError, match=message):
        gemm_times(write(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "no times of collectives are known with columns"),
        ("a,b\n", "holds no measurements"),
        ("a\n1,2\n", "rows have more fields than the header"),
        (
            "collective,rank_count,size_bytes,dur_ns,gpu\nnap,8,64,5,X\n",
            "are not known collectives",
        ),
        ("size(B),count,type,time(ns)\n8,2,float,9\n", "stated only in the file's name"),
        (
            "gpu_type,world_size,op,nelem,dtype,latency(ms)\nX,8,allgather,4,odd,1\n",
            "element types",
        ),
        (
            "collective,num_workers,size,devices_per_node\nall_reduce,8,64,8\n",
            "no column 'time_stats.all_reduce.mean'",
        ),
    ],
)
def test_collectives_that_cannot_be_read_say_why(tmp_path, text, message):
    with pytest.raises(LoadError, match=message):
        _kernel_times.collective_times(write(tmp_path, text), gpus=["X"])


def test_a_file_that_is_not_there_is_named(tmp_path):
    for read in (gemm_times, _kernel_times.collective_times):
        with pytest.raises(FileNotFoundError, match="there is no such file"):
            read(tmp_path / "none.csv")


def test_a_column_that_is_there_twice_is_refused(tmp_path):
    text = "gpu,dtype,m,n,k,m,latency\nX,fp8,1,2,3,9,0.5\n"
    with pytest.raises(LoadError, match=r"columns \['m'\] occur twice"):
        gemm_times(write(tmp_path, text), dtypes=None)
