"""Databases of rocprofv3 (rocpd): equal to counts by SQL in both layouts of the schema."""

import gzip
import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.load.traces.perfetto import perfetto_files
from tests.load.traces.rocm.rocm_files import (
    SPANS,
    process,
    rocpd_tables,
    write_json,
    write_rocpd,
)
from workbench import analyze, load
from workbench.errors import LoadError
from workbench.load.kinds import kinds_of

RANK_3 = {"RANK": "3", "WORLD_SIZE": "8"}


def loaded(path, **options):
    return load.traces(path, progress=False, **options)


def told(trace, finding):
    rows = trace.quality[trace.quality["finding"] == finding]
    return dict(zip(rows["what"], rows["count"], strict=True))


@pytest.fixture(params=[False, True], ids=["times in rows", "tracks and stamps"])
def path(request, tmp_path):
    return write_rocpd(tmp_path / "400_results.db", rocpd_tables(has_tracks=request.param))


def test_rows_have_what_the_joins_of_the_schema_give(path):
    trace = loaded(path)
    events = trace.events.set_index("name")
    assert trace.ranks["format"].tolist() == ["rocpd"] * 2  # of one process with two GPUs
    assert kinds_of(path) == {"traces"}
    kernels = trace.events[trace.events["category"] == "kernel"]
    columns = ["name", "start_ns", "dur_ns", "device", "stream"]
    assert kernels[columns].values.tolist() == [
        ["void gemm<float>(float*)", 2000, 500, 0, 3], ["void gemm<float>(float*)", 2100, 100, 1, 3],
    ]  # fmt: skip
    copy = events.loc["Memcpy HtoD"]
    assert (copy["device"], copy["size_bytes"], copy["dur_ns"]) == (1, 4096, 200)
    launch = trace.events.loc[copy["launch"]]
    assert (launch["name"], launch["thread"], launch["process"]) == (
        "hipMemcpyAsync",
        "7700",
        "400",
    )
    # Both kernels have the event of one call, as kernels of a graph do.
    assert trace.events.loc[kernels["launch"], "name"].tolist() == ["hipLaunchKernel"] * 2


def test_a_marker_is_called_by_its_message_and_not_by_its_call(path):
    trace = loaded(path)
    markers = trace.events[trace.events["category"] == "user_annotation"]
    assert markers["name"].tolist() == ["ProfilerStep#4"] * 2
    assert trace.steps["step"].tolist() == [4, 4]


def test_busy_time_is_never_the_union_over_both_gpus(path):
    table = analyze.time_breakdown(loaded(path).events)
    # A kernel inside another of the other GPU, and a copy far apart.
    assert table["busy_ns"].tolist() == [500, 100 + 200]


def test_the_gpus_in_use_are_described(path):
    devices = loaded(path).devices
    assert devices["device"].tolist() == [0, 1]
    assert devices["capability"].tolist()[0] == "9.4"
    assert devices["name"].tolist() == ["AMD Instinct MI300X"] * 2


def test_the_rank_is_that_of_the_environment(tmp_path):
    for rank in (3, 1):
        tables = rocpd_tables(environment=RANK_3 | {"RANK": str(rank)}, pid=500 - rank)
        write_rocpd(tmp_path / f"{500 - rank}_results.db", tables)
    trace = loaded(tmp_path)
    assert trace.ranks[["rank", "rank_source", "world_size"]].values.tolist() == [
        [2, "trace", 16], [3, "trace", 16], [6, "trace", 16], [7, "trace", 16],
    ]  # fmt: skip
    files = load.rank_files(tmp_path)
    assert [(file.rank, file.world_size) for file in files] == [(1, 8), (3, 8)]
    assert len(files[0].load().events) == len(trace.events) // 2


def test_events_may_refer_to_the_process_id(tmp_path):
    tables = rocpd_tables(environment=RANK_3)
    for name in SPANS:
        columns, rows = tables[f"rocpd_{name}_abc"]
        tables[f"rocpd_{name}_abc"] = (columns, [(row[0], 400, *row[2:]) for row in rows])
    path = write_rocpd(tmp_path / "a.db", tables)
    assert loaded(path).ranks["rank"].tolist() == [6, 7]
    assert [file.rank for file in load.rank_files(path)] == [3]


def test_each_process_of_a_merged_database_is_a_rank(tmp_path):
    sets = [rocpd_tables(f"_{at}", {"RANK": at}, pid=100 + at) for at in range(2)]
    path = write_rocpd(tmp_path / "merged.db", *sets)
    trace = loaded(path)
    assert trace.ranks["rank"].tolist() == [0, 1, 2, 3]
    processes = trace.ranks["source"].str.split("!").str[1:].str.join(", ")
    assert processes.tolist() == [
        f"process {pid}, GPU {gpu}" for pid in (100, 101) for gpu in (0, 1)
    ]
    files = load.rank_files(path)
    assert [file.rank for file in files] == [0, 1]
    assert files[1].load().events["process"].unique().tolist() == ["101"]


def test_of_one_recording_in_several_forms_one_is_read(path, tmp_path):
    write_json(tmp_path / "400_results.json", process())
    (tmp_path / "400_results.pftrace").write_bytes(perfetto_files.rocm())
    trace = loaded(tmp_path)
    assert trace.ranks["format"].tolist() == ["rocpd"] * 2
    assert told(trace, "skipped by design") == {"the same recording as rocpd, which is read": 1}
    assert trace.events.equals(loaded(path).events)
    write_json(tmp_path / "401_results.json", process())
    with pytest.raises(LoadError, match="files of different formats"):
        loaded(tmp_path)


def test_a_packed_database_gives_the_same(path, tmp_path):
    packed = tmp_path / "packed.db.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert loaded(packed).events.equals(loaded(path).events)


def test_views_of_the_tables_names_are_not_read(tmp_path):
    path = tmp_path / "a.db"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE events (start, end)")
    database.execute("CREATE VIEW rocpd_kernel_dispatch_a AS SELECT 1 AS id, 5 AS start, 9 AS end")
    database.commit()
    database.close()
    with pytest.raises(LoadError, match="no readable trace found"):
        loaded(path)


def test_nulls_texts_and_negative_durations_are_dropped_and_told(tmp_path):
    tables = rocpd_tables()
    columns, rows = tables["rocpd_kernel_dispatch_abc"]
    first = rows[0]
    odd = [(*first[:6], *times, *first[8:]) for times in ((None, 5), ("soon", 9), (9, 5), (5, 9))]
    tables["rocpd_kernel_dispatch_abc"] = (columns, odd)
    trace = loaded(write_rocpd(tmp_path / "a.db", tables))
    dropped = told(trace, "dropped")
    assert dropped["kernel records without a readable time"] == 2
    assert dropped["events with a negative duration"] == 1
    assert (trace.events["category"] == "kernel").sum() == 1


def test_rows_that_refer_to_nothing_stay_without_what_is_missing(tmp_path):
    tables = {
        name: table for name, table in rocpd_tables().items()
        if not name.startswith(("rocpd_string", "rocpd_event", "rocpd_info"))
    }  # fmt: skip
    events = loaded(write_rocpd(tmp_path / "a.db", tables)).events
    assert events.loc[events["category"] == "kernel", "name"].tolist() == ["unknown kernel"] * 2
    assert events["correlation"].isna().all()


def test_a_damaged_database_is_refused_or_told(path, tmp_path):
    raw = path.read_bytes()
    cut = tmp_path / "cut.db"
    cut.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(LoadError, match=r"cut\.db"):
        loaded(cut)


@pytest.mark.long
@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**4)), min_size=1, max_size=30),
    st.booleans(),
)
@settings(max_examples=30)
def test_both_layouts_give_the_busy_time_that_sql_counts_point_by_point(
    tmp_path_factory, times, has_tracks
):
    rows = [((1, 77, 2, 5, 3), (start, start + dur), (1, 1)) for start, dur in times]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SPANS, "kernel_dispatch", ("kernel_id event_id", rows))
        patch.setitem(SPANS, "memory_copy", (SPANS["memory_copy"][0], []))
        tables = rocpd_tables(has_tracks=has_tracks)
    path = write_rocpd(tmp_path_factory.mktemp("made") / "a.db", tables)
    covered = {point for start, dur in times for point in range(start, start + dur)}
    busy = analyze.time_breakdown(loaded(path).events)["busy_ns"].sum()
    assert busy == len(covered)
