"""Energy of steps and spans: the numbers of a real job first, then the laws."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims._step_energy import span_energy, work_energy
from claims._tables import WORK_ENERGY
from tests.analyze.fleet.work_rows import SECOND, constant, make_power, make_spans, make_steps
from workbench import analyze, load
from workbench.errors import WorkbenchError
from workbench.tables import LOGGED_STEPS, POWER, STEP_ENERGY


@pytest.fixture(scope="module")
def job(real_data):
    """Give power, steps and spans of a real job on 64 nodes."""
    folder = real_data("power-mlperf-gpt3-512gpu")
    log = load.power(folder, progress=False)
    power = analyze.power_of_scope(log.power, log.entities)
    logged = load.job_log(folder, progress=False)
    return power, logged.steps, logged.spans


@pytest.mark.slow
@pytest.mark.oracle
def test_a_real_step_of_gpt3_costs_as_many_megajoules_as_was_found_before(job):
    power, steps, _ = job
    table = analyze.step_energy(power, steps)
    assert len(table) == 288
    assert ((table["end_ns"] - table["start_ns"]) / 1e9).median() == pytest.approx(10.638, abs=5e-4)
    assert table["energy_j"].median() == pytest.approx(4.699e6, rel=0.005)
    assert table["energy_j"].std() == pytest.approx(0.029e6, rel=0.05)
    assert table["energy_per_token_j"].median() == pytest.approx(1.120, rel=0.005)
    assert table["entity_count"].eq(64).all()
    assert table["covered_share"].iloc[1:].min() == 1


@pytest.mark.slow
@pytest.mark.oracle
def test_a_real_evaluation_draws_less_than_training(job):
    power, steps, spans = job
    table = span_energy(power, spans)
    evaluation = table[table["kind"] == "evaluation"]
    assert evaluation["mean_w"].mean() == pytest.approx(404.6e3, rel=0.01)
    seconds = ((table["end_ns"] - table["start_ns"]) / 1e9).astype(float)
    run = table["kind"] == "run"
    share = seconds[evaluation.index].sum() / seconds[run].sum()
    assert share == pytest.approx(0.091, abs=0.001)
    assert table.loc[run, "energy_j"].item() / 3.6e6 == pytest.approx(415.22, rel=0.001)
    summary = work_energy(analyze.step_energy(power, steps), gpu_count=512)
    watts = summary.set_index("measure")["mean"]
    assert watts["power in steps"] == pytest.approx(441.8e3, rel=0.01)
    assert watts["power per GPU in steps"] == pytest.approx(441.8e3 / 512, rel=0.01)


def test_energy_is_power_times_time_summed_over_entities():
    power = make_power(a=constant(100.0, until_s=20), b=constant(50.0, until_s=20))
    table = analyze.step_energy(power, make_steps((0, 2.5, 7.5)))
    row = table.iloc[0]
    assert (row["energy_j"], row["mean_w"]) == (750, 150)
    assert row["energy_per_token_j"] == 7.5
    assert row["energy_per_sample_j"] == 187.5
    assert (row["covered_share"], row["entity_count"], row["reading_count"]) == (1, 2, 10)


@given(
    st.lists(st.floats(0, 1e4), min_size=3, max_size=30),
    st.lists(st.floats(0, 1), min_size=1, max_size=6),
)
def test_however_a_run_is_cut_its_parts_sum_to_the_whole(watts, cuts):
    power = make_power(a=list(enumerate(watts)))
    last = len(watts) - 1
    edges = sorted({0.0, *(round(cut * last, 6) for cut in cuts), float(last)})
    steps = make_steps(*((n, a, b) for n, (a, b) in enumerate(itertools.pairwise(edges))))
    pieces = analyze.step_energy(power, steps, least_covered_share=0)["energy_j"].sum()
    uncut = analyze.step_energy(power, make_steps((0, 0, last)))["energy_j"].item()
    assert pieces == pytest.approx(uncut, rel=1e-9, abs=1e-6)
    assert uncut == pytest.approx(sum(watts) - (watts[0] + watts[-1]) / 2, rel=1e-9, abs=1e-6)


def test_a_gap_adds_no_energy_and_is_missing_coverage():
    readings = [(at, 100.0) for at in [*range(11), *range(20, 31)]]
    table = analyze.step_energy(make_power(a=readings), make_steps((0, 0, 10), (1, 5, 25)))
    assert table["energy_j"].iloc[0] == 1_000
    assert np.isnan(table["energy_j"].iloc[1])
    assert table["covered_share"].tolist() == [1, 0.5]
    kept = analyze.step_energy(
        make_power(a=readings), make_steps((1, 5, 25)), least_covered_share=0.4
    )
    assert kept["energy_j"].item() == 1_000
    assert kept["mean_w"].item() == 100, "the mean is over what is known"


def test_readings_without_power_are_a_gap_if_they_are_many():
    readings = [(at, None if 3 < at < 8 else 100.0) for at in range(12)]
    table = analyze.step_energy(make_power(a=readings), make_steps((0, 0, 11)))
    assert table["covered_share"].item() == pytest.approx(6 / 11)
    assert np.isnan(table["energy_j"].item())


def test_steps_beyond_the_readings_have_no_energy():
    table = analyze.step_energy(make_power(a=constant(9.0, until_s=5)), make_steps((0, 50, 60)))
    assert table["covered_share"].item() == 0
    assert table[["energy_j", "mean_w", "energy_per_token_j"]].isna().all(axis=None)


def test_the_offset_of_the_meter_is_undone():
    ahead = make_power(a=[(at + 3, 10.0 * at) for at in range(20)])
    right = make_power(a=[(at, 10.0 * at) for at in range(20)])
    steps = make_steps((0, 4, 9))
    shifted = analyze.step_energy(ahead, steps, clock_offset_s=3)
    assert shifted.equals(analyze.step_energy(right, steps))


def test_without_readings_every_energy_is_missing():
    table = analyze.step_energy(POWER.empty(), make_steps((0, 0, 10)))
    assert table["energy_j"].isna().all()
    assert table["covered_share"].tolist() == [0]
    assert analyze.step_energy(POWER.empty(), LOGGED_STEPS.empty()).empty


def test_a_span_that_never_ended_has_no_energy():
    power = make_power(a=constant(9.0, until_s=50))
    table = span_energy(power, make_spans(("run", 0, 50), ("evaluation", 10, None)))
    assert table["energy_j"].tolist()[0] == 450
    assert np.isnan(table["energy_j"].tolist()[1])


def test_a_gpu_is_not_summed_with_its_node():
    power = make_power(node1=constant(900.0, until_s=5), node1__gpu0=constant(300.0, until_s=5))
    with pytest.raises(WorkbenchError, match="'node1/gpu0' is a part of 'node1'"):
        analyze.step_energy(power, make_steps((0, 0, 5)))


def test_a_share_that_is_none_is_refused():
    power = make_power(a=constant(9.0, until_s=5))
    with pytest.raises(WorkbenchError, match="least_covered_share must be 0 or more and at most 1"):
        analyze.step_energy(power, make_steps((0, 0, 5)), least_covered_share=1.5)


def test_the_summary_weighs_long_steps_more_and_counts_what_it_leaves_out():
    power = make_power(
        a=[*((at, 100.0) for at in range(11)), *((at, 400.0) for at in range(11, 41))]
    )
    steps = make_steps((0, 0, 10), (1, 11, 41), (2, 300, 310))
    energies = analyze.step_energy(power, steps, least_covered_share=0.9)
    table = work_energy(energies, gpu_count=2)
    rows = table.set_index("measure")
    assert rows["count"].eq(2).all()
    assert rows.loc["energy per token", "median"] == pytest.approx((10 + 116) / 2, rel=0.05)
    assert rows.loc["power per GPU in steps", "mean"] == pytest.approx(
        energies["energy_j"].sum() / 80, rel=0.05
    )
    assert table.attrs["left_out"] == {"steps whose energy is not known": 1}
    WORK_ENERGY.check(table)


def test_a_summary_without_work_has_only_what_is_known():
    power = make_power(a=constant(9.0, until_s=5))
    steps = make_steps((0, 0, 5)).assign(token_count=pd.NA, sample_count=pd.NA)
    steps = steps.astype({"token_count": "Int64", "sample_count": "Int64"})
    table = work_energy(analyze.step_energy(power, steps))
    assert table["measure"].tolist() == ["duration of a step", "energy per step", "power in steps"]
    assert table["deviation"].isna().all()
    assert work_energy(STEP_ENERGY.empty()).empty
    with pytest.raises(WorkbenchError, match="gpu_count must be a whole number from 1"):
        work_energy(analyze.step_energy(power, steps), gpu_count=0.5)


@pytest.fixture(scope="module")
def entities():
    """Make a table of entities from pairs of name and scope."""
    from tests.analyze.power import power_rows

    def make(**scopes):
        return power_rows.entities(**scopes).assign(reading_count=9)

    return make


def test_whole_nodes_go_before_their_parts(entities):
    power = make_power(n1=constant(900.0, until_s=5), g=constant(300.0, until_s=5))
    kept = analyze.power_of_scope(power, entities(n1="node_ac", g="gpu"))
    assert kept["entity"].cat.categories.tolist() == ["n1"]
    assert kept.attrs == {"scope": "node_ac", "left_out": {"gpu": 1}}
    gpus = analyze.power_of_scope(power, entities(n1="node_ac", g="gpu"), scope="gpu")
    assert gpus["entity"].unique().tolist() == ["g"]


def test_a_scope_that_is_not_there_is_refused_and_the_others_named(entities):
    power = make_power(n1=constant(900.0, until_s=5))
    with pytest.raises(WorkbenchError, match=r"no power readings of scope 'rack' .* 1 node_ac"):
        analyze.power_of_scope(power, entities(n1="node_ac"), scope="rack")
    with pytest.raises(WorkbenchError, match="on wall time; found 1 node_ac"):
        analyze.power_of_scope(power, entities(n1="node_ac").assign(clock="own"))


def test_the_sum_has_cells_well_below_the_pace_of_the_meters():
    power = make_power(
        a=constant(9.0, until_s=10, every_s=2), b=constant(1.0, until_s=10, every_s=2)
    )
    table = analyze.power_sum(power)
    assert np.diff(table["time_ns"]).tolist() == [SECOND // 5] * 49
    assert table["meter_period_s"].eq(2).all()
    assert table["power_w"].tolist() == pytest.approx([10] * 50)
    assert len(analyze.power_sum(power, period_s=0.5)) == 20
    assert analyze.power_sum(POWER.empty()).empty
