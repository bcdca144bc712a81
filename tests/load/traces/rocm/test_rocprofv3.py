"""JSON of rocprofv3: equal to counts by plain JSON, and honest about damage."""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.load.traces.rocm.rocm_files import dispatch, process, record, write_json
from workbench import analyze, datasets, load
from workbench.errors import LoadError
from workbench.load.kinds import kinds_of
from workbench.tables import EVENTS


def loaded(path, **options):
    return load.traces(path, progress=False, **options)


def told(trace, finding):
    rows = trace.quality[trace.quality["finding"] == finding]
    return dict(zip(rows["what"], rows["count"], strict=True))


@pytest.fixture(scope="module")
def real():
    return datasets.path("rocprofv3") / "fsdp_908_results.json.gz"


@pytest.fixture(scope="module")
def document(real):
    with gzip.open(real) as file:
        return json.load(file)["rocprofiler-sdk-tool"][0]


def union(intervals):
    """Return the length of the union of intervals, one after the other."""
    total, reached = 0, None
    for start, end in sorted(intervals):
        if reached is None or start > reached:
            total, reached = total + end - start, end
        elif end > reached:
            total, reached = total + end - reached, end
    return total


def test_rows_names_and_times_are_those_that_plain_json_counts(real, document):
    events = loaded(real).events
    EVENTS.check(events)
    written = document["buffer_records"]["kernel_dispatch"]
    names = {one["kernel_id"]: one["formatted_kernel_name"] for one in document["kernel_symbols"]}
    expected = sorted(
        (one["start_timestamp"], one["end_timestamp"] - one["start_timestamp"],
         names[one["dispatch_info"]["kernel_id"]], one["stream_id"]["handle"],
         one["correlation_id"]["internal"])
        for one in written
    )  # fmt: skip
    columns = ["start_ns", "dur_ns", "name", "stream", "correlation"]
    assert sorted(events[columns].itertuples(index=False, name=None)) == expected
    assert events["category"].eq("kernel").all()


def test_busy_time_is_the_union_of_the_dispatches(real, document):
    trace = loaded(real)
    busy = analyze.time_breakdown(trace.events)["busy_ns"].tolist()
    times = [
        (one["start_timestamp"], one["end_timestamp"])
        for one in document["buffer_records"]["kernel_dispatch"]
    ]
    assert busy == [union(times)]


def test_kernels_of_rccl_are_communication_and_copy_kernels_are_memory(real):
    events = loaded(real).events
    by_kind = events.groupby("kind", observed=True)["name"].agg(set)
    assert all(name.startswith("nccl") for name in by_kind["communication"])
    assert by_kind["memory"] == {"__amd_rocclr_copyBuffer", "__amd_rocclr_fillBufferAligned"}


def test_the_gpu_in_use_is_described(real):
    devices = loaded(real).devices
    assert devices[["device", "name", "capability", "processor_count"]].values.tolist() == [
        [0, "AMD Instinct MI350X", "9.5", 256]
    ]


def test_every_domain_has_its_category_and_launches_are_joined(tmp_path):
    trace = loaded(write_json(tmp_path / "1_results.json"))
    events = trace.events.set_index("category")
    assert events["name"].to_dict() | {"cuda_runtime": None, "rccl_api": None, "kernel": None} == {
        "user_annotation": "ProfilerStep#4", "gpu_memcpy": "Memcpy HtoD", "cuda_runtime": None,
        "rccl_api": None, "kernel": None,
    }  # fmt: skip
    gpu = trace.events[trace.events["kind"].notna()]
    launches = trace.events.loc[gpu["launch"].astype("int64")]
    assert (launches["correlation"].to_numpy() == gpu["correlation"].to_numpy()).all()
    assert launches["name"].tolist() == ["hipLaunchKernel", "hipLaunchKernel", "hipMemcpyAsync"]
    copy = events.loc["gpu_memcpy"]
    assert (copy["device"], copy["size_bytes"], copy["stream"]) == (1, 4096, 3)
    assert trace.steps["step"].tolist() == [4, 4]
    assert trace.ranks["format"].tolist() == ["rocprofv3"] * 2  # of one process with two GPUs


def test_a_collective_is_that_called_before_the_end_of_its_group_and_not_the_next(tmp_path):
    """The name of the kernel tells none; the nearest call by time is the end of the group."""
    events = loaded(write_json(tmp_path / "1_results.json")).events
    kernel = events[events["name"].str.startswith("ncclDevKernel")].iloc[0]
    assert kernel["kind"] == "communication"
    assert kernel["collective"] == "ncclAllReduce"


def test_without_calls_of_hip_the_correlation_is_that_of_the_collective(tmp_path):
    only = process(
        hip_api=[], rccl_api=[record("RCCL_API", 2, 1000, 1050, 8)], memory_copy=[], marker_api=[]
    )
    events = loaded(write_json(tmp_path / "a.json", only)).events
    kernel = events[events["name"].str.startswith("ncclDevKernel")].iloc[0]
    assert kernel["collective"] == "ncclReduceScatter"


def test_queues_stand_in_for_streams_that_were_not_recorded(tmp_path):
    for stream in (None, 0):
        of_queues = process(
            kernel_dispatch=[dispatch(1, 2, 1, queue=5, stream=stream),
                             dispatch(3, 4, 2, queue=6, stream=stream)],
        )  # fmt: skip
        events = loaded(write_json(tmp_path / "a.json", of_queues)).events
        assert events.loc[events["category"] == "kernel", "stream"].tolist() == [5, 6]


def test_each_process_of_a_file_is_a_rank(tmp_path):
    path = write_json(tmp_path / "a.json", process(1), process(2))
    trace = loaded(path)
    assert trace.ranks["rank"].tolist() == [0, 1, 2, 3]
    processes = trace.ranks["source"].str.split("!").str[1:].str.join(", ")
    assert processes.tolist() == [f"process {pid}, GPU {gpu}" for pid in (1, 2) for gpu in (0, 1)]
    first, second = (trace.events[trace.events["rank"] // 2 == at] for at in (0, 1))
    assert len(first) == len(second)


def test_files_are_ranks_by_their_names(tmp_path):
    for rank in (3, 1):
        write_json(tmp_path / f"rank_{rank}_results.json", process(rank))
    assert loaded(tmp_path).ranks["rank"].tolist() == [2, 3, 6, 7]
    files = load.rank_files(tmp_path)
    assert [file.rank for file in files] == [1, 3]
    assert len(files[0].load().events.drop_duplicates(["name", "start_ns"])) == 10
    assert kinds_of(tmp_path) == {"traces"}


def test_times_that_are_none_and_negative_durations_are_dropped_and_told(tmp_path):
    odd = process(
        kernel_dispatch=[
            dispatch(100, 50, 1), dispatch("soon", 50, 2), dispatch(None, 50, 3),
            dispatch(1, 1 << 70, 4), dispatch(5, 9, 5), "kernel", dispatch(5, 9, 6, agent=CPU_ONLY),
        ],
    )  # fmt: skip
    trace = loaded(write_json(tmp_path / "a.json", odd))
    dropped = told(trace, "dropped")
    assert dropped["kernel records without a readable time"] == 3
    assert dropped["events with a negative duration"] == 1
    assert dropped["kernel_dispatch records that are not objects"] == 1
    assert told(trace, "suspicious")["records of agents that are not GPUs"] == 1


CPU_ONLY = 11


def test_a_file_cut_off_gives_what_is_before_the_cut(tmp_path):
    text = json.dumps({"rocprofiler-sdk-tool": [process()]})
    at = text.index('"marker_api": [{"size"')
    path = tmp_path / "a.json"
    path.write_text(text[:at])
    trace = loaded(path)
    assert trace.events["category"].value_counts().to_dict() == {
        "kernel": 2, "gpu_memcpy": 1, "cuda_runtime": 3,
    }  # fmt: skip
    assert any(what.startswith("everything behind damage") for what in told(trace, "truncated"))


def test_a_file_cut_off_before_its_records_is_refused(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"rocprofiler-sdk-tool": [{"metadata": {"pid": 3')
    with pytest.raises(LoadError, match=r"a\.json: no record .* damaged at character"):
        loaded(path)


def test_a_file_without_a_process_is_refused(tmp_path):
    path = tmp_path / "a_results.json"
    path.write_text('{"rocprofiler-sdk-tool": []}')
    with pytest.raises(LoadError, match=r"lists no process .*rocprofv3 --runtime-trace"):
        loaded(path)


def test_deep_nesting_is_damage_and_no_crash(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"rocprofiler-sdk-tool": [{"agents": ' + "[" * 200_000)
    with pytest.raises(LoadError, match="nested too deeply"):
        loaded(path)


TIMES = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**5), st.integers(0, 1)), max_size=40
)


@pytest.mark.long
@given(TIMES)
@settings(max_examples=40)
def test_time_of_every_gpu_is_kept(tmp_path_factory, times):
    agents = (22, 33)
    made = process(
        kernel_dispatch=[
            dispatch(start, start + dur, at + 1, agent=agents[gpu])
            for at, (start, dur, gpu) in enumerate(times)
        ],
        memory_copy=[],
    )
    path = write_json(tmp_path_factory.mktemp("made") / "a.json", made)
    events = loaded(path).events
    gpu = events[events["category"] == "kernel"]
    for index in (0, 1):
        mine = gpu[gpu["device"] == index]
        expected = [(start, start + dur) for start, dur, on in times if on == index]
        spans = zip(mine["start_ns"], mine["start_ns"] + mine["dur_ns"], strict=True)
        assert union(spans) == union(expected)
        assert mine["dur_ns"].sum() == sum(end - start for start, end in expected)
