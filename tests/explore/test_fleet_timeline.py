"""The explorer of the timeline: jump to an incident, choose a host, read the screen."""

import pandas as pd
import pytest

from workbench import analyze, explore, load
from workbench.errors import TableError
from workbench.explore.panel import chosen
from workbench.explore.static import static_html


@pytest.fixture(scope="module")
def timeline(fleet_demo):
    fleet = load.fleet(fleet_demo, tz="UTC", scope="node_ac", with_traces=False, progress=False)
    power = analyze.power_of_scope(fleet.power.power, fleet.power.entities)
    return analyze.fleet_timeline(
        power, steps=fleet.job.steps, spans=fleet.job.spans, failures=fleet.failures.failures
    )


def test_it_starts_at_the_whole_time_and_jumps_to_the_incident(timeline, title):
    explorer = explore.fleet_timeline(timeline, source="demo", synthetic=True)
    assert title(explorer).startswith("122 s from 08:00:00 UTC")
    explorer.controls["moment"].index = 1
    assert title(explorer).startswith("30 s from 08:00:31 UTC")
    explorer.controls["window_s"].value = 10
    assert title(explorer).startswith("10 s from 08:00:38 UTC")
    assert "demo" in str(explorer.figure().layout.annotations)


def test_moments_are_fatal_failures_and_restarts_each_once(timeline):
    options = explore.fleet_timeline(timeline).controls["moment"].options
    assert [label for label, _ in options] == [
        "the whole time",
        "08:00:41 xid 79: GPU has fallen off the bus",
        "08:00:53 slurm NODE_FAIL: node failed",
    ]


def test_a_host_shows_its_own_meter_and_the_sum(timeline):
    explorer = explore.fleet_timeline(timeline)
    explorer.controls["host"].value = "node003"
    names = [trace.name for trace in explorer.figure().data]
    assert {"all entities", "node003"} <= set(names)
    assert "node001" not in names
    assert "host not told" not in dict(explorer.controls["host"].options)


def test_controls_have_labels_and_answer_while_it_moves(timeline):
    for control in explore.fleet_timeline(timeline).controls.values():
        assert control.description
        assert getattr(control, "continuous_update", True)


@pytest.mark.slow
def test_a_page_holds_every_state_however_many_hosts_and_failures(timeline):
    power = timeline[timeline["panel"] == "power"].head(5)
    many = [power.assign(lane=f"n{n}", node=f"n{n}") for n in range(40)]
    failed = timeline[timeline["panel"] == "failures"].head(1)
    late = [failed.assign(start_ns=failed["start_ns"] + n * 10**10) for n in range(40)]
    table = pd.concat([*many, *late], ignore_index=True)
    assert "wb-explorer" in static_html(explore.fleet_timeline(table))


def test_another_table_is_refused(timeline):
    with pytest.raises(TableError, match="'panel' is missing"):
        explore.fleet_timeline(timeline.drop(columns="panel"))


def test_the_whole_time_has_its_label_before_and_after_a_choice(timeline):
    moment = explore.fleet_timeline(timeline).controls["moment"]
    assert chosen(moment) == "the whole time"
    moment.index = 1
    moment.index = 0
    assert chosen(moment) == "the whole time"
