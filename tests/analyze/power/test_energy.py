"""Energy: that of a real job first, then laws of integration, then what is refused."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims._power import energy_total
from claims._tables import ENERGY_TOTAL
from tests.analyze.power.power_rows import SECOND, entities, every_s, mlperf_job, readings
from workbench import analyze
from workbench.errors import TableError, WorkbenchError
from workbench.tables import ENERGY

KWH = 3.6e6
steps = st.lists(st.floats(min_value=0.5, max_value=2.0), min_size=1, max_size=30)
watts = st.floats(min_value=0, max_value=1e5)


@pytest.fixture(scope="module")
def gpt3(real_data):
    return mlperf_job(real_data("power-mlperf-gpt3-512gpu"))


def drawn(data, count):
    return data.draw(st.lists(watts, min_size=count, max_size=count))


@pytest.mark.oracle
@pytest.mark.parametrize(("method", "kwh"), [("trapezoid", 415.255), ("mlperf", 415.280)])
def test_the_energy_of_512_gpus_is_what_the_submitter_reports(gpt3, method, kwh):
    power, start_ns, end_ns = gpt3
    energy = analyze.energy(power, method=method, start_ns=start_ns, end_ns=end_ns)
    (total,) = energy_total(energy).to_dict("records")
    assert total["energy_j"] / KWH == pytest.approx(kwh, abs=5e-4)
    assert total["energy_j"] / KWH == pytest.approx(415.22, rel=1e-3)
    assert total["mean_w"] == pytest.approx(438_270, rel=2e-3)
    assert (total["entity_count"], total["expected_count"]) == (64, 64)
    assert total["covered_share"] == pytest.approx(1 - 120.915 / 64 / 3412.67, abs=1e-6)
    assert energy["reading_count"].between(1701, 1702).all()
    assert energy["mean_w"].min() == pytest.approx(6_762, abs=1)
    assert energy["mean_w"].max() == pytest.approx(6_941, abs=1)


@given(steps, st.data())
def test_energies_of_two_neighbouring_windows_add_up(steps_s, data):
    times = np.cumsum([0.0, *steps_s])
    power = readings(gpu0=list(zip(times, drawn(data, len(times)), strict=True)))
    cut_ns = data.draw(st.integers(1, int(power["time_ns"].iloc[-1]) - 1))
    for method in ("trapezoid", "mlperf"):
        whole = analyze.energy(power, method=method)["energy_j"].sum()
        first = analyze.energy(power, method=method, end_ns=cut_ns)["energy_j"].sum()
        second = analyze.energy(power, method=method, start_ns=cut_ns)["energy_j"].sum()
        assert first + second == pytest.approx(whole, rel=1e-6, abs=1e-6)


@given(steps, watts)
def test_constant_power_has_its_mean_by_either_method(steps_s, level):
    times = np.cumsum([0.0, *steps_s])
    power = readings(gpu0=[(time_s, level) for time_s in times])
    for method in ("trapezoid", "mlperf"):
        row = analyze.energy(power, method=method).iloc[0]
        covered_s = (1 - row["unknown_s"] / times[-1]) * times[-1]
        assert row["energy_j"] == pytest.approx(level * covered_s, rel=1e-6, abs=1e-6)
        assert row["mean_w"] == pytest.approx(level, rel=1e-6)


@given(steps, st.data())
def test_energy_does_not_depend_on_the_order_of_rows(steps_s, data):
    times = np.cumsum([0.0, *steps_s])
    pairs = list(zip(times, drawn(data, len(times)), strict=True))
    power = readings(a=pairs, b=pairs)
    shuffled = power.iloc[data.draw(st.permutations(range(len(power))))]
    assert analyze.energy(shuffled).equals(analyze.energy(power))


def test_a_gap_is_unknown_and_nothing_is_integrated_across_it():
    power = readings(gpu0=[*every_s([100] * 5), *every_s([100] * 5, start_s=60)])
    row = analyze.energy(power).iloc[0]
    assert row["energy_j"] == pytest.approx(800)
    assert row["unknown_s"] == pytest.approx(56)
    assert row["covered_share"] == pytest.approx(8 / 64)
    assert row["mean_w"] == pytest.approx(100), "the mean is that of the time that is known"


def test_readings_as_far_apart_as_the_longest_gap_are_joined():
    power = readings(gpu0=[*every_s([100] * 5), *every_s([100] * 5, start_s=7)])
    assert analyze.energy(power)["energy_j"].item() == pytest.approx(1_100)
    shorter = analyze.energy(power, longest_gap_periods=2.9)
    assert shorter["energy_j"].item() == pytest.approx(800)


def test_a_reading_without_power_is_a_gap_only_if_its_neighbours_are_far():
    lost = float("nan")
    near = readings(gpu0=every_s([100, 100, lost, 100, 100]))
    assert analyze.energy(near)["covered_share"].item() == 1
    far = readings(gpu0=every_s([100, 100, lost, lost, lost, 100, 100]))
    row = analyze.energy(far).iloc[0]
    assert (row["unknown_s"], row["reading_count"]) == (4, 4)
    assert row["energy_j"] == pytest.approx(200)


def test_what_was_never_read_has_no_energy_instead_of_none():
    power = readings(gpu0=every_s([100, 100]), gpu1=every_s([float("nan")] * 2))
    row = analyze.energy(power).iloc[1]
    assert np.isnan(row["energy_j"])
    assert np.isnan(row["mean_w"])
    assert (row["covered_share"], row["unknown_s"]) == (0, 1)


def test_the_two_methods_differ_on_a_ramp_by_half_a_step():
    power = readings(gpu0=every_s([0, 100, 200]))
    assert analyze.energy(power)["energy_j"].item() == pytest.approx(200)
    assert analyze.energy(power, method="mlperf")["energy_j"].item() == pytest.approx(300)


def test_a_window_that_cuts_a_segment_takes_its_part():
    power = readings(gpu0=every_s([0, 100]))
    half = SECOND // 2
    assert analyze.energy(power, start_ns=half)["energy_j"].item() == pytest.approx(37.5)
    by_rule = analyze.energy(power, start_ns=half, method="mlperf")
    assert by_rule["energy_j"].item() == pytest.approx(50)


def test_time_of_the_window_before_and_after_all_readings_is_unknown():
    power = readings(gpu0=every_s([100, 100], start_s=2))
    row = analyze.energy(power, start_ns=0, end_ns=4 * SECOND).iloc[0]
    assert (row["covered_share"], row["unknown_s"]) == (0.25, 3)


def test_several_readings_of_one_second_are_all_used():
    power = readings(gpu0=[(0, 100), (1, 100), (1, 300), (2, 300)])
    assert analyze.energy(power)["energy_j"].item() == pytest.approx(400)


def test_a_total_counts_what_is_expected_and_never_read():
    power = readings(node1=every_s([100, 100]), node2=every_s([50, 50]))
    chosen = entities(node1="node_ac", node2="node_ac", node3="node_ac")
    (total,) = energy_total(analyze.energy(power), entities=chosen).to_dict("records")
    assert (total["energy_j"], total["mean_w"]) == (150, 150)
    assert (total["entity_count"], total["expected_count"]) == (2, 3)
    assert total["covered_share"] == pytest.approx(2 / 3)
    assert total["unknown_s"] == pytest.approx(1)


def test_a_node_and_its_gpus_are_not_summed():
    power = readings(**{"node1": every_s([9, 9]), "node1/gpu0": every_s([5, 5])})
    energy = analyze.energy(power)
    with pytest.raises(WorkbenchError, match="'node1/gpu0' is a part of 'node1'"):
        energy_total(energy)
    mixed = entities(**{"node1": "node_ac", "node1/gpu0": "gpu"})
    with pytest.raises(WorkbenchError, match=r"scopes \['gpu', 'node_ac'\] may hold each other"):
        energy_total(energy, entities=mixed)
    nodes = mixed[mixed["scope"] == "node_ac"]
    assert energy_total(energy, entities=nodes)["energy_j"].item() == 9


def test_switches_lie_beside_nodes():
    power = readings(node1=every_s([9, 9]), switch1=every_s([5, 5]))
    beside = entities(node1="node_ac", switch1="switch")
    total = energy_total(analyze.energy(power), entities=beside)
    assert total["energy_j"].item() == 14


def test_energies_of_different_windows_do_not_add_up():
    power = readings(a=every_s([1, 1, 1]))
    first, second = analyze.energy(power), analyze.energy(power, end_ns=SECOND)
    both = pd.concat([first, second.assign(entity="b")], ignore_index=True)
    with pytest.raises(WorkbenchError, match="different windows or methods"):
        energy_total(both)
    with pytest.raises(WorkbenchError, match="there is no energy to sum"):
        energy_total(first, entities=entities(other="gpu"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "counter"}, "method is 'counter', but only 'trapezoid' and 'mlperf'"),
        ({"start_ns": 5, "end_ns": 5}, "the window from 5 ns to 5 ns is empty"),
        ({"longest_gap_periods": 0.5}, "longest_gap_periods must be 1 or more"),
        ({"longest_gap_periods": float("inf")}, "longest_gap_periods must be 1 or more, and fin"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        analyze.energy(readings(gpu0=every_s([1, 1])), **options)


def test_other_tables_and_empty_ones_are_refused():
    power = readings(gpu0=every_s([1, 1]))
    with pytest.raises(TableError, match="'power_w' is missing"):
        analyze.energy(power.drop(columns="power_w"))
    with pytest.raises(ValueError, match="the table has no readings"):
        analyze.energy(power.iloc[:0])


def test_the_tables_are_those_that_are_declared():
    power = readings(gpu0=every_s([1, 1]))
    energy = ENERGY.check(analyze.energy(power))
    assert list(energy.columns) == list(ENERGY.columns)
    ENERGY_TOTAL.check(energy_total(energy))
