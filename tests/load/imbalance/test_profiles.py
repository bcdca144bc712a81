"""Kernel profiles of two projects, and what a wrong file says."""

import pytest

from workbench import analyze, load
from workbench.errors import LoadError, WorkbenchError


@pytest.fixture(scope="module")
def attention(real_data):
    return load.attention_profile(real_data("profiles-h100") / "compute-attn-H100.csv")


@pytest.fixture(scope="module")
def linear(real_data):
    return load.linear_profile(real_data("profiles-h100-llama2") / "mlp.csv")


@pytest.mark.oracle
def test_attention_profiles_of_both_kinds_are_read(real_data, attention):
    assert attention["dur_ns"].max() == pytest.approx(206_286_644, abs=1)
    other = load.attention_profile(real_data("profiles-h100") / "compute-attn-megatron.csv")
    assert other["length_tokens"].tolist() == [16 << power for power in range(12)]


@pytest.mark.oracle
def test_the_crossover_of_a_7b_model_on_h100_grows_with_tensor_parallelism(attention, linear):
    """The profile has 64 heads, Llama-2-7B 32; K = 1024."""
    table = analyze.crossover(attention, linear, head_ratio=0.5)
    known = {1: 25.1, 2: 27.1, 4: 30.5, 8: 38.4}
    for row in table.itertuples():
        expected = known[row.tensor_parallel] * 1024
        assert row.crossover_tokens == pytest.approx(expected, rel=0.12)
    assert table["crossover_tokens"].is_monotonic_increasing


def test_flops_alone_put_it_later():
    assert analyze.crossover_from_flops(hidden_size=4096, ffn_size=11_008) == 49_408
    with pytest.raises(WorkbenchError, match="above 0"):
        analyze.crossover_from_flops(hidden_size=0, ffn_size=1)


def test_short_documents_alone_are_not_enough(attention, linear):
    short = attention[attention["length_tokens"] < 4_096]
    with pytest.raises(WorkbenchError, match="share no tensor-parallel degree"):
        analyze.crossover(short, linear)
    with pytest.raises(WorkbenchError, match="head_ratio must be above 0"):
        analyze.crossover(attention, linear, head_ratio=0)


def write(folder, text):
    path = folder / "profile.csv"
    path.write_text(text)
    return path


def test_missing_columns_are_named(tmp_path):
    with pytest.raises(LoadError, match=r"no column \['tp', 'duration_per_doc or latency\(ms\)'\]"):
        load.attention_profile(write(tmp_path, "L,cp\n64,1\n"))
    with pytest.raises(LoadError, match=r"time_stats\.<operator>.mean"):
        load.linear_profile(write(tmp_path, "num_tokens,num_tensor_parallel_workers\n64,1\n"))


@pytest.mark.parametrize("value", ["0", "-1", "nan", "fast", "inf", ""])
def test_a_time_that_is_none_is_named_with_its_row(tmp_path, value):
    text = f"L,cp,tp,duration_per_doc\n64,1,1,0.5\n128,1,1,{value}\n"
    with pytest.raises(LoadError, match=r"'dur_ns': 1 values are not a number above 0.* in row 1"):
        load.attention_profile(write(tmp_path, text))


def test_several_models_in_one_file_must_be_told_apart(tmp_path):
    text = "num_tokens,num_tensor_parallel_workers,n_embd,time_stats.up.mean\n8,1,10,1\n8,1,20,2\n"
    path = write(tmp_path, text)
    with pytest.raises(LoadError, match=r"models of width \[10, 20\]"):
        load.linear_profile(path)
    assert load.linear_profile(path, embedding_size=20)["dur_ns"].tolist() == [2_000_000]
    with pytest.raises(LoadError, match="no model of width 30"):
        load.linear_profile(path, embedding_size=30)


def test_headers_without_rows_and_rows_without_headers_are_refused(tmp_path):
    with pytest.raises(LoadError, match="holds no measurements"):
        load.attention_profile(write(tmp_path, "L,cp,tp,duration_per_doc\n"))
    with pytest.raises(LoadError, match="more fields than the header"):
        load.attention_profile(write(tmp_path, "L,cp,tp,duration_per_doc\n4,096,1,1,0.5\n"))


def test_a_time_in_words_is_refused_with_its_row(tmp_path):
    head = "num_tokens,num_tensor_parallel_workers,time_stats.a.mean,time_stats.b.mean\n"
    with pytest.raises(LoadError, match="'dur_ns': 1 values are not a number above 0"):
        load.linear_profile(write(tmp_path, f"{head}8,1,1,2\n16,1,1,fast\n"))
