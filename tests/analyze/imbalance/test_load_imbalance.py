"""Imbalance of loads: printed values, the laws of every measure, and what is refused."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims.registry import published
from workbench import analyze
from workbench.errors import WorkbenchError
from workbench.tables import LOAD_IMBALANCE

some_loads = st.lists(st.floats(min_value=0, max_value=1e9), min_size=1, max_size=40).filter(
    lambda loads: max(loads) > 1e-6
)


def values(loads, **options):
    table = analyze.load_imbalance(loads, **options)
    return table.set_index("measure")["value_ratio"]


@pytest.mark.oracle
@pytest.mark.parametrize(
    "row", published("sharding_imbalance"), ids=lambda row: f"{row['measure']} of {row['loads']}"
)
def test_reproduces_printed_values(row):
    loads = [float(load) for load in row["loads"].split()]
    value = values(loads)[row["measure"]] * float(row["scale"])
    assert value == pytest.approx(float(row["value"]), abs=0.5 * 10.0 ** -int(row["digits"]))


@given(some_loads)
def test_every_value_lies_between_equal_and_worst(loads):
    table = analyze.load_imbalance(loads)
    low = table[["equal_ratio", "worst_ratio"]].min(axis="columns")
    high = table[["equal_ratio", "worst_ratio"]].max(axis="columns")
    assert (table["value_ratio"] >= low - 1e-9).all()
    assert (table["value_ratio"] <= high + 1e-9).all()


@given(some_loads, st.floats(min_value=1e-3, max_value=1e6), st.randoms())
def test_neither_the_unit_nor_the_order_of_the_loads_matters(loads, factor, shuffler):
    scaled = [factor * load for load in loads]
    shuffler.shuffle(scaled)
    np.testing.assert_allclose(values(scaled), values(loads), rtol=1e-7, atol=1e-9)


@given(st.integers(1, 300), st.floats(min_value=1e-300, max_value=1e300))
def test_equal_loads_are_in_balance_by_every_measure(count, load):
    table = analyze.load_imbalance([load] * count)
    assert table["value_ratio"].tolist() == pytest.approx(table["equal_ratio"].tolist(), abs=1e-9)
    assert values([load] * count)["max / mean"] == pytest.approx(1)
    assert values([load] * count)["KL divergence"] == pytest.approx(0, abs=1e-9)


@given(st.integers(2, 200))
def test_one_load_that_is_everything_is_the_worst_by_every_measure(count):
    measured = values([0] * (count - 1) + [5])
    assert measured["max / mean"] == pytest.approx(count)
    assert measured["MaxVio"] == pytest.approx(count - 1)
    assert measured["coefficient of variation"] == pytest.approx((count - 1) ** 0.5)
    assert measured["Gini"] == pytest.approx(1 - 1 / count)
    assert measured["total variation"] == pytest.approx(1 - 1 / count)
    assert measured["total distance"] == pytest.approx(2 - 2 / count)
    assert measured[["chi divergence", "KL divergence"]].tolist() == pytest.approx([1, 1])


@given(some_loads)
def test_moving_load_from_the_busiest_to_the_idlest_never_makes_it_worse(loads):
    before = values(loads)
    even = sorted(loads)
    moved = (even[-1] - even[0]) / 4
    even[-1], even[0] = even[-1] - moved, even[0] + moved
    after = values(even)
    for name in before.index.drop("balancedness"):
        assert after[name] <= before[name] + 1e-9


def test_groups_are_measured_apart_and_keep_their_columns():
    frame = pd.DataFrame({"layer": [3, 3, 1, 1], "expert": [0, 1, 0, 1], "tokens": [1, 3, 2, 2]})
    table = LOAD_IMBALANCE.check(analyze.load_imbalance(frame, value="tokens", by="layer"))
    worst = table[table["measure"] == "max / mean"]
    assert worst["group"].tolist() == ["layer 1", "layer 3"]
    assert worst["layer"].tolist() == [1, 3]
    assert worst["value_ratio"].tolist() == [1, 1.5]
    table = analyze.load_imbalance(frame, value="tokens", by=["layer", "expert"])
    assert table["group"].unique().tolist()[0] == "layer 1, expert 0"
    assert (table["load_count"] == 1).all()


def test_a_column_without_groups_is_one_group():
    frame = pd.DataFrame({"perf_ms": [1.0, 3.0]})
    assert values(frame, value="perf_ms").equals(values([1, 3]))
    assert values(frame["perf_ms"].astype("Float64")).equals(values(np.array([1, 3])))


def test_a_single_load_is_in_balance():
    assert values([7]).tolist() == [1, 1, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("loads", "options", "message"),
    [
        ([1, float("nan")], {}, "1 loads are not finite numbers from 0, the first is .* 1;"),
        ([1, -2, -3], {}, "2 loads are not finite numbers from 0, the first is .*-2.* 1;"),
        ([1, float("inf")], {}, "not finite"),
        (["a", 2], {}, "not finite numbers from 0, the first is 'a'"),
        ([], {}, "no loads to compare"),
        ([0, 0], {}, "all 2 loads are 0"),
        ([[1, 2], [3, 4]], {}, "have 2 dimensions"),
        ([1, 2], {"by": "layer"}, "these loads are not frames"),
        (pd.DataFrame({"x": [1]}), {}, r"name the column of loads with value=.* \['x'\]"),
        (pd.DataFrame({"x": [1]}), {"value": "y", "by": "z"}, r"no column \['y', 'z'\]"),
        (pd.DataFrame({"x": []}), {"value": "x"}, "no loads to compare"),
        (pd.DataFrame({"x": [1], "group": 1}), {"value": "x", "by": "group"}, "rename it"),
        (pd.DataFrame({"x": [1], "y": [None]}), {"value": "x", "by": "y"}, "belong to no group"),
        (pd.DataFrame({"x": [1, 0], "y": [1, 2]}), {"value": "x", "by": "y"}, "of y 2 are 0"),
    ],
    ids=[
        "missing", "negative", "infinite", "text", "empty", "idle", "matrix", "no frame", "no value",
        "no column", "empty frame", "name taken", "no group", "idle group",
    ],
)  # fmt: skip
def test_what_is_no_load_is_named(loads, options, message):
    with pytest.raises(WorkbenchError, match=message):
        analyze.load_imbalance(loads, **options)
