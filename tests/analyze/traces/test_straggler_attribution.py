"""Straggler attribution: as a whole, and of the waits of one step or process group."""

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data import make
from workbench import analyze, load
from workbench.tables import EVENTS


@pytest.fixture(scope="module")
def fleet_waits(fleet_demo):
    trace = load.traces(fleet_demo / "traces", progress=False)
    return analyze.collective_waits(trace.events, process_groups=trace.process_groups)


def split(waits, key):
    """Attribute the waits of every step or group by itself, as tables by its name."""
    parts = waits.groupby(key, dropna=False, observed=True)
    return {name: analyze.straggler_attribution(rows) for name, rows in parts}


def worst(tables):
    totals = {name: table.groupby("blamed_rank")["wait_ns"].sum() for name, table in tables.items()}
    return {name: total.idxmax() for name, total in totals.items()}


def test_every_step_of_the_simulated_job_blames_the_fault_that_hit_it(fleet_waits, fleet_demo):
    truth = make.fleet_truth(fleet_demo)
    slow = truth[truth["what"] == "slow rank"].iloc[0]
    late = truth[truth["what"] == "late host"].iloc[0]
    by_step = worst(split(fleet_waits, "step"))
    assert by_step[late["first_step"]] == late["rank"]
    assert {by_step[step] for step in range(slow["first_step"], 16)} == {slow["rank"]}


def test_every_group_of_the_simulated_job_blames_one_of_its_members(fleet_waits):
    tables = split(fleet_waits, "group")
    members = {"0": range(8), "1": range(4), "2": range(4, 8)}
    for name, ranks in members.items():
        assert set(tables[name]["blamed_rank"]) | set(tables[name]["rank"]) <= set(ranks)
    assert worst(tables)["0"] == worst(tables)["2"] == 6


@pytest.mark.parametrize("key", ["step", "group"])
def test_the_parts_add_up_to_the_whole(fleet_waits, key):
    whole, table = analyze.straggler_attribution(fleet_waits), pd.concat(split(fleet_waits, key))
    keys, names = ["blamed_rank", "rank"], ["wait_ns", "collective_count"]
    assert table.groupby(keys)[names].sum().equals(whole.set_index(keys)[names].sort_index())
    assert whole["wait_share"].sum() == pytest.approx(1)


@pytest.mark.long
@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 50), st.sampled_from([None, 1, 2])), max_size=6))
def test_work_outside_every_step_keeps_its_blame(make_events, delays):
    rows = [
        {"rank": rank, "start_ns": 1_000 * n + delay * rank, "end_ns": 1_000 * n + 99, "step": step,
         "kind": "communication", "group": "0", "collective": "allreduce", "group_size": 2}
        for n, (delay, step) in enumerate(delays) for rank in (0, 1)
    ]  # fmt: skip
    waits = analyze.collective_waits(make_events(*rows) if rows else EVENTS.empty())
    table = analyze.straggler_attribution(waits)
    assert table["wait_ns"].sum() == sum(delay for delay, _ in delays)
    assert table["collective_count"].sum() == 2 * len(delays)


def test_doubtful_collectives_are_left_out_or_kept_as_asked(make_events):
    def pair(start, ends, **more):
        rows = ({"rank": r, "start_ns": start + 5 * r, "end_ns": e} for r, e in enumerate(ends))
        known = {"kind": "communication", "group": "0", "collective": "allreduce"}
        return [row | known | more for row in rows]

    rows = pair(0, (90, 99), group_size=2, seq=1) + pair(200, (290, 290), group_size=2, seq=2)
    waits = analyze.collective_waits(make_events(*rows))
    table = analyze.straggler_attribution(waits)
    assert table["wait_ns"].sum() == 5
    assert table.attrs["left_out"] == {"it is not sure who was last": 1}
    assert analyze.straggler_attribution(waits, sure_only=False)["wait_ns"].sum() == 10


def test_kernels_of_which_nothing_is_known_are_counted_all_the_way(make_events):
    rows = [
        {"rank": rank, "start_ns": 1_000 * n + 500 * rank, "end_ns": 1_000 * n + 500 * rank + 99,
         "kind": "communication", "group": "0", "collective": "allreduce", "group_size": 2,
         "seq": n}
        for n in range(3) for rank in (0, 1)
    ]  # fmt: skip
    events = make_events(*rows)
    waits = analyze.collective_waits(events)
    (reason,) = waits.attrs["left_out"]
    assert "a rank ended before the last one began" in reason
    for table in (analyze.straggler_attribution(waits), analyze.late_arrivals(events, waits)):
        assert table.empty
        assert table.attrs["kernels_left_out"] == {reason: 6}
