"""Models of kernel times: real tables first, then the laws they obey, then what they refuse."""

import builtins

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze, load
from workbench.errors import PerformanceModelError
from workbench.tables import COLLECTIVE_TIMES, GEMM_TIMES, PREDICTED_TIMES

SHAPE = ["m_count", "n_count", "k_count"]
dimension = st.integers(1, 1 << 15)


def products(rate=400e12, latency_s=4e-6, gpu="H100"):
    """Make products that take exactly what the formula says."""
    sizes = [64, 256, 1_024, 4_096, 16_384]
    grid = np.array(np.meshgrid(sizes, sizes[1:], sizes[1:])).reshape(3, -1).T.astype(float)
    m, n, k = grid.T
    seconds = np.maximum(2 * m * n * k / rate, 2 * (m * k + k * n + m * n) / 2e12) + latency_s
    frame = pd.DataFrame(grid, columns=SHAPE).assign(
        gpu=gpu, dtype="bfloat16", dur_ns=np.rint(seconds * 1e9), source="formula"
    )
    return GEMM_TIMES.cast(frame)


def reduces(gpu="H100", ranks=8, nodes=1):
    """Make collectives on three lines."""
    size = 2.0 ** np.arange(9, 30)
    lines = [(8e-6, 5e9), (12e-6, 60e9), (40e-6, 250e9)]
    seconds = np.min([a + size / b for a, b in lines], axis=0)
    frame = pd.DataFrame({"size_bytes": size, "dur_ns": np.rint(seconds * 1e9)}).assign(
        gpu=gpu, collective="all-reduce", dtype="half", rank_count=ranks, node_count=nodes,
        source="lines",
    )  # fmt: skip
    return COLLECTIVE_TIMES.cast(frame)


def shapes(rows, gpu="H100"):
    return pd.DataFrame(rows, columns=SHAPE).assign(gpu=gpu, dtype="bfloat16")


def calls(sizes, ranks=8, nodes=1, collective="all-reduce"):
    return pd.DataFrame({"size_bytes": sizes}).assign(
        gpu="H100", collective=collective, rank_count=ranks, node_count=nodes
    )


@pytest.fixture(scope="module")
def model():
    return analyze.gemm_model(products())


@pytest.fixture(scope="module")
def bus():
    return analyze.collective_model(reduces())


@pytest.mark.slow
@pytest.mark.oracle
def test_a_part_of_h200_is_predicted_far_better_than_by_the_roofline(kernel_package):
    """A tenth of the (n, k) only; the claims take all of them."""
    times = load.gemm_times(gpus=["H200"])
    kept = pd.factorize(times["n_count"] * 100_000 + times["k_count"])[0] % 10 == 0
    errors = analyze.gemm_errors(times[kept]).set_index(["model", "shapes"])["median_ratio"]
    assert errors[("hybrid", "all")] < 0.08
    assert errors[("roofline", "all")] > 0.3
    largest = analyze.gemm_errors(times[kept], leave_out="largest")
    largest = largest.set_index(["model", "shapes"])["mean_ratio"]
    assert largest[("analytic", "all")] < 0.12


@pytest.mark.oracle
def test_the_nccl_model_is_near_what_one_node_of_h100_takes(kernel_package):
    times = load.collective_times(gpus=["H100"])
    times = times[(times["rank_count"] == 8) & (times["collective"] != "all-to-all")]
    unseen = analyze.collective_model(reduces(ranks=4))
    modelled = analyze.predicted_collective_times(unseen, times)
    assert set(modelled["basis"]) == {"modelled"}
    inside = times["dur_ns"].to_numpy() >= modelled["low_ns"].to_numpy()
    inside &= times["dur_ns"].to_numpy() <= modelled["high_ns"].to_numpy()
    assert inside.all(), "half to twice is wide enough on one node"


def test_the_formula_is_found_again(model):
    predicted = model.parameters()[("H100", "bfloat16")]
    assert predicted["compute_share"] == pytest.approx(400 / 989, rel=0.01)
    assert predicted["memory_share"] == pytest.approx(2 / 3.35, rel=0.01)
    assert predicted["launch_ns"] == pytest.approx(4_000, rel=0.01)


def test_measured_fitted_and_extrapolated_are_told_apart(model):
    requested = shapes([(256, 1_024, 1_024), (300, 1_000, 2_000), (10**6, 10**5, 10**5), (1, 1, 1)])
    predicted = analyze.predicted_gemm_times(model, requested.assign(note="mine"))
    assert predicted["basis"].tolist() == ["measured", "fitted", "extrapolated", "extrapolated"]
    assert predicted["dur_ns"].iloc[2] == predicted["analytic_ns"].iloc[2], (
        "trees do not extrapolate"
    )
    assert "outside the measured shapes" in predicted["doubt"].iloc[2]
    assert predicted["doubt"].iloc[1] == ""
    assert predicted["note"].tolist() == ["mine"] * 4
    exact = products().set_index(SHAPE)["dur_ns"][(256, 1_024, 1_024)]
    assert predicted["dur_ns"].iloc[0] == exact


@given(st.lists(st.tuples(dimension, dimension, dimension), min_size=1, max_size=20))
def test_the_interval_holds_the_point_and_rows_keep_their_order(model, rows):
    predicted = PREDICTED_TIMES.check(analyze.predicted_gemm_times(model, shapes(rows)))
    assert (predicted["low_ns"] <= predicted["dur_ns"]).all()
    assert (predicted["dur_ns"] <= predicted["high_ns"]).all()
    assert predicted[SHAPE].to_numpy().tolist() == [list(row) for row in rows]


@given(st.tuples(dimension, dimension, dimension), st.integers(0, 2))
def test_the_formula_never_falls_with_size(model, row, grown):
    larger = list(row)
    larger[grown] *= 2
    small, large = analyze.predicted_gemm_times(model, shapes([row, larger]))["analytic_ns"]
    assert small <= large


def test_repeats_count_as_their_median():
    thrice = pd.concat(
        [products().assign(dur_ns=lambda t, f=f: t["dur_ns"] * f) for f in (1, 2, 9)]
    )
    predicted = analyze.predicted_gemm_times(
        analyze.gemm_model(thrice), shapes([(256, 1_024, 1_024)])
    )
    once = products().set_index(SHAPE)["dur_ns"][(256, 1_024, 1_024)]
    assert predicted["dur_ns"].tolist() == [2 * once]


def test_without_scikit_learn_the_formula_stands_alone_and_says_so(monkeypatch):
    real = builtins.__import__

    def absent(name, *rest, **named):
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", absent)
    predicted = analyze.predicted_gemm_times(
        analyze.gemm_model(products()), shapes([(300, 1_000, 2_000)])
    ).iloc[0]
    assert predicted["dur_ns"] == predicted["analytic_ns"]
    assert "scikit-learn is not installed" in predicted["doubt"]
    assert set(analyze.gemm_errors(products())["model"]) == {"roofline", "analytic"}


def test_few_shapes_are_fitted_with_a_doubt():
    small = products()[lambda t: t["n_count"] == 1_024]
    predicted = analyze.predicted_gemm_times(
        analyze.gemm_model(small), shapes([(300, 1_024, 2_000)])
    )
    assert "too few different (n, k)" in predicted["doubt"].iloc[0]


def test_the_three_lines_are_found_again():
    beside = analyze.collective_times(reduces())
    assert (beside["modelled_ns"] / beside["dur_ns"]).between(0.999, 1.001).all()
    assert beside["line"].tolist() == sorted(beside["line"].tolist())
    last = beside.iloc[-1]
    assert last["line_gb_per_s"] == pytest.approx(250, rel=0.01)
    expected = analyze.bus_bandwidth(
        "all-reduce", rank_count=8, size_bytes=last["size_bytes"], dur_ns=last["dur_ns"]
    )
    assert last["bus_gb_per_s"] == pytest.approx(expected)


@given(st.lists(st.integers(1, 1 << 40), min_size=2, max_size=20))
def test_larger_messages_never_take_less(bus, sizes):
    predicted = analyze.predicted_collective_times(bus, calls(sorted(sizes)))
    assert predicted["analytic_ns"].is_monotonic_increasing
    assert predicted["dur_ns"].between(predicted["low_ns"], predicted["high_ns"]).all()
    inside = predicted["size_bytes"].between(1 << 9, 1 << 29)
    assert (predicted["basis"] == "extrapolated").tolist() == (~inside).tolist()


def test_across_nodes_it_says_that_it_is_a_model(bus):
    predicted = analyze.predicted_collective_times(
        bus, pd.concat([calls([1 << 30], n, n // 8) for n in (16, 64, 512)])
    )
    assert set(predicted["basis"]) == {"modelled"}
    assert predicted["dur_ns"].is_monotonic_increasing
    assert predicted["doubt"].str.contains("half to twice, by convention").all()
    small = analyze.predicted_collective_times(
        bus, pd.concat([calls([1 << 10], n, n // 8) for n in (16, 4_096)])
    )
    assert small["dur_ns"].iloc[1] < 500_000, "a tree, whose latency grows with the logarithm"
    with pytest.raises(PerformanceModelError, match=r"only .* are modelled without"):
        analyze.predicted_collective_times(bus, calls([8], collective="all-to-all"))


def test_the_interval_of_a_model_holds_most_of_what_is_new():
    noise = np.random.default_rng(5).lognormal(0, 0.05, 2 * len(products()))
    times = products().assign(
        dur_ns=lambda t: np.rint(t["dur_ns"] * noise[: len(t)]).astype("int64")
    )
    model = analyze.gemm_model(times, coverage_share=0.8)
    between = shapes(
        [(m, n, k) for m in (96, 700, 3_000) for n in (300, 2_000) for k in (500, 9_000)]
    )
    predicted = analyze.predicted_gemm_times(model, between)
    m, n, k = (between[name].to_numpy(float) for name in SHAPE)
    seconds = np.maximum(2 * m * n * k / 400e12, 2 * (m * k + k * n + m * n) / 2e12) + 4e-6
    inside = (predicted["low_ns"] <= seconds * 1e9) & (seconds * 1e9 <= predicted["high_ns"])
    assert inside.mean() >= 0.75


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.drop(columns="k_count"), r"shapes lack \['k_count'\]"),
        (lambda s: s.assign(m_count=0), "m_count is 0 in row 0; it must be a whole number from 1"),
        (lambda s: s.assign(m_count=1.5), "m_count is 1.5 in row 0"),
        (lambda s: s.assign(gpu="A100"), "bfloat16 on A100 was not fitted"),
    ],
)
def test_shapes_that_cannot_be_predicted_say_why(model, change, message):
    with pytest.raises(PerformanceModelError, match=message):
        analyze.predicted_gemm_times(model, change(shapes([(1, 2, 3)])))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.drop(columns="gpu"), r"calls lack \['gpu'\]"),
        (lambda c: c.assign(rank_count=1), "rank_count is 1 in row 0"),
        (lambda c: c.assign(size_bytes=0), "size_bytes is 0 in row 0"),
        (lambda c: c.assign(node_count=9), "more nodes than ranks"),
    ],
)
def test_calls_that_cannot_be_predicted_say_why(bus, change, message):
    with pytest.raises(PerformanceModelError, match=message):
        analyze.predicted_collective_times(bus, change(calls([8])))


def test_nothing_asked_gives_nothing(model, bus):
    assert PREDICTED_TIMES.check(
        analyze.predicted_gemm_times(model, shapes([]).astype(dict.fromkeys(SHAPE, "int64")))
    ).empty
    assert analyze.predicted_collective_times(bus, calls([1]).iloc[:0]).empty
    assert analyze.collective_times(COLLECTIVE_TIMES.empty()).empty
    assert analyze.gemm_errors(GEMM_TIMES.empty()).empty


def test_what_cannot_be_fitted_says_why():
    with pytest.raises(PerformanceModelError, match="no measured matrix products"):
        analyze.gemm_model(GEMM_TIMES.empty())
    with pytest.raises(PerformanceModelError, match="3 shapes are too few"):
        analyze.gemm_model(products().head(3))
    with pytest.raises(PerformanceModelError, match="no measured collectives"):
        analyze.collective_model(COLLECTIVE_TIMES.empty())
    with pytest.raises(PerformanceModelError, match="5 sizes are too few for three lines"):
        analyze.collective_model(reduces().head(5))
    for fit, table in ((analyze.gemm_model, products()), (analyze.collective_model, reduces())):
        with pytest.raises(PerformanceModelError, match="coverage_share is 1"):
            fit(table, coverage_share=1)
    with pytest.raises(PerformanceModelError, match="must be 'n,k' or 'largest'"):
        analyze.gemm_errors(products(), leave_out="m")
    with pytest.raises(PerformanceModelError, match="too few different"):
        analyze.gemm_errors(products().head(2))
    with pytest.raises(PerformanceModelError, match="no bus bandwidth of 'nap'"):
        analyze.bus_bandwidth("nap", rank_count=8, size_bytes=1, dur_ns=1)
    with pytest.raises(PerformanceModelError, match="no peak is known for operands of type 'fp3'"):
        analyze.gemm_model(products().assign(dtype="fp3"))
