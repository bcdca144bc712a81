"""Energy as an interval, sums of what was metered at one time, and nothing metered twice."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims._power import energy_total
from tests.analyze.power.power_rows import every_s, readings
from workbench import analyze
from workbench.errors import WorkbenchError
from workbench.tables import POWER_ENTITIES

SECOND = 10**9
powers = st.lists(st.floats(0, 1e4), min_size=3, max_size=30)


def entities_of(power, **facts):
    """Give the table of entities that a load would give."""
    names = power["entity"].cat.categories
    by = power.groupby("entity", observed=False)["power_w"]
    table = pd.DataFrame({"entity": names.astype(str)})
    table = table.assign(reading_count=by.count().to_numpy(), missing_count=0, period_s=1.0)
    texts = {
        "scope": "unknown",
        "method": "unknown",
        "clock": "epoch",
        "assumed": "",
        "source": "x",
    }
    table = table.assign(**texts).assign(**facts)
    more = {"node": None, "device": None, "model": None, "limit_w": np.nan}
    return POWER_ENTITIES.check(POWER_ENTITIES.cast(table.assign(**more, first_ns=0, last_ns=1)))


def paused(*, read_s=2.2, pause_s=1.1, every=0.1, watts=lambda t: 300 + 100 * np.sin(t)):
    """Give a sampler that reads for a while and then pauses, again and again."""
    at = np.arange(0, 50, every)
    inside = at % (read_s + pause_s) < read_s
    return readings(gpu0=[(float(t), float(watts(t))) for t in at[inside]]), watts


def test_the_interval_of_a_sampler_that_pauses_holds_the_truth():
    power, watts = paused()
    row = analyze.energy(power).iloc[0]
    at = np.arange(0, (row["end_ns"] - row["start_ns"]) / SECOND, 1e-3)
    truth = float(np.trapezoid(watts(at), at))
    assert row["covered_share"] < 0.7
    assert row["energy_j"] < 0.7 * truth
    assert row["energy_j"] <= truth <= row["highest_j"]
    assert row["energy_j"] + row["bridged_j"] == pytest.approx(truth, rel=0.01)
    total = energy_total(analyze.energy(power)).iloc[0]
    assert total[["energy_j", "bridged_j", "highest_j"]].tolist() == pytest.approx(
        row[["energy_j", "bridged_j", "highest_j"]].tolist()
    )


def test_without_a_gap_the_interval_is_a_point():
    row = analyze.energy(readings(a=every_s([1.0, 5, 3, 3]))).iloc[0]
    assert (row["bridged_j"], row["highest_j"]) == (0, row["energy_j"])


def test_a_meter_that_never_reads_is_expected_in_every_sum():
    power = readings(a=every_s([100.0] * 10), b=every_s([100.0] * 10))
    power["entity"] = power["entity"].cat.add_categories("silent")
    some = analyze.power_of_scope(power, entities_of(power))
    total = energy_total(analyze.energy(some)).iloc[0]
    assert total[["energy_j", "entity_count", "expected_count"]].tolist() == [1800, 2, 3]
    assert total["covered_share"] == pytest.approx(2 / 3)
    assert np.isnan(total["highest_j"])
    cells = analyze.power_sum(some)
    assert cells["covered_share"].eq(2 / 3).all()
    assert cells["power_w"].tolist() == pytest.approx([200] * len(cells))


def test_means_of_runs_one_after_the_other_do_not_add_up():
    runs = {f"r{n}": every_s([302.0] * 5, 100 * n) for n in range(40)}
    total = energy_total(analyze.energy(readings(**runs))).iloc[0]
    assert total["mean_w"] == pytest.approx(302)
    assert total["energy_j"] == pytest.approx(302 * 4 * 40)


def test_means_of_meters_at_one_time_add_up_although_one_has_a_gap():
    whole = every_s([300.0] * 60)
    holed = [pair for pair in every_s([200.0] * 60) if not 20 < pair[0] < 40]
    total = energy_total(analyze.energy(readings(a=whole, b=holed))).iloc[0]
    assert total["mean_w"] == pytest.approx(500)


def test_parts_of_a_node_add_up_when_asked_for_and_never_with_their_total():
    power = readings(
        **{"n/cpu": every_s([100.0] * 9), "n/gpu": every_s([300.0] * 9)},
        **{"n/dram": every_s([20.0] * 9), "n/total": every_s([450.0] * 9)},
    )
    scope = {"n/cpu": "cpu", "n/gpu": "gpu", "n/dram": "memory", "n/total": "unknown"}
    meters = entities_of(power)
    meters["scope"] = meters["entity"].map(scope)
    parts = analyze.power_of_scope(power, meters, scope=("cpu", "gpu", "memory"))
    assert analyze.power_sum(parts)["power_w"].dropna().tolist() == pytest.approx([420] * 80)
    assert parts.attrs["scope"] == "cpu + gpu + memory"
    whole = analyze.power_of_scope(power, meters)
    assert energy_total(analyze.energy(whole))["energy_j"].item() == pytest.approx(450 * 8)
    with pytest.raises(WorkbenchError, match="may hold each other"):
        analyze.power_of_scope(power, meters, scope=("cpu", "unknown"))
    with pytest.raises(WorkbenchError, match="'n/cpu' is a part of 'n/total'"):
        energy_total(analyze.energy(power))
    with pytest.raises(WorkbenchError, match="is a part of 'n/total'"):
        analyze.power_sum(power)


MOVING = [1000 + 150 * np.sin(n / 3) + 30 * (n % 5) for n in range(60)]


@pytest.mark.parametrize(
    "names",
    [
        ("node1_ac", "node1_dc"),
        ("n1/AC", "n1/DC"),
        ("node_1 (x/node_1.txt)", "node_1 (y/node_1.txt)"),
    ],
)
@pytest.mark.parametrize("delay_s", [0.0, 0.3])
def test_ac_and_dc_meters_of_one_host_are_never_summed(names, delay_s):
    ac, dc = names
    loss = [0.94 * watts - 5 for watts in MOVING]
    power = readings(**{ac: every_s(MOVING), dc: every_s(loss, delay_s), "other": every_s(MOVING)})
    if delay_s:
        power = power[power["time_ns"] < 60 * SECOND]
    sums = [
        lambda: analyze.power_sum(power),
        lambda: analyze.power_of_scope(power, entities_of(power)),
        lambda: analyze.power_totals(analyze.power_grid(power, period_s=1)),
    ]
    for refused in sums:
        with pytest.raises(WorkbenchError, match="meter one load") as caught:
            refused()
        assert ac in str(caught.value)
        assert dc in str(caught.value)
    alone = power[power["entity"] != dc]
    assert analyze.power_sum(alone)["power_w"].max() < 2 * max(MOVING) + 1


def test_supplies_and_gpus_of_hosts_without_names_are_still_summed():
    rng = np.random.default_rng(7)
    series = {
        "n1/psu0": every_s(MOVING), "n1/psu1": every_s(MOVING),
        "gpu0 (a.csv)": every_s(rng.uniform(80, 700, 60).tolist()),
        "gpu0 (b.csv)": every_s(rng.uniform(80, 700, 60).tolist()),
        "gpu1 (a.csv)": every_s([70.0] * 60), "gpu1 (b.csv)": every_s([70.0] * 60),
    }  # fmt: skip
    assert analyze.power_sum(readings(**series))["entity_count"].max() == 6


@given(powers, st.integers(1, 28))
def test_the_energy_of_a_whole_is_that_of_its_parts(watts, at):
    power = readings(a=every_s(watts), b=every_s(watts[::-1], 0.25))
    cut = min(at, len(watts) - 2) * SECOND + 123_456_789
    ends = (0, cut, len(watts) * SECOND)
    parts = [
        energy_total(analyze.energy(power, start_ns=low, end_ns=high))["energy_j"].fillna(0)
        for low, high in pairwise(ends)
    ]
    whole = energy_total(analyze.energy(power, start_ns=0, end_ns=ends[-1]))["energy_j"]
    assert sum(part.item() for part in parts) == pytest.approx(whole.item(), rel=1e-9, abs=1e-6)


@given(powers, st.randoms(use_true_random=False))
def test_the_order_of_rows_and_hosts_changes_no_energy(watts, random):
    power = readings(a=every_s(watts), b=every_s(watts[::-1], 0.25))
    rows = list(range(len(power)))
    random.shuffle(rows)
    shuffled = power.iloc[rows].reset_index(drop=True)
    shuffled["entity"] = shuffled["entity"].cat.reorder_categories(["b", "a"])
    one, other = (energy_total(analyze.energy(each)).iloc[0] for each in (power, shuffled))
    columns = ["energy_j", "bridged_j", "highest_j", "mean_w", "covered_share"]
    assert one[columns].tolist() == pytest.approx(other[columns].tolist(), nan_ok=True)
