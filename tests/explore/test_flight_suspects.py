"""The explorer of hangs: every view of a real one."""

import pytest

from workbench import explore, load
from workbench.errors import WorkbenchError


@pytest.fixture(scope="module")
def hang(real_data):
    return load.flight_recorder(real_data("flight-recorder") / "lock_gil_1st", progress=False)


@pytest.mark.oracle
def test_every_view_of_a_hang_names_the_frozen_hosts(hang, title):
    explorer = explore.flight_suspects(hang, source="NVRx", synthetic=True)
    assert title(explorer).startswith("Ranks 9 and 14 never arrived")
    assert "SYNTHETIC DATA" in explorer.figure().layout.title.subtitle.text
    explorer.controls["view"].value = "waits"
    assert title(explorer).startswith("Ranks 9 and 14 wait for nobody")
    explorer.controls["view"].value = "positions"
    assert title(explorer).startswith("Ranks 9 and 14 never arrived; 14 ranks hold 142")


def test_one_group_can_be_looked_at(hang, title):
    explorer = explore.flight_suspects(hang)
    assert [name for name, _ in explorer.controls["group"].options][:3] == ["all", "0", "35"]
    explorer.controls["view"].value = "waits"
    explorer.controls["group"].value = "37"
    assert title(explorer).startswith("Rank 9 waits for nobody; 3 ranks wait")
    explorer.controls["group"].value = "35"
    assert title(explorer) == "No rank is seen to wait for another one"
    assert explorer.message.value == ""


def test_a_table_is_refused(hang):
    with pytest.raises(WorkbenchError, match="a FlightRecording is needed, not a DataFrame"):
        explore.flight_suspects(hang.entries)
