"""Power on one grid: a real job first, then the law that no energy is lost, then refusals."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyze.power.power_rows import SECOND, entities, every_s, mlperf_job, readings
from workbench import analyze
from workbench.errors import TableError, WorkbenchError
from workbench.tables import POWER_GRID, POWER_TOTALS

LOST = float("nan")
watts = st.one_of(st.just(LOST), st.floats(min_value=0, max_value=1e5))
pairs = st.lists(
    st.tuples(st.integers(0, 60_000), watts),
    min_size=1,
    max_size=40,
    unique_by=lambda pair: pair[0],
)


@pytest.fixture(scope="module")
def gpt3_totals(real_data):
    power, start_ns, end_ns = mlperf_job(real_data("power-mlperf-gpt3-512gpu"))
    grid = analyze.power_grid(power, period_s=2, start_ns=start_ns, end_ns=end_ns)
    return grid, analyze.power_totals(grid)


@pytest.mark.oracle
def test_the_power_of_512_gpus_has_the_published_mean_and_peak(gpt3_totals):
    grid, totals = gpt3_totals
    power = totals["power_w"]
    assert power.mean() == pytest.approx(438_300, rel=2e-3)
    assert power.max() == pytest.approx(458_800, rel=2e-3)
    peaks = grid.groupby("entity", observed=True)["power_w"].max().sum()
    assert peaks == pytest.approx(464_700, rel=2e-3)
    assert peaks / power.max() == pytest.approx(1.013, abs=0.002)
    assert power.isna().sum() == 2, "the first and the last cell lack some nodes"


@pytest.mark.oracle
def test_cells_that_all_nodes_cover_hold_the_energy_that_was_measured_before(real_data):
    power, _, _ = mlperf_job(real_data("power-mlperf-gpt3-512gpu"))
    totals = analyze.power_totals(analyze.power_grid(power, period_s=2))
    assert totals["power_w"].sum() * 2 / 3.6e6 == pytest.approx(415.17, abs=0.05)


@given(st.dictionaries(st.sampled_from("abc"), pairs, min_size=1), st.floats(0.05, 100))
def test_the_energy_of_the_cells_is_that_of_the_readings(series, period_s):
    power = readings(
        **{
            name: [(at / 1000, value) for at, value in sorted(each)]
            for name, each in series.items()
        }
    )
    if power["time_ns"].nunique() < 2:
        return
    grid = analyze.power_grid(power, period_s=period_s, least_covered_share=0)
    first, last = power["time_ns"].min(), power["time_ns"].max()
    energy = analyze.energy(power, start_ns=first, end_ns=last).set_index("entity")
    drawn = grid["power_w"].fillna(0) * grid["covered_share"] * period_s
    known_s = grid.groupby("entity", observed=True)["covered_share"].sum() * period_s
    sums = drawn.groupby(grid["entity"], observed=True).sum()
    for name, row in energy.iterrows():
        assert sums[name] == pytest.approx(np.nan_to_num(row["energy_j"]), rel=1e-6, abs=1e-3)
        span_s = (last - first) / SECOND
        assert known_s[name] == pytest.approx(row["covered_share"] * span_s, abs=1e-6)


@given(pairs, st.floats(0.05, 100))
def test_no_cell_is_outside_what_was_read(pairs, period_s):
    power = readings(gpu0=[(at / 1000, value) for at, value in sorted(pairs)])
    if len(power) < 2:
        return
    grid = analyze.power_grid(power, period_s=period_s, least_covered_share=0)
    known = grid["power_w"].dropna()
    assert (known >= power["power_w"].min() * (1 - 1e-6) - 1e-3).all()
    assert (known <= power["power_w"].max() * (1 + 1e-6) + 1e-3).all()


def test_a_cell_holds_the_mean_over_time_and_not_the_last_reading():
    power = readings(gpu0=[(0, 0), (1, 100), (2, 100)])
    (value,) = analyze.power_grid(power, period_s=2)["power_w"]
    assert value == pytest.approx(75)


def test_a_cell_without_readings_is_missing_and_not_the_value_before():
    power = readings(gpu0=[*every_s([100] * 5), *every_s([100] * 5, start_s=20)])
    grid = analyze.power_grid(power, period_s=2)
    assert grid["power_w"].isna().tolist() == [False] * 2 + [True] * 8 + [False] * 2
    assert grid["covered_share"].tolist() == [1.0] * 2 + [0.0] * 8 + [1.0] * 2


def test_a_cell_that_is_covered_too_little_is_missing():
    power = readings(gpu0=every_s([100] * 6))
    grid = analyze.power_grid(power, period_s=4)
    assert grid["covered_share"].tolist() == [1.0, 0.25]
    assert grid["power_w"].isna().tolist() == [False, True]
    kept = analyze.power_grid(power, period_s=4, least_covered_share=0.25)
    assert kept["power_w"].tolist() == [100.0, 100.0]


def test_cells_begin_at_multiples_of_the_period_unless_told_otherwise():
    power = readings(gpu0=every_s([100] * 6, start_s=3))
    assert analyze.power_grid(power, period_s=2)["time_ns"].iloc[0] == 2 * SECOND
    at_three = analyze.power_grid(power, period_s=2, start_ns=3 * SECOND)
    assert (at_three["time_ns"] // SECOND).tolist() == [3, 5, 7]
    inside = analyze.power_grid(power, period_s=2, start_ns=3 * SECOND, end_ns=8 * SECOND - 1)
    assert (inside["time_ns"] // SECOND).tolist() == [3, 5], "no cell reaches beyond the end"


def test_every_entity_has_every_cell():
    power = readings(a=every_s([1] * 3), b=every_s([1] * 3, start_s=10))
    grid = analyze.power_grid(power, period_s=1)
    assert grid.groupby("entity", observed=True).size().tolist() == [12, 12]


def test_epochs_keep_their_nanoseconds():
    start = 1_715_960_307_022_000_000
    power = readings(gpu0=every_s([100, 300]))
    power["time_ns"] += start
    grid = analyze.power_grid(power, period_s=1, start_ns=start)
    assert grid["time_ns"].item() == start
    assert grid["power_w"].item() == pytest.approx(200)


def test_a_sum_that_lacks_a_meter_is_missing_unless_allowed():
    power = readings(a=every_s([100] * 5), b=every_s([50] * 3))
    grid = analyze.power_grid(power, period_s=1)
    totals = analyze.power_totals(grid)
    assert totals["power_w"].isna().tolist() == [False, False, True, True]
    assert totals["entity_count"].tolist() == [2, 2, 1, 1]
    assert totals["covered_share"].tolist() == [1, 1, 0.5, 0.5]
    allowed = analyze.power_totals(grid, least_covered_share=0.5)
    assert allowed["power_w"].tolist() == [150, 150, 100, 100]


def test_a_cell_that_nobody_knows_is_missing_whatever_is_allowed():
    power = readings(a=[*every_s([100] * 3), *every_s([100] * 3, start_s=20)])
    totals = analyze.power_totals(analyze.power_grid(power, period_s=2), least_covered_share=0)
    assert totals["power_w"].isna().sum() == 9


def test_the_caller_chooses_what_is_summed():
    power = readings(**{"n1": every_s([9, 9]), "n1/gpu0": every_s([5, 5]), "n2": every_s([9, 9])})
    grid = analyze.power_grid(power, period_s=1)
    with pytest.raises(WorkbenchError, match="'n1/gpu0' is a part of 'n1'"):
        analyze.power_totals(grid)
    known = entities(**{"n1": "node_ac", "n1/gpu0": "gpu", "n2": "node_ac", "n3": "node_ac"})
    with pytest.raises(WorkbenchError, match="may hold each other"):
        analyze.power_totals(grid, entities=known)
    nodes = known[known["scope"] == "node_ac"]
    totals = analyze.power_totals(grid, entities=nodes, least_covered_share=0.6)
    assert totals["power_w"].item() == 18
    assert (totals["entity_count"].item(), totals["expected_count"].item()) == (2, 3)
    with pytest.raises(WorkbenchError, match="there is no power to sum"):
        analyze.power_totals(grid, entities=entities(other="gpu"))


def test_a_grid_that_was_cut_is_refused():
    grid = analyze.power_grid(readings(a=every_s([1] * 3), b=every_s([1] * 3)), period_s=1)
    with pytest.raises(WorkbenchError, match="the entities have different cells"):
        analyze.power_totals(grid.iloc[:-1])
    with pytest.raises(WorkbenchError, match="the entities have different cells"):
        analyze.power_totals(pd.concat([grid, grid], ignore_index=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"period_s": 0}, "period_s must be a time of 1 ns or more"),
        ({"period_s": float("nan")}, "period_s must be a time of 1 ns or more"),
        ({"period_s": 1, "least_covered_share": 1.5}, "least_covered_share is a share from 0 to 1"),
        ({"period_s": 9, "end_ns": SECOND}, "no cell of 9 s fits into the 1 s of the window"),
        ({"period_s": 1, "start_ns": 9 * SECOND}, "the window from 9000000000 ns to 2000000000 ns"),
        ({"period_s": 1e-9}, "2,000,000,000 cells of 1 entities are too many"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        analyze.power_grid(readings(gpu0=every_s([1, 1, 1])), **options)


def test_other_tables_are_refused():
    grid = analyze.power_grid(readings(gpu0=every_s([1, 1])), period_s=1)
    with pytest.raises(TableError, match="'covered_share' is missing"):
        analyze.power_totals(grid.drop(columns="covered_share"))
    with pytest.raises(ValueError, match="least_covered_share is a share"):
        analyze.power_totals(grid, least_covered_share=-1)
    POWER_GRID.check(grid)
    POWER_TOTALS.check(analyze.power_totals(grid))


@pytest.mark.slow
def test_ten_million_readings_of_512_meters_take_seconds():
    count, meters = 20_000, 512
    time = np.tile(np.arange(count, dtype=np.int64) * SECOND, meters)
    codes = np.repeat(np.arange(meters), count)
    power = pd.DataFrame(
        {
            "time_ns": time,
            "entity": pd.Categorical.from_codes(codes, categories=[f"n{i}" for i in range(meters)]),
            "power_w": np.random.default_rng(1).uniform(100, 700, len(time)),
        }
    )
    totals = analyze.power_totals(analyze.power_grid(power, period_s=10))
    assert totals["power_w"].mean() == pytest.approx(512 * 400, rel=1e-3)
