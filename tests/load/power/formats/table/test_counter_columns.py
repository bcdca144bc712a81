"""Tables of one's own that count energy, with power or without."""

import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.load.power.power_files import found
from workbench import analyze, load
from workbench.errors import LoadError
from workbench.load._power.formats.table.layout import (
    energy_name,
    falls_too_often,
    has_counter,
    joules_in,
)
from workbench.load.kinds import kinds_of

START = 1_700_000_000


@pytest.fixture
def table(tmp_path):
    """Write a table, by name or as Parquet, and load it."""

    def write_and_load(content, name="table.csv", **given):
        path = tmp_path / name
        if isinstance(content, pd.DataFrame):
            pq.write_table(pa.Table.from_pandas(content), path)
        else:
            path.write_text(content)
        return load.power(path, progress=False, **given)

    return write_and_load


def rows(energies, name="0"):
    return "".join(f"{START + at},{name},{value}\n" for at, value in enumerate(energies))


def watts(log):
    by = log.power.groupby("entity", observed=True)["power_w"]
    return {str(name): values.tolist() for name, values in by}


@pytest.mark.parametrize(
    ("name", "joules"),
    [("energy_j", 1), ("Energy [J]", 1), ("energy_kwh", 3.6e6), ("total_energy_Wh", 3.6e3),
     ("energy_mJ", 1e-3), ("energy_MJ", 1e6), ("gpu_energy_mj", 1e-3), ("energy_mj", None),
     ("total_energy_consumption_millijoules", 1e-3), ("energy_joules_total", 1), ("import_kwh", 3.6e6),
     ("energy_milli_joules", 1e-3), ("energy_mwh", None), ("energy_MWh", 3.6e9),
     ("energy_kWh", 3.6e6), ("EnergykWh", 3.6e6), ("Energy [kWh]", 3.6e6), ("energy_mWh", 3.6),
     ("energy_\u00b5J", 1e-6), ("energy_\u03bcJ", 1e-6)],
)  # fmt: skip
def test_units_of_energy_are_read_from_names(name, joules):
    words, unit = energy_name(name)
    assert joules_in(unit, of_gpu="gpu" in words) == joules


@pytest.mark.parametrize(
    "name", ["energy", "energy_per_token_j", "energy_saved_j", "step_energy_j", "mean_energy_j",
             "power_w", "temp_j", "energy_j_std", "carbon_intensity_g_per_kwh",
             "carbon_intensity_g_kwh", "export_kwh", "battery_wh", "hourly_energy_wh",
             "predicted_energy_j", "energy_\ufffdJ"],
)  # fmt: skip
def test_names_of_other_things_count_no_energy(name):
    assert energy_name(name) is None


def test_tables_about_steps_and_settings_are_no_counters():
    assert has_counter(["time", "gpu", "energy_j"])
    for other in ("train_step", "loss", "limit_w", "batch_size", "iterations", "request_id"):
        assert not has_counter(["time", "gpu", other, "energy_j"])
    assert not has_counter(["time", "energy_j"])


def test_a_counter_gives_power_between_updates_and_none_across_a_reset(table):
    log = table("time,gpu,energy_mj\n" + rows([100_000, 400_000, 400_000, 1_000_000, 5, 200_005]))
    assert watts(log)["gpu0"][:2] == [300, 300]
    assert np.isnan(watts(log)["gpu0"][2])
    assert watts(log)["gpu0"][3] == pytest.approx(200)
    assert log.entities[["scope", "method"]].iloc[0].tolist() == ["gpu", "counter"]
    assert log.counters["energy_j"].tolist() == pytest.approx([100, 400, 400, 1000, 0.005, 200.005])
    assert found(log, "between updates")[["finding", "count"]].tolist() == ["read", 3]
    assert found(log, "a reset")["count"] == 1
    by_counter = analyze.energy_from_counter(log.counters)
    assert by_counter["energy_j"].item() == pytest.approx(1100)
    assert by_counter["reset_count"].item() == 1


def test_parquet_with_names_that_are_text_is_read_from_a_folder(table, tmp_path):
    names = pd.DataFrame({"host": "n1", "gpu_uuid": ["GPU-a", "GPU-b"]})
    times = pd.DataFrame({"timestamp": pd.date_range("2024-05-01", periods=50, freq="s", tz="UTC")})
    frame = times.merge(names, how="cross")
    frame["energy_j"] = frame.groupby("gpu_uuid").cumcount() * frame["gpu_uuid"].map(
        {"GPU-a": 250.0, "GPU-b": 500.0}
    )
    log = table(frame, "energy.parquet")
    assert watts(log) == {"n1/GPU-a": [250.0] * 49, "n1/GPU-b": [500.0] * 49}
    assert kinds_of(tmp_path) == {"power logs"}
    assert len(load.fleet(tmp_path, progress=False).power.power) == 98


def test_a_wide_table_of_counters_is_read(table):
    text = f"time,gpu0_energy_mj,gpu1_energy_mj\n{START},0,0\n{START + 1},300000,400000\n"
    assert watts(table(text, node="n1")) == {"n1/gpu0": [300], "n1/gpu1": [400]}
    text = f"time,feed_a_energy_kwh,feed_b_energy_kwh\n{START},0,7\n{START + 3600},2,8\n"
    log = table(text, scope="rack")
    assert watts(log) == {"feed_a": [2000], "feed_b": [1000]}
    assert set(log.entities["scope"]) == {"rack"}


def test_parts_of_a_host_are_told_apart(table):
    text = f"time,host,gpu_energy_j,cpu_energy_j\n{START},n1,0,0\n{START + 1},n1,300,90\n"
    assert watts(table(text)) == {"n1/gpu": [300], "n1/cpu": [90]}


def test_a_counter_beside_power_is_kept_and_power_is_not_made_of_it(table):
    text = "".join(f"{START + at},0,{310},{at * 300}\n" for at in range(4))
    log = table("time,gpu,power_w,energy_j\n" + text)
    assert watts(log) == {"gpu0": [310] * 4}
    assert log.counters["energy_j"].tolist() == [0, 300, 600, 900]
    unclear = table("time,meter,power_w,energy_mj\n" + text)
    assert (watts(unclear), len(unclear.counters)) == ({"0": [310] * 4}, 0)


@pytest.mark.parametrize(
    "energies", [[300, 310, 290, 300, 280, 300], [300] * 6, [5000, 5010, 5005, 5020, 5030, 5040]]
)
def test_energies_of_intervals_are_no_counter(table, energies):
    text = rows(energies)
    with pytest.raises(LoadError, match=r"'energy_j': energies that fall often .* divide by"):
        table("time,gpu,energy_j\n" + text)
    beside = "".join(f"{START + at},0,300,{value}\n" for at, value in enumerate(energies))
    log = table("time,gpu,power_w,energy_j\n" + beside)
    assert (len(log.power), len(log.counters)) == (6, 0)
    assert found(log, "fall often")["finding"] == "skipped by design"


def test_a_unit_that_may_be_two_is_asked_for(table):
    with pytest.raises(LoadError, match=r"'energy_mj'.*may be millijoules or megajoules"):
        table("time,meter,energy_mj\n" + rows([1, 2, 3], "m"))
    assert watts(table("time,meter,energy_mj\n" + rows([0, 5000], "m"), scope="gpu")) == {"m": [5]}


def test_few_resets_in_many_readings_are_resets():
    times = np.arange(2000)
    energy = np.arange(2000.0) % 500
    assert not falls_too_often(np.zeros(2000, int), times, energy)
    noisy = np.random.default_rng(1).uniform(size=2000)
    assert falls_too_often(np.zeros(2000, int), times, noisy)
    assert not falls_too_often(np.zeros(1, int), times[:1], energy[:1])


def test_rows_without_a_name_are_counted_once(table):
    text = f"time,gpu,power_w,energy_j\n{START},,300,1\n{START},0,300,1\n{START + 1},0,300,301\n"
    log = table(text)
    assert found(log, "do not name")[["count", "where"]].tolist() == [1, "line 2"]


def test_energy_lines_of_json_are_read(table):
    lines = io.StringIO()
    for at in range(3):
        lines.write(f'{{"ts": {START + at}, "host": "n1", "gpu": 2, "energy_j": {at * 80}}}\n')
    assert watts(table(lines.getvalue(), "e.jsonl")) == {"n1/gpu2": [80, 80]}


def test_a_sum_beside_what_it_sums_is_set_aside(table):
    text = f"time,pduA_kwh,pduB_kwh,total_kwh\n{START},100,50,150\n{START + 3600},103,52,155\n"
    log = table(text)
    assert watts(log) == {"pduA": [3000], "pduB": [2000]}
    assert found(log, "count them twice")["finding"] == "skipped by design"


def test_scopes_are_told_by_what_rapl_calls_its_domains(table):
    text = f"time,package-0_energy_uj,dram_energy_uj\n{START},0,0\n{START + 1},90000000,9000000\n"
    log = table(text)
    assert log.entities.set_index("entity")["scope"].to_dict() == {
        "package_0": "cpu", "dram": "memory"
    }  # fmt: skip


def test_racks_may_count_too(tmp_path, table):
    log = table(f"time,rack,energy_kWh\n{START},r1,10\n{START + 3600},r1,14\n")
    assert watts(log) == {"r1": [4000]}
    assert log.entities["scope"].tolist() == ["rack"]
    assert kinds_of(tmp_path) == {"power logs"}


def test_a_reading_that_slips_to_nothing_makes_no_spike(table):
    log = table("time,gpu,energy_j\n" + rows([30000, 33000, 0, 39000, 42000, 45000]))
    assert watts(log)["gpu0"] == [3000, 3000, 3000, 3000]
    assert found(log, "far below")[["finding", "count"]].tolist() == ["dropped", 1]
    assert analyze.energy_from_counter(log.counters)["energy_j"].item() == 15_000
    # A true reset goes on from nearly nothing.
    reset = table("time,gpu,energy_j\n" + rows([0, 300, 0, 300, 600, 900]))
    assert np.nan_to_num(watts(reset)["gpu0"], nan=-1).tolist() == [300, -1, 300, 300, 300]


def test_counters_of_hosts_that_nobody_named_are_never_joined(tmp_path):
    for name, first in (("a", 100_000), ("b", 400_000)):
        shift = 0 if name == "a" else 210
        text = "".join(f"{START + shift + at},0,{first + 300 * at}\n" for at in range(5))
        (tmp_path / f"{name}.csv").write_text("time,gpu,energy_j\n" + text)
    log = load.power(tmp_path, progress=False)
    assert watts(log) == {"gpu0 (a.csv)": [300.0] * 4, "gpu0 (b.csv)": [300.0] * 4}
    doubted = log.quality[log.quality["what"].str.contains("unknown host")]
    assert doubted["finding"].tolist() == ["suspicious", "suspicious"]
    named = load.power(tmp_path, node="n1", progress=False)
    assert len(named.entities) == 1


def test_millijoules_that_a_name_only_hints_at_are_told(table):
    log = table("time,gpu,energy_mj\n" + rows([0, 300_000]))
    assert found(log, "counters in mj")["finding"] == "assumed"
