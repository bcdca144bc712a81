"""The explorer of runtime power management: move a control, read the screen."""

import pytest

from workbench import analyze, explore, load, simulate
from workbench.errors import TableError


@pytest.fixture(scope="module")
def made():
    return simulate.power_loads()


def test_it_starts_with_the_root_10_percent_short(made):
    explorer = explore.power_management(*made, synthetic=True)
    assert explorer.message.value == ""
    assert explorer.title().startswith("utility is 10 % short: ")


def test_every_control_has_a_label_and_changes_what_is_seen(made):
    explorer = explore.power_management(*made)
    for name, control in explorer.controls.items():
        assert control.description
        start, before = control.value, explorer.figure().to_json()
        drawn = set()
        for option in control.options[-3:]:
            control.value = option[1] if isinstance(option, tuple) else option
            drawn.add(explorer.figure().to_json())
        control.value = start
        assert drawn != {before}, name
        assert explorer.figure().to_json() == before


@pytest.mark.long
def test_the_cost_of_the_chosen_share_is_told(made):
    explorer = explore.power_management(*made)
    explorer.controls["view"].value = "cost"
    explorer.controls["short"].value = 20
    assert explorer.title().startswith("Shedding 20 % for 15 min costs ")


def test_one_node_meter_is_enough_and_what_is_assumed_is_doubted(fleet_demo):
    log = load.power(fleet_demo / "power", tz="UTC", progress=False)
    power = analyze.power_of_scope(log.power, log.entities)
    cells = analyze.power_grid(power, period_s=2)
    explorer = explore.power_management(analyze.power_loads(cells), analyze.single_feed(cells))
    assert explorer.title().startswith("In doubt: feed is 10 % short: ")
    assert "8 GPUs per meter assumed" in explorer.figure().layout.title.subtitle.text


def test_what_is_no_table_of_loads_is_refused(made):
    with pytest.raises(TableError, match="loads is not a valid 'power_loads' table"):
        explore.power_management(made[1], made[1])
