"""From which document length attention costs more than everything else of a layer."""

import pandas as pd
import pytest

from workbench import analyze
from workbench.errors import WorkbenchError


@pytest.fixture(scope="module")
def attention(real_data):
    measured = pd.read_csv(real_data("profiles-h100") / "compute-attn-H100.csv")
    names = {"L": "length_tokens", "tp": "tensor_parallel", "cp": "context_parallel"}
    return measured.rename(columns=names).assign(dur_ns=measured["duration_per_doc"] * 1e6)


@pytest.fixture(scope="module")
def linear(real_data):
    measured = pd.read_csv(real_data("profiles-h100-llama2") / "mlp.csv")
    times = measured.filter(regex=r"^time_stats\.(?!emb\.).*\.mean$")
    names = {"num_tokens": "token_count", "num_tensor_parallel_workers": "tensor_parallel"}
    return measured.rename(columns=names).assign(dur_ns=times.sum(axis=1, skipna=False) * 1e6)


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
