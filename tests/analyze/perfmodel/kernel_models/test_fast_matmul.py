"""Fast matrix multiplication: algorithms verified, crossovers by hand, gains that obey laws."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims._fast_algorithms import fast_algorithms
from workbench import analyze, load
from workbench.errors import PerformanceModelError, WorkbenchError
from workbench.tables import (
    FAST_COEFFICIENTS,
    MATRIX_PEAKS,
    MATRIX_PRODUCTS,
)

COLUMNS = list(MATRIX_PRODUCTS.columns)


def products(*sides):
    rows = [(f"{m} x {n} x {k}", m, n, k, 1, "layout") for m, n, k in sides]
    return MATRIX_PRODUCTS.cast(pd.DataFrame(rows, columns=COLUMNS))


def peaks(flops=15.7e12, speed=0.9e12, size=4):
    row = {"gpu": "own", "dtype": "float32", "element_bytes": size}
    row |= {"peak_flop_per_s": flops, "memory_bytes_per_s": speed}
    return MATRIX_PEAKS.cast(pd.DataFrame([row]))


@pytest.fixture(scope="module")
def coefficients(real_data):
    return fast_algorithms(real_data("fast-matmul"))


@pytest.fixture(scope="module")
def algorithms(coefficients):
    return analyze.fast_algorithms(coefficients)


@pytest.mark.oracle
def test_all_31_algorithms_fulfil_brents_equations(algorithms):
    assert len(algorithms) == 31
    assert algorithms["residual_ratio"].max() <= 1e-12


@pytest.mark.long
@pytest.mark.oracle
def test_every_algorithm_multiplies_random_matrices(coefficients):
    """An independent computation: block products and sums, not Brent's equations."""
    rng = np.random.default_rng(3)
    for name, rows in coefficients.groupby("algorithm"):
        m, k, n = (int(rows[f"{side}_part_count"].iloc[0]) for side in "mkn")
        a, b = rng.uniform(-1, 1, (m, k, 3, 4)), rng.uniform(-1, 1, (k, n, 4, 5))
        exact = np.einsum("ipxz,pjzy->ijxy", a, b).reshape(m * n, 3, 5)
        c = np.zeros_like(exact)
        for _, own in rows.groupby("product"):
            parts = {}
            for operand, blocks in (("A", a.reshape(m * k, 3, 4)), ("B", b.reshape(k * n, 4, 5))):
                used = own[own["operand"] == operand]
                weighted = used["coefficient_ratio"].to_numpy()[:, None, None]
                parts[operand] = (weighted * blocks[used["block"]]).sum(axis=0)
            for block, factor in own.loc[
                own["operand"] == "C", ["block", "coefficient_ratio"]
            ].to_numpy():
                c[int(block)] += factor * (parts["A"] @ parts["B"])
        assert np.abs(c - exact).max() <= 1e-12, name


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "saving", "sums"),
    [("strassen", 1 / 7, 18), ("hk323-15-94", 0.2, 55), ("smirnov336-40-960", 0.35, 862)],
)
def test_savings_and_additions_are_those_of_the_literature(name, saving, sums, algorithms):
    row = algorithms.set_index("algorithm").loc[name]
    assert row["saving_ratio"] == pytest.approx(saving, rel=1e-12)
    assert sum(row[f"{operand}_addition_count"] for operand in "abc") == sums


@pytest.mark.oracle
def test_the_error_of_strassen_and_winograd_grows_as_higham_says(algorithms):
    """12 and 18 per level, of which the plain product has 4."""
    growth = analyze.fast_algorithms().set_index("algorithm")["error_growth_ratio"]
    assert growth.to_dict() == {"Strassen": 12 / 4, "Winograd": 18 / 4}
    found = algorithms.set_index("algorithm").loc["strassen", "error_growth_ratio"]
    assert found == growth["Strassen"]


def test_a_wrong_coefficient_is_noticed(coefficients):
    strassen = coefficients[coefficients["algorithm"] == "strassen"].reset_index(drop=True)
    wrong = strassen.assign(coefficient_ratio=strassen["coefficient_ratio"].where(
        strassen.index != 7, -strassen["coefficient_ratio"]
    ))  # fmt: skip
    assert analyze.fast_algorithms(wrong)["residual_ratio"].iloc[0] >= 1


def test_no_coefficients_are_no_algorithms():
    assert analyze.fast_algorithms(FAST_COEFFICIENTS.empty()).empty


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("gpu", "dtype", "side"),
    [("V100", "float32", 3140), ("H100", "float32", 3600), ("H100", "bfloat16", 26_600)],
)
def test_crossovers_are_180_and_90_times_peak_over_bandwidth(gpu, dtype, side):
    rows = analyze.fast_matmul_crossover().set_index(["gpu", "dtype"])
    assert rows.loc[(gpu, dtype), "unfused_count"] == pytest.approx(side, rel=0.01)
    assert rows.loc[(gpu, dtype), "algorithm"] == "Winograd"


@pytest.mark.oracle
def test_the_printed_crossover_of_a_fused_kernel_lies_between_the_two_of_the_model():
    row = analyze.fast_matmul_crossover(peaks()).iloc[0]
    assert row["hidden_count"] < 1536 < row["unfused_count"]


def test_at_the_crossover_a_square_product_takes_the_same_time():
    side = analyze.fast_matmul_crossover(peaks())["unfused_count"].iloc[0]
    own = {"gpu": "own", "dtype": "float32", "peaks": peaks()}
    at, above, below = (
        analyze.fast_matmul(products((int(n),) * 3), **own)["unfused_ratio"].iloc[0]
        for n in (side, 1.3 * side, side / 1.3)
    )
    assert at == pytest.approx(1, abs=1e-3)
    assert below < 1 < above


def test_the_second_level_pays_at_twice_the_size_of_the_first():
    one, two = (analyze.fast_matmul_crossover(peaks(), levels=n).iloc[0] for n in (1, 2))
    assert two["unfused_count"] == pytest.approx(2 * one["unfused_count"])
    side = int(two["unfused_count"])
    own = {"gpu": "own", "dtype": "float32", "peaks": peaks()}
    ratio = [
        analyze.fast_matmul(products((side,) * 3), levels=n, **own)["unfused_ratio"].iloc[0]
        for n in (1, 2)
    ]
    assert ratio[0] == pytest.approx(ratio[1], rel=1e-3)


SIDES = st.integers(256, 40_000)


@given(m=SIDES, n=SIDES, k=SIDES, levels=st.integers(1, 3))
def test_no_gain_exceeds_the_bound_and_hiding_never_costs(m, n, k, levels):
    row = analyze.fast_matmul(products((m, n, k)), gpu="A100", dtype="float32", levels=levels)
    row = row.iloc[0]
    assert 0 < row["unfused_ratio"] <= row["hidden_ratio"] * (1 + 1e-12)
    assert row["hidden_ratio"] <= row["bound_ratio"] * (1 + 1e-12)
    assert min(m, n, k) * 0.99 <= row["effective_count"] <= max(m, n, k) * 1.01


@given(m=SIDES, n=SIDES, k=SIDES)
def test_a_product_gains_as_much_as_the_square_one_of_its_effective_size(m, n, k):
    own = {"gpu": "own", "dtype": "float32", "peaks": peaks(speed=4e12)}
    row = analyze.fast_matmul(products((m, n, k)), **own).iloc[0]
    side = row["effective_count"]
    gain = analyze.fast_matmul(products((round(side),) * 3), **own)["unfused_ratio"].iloc[0]
    assert gain == pytest.approx(row["unfused_ratio"], rel=2e-3)


def test_a_thin_product_of_many_operations_gains_nothing_where_a_cube_of_fewer_does():
    """The naive reading, more operations gain more, is wrong."""
    thin, cube = (60_000, 60_000, 512), (8_192, 8_192, 8_192)
    table = analyze.fast_matmul(products(thin, cube), gpu="A100", dtype="float32")
    assert np.prod(thin) > 3 * np.prod(cube)
    assert table["verdict"].tolist() == ["only fused", "pays"]


def test_doubts_name_memory_odd_sizes_and_narrow_types():
    table = analyze.fast_matmul(products((8192, 8192, 64), (8191, 8192, 8192)))
    assert "memory-bound" in table["doubt"][0]
    assert "padding" in table["doubt"][1]
    assert table["doubt"].str.contains("more bits than the type has").all()


def test_the_best_of_several_algorithms_is_chosen_for_each_product(algorithms):
    own = products((16_384,) * 3, (1_536,) * 3)
    options = {"gpu": "A100", "dtype": "float32"}
    best = analyze.fast_matmul(own, algorithms=algorithms, **options)["unfused_ratio"]
    for row in range(0, len(algorithms), 6):
        alone = analyze.fast_matmul(own, algorithms=algorithms[row : row + 1], **options)
        assert (best >= alone["unfused_ratio"]).all()


def test_nothing_is_predicted_for_unknown_peaks_or_without_an_algorithm():
    with pytest.raises(PerformanceModelError, match="no peak of K80 for float32"):
        analyze.fast_matmul(products((8, 8, 8)), gpu="K80", dtype="float32")
    useless = analyze.fast_algorithms().assign(saving_ratio=0.0)
    with pytest.raises(PerformanceModelError, match="no algorithm here saves a product"):
        analyze.fast_matmul_crossover(algorithms=useless)
    with pytest.raises(WorkbenchError, match="levels must be 1 or more"):
        analyze.fast_matmul(products((8, 8, 8)), levels=0)


def test_no_products_give_an_empty_table():
    assert analyze.fast_matmul(MATRIX_PRODUCTS.empty()).empty


# --- matrix products of a model ------------------------------------------------------------


@pytest.mark.oracle
def test_products_of_a_layout_add_up_to_the_operations_of_the_model():
    """Independent count: 2 x active parameters per token, but for norms and the input embedding."""
    shape = analyze.model_shape("Llama 3 8B")
    layout = analyze.Layout(sequence=8192)
    table = analyze.matrix_products(analyze.configurations(shape, layout))
    done = (table["m_count"] * table["n_count"] * table["k_count"] * table["call_count"]).sum()
    embedding = shape.vocabulary * shape.hidden
    norms = (2 * shape.layers + 1) * shape.hidden
    assert done == 8192 * (shape.active_parameter_count - embedding - norms)


def test_tensor_parallelism_divides_the_work_and_experts_share_the_tokens():
    shape = analyze.model_shape("Llama 3 70B")
    work = []
    for tensor in (1, 8):
        layout = analyze.Layout(tensor=tensor, sequence=8192)
        table = analyze.matrix_products(analyze.configurations(shape, layout))
        sides = table["m_count"] * table["n_count"] * table["k_count"]
        work.append((sides * table["call_count"]).sum())
    assert work[0] == 8 * work[1]
    shape = analyze.model_shape("Mixtral 8x7B")
    table = analyze.matrix_products(analyze.configurations(shape, analyze.Layout(sequence=4096)))
    expert = table.set_index("product").loc["expert, up"]
    assert expert["m_count"] * expert["call_count"] == 4096 * 2 * shape.layers


def events(*rows):
    return pd.DataFrame(rows, columns=["name", "input_shapes"])


def test_a_trace_tells_the_sizes_of_its_products():
    table = analyze.matrix_products(
        events(
            ("aten::mm", "[[64, 32], [32, 16]]"),
            ("aten::mm", "[[64, 32], [32, 16]]"),
            ("aten::addmm", "[[8], [4, 2], [2, 8], [], []]"),
            ("aten::bmm", "[[12, 5, 6], [12, 6, 7]]"),
            ("aten::add", "[[64, 32], [64, 32]]"),
            ("aten::mm", None),
            ("aten::mm", "[[], [32, 16]]"),
        )
    )
    found = table[["m_count", "n_count", "k_count", "call_count"]].to_numpy().tolist()
    assert found == [[64, 16, 32, 2], [4, 8, 2, 1], [5, 7, 6, 12]]
    assert set(table["basis"]) == {"trace"}


@pytest.mark.oracle
def test_a_real_trace_with_shapes_gives_products(real_data):
    path = real_data("kineto-h100") / "gaunernst_bert-small-uncased__1016001.json.gz"
    trace = load.traces(path, progress=False)
    table = analyze.matrix_products(trace.events)
    called = trace.events["name"].isin(["aten::addmm", "aten::mm", "aten::bmm", "aten::baddbmm"])
    is_bmm = table["product"].isin(["aten::bmm", "aten::baddbmm"])
    assert table.loc[~is_bmm, "call_count"].sum() <= called.sum()
    assert len(table) >= 3


def test_rows_without_sizes_are_refused():
    with pytest.raises(PerformanceModelError, match="these rows have neither"):
        analyze.matrix_products(pd.DataFrame({"name": ["aten::mm"]}))
    with pytest.raises(PerformanceModelError, match="record_shapes=True"):
        analyze.matrix_products(events(("aten::add", "[[1], [1]]")))


def test_peaks_can_be_changed_without_harm():
    table = analyze.matrix_peaks()
    table["peak_flop_per_s"] = 1.0
    assert (analyze.matrix_peaks()["peak_flop_per_s"] > 1e12).all()
    assert not analyze.matrix_peaks().duplicated(["gpu", "dtype"]).any()


# --- timing ---------------------------------------------------------------------------------
