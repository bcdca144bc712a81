"""The entry point: sets of files, ranks, the cache, and the workbench's own format."""

import importlib
import json
import shutil
import tarfile
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from tests.load.conftest import event, launched
from workbench import load
from workbench._shared import rank_sets
from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.tables import HARMLESS, Trace


def assert_same(left: Trace, right: Trace):
    for table in left.__dataclass_fields__:
        pd.testing.assert_frame_equal(getattr(left, table), getattr(right, table))


@pytest.fixture
def two_ranks(trace_file):
    """A directory with two ranks that say who they are, one gzipped."""
    first = trace_file(
        launched(1, 10), name="run/a.json", distributedInfo={"rank": 1, "world_size": 2}
    )
    trace_file(launched(1, 12), name="run/b.json.gz", distributedInfo={"rank": 0, "world_size": 2})
    return first.parent


def test_a_directory_becomes_one_trace_in_order_of_rank(two_ranks):
    trace = load.traces(two_ranks)
    assert trace.ranks["rank"].tolist() == [0, 1]
    assert trace.events["rank"].tolist() == [0, 0, 1, 1]
    assert trace.events.index.tolist() == [0, 1, 2, 3]
    assert trace.events["launch"].dropna().tolist() == [0, 2]


@pytest.mark.parametrize("kind", ["tar.gz", "tar", "zip", "list"])
def test_archives_and_lists_give_what_the_directory_gives(two_ranks, tmp_path, kind):
    files = sorted(two_ranks.iterdir())
    if kind == "list":
        path = files
    elif kind == "zip":
        path = tmp_path / "run.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for file in files:
                archive.write(file, f"run/{file.name}")
    else:
        path = tmp_path / f"run.{kind}"
        with tarfile.open(path, "w:gz" if kind == "tar.gz" else "w") as archive:
            for file in files:
                archive.add(file, f"run/{file.name}")
    pd.testing.assert_frame_equal(load.traces(path).events, load.traces(two_ranks).events)


def test_ranks_come_from_the_file_name_where_the_trace_is_silent(trace_file):
    files = [trace_file([event("a", 1)], name=f"worker{n}_step_12.pt.trace.json") for n in (3, 2)]
    trace = load.traces(files)
    assert trace.ranks[["rank", "rank_source"]].to_numpy().tolist() == [
        [2, "file name"],
        [3, "file name"],
    ]


def test_an_assumed_rank_is_called_so(trace_file):
    trace = load.traces(trace_file([event("a", 1)]))
    assert trace.ranks["rank_source"].tolist() == ["assumed"]
    assert "assumed" in trace.quality["finding"].tolist()
    assert "1 finding to look at" in repr(trace)


def test_the_argument_goes_before_what_the_trace_says(trace_file):
    path = trace_file([event("a", 1)], distributedInfo={"rank": 4})
    assert load.traces(path, rank=7).ranks[["rank", "rank_source"]].to_numpy().tolist() == [
        [7, "argument"]
    ]


def test_ranks_may_be_given_by_part_of_the_file_name(trace_file):
    files = [trace_file([event(n, 1)], name=f"host-{n}.json") for n in ("a", "b")]
    trace = load.traces(files, rank={"host-a": 1, "host-b": 0})
    assert trace.events["name"].tolist() == ["b", "a"]


def test_two_files_of_one_rank_are_refused_by_name(trace_file):
    files = [
        trace_file([event("a", 1)], name=f"{n}.json", distributedInfo={"rank": 0}) for n in "ab"
    ]
    with pytest.raises(LoadError, match=r"two files are rank 0: .*a\.json .*b\.json"):
        load.traces(files)


def test_one_silent_file_among_others_is_not_guessed(trace_file):
    files = [
        trace_file([event("a", 1)], name="a.json", distributedInfo={"rank": 0}),
        trace_file([event("a", 1)], name="b.json"),
    ]
    with pytest.raises(
        LoadError, match=r"b\.json: rank not found in the metadata or the file name"
    ):
        load.traces(files)


@pytest.mark.parametrize(
    ("rank", "message"),
    [
        (1, "one rank for 2 files"),
        ([1], "1 ranks were given for 2 files"),
        ([-1, 0], "is not a rank"),
    ],
)
def test_ranks_that_do_not_fit_the_files_are_refused(two_ranks, rank, message):
    with pytest.raises(LoadError, match=message):
        load.traces(two_ranks, rank=rank)


def test_what_is_no_trace_in_a_directory_is_listed(two_ranks):
    (two_ranks / "notes.txt").write_text("hello")
    quality = load.quality(two_ranks)
    assert quality[quality["source"].str.endswith("notes.txt")]["count"].tolist() == [1]


def test_nothing_there_is_an_error_that_says_what_is_known(tmp_path):
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(LoadError, match="no trace"):
        load.traces(tmp_path)
    with pytest.raises(FileNotFoundError):
        load.traces(tmp_path / "absent.json")


def test_stored_traces_come_back_as_they_were(two_ranks, tmp_path):
    trace = load.traces(two_ranks, args=("grid",))
    again = load.traces(load.write(trace, tmp_path / "run.parquet"))
    assert_same(trace, again)
    assert pd.read_parquet(tmp_path / "run.parquet").shape == trace.events.shape


def test_an_empty_trace_can_be_stored(trace_file, tmp_path):
    trace = load.traces(trace_file([]))
    assert_same(trace, load.traces(load.write(trace, tmp_path / "empty.parquet")))


def test_parquet_of_others_is_refused(tmp_path):
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(LoadError, match="no trace of the workbench"):
        load.traces(tmp_path / "x.parquet")


def test_the_cache_gives_the_same_and_survives_moving_the_file(two_ranks, tmp_path):
    plain = load.traces(two_ranks)
    cache = tmp_path / "cache"
    assert_same(plain, load.traces(two_ranks, cache=cache))
    kept = {file: file.stat().st_mtime_ns for file in cache.glob("*.columns")}
    assert len(kept) == 2
    moved = tmp_path / "elsewhere"
    shutil.copytree(two_ranks, moved)
    pd.testing.assert_frame_equal(load.traces(moved, cache=cache).events, plain.events)
    assert {file: file.stat().st_mtime_ns for file in cache.glob("*.columns")} == kept


def test_a_table_from_the_cache_can_be_written_to(trace_file, tmp_path):
    one = trace_file(launched(1, 10))
    for _ in range(2):
        events = load.traces(one, cache=tmp_path / "cache").events
        for column in events.columns[events.notna().any()]:
            events.loc[0, column] = events.loc[1, column]
        assert events.loc[0, "start_ns"] == events.loc[1, "start_ns"]


def test_the_cache_notices_changed_content_options_and_rules(two_ranks, tmp_path):
    cache = tmp_path / "cache"
    load.traces(two_ranks, cache=cache)
    load.traces(two_ranks, cache=cache, args=("grid",))
    rules = pd.DataFrame({"kind": ["other"], "rule": ["mine"], "pattern": ["gemm"]})
    assert (
        load.traces(two_ranks, cache=cache, rules=rules).events["kind"].dropna().tolist()
        == ["other"] * 2
    )
    path = two_ranks / "a.json"
    path.write_text(path.read_text().replace("gemm", "GEMM"))
    assert "GEMM" in load.traces(two_ranks, cache=cache).events["name"].tolist()


@pytest.mark.parametrize("damage", [b"", b"PAR1 nonsense", None])
def test_a_damaged_cache_file_is_made_again(two_ranks, tmp_path, damage):
    cache = tmp_path / "cache"
    plain = load.traces(two_ranks, cache=cache)
    for file in cache.glob("*.columns"):
        file.write_bytes(file.read_bytes()[:-100] if damage is None else damage)
    assert_same(plain, load.traces(two_ranks, cache=cache))
    assert_same(plain, load.traces(two_ranks, cache=cache))


def test_nothing_half_written_stays_behind(two_ranks, tmp_path, monkeypatch):
    from workbench.load._traces import parquet

    def interrupted(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(parquet.pq, "write_table", interrupted)
    events = load.traces(two_ranks).events
    with pytest.raises(KeyboardInterrupt):
        parquet.write_events(events, {}, tmp_path / "out" / "x.parquet")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.long
def test_large_sets_are_read_by_several_processes(two_ranks, monkeypatch):
    front_door = importlib.import_module("workbench.load._traces.reader")
    plain = load.traces(two_ranks)
    monkeypatch.setattr(front_door, "processes_for", lambda count, expected_s: 2)
    assert_same(plain, load.traces(two_ranks))


@pytest.mark.parametrize(
    ("engine", "size", "count", "packed", "is_parallel"),
    [
        ("compiled", 1, 200, "", False),  # 1.3 s in all, as long as two processes take to start
        ("compiled", 60, 8, "", False),
        ("compiled", 60, 64, "", True),
        ("compiled", 60, 8, ".gz", True),  # unpacked by one process after the other
        ("compiled", 1, 4_000, "", False),  # joined sooner than sent
        ("python", 1, 200, "", True),
        ("python", 1, 8, "", False),
    ],
)
def test_processes_are_started_for_work_that_takes_longer_than_they_do(
    monkeypatch, engine, size, count, packed, is_parallel
):
    front_door = importlib.import_module("workbench.load._traces.reader")
    monkeypatch.setattr(front_door, "is_compiled", lambda name: name == "compiled")
    files = [
        Source(f"r{at}.json{packed}", Path("x"), size_bytes=size * 1_000_000) for at in range(count)
    ]
    monkeypatch.setattr(rank_sets.os, "cpu_count", lambda: 2)
    workers = rank_sets.processes_for(count, front_door._expected_s(files, engine))
    assert workers == (2 if is_parallel else 1)


def test_profiles_and_execution_traces_of_one_job_go_together(trace_file):
    profile = trace_file([event("a", 1)], name="run/rank0.json", distributedInfo={"rank": 0})
    graph = {
        "schema": "1.0.1", "pid": 1, "time": "", "start_ts": 1, "finish_ts": 2,
        "nodes": [{"name": "[pytorch|profiler|execution_graph|thread]", "id": 1, "parent": 1,
                   "rf_id": 0, "fw_parent": 0, "seq_id": -1, "scope": 7, "tid": 1, "fw_tid": 0,
                   "op_schema": "", "inputs": [], "input_shapes": [], "input_types": [],
                   "outputs": [], "output_shapes": [], "output_types": []}],
    }  # fmt: skip
    (profile.parent / "rank0_et.json").write_text(json.dumps(graph))
    trace = load.traces(profile.parent)
    assert (len(trace.events), len(trace.nodes)) == (1, 1)
    assert trace.ranks["rank"].tolist() == [0]


@pytest.mark.long
@pytest.mark.oracle
def test_every_public_trace_loads_and_nothing_is_lost(real_data):
    for name in ("kineto-hta", "kineto-h100", "kineto-resnet", "kineto-dlrm-8rank"):
        for path in sorted(real_data(name).rglob("*.gz")):
            trace = load.traces(path)
            assert len(trace.events) + len(trace.nodes) > 0, path
            needs_a_look = trace.quality[~trace.quality["finding"].isin([*HARMLESS, "assumed"])]
            assert needs_a_look.empty, needs_a_look.to_string()


def test_a_trace_loads_where_no_thread_can_start(two_ranks, tmp_path, monkeypatch):
    expected = load.traces(two_ranks)
    load.write(expected, tmp_path / "set.parquet")

    def refuse(_thread):
        msg = "can't start new thread"
        raise RuntimeError(msg)

    monkeypatch.setattr("threading.Thread.start", refuse)
    assert_same(load.traces(two_ranks, engine="python"), expected)
    assert_same(load.traces(tmp_path / "set.parquet"), expected)


@pytest.fixture
def two_windows(trace_file):
    """Two recordings of each of two ranks, the later ones first by name."""
    for rank in (0, 1):
        for name, start in (("a", 5_000_000), ("b", 1_000_000)):
            about = {"distributedInfo": {"rank": rank, "world_size": 2}}
            file = trace_file(launched(1, start), name=f"run/{name}{rank}.json", **about)
    return file.parent


@pytest.mark.parametrize(
    ("window", "start_ns"), [("first", 1e9), ("last", 5e9), (0, 1e9), (1, 5e9)]
)
def test_one_window_of_each_rank_is_chosen_by_its_time(two_windows, window, start_ns):
    files = load.rank_files(two_windows, window=window)
    trace = load.traces(two_windows, window=window)
    assert trace.ranks["rank"].tolist() == files.table["rank"].tolist() == [0, 1]
    assert (trace.events["start_ns"] >= start_ns).all()
    assert (trace.events["start_ns"] < start_ns + 1e9).all()
    assert trace.ranks["source"].tolist() == files.table["source"].tolist()


def test_windows_are_refused_until_one_is_named(two_windows):
    for load_them in (load.traces, load.rank_files):
        with pytest.raises(LoadError, match=r"two files are rank 0: .*window='first', 'last'"):
            load_them(two_windows)
        with pytest.raises(LoadError, match="window=2: rank 0 has 2 windows, numbered from 0"):
            load_them(two_windows, window=2)
        with pytest.raises(LoadError, match="window='middle': must be 'first', 'last' or the"):
            load_them(two_windows, window="middle")


def test_copies_of_a_rank_are_no_windows(two_windows):
    shutil.copy(two_windows / "a0.json", two_windows / "c0.json")
    with pytest.raises(LoadError, match="files of rank 0 do not state when they were recorded, or"):
        load.traces(two_windows, window="first")


def test_ranks_recorded_at_different_times_are_flagged(trace_file):
    for rank, hour in ((0, 0), (1, 1)):
        start = 1_700_000_000_000_000 + hour * 3_600_000_000
        about = {"distributedInfo": {"rank": rank, "world_size": 2}}
        file = trace_file(launched(1, start), name=f"run/{rank}.json", **about)
    found = load.traces(file.parent).quality.query("finding == 'suspicious'")["what"]
    assert found.str.startswith("ranks recorded at different times").any()
