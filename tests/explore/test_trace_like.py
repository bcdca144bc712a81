"""The explorer of twins: move a control, read the screen."""

import pytest

from tests.simulate.traces.profiles import EXPOSED, overlapped
from workbench import explore


@pytest.fixture(scope="module")
def explorer():
    return explore.trace_like(overlapped(EXPOSED), source="a job")


def test_it_starts_at_the_profile_as_it_is_and_says_that_it_is_synthetic(explorer, title):
    assert explorer.message.value == ""
    assert len(explorer.figure().layout.xaxis.ticktext) == 2
    assert "SYNTHETIC DATA" in explorer.figure().layout.title.subtitle.text
    assert "drawn from a job" in str(explorer.figure().layout.annotations).replace("<br>", " ")
    assert "exposed communication" in title(explorer)


def test_more_ranks_are_drawn_and_compute_takes_longer(explorer, title):
    def share():
        return float(title(explorer).split("compute ")[1].split(" %")[0])

    before = share()
    explorer.controls["ranks"].value = 4.0
    assert len(explorer.figure().layout.xaxis.ticktext) == 4
    explorer.controls["compute"].value = 4.0
    assert share() > before
    explorer.controls["communication"].value = 4.0
    assert share() == pytest.approx(before, abs=2)
    assert explorer.message.value == ""
