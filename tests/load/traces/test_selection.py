"""Part of a trace: rows of some steps, linked as in the whole trace, and some of its columns."""

import shutil

import pandas as pd
import pyarrow.parquet as pq
import pytest

from workbench import analyze, load
from workbench.errors import LoadError, TableError

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


@pytest.mark.long
def test_rank_by_rank_gives_the_same_rows(folder, stored, whole):
    for source in (folder, stored):
        for file in load.rank_files(source, steps=STEPS):
            of_rank = by_hand(whole, *STEPS)
            assert_same(file.load(), of_rank[of_rank["rank"] == file.rank])


@pytest.mark.long
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


KEPT = ["rank", "start_ns", "dur_ns", "kind", "step"]


@pytest.mark.long
@pytest.mark.parametrize("steps", [None, STEPS])
def test_columns_hold_what_they_hold_in_the_whole(folder, stored, steps):
    for source in (folder, stored):
        whole = load.traces(source, steps=steps, progress=False)
        listed = load.rank_files(source, steps=steps, columns=["step", "kind"])
        one, two, *_ = (file.rank for file in listed)
        for trace, ranks in (
            (load.traces(source, steps=steps, columns=["step", "kind"], progress=False), None),
            (listed[0].load(), [one]),
            (listed.load([one, two]), [one, two]),
        ):
            events = whole.events
            events = events if ranks is None else events[events["rank"].isin(ranks)]
            expected = events[KEPT].reset_index(drop=True).astype({"kind": str})
            pd.testing.assert_frame_equal(trace.events.astype({"kind": str}), expected)
            assert len(trace.ranks) == expected["rank"].nunique()
        again = load.traces(source, steps=steps, columns=["step", "kind"], progress=False)
        pd.testing.assert_frame_equal(again.quality, whole.quality)


def test_links_of_chosen_rows_are_those_of_the_whole(stored):
    columns = ["name", "launch", "step"]
    some = load.traces(stored, steps=STEPS, columns=columns, progress=False).events
    whole = load.traces(stored, steps=STEPS, progress=False).events
    pd.testing.assert_series_equal(some["launch"], whole["launch"])


def test_columns_that_nobody_asked_for_are_not_read(stored, tmp_path):
    path = tmp_path / "rank00000.parquet"
    shutil.copy(min(stored.glob("*.parquet")), path)
    with pq.ParquetFile(path) as file:
        group = file.metadata.row_group(0)
        chunks = {
            group.column(n).path_in_schema: group.column(n)
            for n in range(file.metadata.num_columns)
        }
    content = bytearray(path.read_bytes())
    start = chunks["name"].dictionary_page_offset
    content[start : start + chunks["name"].total_compressed_size] = bytes(
        chunks["name"].total_compressed_size
    )
    path.write_bytes(content)
    with pytest.raises(LoadError, match=r"rank00000\.parquet: cannot be read as Parquet"):
        load.traces(path, progress=False)
    assert load.traces(path, columns=["kind"], progress=False).events["kind"].notna().any()


def test_an_analysis_names_the_column_that_it_lacks(stored):
    events = load.traces(stored, columns=["name"], progress=False).events
    with pytest.raises(TableError, match="'kind' is missing"):
        analyze.time_breakdown(events)


def test_columns_that_cannot_be_there_are_refused_with_those_that_are(folder, stored):
    for source in (folder, stored):
        with pytest.raises(LoadError, match=r"no column 'duration'; they have rank, start_ns"):
            load.traces(source, columns=["duration"], progress=False)
        # Where the profiler recorded no shapes, there are none.
        assert "input_shapes" not in load.traces(source, columns=["input_shapes"]).events
    with pytest.raises(TypeError, match=r"columns must list names of columns, e\.g\."):
        load.rank_files(folder, columns="kind")


def test_part_of_the_columns_is_not_stored(folder, tmp_path):
    with pytest.raises(TableError, match="list the files without columns="):
        load.write_ranks(load.rank_files(folder, columns=["kind"]), tmp_path)
    with pytest.raises(TableError, match="events without name, category"):
        load.write(load.traces(folder, columns=["kind"], progress=False), tmp_path / "some.parquet")
    assert not list(tmp_path.iterdir())
