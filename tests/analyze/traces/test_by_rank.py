"""Rank by rank, with little in memory, gives the tables of all ranks at once."""

import ctypes
import gzip
import json
import os
import platform
import sys
import tarfile
import threading
import weakref
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from tests.load.conftest import launched
from workbench import analyze, load
from workbench._shared import cluster, rank_sets
from workbench._shared.cluster import on_cluster
from workbench.analyze._traces.by_rank import _joint, _part, _stacked
from workbench.errors import LoadError, WorkbenchError

PER_RANK = [
    analyze.time_breakdown, analyze.communication_overlap,
    analyze.step_times, analyze.idle_time, analyze.kernels, analyze.launches,
    analyze.copy_bandwidth, analyze.queue_length, analyze.kernel_kinds,
    analyze.model_tree, analyze.phases,
]  # fmt: skip
ACROSS = [analyze.collectives, analyze.collective_waits]


def assert_as_a_whole(tables, path, analyses=(*PER_RANK, *ACROSS)):
    whole = load.traces(path, progress=False)
    for analysis in analyses:
        groups = {"process_groups": whole.process_groups} if analysis in ACROSS else {}
        expected, name = analysis(whole.events, **groups), analysis.__name__
        assert_frame_equal(tables[name], expected, check_categorical=False)
        assert tables[name].attrs == expected.attrs
    for name in ("ranks", "steps", "process_groups"):
        assert_frame_equal(tables[name], getattr(whole, name))
    by = ["source", "finding", "what"]
    told, expected = (table.sort_values(by, ignore_index=True) for table in (
        tables["quality"], whole.quality
    ))  # fmt: skip
    assert_frame_equal(told, expected)


@pytest.fixture(scope="module")
def sixty_four(fleet_demo, tmp_path_factory) -> Path:
    """Write 64 ranks: the bundled ones again and again, each with a number of its own."""
    folder = tmp_path_factory.mktemp("job")
    files = sorted((fleet_demo / "traces").glob("*.json.gz"))
    for number in range(64):
        held = json.loads(gzip.decompress(files[number % len(files)].read_bytes()))
        held["distributedInfo"] |= {"rank": number, "world_size": 64}
        text = json.dumps(held).encode()
        (folder / f"trace{number}.json.gz").write_bytes(gzip.compress(text, 1, mtime=0))
    return folder


@pytest.mark.long
@pytest.mark.oracle
def test_eight_real_ranks_give_the_tables_of_the_whole(dlrm):
    files = load.rank_files(dlrm)
    assert files.table["rank"].tolist() == list(range(8))
    assert_as_a_whole(analyze.by_rank(files, [*PER_RANK, *ACROSS], progress=False), dlrm)


@pytest.mark.slow
def test_sixty_four_ranks_give_the_tables_of_the_whole(sixty_four):
    tables = analyze.by_rank(load.rank_files(sixty_four), [*PER_RANK, *ACROSS], progress=False)
    assert len(tables["time_breakdown"]) == 64
    assert_as_a_whole(tables, sixty_four)


@pytest.mark.long
def test_processes_give_what_one_process_gives(sixty_four):
    files = load.rank_files(sixty_four)[:6]
    alone = analyze.by_rank(files, [analyze.kernels, *ACROSS], processes=1, progress=False)
    spread = analyze.by_rank(files, [analyze.kernels, *ACROSS], processes=2, progress=False)
    for name, table in alone.items():
        assert_frame_equal(table, spread[name])


@pytest.mark.long
def test_a_rank_without_gpu_work_is_one_of_the_job(sixty_four, tmp_path):
    for number in (0, 1):
        held = json.loads(gzip.decompress((sixty_four / f"trace{number}.json.gz").read_bytes()))
        held["distributedInfo"]["world_size"] = 2
        if number:
            on_gpu = ("kernel", "gpu_memcpy", "gpu_memset")
            held["traceEvents"] = [e for e in held["traceEvents"] if e.get("cat") not in on_gpu]
        (tmp_path / f"{number}.json").write_text(json.dumps(held))
    tables = analyze.by_rank(load.rank_files(tmp_path), [*PER_RANK, *ACROSS], progress=False)
    assert tables["time_breakdown"]["device_count"].tolist() == [1, 0]
    assert_as_a_whole(tables, tmp_path)


def test_a_job_without_gpu_work_is_refused_as_by_the_analysis_itself(tmp_path):
    event = {"ph": "X", "name": "a", "cat": "cpu_op", "ts": 1, "dur": 1, "pid": 1, "tid": 1}
    for rank in (0, 1):
        text = json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": [event]})
        (tmp_path / f"{rank}.json").write_text(text)
    files = load.rank_files(tmp_path)
    with pytest.raises(WorkbenchError, match="no GPU work, so no time breakdown"):
        analyze.by_rank(files, [analyze.time_breakdown], progress=False)
    assert len(analyze.by_rank(files, [analyze.kernels], progress=False)["kernels"]) == 0


def test_one_bad_file_is_one_row_that_says_which_and_why(sixty_four, tmp_path):
    for file in sorted(sixty_four.iterdir())[:5]:
        os.link(file, tmp_path / file.name)
    bad = tmp_path / "trace9.json"
    bad.write_text('{"distributedInfo": {"rank": 63}, "traceEvents": [{"ph": "X", "ts": ,}]}')
    files = load.rank_files(tmp_path)
    assert len(files) == 6
    tables = analyze.by_rank(files, [analyze.time_breakdown], progress=False)
    assert len(tables["time_breakdown"]) == 5
    dropped = tables["quality"].query("finding == 'dropped'")
    assert dropped["source"].tolist() == [str(bad)]
    assert "byte" in dropped["what"].iloc[0]


def job_with_a_bad_file(folder, count):
    """Write ranks of which the 118th is damaged; rank r computes for r + 1 µs."""
    for rank in range(count):
        reduce = {"kernel": "ncclDevKernel_AllReduce", "dur": 3, "stream": 9}
        rows = [*launched(1, 10, dur=rank + 1), *launched(2, 2_000, **reduce)]
        told = {"distributedInfo": {"rank": rank, "world_size": count}, "traceEvents": rows}
        text = json.dumps(told).replace('"ts": 2000,', '"ts": ,' if rank == 117 else '"ts": 2000,')
        (folder / f"trace{rank}.json").write_text(text)


@pytest.mark.parametrize("count", [200, pytest.param(1_000, marks=pytest.mark.slow)])
def test_of_many_ranks_one_bad_file_is_one_row(tmp_path, count):
    job_with_a_bad_file(tmp_path, count)
    alive, most = weakref.WeakValueDictionary(), []

    @analyze.per_rank
    def ranks_in_memory(events):
        alive[len(most)] = events
        most.append(len(alive))
        return analyze.time_breakdown(events)

    files = load.rank_files(tmp_path)
    tables = analyze.by_rank(files, [ranks_in_memory], processes=1, progress=False)
    ranks = [rank for rank in range(count) if rank != 117]
    table = tables["ranks_in_memory"]
    assert table["rank"].tolist() == ranks
    assert table["compute_ns"].tolist() == [1_000 * (rank + 1) for rank in ranks]
    assert table["communication_ns"].tolist() == [3_000] * (count - 1)
    assert max(most) == 1
    (bad,) = tables["quality"].query("finding == 'dropped'").itertuples()
    assert bad.source == str(tmp_path / "trace117.json")
    assert "at byte" in bad.what
    # The loader tells the same of the same file, and of no other.
    whole = load.traces(tmp_path, progress=False)
    assert whole.ranks["rank"].tolist() == ranks
    (row,) = whole.quality.query("finding == 'dropped'").itertuples()
    assert bad.what.endswith(row.what)


@pytest.mark.long
def test_traces_come_one_by_one_in_order_of_rank(sixty_four):
    each = [trace for _, trace in load.rank_files(sixty_four).each()]
    assert [trace.ranks["rank"].tolist() for trace in each] == [[rank] for rank in range(64)]
    alone = load.traces(sixty_four / "trace5.json.gz", progress=False)
    assert_frame_equal(each[5].events, alone.events)


def test_in_place_of_a_file_that_cannot_be_read_comes_the_error(trace_files, tmp_path):
    (trace_files / "b.json").write_text(
        '{"distributedInfo": {"rank": 1}, "traceEvents": [{"ts": ,}]}'
    )
    (_, good), (file, bad) = load.rank_files(trace_files).each()
    assert len(good.events) == 1
    assert isinstance(bad, LoadError)
    assert file.label.endswith("b.json")


def test_an_archive_is_unpacked_once(sixty_four, tmp_path, monkeypatch):
    path = tmp_path / "job.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for number in (2, 0, 1):
            archive.add(sixty_four / f"trace{number}.json.gz", f"trace{number}.json.gz")
    files = load.rank_files(path)
    opened = []
    from workbench.load._files import archive as archives

    open_file = archives.unpacking.open_file
    monkeypatch.setattr(
        archives.unpacking, "open_file", lambda *a: opened.append(1) or open_file(*a)
    )
    tables = analyze.by_rank(files, [analyze.time_breakdown], progress=False)
    assert tables["time_breakdown"]["rank"].tolist() == [0, 1, 2]
    assert len(opened) == 1


@pytest.fixture
def trace_files(tmp_path) -> Path:
    """Give a folder with rank 0 of two, and room for another file."""
    kernel = {"ph": "X", "name": "k", "cat": "kernel", "ts": 1, "dur": 1, "pid": 0, "tid": 7}
    text = json.dumps({"distributedInfo": {"rank": 0}, "traceEvents": [kernel]})
    (tmp_path / "a.json").write_text(text)
    return tmp_path


def test_two_files_of_one_rank_are_refused_before_anything_is_parsed(trace_files):
    (trace_files / "b.json").write_text('{"distributedInfo": {"rank": 0}, "traceEvents": [')
    with pytest.raises(LoadError, match="two files are rank 0"):
        load.rank_files(trace_files)


def test_a_rank_that_is_stated_behind_the_events_is_not_given_another(tmp_path):
    for name, rank in (("a.json", 5), ("b.json", 4)):
        text = json.dumps({"traceEvents": [], "distributedInfo": {"rank": rank}})
        (tmp_path / name).write_text(text)
    files = load.rank_files(tmp_path)
    with pytest.raises(LoadError, match=r"a\.json: states rank 5 behind its events, but is rank 0"):
        files[0].load()
    told = load.rank_files(tmp_path, rank={"a.json": 5, "b.json": 4})
    assert [file.load().ranks["rank"].tolist() for file in told] == [[4], [5]]


def test_long_metadata_before_the_events_is_read(trace_files):
    padding = {"deviceProperties": [{"id": 0, "name": "x" * 300_000}]}
    held = padding | {"distributedInfo": {"rank": 3, "world_size": 4}, "traceEvents": []}
    (trace_files / "b.json").write_text(json.dumps(held))
    assert load.rank_files(trace_files).table["rank"].tolist() == [0, 3]


def test_execution_traces_are_left_to_the_whole_load(trace_files):
    nodes = {"schema": "1.0.1", "nodes": [{"id": 1, "name": "[pytorch|profiler|execution_graph]"}]}
    (trace_files / "b.json").write_text(json.dumps(nodes))
    files = load.rank_files(trace_files)
    assert len(files) == 1
    assert files.quality["what"].tolist() == ["execution trace: read by load.traces only"]
    (trace_files / "a.json").unlink()
    with pytest.raises(LoadError, match=r"b\.json: is of the format execution trace"):
        load.rank_files(trace_files)


def test_an_analysis_states_its_scope(trace_files):
    files = load.rank_files(trace_files)
    with pytest.raises(WorkbenchError, match="unclassified_kernels does not state its scope"):
        analyze.by_rank(files, [analyze.unclassified_kernels], progress=False)
    with pytest.raises(WorkbenchError, match=r"'kernels'.* is there twice"):
        analyze.by_rank(files, [analyze.kernels] * 2, progress=False)


def test_an_own_analysis_and_options_are_taken(sixty_four):
    @analyze.per_rank
    def longest(events):
        return events.nlargest(1, "dur_ns")[["rank", "dur_ns"]].reset_index(drop=True)

    by_step = partial(analyze.time_breakdown, by="step")
    files = load.rank_files(sixty_four)[:3]
    tables = analyze.by_rank(files, [longest, by_step], progress=False)
    assert tables["longest"]["rank"].tolist() == [0, 1, 2]
    whole = load.traces([file.source.path for file in files], progress=False)
    expected = analyze.time_breakdown(whole.events, by="step")
    assert_frame_equal(tables["time_breakdown"], expected)


@pytest.fixture
def client(two_workers):
    """Give a cluster of two processes; one that a test before has killed is awaited."""
    two_workers.wait_for_workers(2, timeout=120)
    return two_workers


@pytest.fixture
def eight(sixty_four, tmp_path):
    """Give a folder with the first eight ranks."""
    folder = tmp_path / "eight"
    folder.mkdir()
    for number in range(8):
        os.link(sixty_four / f"trace{number}.json.gz", folder / f"{number}.json.gz")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [4, 1])
def test_a_cluster_gives_what_one_process_gives(tasks, eight, client, monkeypatch):
    monkeypatch.setattr(rank_sets, "_TASKS_PER_THREAD", tasks)  # of one rank, or of up to four
    files = load.rank_files(eight)
    analyses = [analyze.kernels, *ACROSS]
    alone = analyze.by_rank(files, analyses, progress=False)
    spread = analyze.by_rank(files, analyses, client=client, progress=False)
    for name, table in alone.items():
        assert_frame_equal(table, spread[name])
    (eight / "3.json.gz").unlink()
    left = analyze.by_rank(files, analyses, client=client, progress=False)
    assert left["ranks"]["rank"].tolist() == [0, 1, 2, 4, 5, 6, 7]
    gone = left["quality"].query("finding == 'dropped'")["what"]
    assert gone.str.contains("3.json.gz: not found on worker").tolist() == [True]


@pytest.mark.slow
def test_a_cluster_stores_the_bytes_of_one_process(eight, client, tmp_path):
    files = load.rank_files(eight)
    load.write_ranks(files, tmp_path / "alone", progress=False)
    load.write_ranks(files, tmp_path / "spread", client=client, progress=False)
    alone, spread = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("alone", "spread")
    )
    assert len(alone) == 9
    assert alone == spread


@pytest.mark.slow
def test_a_rank_whose_worker_dies_is_run_by_another(eight, client, tmp_path):
    @analyze.per_rank
    def dying(events):
        deaths = tmp_path / f"{os.getpid()}"
        is_first = not list(tmp_path.glob("[0-9]*"))
        if events["rank"].iloc[0] == 2 and is_first:
            deaths.touch()
            os._exit(1)
        return events[["rank"]].head(1)

    tables = analyze.by_rank(load.rank_files(eight), [dying], client=client, progress=False)
    assert tables["dying"]["rank"].tolist() == list(range(8))
    assert len(list(tmp_path.glob("[0-9]*"))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [1, 8])
def test_a_rank_that_kills_its_workers_is_a_row(tasks, eight, client, monkeypatch):
    monkeypatch.setattr(rank_sets, "_TASKS_PER_THREAD", tasks)

    @analyze.per_rank
    def deadly(events):
        if events["rank"].iloc[0] == 5:
            os._exit(1)
        return events[["rank"]].head(1)

    tables = analyze.by_rank(load.rank_files(eight), [deadly], client=client, progress=False)
    dropped = tables["quality"].query("finding == 'dropped'")
    assert dropped["source"].str.endswith("5.json.gz").tolist() == [True]
    assert dropped["what"].str.contains("its workers died").all()
    assert 5 not in set(tables["deadly"]["rank"])


def faulted_pages(_=None):
    """Make and forget an array of 1 MiB fifty times; count the pages that the system cleared."""
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        np.ones(1 << 17)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def pages_faulted_again():
    """Hold twenty arrays of 1 MiB at once, twice; count the pages cleared for the second twenty.

    A gap in the heap serves an array whatever the thresholds are, so that arrays made one after
    the other tell nothing; twenty at once fill the gaps.
    """
    import resource

    arrays = [np.ones(1 << 17) for _ in range(20)]
    arrays.clear()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays.extend(np.ones(1 << 17) for _ in range(20))
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def started_by_dask(monkeypatch, **environment):
    """Give the calls of mallopt in a process with the environment of a worker."""
    calls = []

    class Library:
        gnu_get_libc_version = malloc_trim = staticmethod(lambda *_: None)
        mallopt = staticmethod(lambda *call: calls.append(call))

    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(cluster, "_holding", threading.Event())
    return calls


def test_a_worker_gets_its_thresholds_back(monkeypatch):
    calls = started_by_dask(monkeypatch, MALLOC_TRIM_THRESHOLD_="65536")
    for hold in (False, True, True, False, False):
        cluster._hold_memory(hold=hold)
    trim, mmap = -1, -3
    held = [(mmap, 32 << 20), (trim, 64 << 20)]
    assert calls == [*held, (mmap, 128 << 10), (trim, 65536)]


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"MALLOC_TRIM_THRESHOLD_": str(1 << 28)},
        {"MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_MMAP_THRESHOLD_": "4096"},
        {"MALLOC_TRIM_THRESHOLD_": "65536", "GLIBC_TUNABLES": "glibc.malloc.trim_threshold=9"},
        {"MALLOC_TRIM_THRESHOLD_": "much"},
    ],
)
def test_who_has_set_malloc_is_not_overruled(monkeypatch, environment):
    calls = started_by_dask(monkeypatch, **environment)
    cluster._hold_memory(hold=True)
    cluster._hold_memory(hold=False)
    assert calls == []


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the thresholds are those of glibc")
@pytest.mark.usefixtures("two_workers")  # which tells where Dask is missing
def test_tasks_use_the_pages_of_the_tasks_before():
    from distributed import Client, LocalCluster

    # Of its own: tasks of a worker that a test before has killed may still be under way.
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        in_tasks = [pages for _, pages in on_cluster(client, faulted_pages, range(4))]
        afterwards = client.submit(pages_faulted_again, pure=False).result()
        modules = client.run(lambda: "numba" in sys.modules)
    pages_of_array = (1 << 20) // os.sysconf("SC_PAGE_SIZE")
    assert sum(in_tasks) < 10 * pages_of_array
    assert afterwards > 10 * pages_of_array
    # What nothing on this way uses needs no compilation in any worker.
    assert not any(modules.values())


@pytest.mark.long
def test_files_travel_together_the_largest_first(eight, monkeypatch):
    seen = []

    def here(_client, function, batches):
        for batch in batches:
            seen.append([file.rank for file in batch])
            yield from zip(batch, function(batch), strict=True)

    class TwoThreads:
        nthreads = staticmethod(lambda: {"a": 1, "b": 1})

    monkeypatch.setattr(cluster, "batches_on_cluster", here)
    large = eight / "7.json.gz"
    held = json.loads(gzip.decompress(large.read_bytes()))
    large.unlink()
    held["unused"] = os.urandom(1 << 22).hex()
    large.write_bytes(gzip.compress(json.dumps(held).encode()))
    files = load.rank_files(eight)
    whole = analyze.by_rank(files, [analyze.kernels], progress=False)
    for tasks, batches in (
        (4, [[7], *([rank] for rank in range(7))]), (1, [[7], [0, 1, 2, 3], [4, 5], [6]]),
    ):  # fmt: skip
        monkeypatch.setattr(rank_sets, "_TASKS_PER_THREAD", tasks)
        seen.clear()
        spread = analyze.by_rank(files, [analyze.kernels], client=TwoThreads(), progress=False)
        assert seen[0] == [7]
        assert sorted(seen) == sorted(batches)
        for name, table in whole.items():
            assert_frame_equal(spread[name], table)


@pytest.fixture(scope="module")
def parts(sixty_four, tmp_path_factory):
    """Give what is kept of nine ranks, one of them without GPU work, one without any event."""
    folder = tmp_path_factory.mktemp("nine")
    for number in range(9):
        held = json.loads(gzip.decompress((sixty_four / f"trace{number}.json.gz").read_bytes()))
        if number == 4:
            is_work = [row.get("cat") in ("kernel", "gpu_memcpy") for row in held["traceEvents"]]
            rows = zip(held["traceEvents"], is_work, strict=True)
            held["traceEvents"] = [row for row, of_gpu in rows if not of_gpu]
        if number == 6:
            held["traceEvents"] = []
        (folder / f"{number}.json").write_text(json.dumps(held))
    return [_part(trace, PER_RANK) for _, trace in load.rank_files(folder).each()]


@pytest.mark.long
@given(groups=st.sets(st.integers(1, 8)))
def test_parts_of_ranks_join_in_any_grouping(groups, parts):
    bounds = [0, *sorted(groups), 9]
    whole = _joint(parts)
    grouped = _joint([_joint(parts[start:end]) for start, end in pairwise(bounds)])
    assert_frame_equal(grouped.communication, whole.communication)
    for one, other in zip(grouped.tables, whole.tables, strict=True):
        assert_frame_equal(one, other)
    for name, table in whole.trace.items():
        assert_frame_equal(grouped.trace[name], table)
    assert_frame_equal(grouped.state.ranks, whole.state.ranks)
    assert_frame_equal(grouped.state.quality, whole.state.quality)
    assert grouped.state.names == whole.state.names
    assert grouped.state.communicates == whole.state.communicates


def test_an_answer_that_is_an_error_stands_for_all_ranks(parts):
    error = WorkbenchError("no")
    failed = replace(parts[1], tables=[error, *parts[1].tables[1:]])
    tables = _joint([parts[0], failed, parts[2]]).tables
    assert tables[0] is error
    assert len(tables[1]) == 3


columns_of_a_rank = st.fixed_dictionaries(
    {
        "count": st.lists(st.integers(-9, 9), min_size=3, max_size=3),
        "share": st.lists(st.floats(0, 1) | st.none(), min_size=3, max_size=3),
        "name": st.lists(st.sampled_from("abc"), min_size=3, max_size=3),
        "rows": st.integers(0, 3),
        "whole": st.booleans(),
    }
)


@given(st.lists(columns_of_a_rank, min_size=1, max_size=5))
def test_stacked_tables_are_those_of_concat(ranks):
    frames = []
    for held in ranks:
        frame = pd.DataFrame({name: held[name] for name in ("count", "share")})
        frame["share"] = frame["share"].astype("float64")
        if not held["whole"]:
            frame["count"] = frame["count"].astype("float64")
        frame["launch"] = frame["count"].astype("Int64")
        frame["text"] = pd.array(held["name"], dtype="str")
        frame["name"] = pd.Categorical(held["name"])
        frames.append(frame.head(held["rows"]))
    filled = [frame for frame in frames if len(frame)] or frames[:1]
    expected = pd.concat([frame.astype({"name": "str"}) for frame in filled], ignore_index=True)
    stacked = _stacked(frames)
    assert list(stacked["name"].cat.categories) == sorted(
        set().union(*(frame["name"].cat.categories for frame in filled))
    )
    assert_frame_equal(stacked.astype({"name": "str"}), expected)
    for cut in range(1, len(frames)):
        in_two = _stacked([_stacked(frames[:cut]), _stacked(frames[cut:])])
        assert_frame_equal(in_two, stacked)
