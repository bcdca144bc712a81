"""Small files are interpreted together: the tables are those of one file after the other."""

import importlib
import json

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.load.conftest import event, launched
from tests.load.traces.kineto.test_engines import events, quick
from workbench import load
from workbench.errors import LoadError
from workbench.load._traces.kineto import rank as interpretation
from workbench.load._traces.kineto.blocks import Block

ENGINES = ["compiled", "python"]


def apart(path, **options):
    """Load file by file: which window a file is has to be known before others are read."""
    return load.traces(path, window=0, progress=False, **options)


def assert_equal(one, other):
    for name in one.__dataclass_fields__:
        pd.testing.assert_frame_equal(getattr(one, name), getattr(other, name), obj=name)


def write_job(folder, files):
    folder.mkdir(exist_ok=True)
    for rank, (rows, metadata) in enumerate(files):
        told = {"distributedInfo": {"rank": rank, "world_size": len(files)}} | metadata
        text = json.dumps({**told, "traceEvents": rows}, ensure_ascii=False)
        (folder / f"t{rank}.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    return folder


def count_of_interpretations(monkeypatch):
    seen = []
    front_door = importlib.import_module("workbench.load._traces.reader")

    def counted(raws, **options):
        seen.append(len(raws))
        return interpretation.joint_tables(raws, **options)

    monkeypatch.setattr(front_door, "joint_tables", counted)
    return seen


# Every rank counts its calls from 1, and its clock began where it wanted.
def job_of_alike_ranks(tmp_path, ranks=12):
    files = []
    for rank in range(ranks):
        start = 1_000 * (ranks - rank)
        rows = [
            *launched(1, start + 10, kernel=f"gemm_{rank}"),
            *launched(2, start + 40, kernel="ncclDevKernel_AllReduce"),
            event("ProfilerStep#7", start, 90, cat="user_annotation"),
            event("cut", 0, -5),
        ]
        files.append((rows, {}))
    return write_job(tmp_path / "job", files)


@pytest.mark.parametrize("engine", ENGINES)
def test_ids_times_and_steps_of_one_rank_never_reach_into_another(tmp_path, engine, monkeypatch):
    seen = count_of_interpretations(monkeypatch)
    job = job_of_alike_ranks(tmp_path)
    trace = load.traces(job, engine=engine)
    assert seen == [12]
    events = trace.events
    launch = events["launch"].dropna().astype(int)
    assert len(launch) == 24
    # By id alone all kernels of one correlation would have one launch.
    assert launch.is_unique
    assert (events["rank"].loc[launch].to_numpy() == events["rank"].loc[launch.index]).all()
    assert (trace.events.groupby("rank")["step"].count() == 5).all()
    assert trace.steps["rank"].tolist() == list(range(12))
    lost = trace.quality[trace.quality["what"] == "events with a negative duration"]
    assert lost["count"].tolist() == [1] * 12
    assert_equal(trace, apart(job, engine=engine))


# Rows of which a file may hold those of several processes, merged by a script.
merged = st.fixed_dictionaries(
    {
        "ph": st.just("X"), "cat": st.sampled_from(["cpu_op", "cpu_op", "kernel", "cuda_runtime"]),
        "name": st.sampled_from(["a", "cudaLaunchKernel"]), "pid": st.sampled_from([1, 2, 3]),
        "tid": st.sampled_from([1, 7]), "ts": st.integers(0, 100), "dur": st.integers(0, 50),
    },
    optional={"args": st.fixed_dictionaries({"correlation": st.integers(1, 4)})},
)  # fmt: skip


def tables_or_refusal(read):
    try:
        return read()
    except LoadError as error:
        return str(error)


@pytest.mark.long
@quick
@given(
    st.lists(
        st.lists(events, max_size=8) | st.lists(merged, min_size=1, max_size=6),
        min_size=2, max_size=4,
    ),
    st.data(),
)  # fmt: skip
def test_any_files_together_give_the_tables_of_each(tmp_path_factory, jobs, data):
    bases = st.sampled_from([{}, {"baseTimeNanoseconds": 1_700_000_000 * 10**9}, {"synthetic": 1}])
    files = [(rows, data.draw(bases)) for rows in jobs]
    job = write_job(tmp_path_factory.mktemp("jobs") / "job", files)
    one = tables_or_refusal(lambda: load.traces(job, progress=False))
    other = tables_or_refusal(lambda: apart(job))
    # GPU rows of a merged file may be of any of its processes, and of these no rank is known where
    # other files state theirs: then both ways refuse it.
    if isinstance(one, str) or isinstance(other, str):
        assert one == other
        assert "processes, merged into one file" in one or "!process " in one
    else:
        assert_equal(one, other)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_damaged_file_among_others_is_named_and_leaves_no_rows(tmp_path, engine):
    job = job_of_alike_ranks(tmp_path)
    (job / "t3.json").write_text('{"traceEvents": [' + json.dumps(event("x", 1)) + ", oops")
    trace = load.traces(job, engine=engine)
    assert trace.ranks["rank"].tolist() == [0, 1, 2, *range(4, 12)]
    assert "x" not in set(trace.events["name"])
    (row,) = (
        trace.quality[trace.quality["finding"] == "dropped"]
        .query("source.str.endswith('t3.json')")
        .itertuples()
    )
    assert "cannot read the event list at byte" in row.what
    assert_equal(trace, apart(job, engine=engine))


@pytest.mark.parametrize("rows", [1, 3, 7])
@pytest.mark.parametrize("engine", ENGINES)
def test_files_and_damage_may_begin_anywhere_in_a_block(tmp_path, engine, rows, monkeypatch):
    job = job_of_alike_ranks(tmp_path)
    lost = ",".join(json.dumps(event("lost", at, shape=at)) for at in range(5))
    for rank in (3, 11):
        (job / f"t{rank}.json").write_text(f'{{"traceEvents": [{lost}, oops')
    (job / "t6.json").write_text('{"distributedInfo": {"rank": 6}, "traceEvents": []}')
    expected = load.traces(job, engine=engine)
    assert "lost" not in set(expected.events["name"])
    assert expected.events["rank"].value_counts().tolist() == [5] * 9
    monkeypatch.setattr(Block.__init__, "__defaults__", (rows,))
    assert_equal(load.traces(job, engine=engine), expected)
    assert_equal(apart(job, engine=engine), expected)


def test_large_files_are_interpreted_by_themselves(tmp_path, monkeypatch):
    front_door = importlib.import_module("workbench.load._traces.reader")
    seen = count_of_interpretations(monkeypatch)
    job = job_of_alike_ranks(tmp_path)
    expected = apart(job)
    monkeypatch.setattr(front_door, "_GROUP_ROWS", 30)
    del seen[:]
    assert_equal(load.traces(job), expected)
    assert seen == [5, 5, 2]
    monkeypatch.setattr(front_door, "_SMALL_ROWS", 3)
    del seen[:]
    assert_equal(load.traces(job), expected)
    assert seen == []


@pytest.mark.long
@pytest.mark.oracle
def test_real_files_of_all_generations_in_one_folder(tmp_path, real_data):
    job = tmp_path / "job"
    job.mkdir()
    names = ["kineto-hta", "kineto-h100", "kineto-dlrm-8rank"]
    found = [
        path
        for name in names
        for path in sorted(real_data(name).rglob("*.gz"))
        if "_et." not in path.name and path.stat().st_size < 300_000
    ]
    assert len(found) > 5
    for number, path in enumerate(found):
        (job / f"file-{number:03}-{path.name}").symlink_to(path)
    ranks = {f"file-{number:03}-": number for number in range(len(found))}
    assert_equal(load.traces(job, rank=ranks), apart(job, rank=ranks))


def test_devices_of_ranks_are_those_that_each_states(tmp_path):
    stated = [[{"id": 0, "name": "A"}], [{"id": 0, "name": "A"}], [{"id": 1, "name": "B"}], None]
    told = [{} if devices is None else {"deviceProperties": devices} for devices in stated]
    job = write_job(tmp_path / "job", [([event("x", 1)], metadata) for metadata in told])
    devices = load.traces(job, progress=False).devices
    rows = devices[["rank", "device", "name"]].itertuples(index=False, name=None)
    assert list(rows) == [(0, 0, "A"), (1, 0, "A"), (2, 1, "B")]


@pytest.mark.parametrize(
    "before",
    ['"of": {"traceEvents": [7]},', r'"of": "\"traceEvents\": [",', '"traceEvents": {},', '"a": 1'],
)
def test_the_events_are_those_of_the_outermost_object(tmp_path, before):
    path = tmp_path / "t.json"
    path.write_text("{" + before + ' "traceEvents": [' + json.dumps(event("x", 1)) + '], "b": 2}')
    assert load.traces(path, progress=False).events["name"].tolist() == ["x"]
