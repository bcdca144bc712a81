"""Some steps of a trace: the rows of these steps alone, linked as in the whole trace."""

import pandas as pd
import pytest

from workbench import load
from workbench.errors import LoadError

STEPS = (11, 12)


@pytest.fixture(scope="module")
def folder(fleet_demo):
    return fleet_demo / "traces"


@pytest.fixture(scope="module")
def whole(folder):
    return load.traces(folder, progress=False)


@pytest.fixture(scope="module")
def stored(folder, tmp_path_factory):
    target = tmp_path_factory.mktemp("stored")
    load.write_ranks(load.rank_files(folder), target)
    return target


def by_hand(trace, first, last):
    events = trace.events
    launch = events["name"].astype(str).reindex(events["launch"]).to_numpy()
    step_of_launch = events["step"].reindex(events["launch"]).to_numpy()
    table = events.drop(columns="launch").assign(launched_by=launch, launch_step=step_of_launch)
    table = table[table["step"].between(first, last).fillna(value=False)]
    other = ~table["launch_step"].between(first, last).fillna(value=False)
    return table.assign(launched_by=table["launched_by"].mask(other)).drop(columns="launch_step")


def linked(trace):
    events = trace.events
    launch = events["name"].astype(str).reindex(events["launch"]).to_numpy()
    return events.drop(columns="launch").assign(launched_by=launch)


def assert_same(trace, expected):
    table, expected = linked(trace), expected.copy()
    for name in table.columns[table.dtypes == "category"]:
        table[name], expected[name] = table[name].astype(str), expected[name].astype(str)
    pd.testing.assert_frame_equal(table, expected.reset_index(drop=True), check_dtype=False)


def test_the_rows_of_some_steps_are_those_of_the_whole(folder, stored, whole):
    assert whole.events["step"].nunique() > 2
    for source in (folder, stored):
        trace = load.traces(source, steps=STEPS, progress=False)
        assert_same(trace, by_hand(whole, *STEPS))
        assert trace.steps["step"].between(*STEPS).all()
        assert set(trace.ranks["rank"]) == set(whole.ranks["rank"])
        assert trace.ranks["event_count"].sum() == len(trace.events)
        left_out = trace.quality[trace.quality["what"].str.startswith("outside of steps 11 to 12")]
        assert left_out["count"].sum() == len(whole.events) - len(trace.events)


def test_rank_by_rank_gives_the_same_rows(folder, stored, whole):
    for source in (folder, stored):
        for file in load.rank_files(source, steps=STEPS):
            of_rank = by_hand(whole, *STEPS)
            assert_same(file.load(), of_rank[of_rank["rank"] == file.rank])


def test_other_steps_are_stored_anew(folder, tmp_path, whole):
    load.write_ranks(load.rank_files(folder, steps=STEPS), tmp_path)
    assert len(load.traces(tmp_path).events) < len(whole.events)
    load.write_ranks(load.rank_files(folder), tmp_path)
    assert len(load.traces(tmp_path).events) == len(whole.events)


def test_steps_that_are_not_there_are_refused_with_those_that_are(folder, stored):
    for source in (folder, stored):
        with pytest.raises(LoadError, match=r"no event lies in steps 900 to 901; the trace has st"):
            load.traces(source, steps=(900, 901), progress=False)


@pytest.mark.parametrize("steps", [(3, 2), (1,), "first", 4])
def test_steps_that_are_none_are_refused(folder, steps):
    with pytest.raises(ValueError, match=r"steps must be \(first, last\)"):
        load.rank_files(folder, steps=steps)
