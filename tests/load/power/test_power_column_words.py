"""Columns that name watts and hold none: energies and limits, by any word people use for them."""

import pytest

from tests.load.power.power_files import flagged, loaded
from workbench import analyze
from workbench.load._power.formats.table.columns import power_name

T0 = 1_700_000_000
WATTS, SECONDS = 280, 60
ENERGIES = (
    "Watt-Hour", "watt hours", "WattHours", "watt_hour_total", "WattHrs", "Wh", "kWh", "energy_kWh",
    "kilowatt-hours", "kW-h", "kW.h", "Wh total", "joules",
)  # fmt: skip
LIMITS = (
    "PL1", "pl2_w", "PL1 [W]", "TDP", "tdp_w", "power_cap_w", "cap [W]", "power_limit_w", "max watts",
    "power_max_w", "maximum power (W)", "rated power W", "power capacity kW", "PPT (W)",
)  # fmt: skip


def write(path, header, row):
    lines = [f"{T0 + second},{row(second)}" for second in range(SECONDS + 1)]
    path.write_text("\n".join([f"time,{header}", *lines, ""]))
    return path


@pytest.mark.parametrize("name", [*ENERGIES, *LIMITS])
def test_no_energy_and_no_limit_is_taken_for_a_power(name):
    assert power_name(name) is None or power_name(name).statistic == "other"


@pytest.mark.parametrize("name", ["Watts", "power [W]", "power_w", "GPU Power (kW)", "watt"])
def test_powers_are_still_powers(name):
    assert power_name(name) is not None


@pytest.mark.parametrize("unit", [None, "W"])
@pytest.mark.parametrize("name", ["Watt-Hour", "WattHrs", "watt hours"])
def test_a_counter_of_watt_hours_is_energy_whatever_unit_is_passed_for_powers(tmp_path, name, unit):
    path = write(tmp_path / "meter.csv", name, lambda s: f"{WATTS * s / 3600:.6f}")
    log = loaded(path, unit=unit)
    energy = analyze.energy_from_counter(log.counters)["energy_j"].item()
    assert energy == pytest.approx(WATTS * SECONDS, rel=1e-4)


@pytest.mark.parametrize("name", [*ENERGIES, *LIMITS])
def test_a_file_that_names_its_power_is_read_whatever_stands_beside_it(tmp_path, name):
    path = write(tmp_path / "meter.csv", f"power_w,{name}", lambda s: f"{WATTS},{900 + s}")
    log = loaded(path)
    assert analyze.energy(log.power)["energy_j"].tolist() == [WATTS * SECONDS]


def test_a_power_without_a_unit_beside_one_that_has_one_is_left_out_and_told(tmp_path):
    path = write(tmp_path / "meter.csv", "power_w,fan power", lambda s: f"{WATTS},{s}")
    log = loaded(path)
    assert log.power["power_w"].eq(WATTS).all()
    assert any("'fan power': it names no unit" in what for what in flagged(log))
    both = loaded(path, unit="W")
    assert len(both.entities) == 2
