"""The explorers: move a control, read the screen."""

from dataclasses import replace

import pytest

from workbench import explore, load
from workbench.errors import WorkbenchError
from workbench.tables import EVENTS, Trace

NOUNS = ("collective_waits", "kernels", "model_tree", "time_breakdown", "timeline")


@pytest.fixture(scope="module")
def empty_trace(dlrm_trace):
    frames = {name: getattr(dlrm_trace, name).iloc[:0] for name in Trace.__dataclass_fields__}
    return Trace(**frames | {"events": EVENTS.empty()})


@pytest.mark.parametrize("noun", NOUNS)
def test_starts_without_a_complaint(noun, dlrm_trace, title):
    explorer = getattr(explore, noun)(dlrm_trace, source="DLRM", synthetic=True)
    assert explorer.message.value == ""
    assert title(explorer)
    assert "DLRM" in str(explorer.figure().layout.annotations)
    assert "SYNTHETIC DATA" in explorer.figure().layout.title.subtitle.text


@pytest.mark.parametrize("noun", NOUNS)
def test_a_trace_without_events_is_explained_not_raised(noun, empty_trace, title):
    explorer = getattr(explore, noun)(empty_trace)
    assert explorer.message.value or title(explorer).startswith("No ")


@pytest.mark.parametrize("noun", NOUNS)
def test_every_control_has_a_label_and_answers_while_it_moves(noun, dlrm_trace):
    for control in getattr(explore, noun)(dlrm_trace).controls.values():
        assert control.description
        assert getattr(control, "continuous_update", True)


def test_time_breakdown_can_look_at_one_rank(dlrm_trace, title):
    explorer = explore.time_breakdown(dlrm_trace)
    assert len(explorer.figure().layout.xaxis.ticktext) == 8
    explorer.controls["rank"].value = 7
    assert list(explorer.figure().layout.xaxis.ticktext) == ["7"]
    assert title(explorer) == "GPUs compute 9.7 % of the time; the largest loss is idle, 76 %"
    explorer.controls["by"].value = "step"
    assert explorer.figure().layout.xaxis.title.text == "step of rank 7"


def test_kernels_can_show_fewer_names_of_one_kind(dlrm_trace, title):
    explorer = explore.kernels(dlrm_trace)
    many = sum(len(trace.hovertext) for trace in explorer.figure().data)
    explorer.controls["top"].value = 6
    assert sum(len(trace.hovertext) for trace in explorer.figure().data) == many - 6
    explorer.controls["kind"].value = "communication"
    assert [trace.name for trace in explorer.figure().data] == ["communication"]
    assert title(explorer).startswith("ncclKernel_SendRecv")


@pytest.mark.oracle
def test_collective_waits_names_rank_7_in_both_views(dlrm_trace, title):
    explorer = explore.collective_waits(dlrm_trace)
    assert title(explorer).startswith("Rank 7 enters last in 5 of 8 collectives")
    explorer.controls["view"].value = "blame"
    assert (
        title(explorer) == "Rank 7 is the straggler: the others wait 35.6 ms, 76 % of all waiting"
    )


@pytest.mark.oracle
def test_collective_waits_sets_clocks_right_unless_told_not_to(dlrm_trace, title):
    off = dlrm_trace.events["rank"].map({0: 0, 7: -5_000_000}).fillna(0).astype("int64")
    events = dlrm_trace.events.assign(start_ns=dlrm_trace.events["start_ns"] + off)
    explorer = explore.collective_waits(replace(dlrm_trace, events=events))
    assert explorer.controls["corrected"].value is True
    assert title(explorer).startswith("Rank 7 enters last in 5 of 8 collectives")
    explorer.controls["corrected"].value = False
    assert "7 enters last" not in title(explorer)
    said = explorer.figure().layout.annotations[0].text.replace("<br>", " ")
    assert "a rank ended before the last one began" in said


def test_collective_waits_takes_a_trace_and_no_table(dlrm_trace):
    with pytest.raises(WorkbenchError, match="a Trace is needed, not a DataFrame"):
        explore.collective_waits(dlrm_trace.events)


@pytest.mark.oracle
def test_collective_waits_tells_what_the_late_rank_did_before(dlrm_trace, title):
    explorer = explore.collective_waits(dlrm_trace)
    assert "group" not in explorer.controls, "none is recorded"
    explorer.controls["view"].value = "late"
    assert title(explorer) == (
        "Rank 7 is the straggler: the others wait 35.6 ms, 74 % of it because its step began later than theirs"
    )


def test_collective_waits_can_look_at_one_group_of_one_step(fleet_demo, title):
    explorer = explore.collective_waits(load.traces(fleet_demo / "traces", progress=False))
    assert [name for name, _ in explorer.controls["group"].options] == ["all", "0", "1", "2"]
    explorer.controls["view"].value = "late"
    assert title(explorer).startswith(
        "Rank 6 is the straggler: the others wait 3.31 s, > 99.9 % of it because"
    )
    explorer.controls["step"].value = 11
    assert title(explorer).endswith("because its GPU has no work for longer than theirs")
    explorer.controls["group"].value = "2"
    assert title(explorer).startswith("Rank 6 is the straggler: the others wait 825 µs")
    explorer.controls["corrected"].value = False
    assert title(explorer).startswith("Rank 6 is the straggler: the others wait 845 µs"), (
        "sure or not"
    )
    explorer.controls["view"].value = "blame"
    assert {int(rank) for rank in explorer.figure().layout.yaxis.ticktext} <= {4, 5, 6, 7}
