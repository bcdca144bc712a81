"""The log explorer: move a control, read the screen."""

import pytest

from workbench import explore, load
from workbench.errors import WorkbenchError


@pytest.fixture(scope="module")
def log(real_data):
    return load.failures(real_data("failures-kmsg"), tz="UTC", node="gpu7", window_s=0)


@pytest.mark.long
@pytest.mark.oracle
def test_the_window_decides_how_many_incidents_there_are(log, title):
    explorer = explore.incidents(log, source="gpud")
    assert title(explorer).startswith("3 incidents within 38 days")
    explorer.controls["window_s"].value = 60
    assert title(explorer).startswith("5 incidents within 38 days")
    explorer.controls["window_s"].value = 0
    assert title(explorer).startswith("8 incidents within 38 days")
    assert "gpud" in str(explorer.figure().layout.annotations)


def test_one_category_can_be_chosen(log, title):
    explorer = explore.incidents(log)
    explorer.controls["category"].value = "nvlink"
    assert title(explorer) == "1 incident: NVSwitch: refused access on egress, on gpu7"


def test_the_other_view_counts_by_window(log, title):
    explorer = explore.incidents(log)
    explorer.controls["view"].value = "counts"
    assert (
        title(explorer) == "8 incidents if no line is folded, 3 with pauses of up to 30 min inside"
    )


@pytest.mark.long
def test_controls_have_labels_and_answer_while_it_moves(log):
    for control in explore.incidents(log).controls.values():
        assert control.description
        assert getattr(control, "continuous_update", True)


def test_a_log_without_failures_is_explained(tmp_path, title):
    path = tmp_path / "kern.log"
    path.write_text("kern  :info  : 2025-03-01T10:00:00,000000+00:00 eth0: up\n")
    assert title(explore.incidents(load.failures(path))) == "No incidents to show"


def test_it_takes_what_was_loaded_and_no_table(log):
    with pytest.raises(WorkbenchError, match="a FailureLog is needed, not a DataFrame"):
        explore.incidents(log.failures)
