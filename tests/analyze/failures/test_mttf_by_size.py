"""Time to failure by size: published points first, then laws, then what is refused."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze
from workbench.errors import WorkbenchError
from workbench.tables import MTTF_BY_SIZE


def sizes(**columns):
    return pd.DataFrame(columns)


@pytest.mark.oracle
def test_the_measured_sizes_of_rsc_agree_with_each_other(published):
    table = MTTF_BY_SIZE.check(analyze.mttf_by_size(published("mttf_rsc")))
    rate = table.set_index("gpu_count")["per_1000_node_days"]
    assert rate[1024] == pytest.approx(23.7, abs=0.05)
    assert rate[8] == pytest.approx(21.0, abs=0.05)
    assert (rate[[16_384, 131_072]] < 7).all(), "the projections are of other failures"
    assert table["slope_ratio"].isna().all(), "no slope without counts"


def test_counts_give_the_mean_its_interval_and_the_slope():
    table = analyze.mttf_by_size(
        sizes(gpu_count=[100, 1000], failure_count=[10, 100], exposure_h=[1000.0, 1000])
    )
    assert table["mttf_h"].tolist() == [100, 10]
    # χ²(0.025; 20) / 2 = 4.795, χ²(0.975; 22) / 2 = 18.39
    assert table["high_mttf_h"].iloc[0] == pytest.approx(1000 / 4.795, rel=1e-3)
    assert table["low_mttf_h"].iloc[0] == pytest.approx(1000 / 18.39, rel=1e-3)
    assert table["slope_ratio"].iloc[0] == pytest.approx(1, abs=1e-9)
    # Two sizes: the variance of the slope is (1/10 + 1/100) / ln(10)^2.
    error = np.sqrt(0.11) / np.log(10)
    assert table["high_slope_ratio"].iloc[0] == pytest.approx(1 + 1.959964 * error)


@given(
    st.floats(-1, 3),
    st.lists(st.integers(1, 100_000), min_size=2, max_size=12, unique=True),
    st.floats(1e-3, 1e3),
)
def test_the_slope_of_exact_counts_is_found(slope, gpus, scale):
    exposure = np.linspace(1, 2, len(gpus)) * 1e6
    mean = exposure * scale * (np.array(gpus) / max(gpus)) ** slope
    count = np.round(mean)
    if count.min() < 200:
        return
    table = analyze.mttf_by_size(sizes(gpu_count=gpus, failure_count=count, exposure_h=exposure))
    found = table.iloc[0][["low_slope_ratio", "slope_ratio", "high_slope_ratio"]].tolist()
    assert found == sorted(found)
    assert found[0] - 0.02 <= slope <= found[2] + 0.02


def test_a_size_without_a_failure_has_a_lower_end_only():
    table = analyze.mttf_by_size(
        sizes(gpu_count=[8, 64], failure_count=[0, 9], exposure_h=[10.0, 90])
    )
    row = table.iloc[0]
    assert pd.isna(row["mttf_h"])
    assert pd.isna(row["high_mttf_h"])
    assert row["low_mttf_h"] == pytest.approx(10 / 3.689, rel=1e-3)
    assert pd.isna(row["per_1000_node_days"])


@pytest.mark.parametrize(
    "columns",
    [
        {"gpu_count": [8], "failure_count": [3], "exposure_h": [9.0]},
        {"gpu_count": [8, 8], "failure_count": [3, 4], "exposure_h": [9.0, 9]},
        {"gpu_count": [8, 64], "failure_count": [0, 0], "exposure_h": [9.0, 9]},
        {"gpu_count": [8, 64], "failure_count": [0, 5], "exposure_h": [9.0, 9]},
    ],
    ids=["one size", "one size twice", "no failures", "failures at one size only"],
)
def test_where_no_slope_can_be_known_none_is_given(columns):
    assert analyze.mttf_by_size(sizes(**columns))["slope_ratio"].isna().all()


def test_projections_do_not_count_for_the_slope():
    table = sizes(
        gpu_count=[8, 80, 800], failure_count=[10, 100, 1], exposure_h=[100.0] * 3,
        kind=["measured", "measured", "projected"],
    )  # fmt: skip
    assert analyze.mttf_by_size(table)["slope_ratio"].iloc[0] == pytest.approx(1)


def test_no_sizes_are_no_error():
    assert analyze.mttf_by_size(sizes(gpu_count=[], mttf_h=[])).empty


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"gpus": [8], "mttf_h": [1.0]}, r"sizes need the column gpu_count.*there is \['gpus'"),
        ({"gpu_count": [8], "failure_count": [1]}, "failure_count with exposure_h, or mttf_h"),
        ({"gpu_count": [0], "mttf_h": [1.0]}, "gpu_count is not a whole number from 1"),
        ({"gpu_count": [8, 9], "mttf_h": [1.0, -1]}, r"row 1 \(of 9 GPUs\): neither failure_count"),
        (
            {"gpu_count": [8], "failure_count": [1], "exposure_h": [0.0]},
            "exposure_h is not above 0",
        ),
        (
            {"gpu_count": [8], "failure_count": [-1], "exposure_h": [1.0]},
            "failure_count is not a whole number from 0",
        ),
        (
            {"gpu_count": [8], "failure_count": [2], "exposure_h": [8.0], "mttf_h": [5.0]},
            "mttf_h is not exposure_h / failure_count",
        ),
        ({"gpu_count": [8], "mttf_h": [1.0], "kind": ["guessed"]}, "kind is not one of"),
    ],
)
def test_what_is_no_size_is_refused(columns, message):
    with pytest.raises(WorkbenchError, match=message):
        analyze.mttf_by_size(sizes(**columns))
