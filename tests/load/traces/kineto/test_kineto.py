"""What the Kineto loader promises of files of every age and vendor; times in the tests are µs."""

import json

import pandas as pd
import pytest

from tests.load.conftest import event, launched
from workbench import load
from workbench.errors import LoadError
from workbench.tables import EVENTS, HARMLESS

EPOCH_US = 1_712_195_495_519_689
BASE_NS = 1_751_410_836_000_000_000


@pytest.fixture
def events(trace_file, engine):
    """Load events, given as JSON, into the events table."""

    def loaded(rows, *, args=(), **metadata):
        return load.traces(trace_file(rows, **metadata), engine=engine, args=args).events

    return loaded


def finding(trace, text):
    """Return the count of the finding whose words hold ``text``."""
    return int(
        trace.quality.loc[trace.quality["what"].str.contains(text, regex=False), "count"].sum()
    )


# --- time --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "ns"),
    [
        ("1712195495519689", 1_712_195_495_519_689_000),
        ("1712195495519689.001", 1_712_195_495_519_689_001),
        ("1712195495519689.1", 1_712_195_495_519_689_100),
        ("1414456661601.577", 1_414_456_661_601_577),
        ("0.0005", 0),
        ("0.0015", 2),
        ("0.00150001", 2),
        ("0.00149999", 1),
        ("1.5e3", 1_500_000),
        ("1E-3", 1),
        ('"12.345"', 12_345),
        ("4503599627370497.001", 4_503_599_627_370_497_001),
    ],
)
def test_time_stamps_keep_every_nanosecond(events, written, ns):
    text = f'[{{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "ts": {written}, "dur": 0}}]'
    assert events(text)["start_ns"].tolist() == [ns]


def test_durations_keep_every_nanosecond(events):
    assert events([event("a", 1, 47151.395)])["dur_ns"].tolist() == [47_151_395]


def test_base_time_is_added_and_gives_wall_time(trace_file, engine):
    trace = load.traces(trace_file([event("a", 7.001)], baseTimeNanoseconds=BASE_NS), engine=engine)
    assert trace.events["start_ns"].tolist() == [BASE_NS + 7001]
    assert trace.ranks["clock"].tolist() == ["epoch"]


def test_base_time_is_not_added_to_stamps_that_are_epoch_already(trace_file, engine):
    path = trace_file([event("a", EPOCH_US)], baseTimeNanoseconds=BASE_NS)
    trace = load.traces(path, engine=engine)
    assert trace.events["start_ns"].tolist() == [EPOCH_US * 1000]
    assert finding(trace, "epoch already; not added") == 1


def test_a_trace_without_a_base_time_says_that_its_clock_is_its_own(trace_file, engine):
    assert load.traces(trace_file([event("a", 5)]), engine=engine).ranks["clock"].tolist() == [
        "own"
    ]


def test_events_come_sorted_by_start_longest_first_in_file_order_at_ties(events):
    rows = [event("late", 9), event("child", 3, 1), event("twin", 3, 1), event("parent", 3, 5)]
    assert events(rows)["name"].tolist() == ["parent", "child", "twin", "late"]


def test_zeroed_time_stamps_are_reported(trace_file, engine):
    rows = [event("lost", 0, 0), event("lost", 0, 0), event("kept", 5)]
    trace = load.traces(trace_file(rows), engine=engine)
    assert len(trace.events) == 3
    assert finding(trace, "time stamp 0 and duration 0") == 2


@pytest.mark.parametrize(
    ("row", "what"),
    [
        (event("a", 1, -5), "negative duration"),
        (event("a", 1, 8 * 24 * 3600 * 1e6), "longer than 7 days"),
        (event("a", None), "without a readable time stamp"),
        (event("a", "soon"), "without a readable time stamp"),
        (event("a", 1e300), "without a readable time stamp"),
    ],
)
def test_rows_whose_times_cannot_be_used_are_left_out_and_counted(trace_file, engine, row, what):
    trace = load.traces(trace_file([event("kept", 2), row]), engine=engine)
    assert trace.events["name"].tolist() == ["kept"]
    assert finding(trace, what) == 1
    assert (
        not trace.quality[trace.quality["what"].str.contains(what)]["finding"].isin(HARMLESS).any()
    )


def test_a_complete_event_without_a_duration_is_kept_and_counted(trace_file, engine):
    row = event("a", 2)
    del row["dur"]
    trace = load.traces(trace_file([row]), engine=engine)
    assert trace.events["dur_ns"].tolist() == [0]
    assert finding(trace, "duration 0 of complete events") == 1


# --- rows --------------------------------------------------------------------


def test_begin_and_end_events_become_one_row_each(trace_file, engine):
    rows = [
        event("outer", 1, None, ph="B"),
        event("inner", 2, None, ph="B"),
        event("", 4, None, ph="E"),
        event("", 9, None, ph="E"),
        event("never ends", 5, None, ph="B", tid=2),
        event("", 6, None, ph="E", tid=3),
    ]
    trace = load.traces(trace_file(rows, bare=True), engine=engine)
    assert trace.events[["name", "dur_ns"]].to_numpy().tolist() == [
        ["outer", 8000],
        ["inner", 2000],
    ]
    assert finding(trace, "begin events (phase B) without an end") == 1
    assert finding(trace, "end events (phase E) without a begin") == 1


def test_instants_are_rows_and_what_is_no_row_is_counted(trace_file, engine):
    rows = [
        event("[memory]", 1, None, cat="cpu_instant_event", ph="i"),
        {"ph": "s", "id": 1, "pid": 1, "tid": 1, "ts": 1, "cat": "ac2g", "name": "ac2g"},
        {"ph": "C", "pid": 1, "ts": 1, "name": "counter", "args": {"v": 1}},
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "python"}},
        {"name": "no phase"},
    ]
    trace = load.traces(trace_file(rows), engine=engine)
    assert trace.events["dur_ns"].tolist() == [0]
    assert finding(trace, "flow arrows") == 1
    assert finding(trace, "counter events") == 1
    assert finding(trace, "names and sort orders") == 1
    assert finding(trace, "events without a phase") == 1


def test_old_category_names_and_stream_threads_are_understood(events):
    rows = [
        event("ProfilerStep#5", 0, 100, cat="Operator"),
        event("cudaLaunchKernel", 1, 2, cat="Runtime", correlation=3),
        event("volta_sgemm", 9, 4, cat="Kernel", tid="stream 7", correlation=3),
        event("Memcpy DtoH", 20, 4, cat="Memcpy", tid="stream 8", bytes=64),
    ]
    table = events(rows)
    assert table["category"].tolist() == ["cpu_op", "cuda_runtime", "kernel", "gpu_memcpy"]
    assert table["stream"].tolist()[2:] == [7, 8]
    assert table["step"].tolist() == [5, 5, 5, 5]
    assert table["launch"].tolist()[2] == 1
    assert table["size_bytes"].tolist()[3] == 64


def test_process_and_thread_may_be_texts_or_negative(events):
    table = events([event("a", 1, pid="Spans", tid=-7), event("b", 2, pid="", tid="GPU 0")])
    assert table[["process", "thread"]].to_numpy().tolist() == [["Spans", "-7"], ["", "GPU 0"]]


def test_annotations_and_synchronisations_on_a_stream_are_not_gpu_work(events):
    rows = [
        event("step", 1, 9, cat="gpu_user_annotation", stream=7),
        event("Stream Wait Event", 2, 1, cat="cuda_sync", stream=7, wait_on_stream=20,
              wait_on_cuda_event_record_corr_id=1385),
        event("Context Sync", 3, 1, cat="cuda_sync", stream=4294967295, wait_on_stream=-1),
        event("k", 4, 1, cat="kernel", stream=0),
    ]  # fmt: skip
    table = events(rows)
    assert table["kind"].notna().tolist() == [False, False, False, True]
    assert table["stream"].astype("object").where(table["stream"].notna(), None).tolist() == [
        7,
        7,
        None,
        0,
    ]
    assert table["wait_stream"].dropna().tolist() == [20]
    assert table["wait_correlation"].dropna().tolist() == [1385]


def test_streams_written_as_text_are_numbers_and_0_is_a_stream(events):
    rows = [
        event("hipLaunchKernel", 1, 1, cat="cuda_runtime", stream="0x55aa", correlation=4),
        event("k", 2, 1, cat="kernel", stream="0", device=0, correlation=4),
    ]
    table = events(rows)
    assert table["stream"].isna().tolist() == [True, False]
    assert table["stream"].tolist()[1] == 0
    assert table["launch"].tolist()[1] == 0


def test_a_stream_argument_of_a_host_row_is_no_gpu_stream(events):
    table = events([event("triton_op", 1, stream=0, device=3)])
    assert table[["stream", "device"]].isna().all().all()


# --- joins -------------------------------------------------------------------


def test_one_launch_may_start_many_kernels(events):
    graph = [event("cudaGraphLaunch", 1, 2, cat="cuda_runtime", correlation=8)]
    kernels = [event(f"k{i}", 10 + i, 1, cat="kernel", stream=7, correlation=8) for i in range(3)]
    assert events(graph + kernels)["launch"].tolist()[1:] == [0, 0, 0]


def test_gpu_work_without_a_launch_is_kept_and_noted(trace_file, engine):
    trace = load.traces(
        trace_file([event("k", 1, cat="kernel", stream=7, correlation=9)]), engine=engine
    )
    assert trace.events["launch"].isna().all()
    assert finding(trace, "launch is not in the trace") == 1


def test_external_ids_join_where_gpu_rows_have_no_correlation(events):
    rows = [
        event("launch", 1, cat="cuda_runtime", **{"External id": 5}),
        event("k", 3, cat="kernel", stream=1, **{"External id": 5}),
    ]
    assert events(rows)["launch"].tolist()[1] == 0


def test_gpu_rows_take_the_step_of_their_launch_and_the_last_step_stays(events):
    steps = [
        event("ProfilerStep#1", 0, 100),
        event("ProfilerStep#2", 100, 50, cat="user_annotation"),
    ]
    work = launched(1, 95, gap=20) + launched(2, 140, gap=30) + [event("late", 500)]
    table = events(steps + work).set_index("name")
    assert table.loc["gemm", "step"].tolist() == [1, 2]
    assert pd.isna(table.loc["late", "step"])


def test_collective_columns_come_from_the_arguments(events):
    args = {
        "Collective name": "allreduce", "In msg nelems": 10, "Out msg nelems": 10, "Group size": 2,
        "dtype": "Float", "Process Group Name": "0", "Seq": 4,
    }  # fmt: skip
    row = events([event("ncclDevKernel_AllReduce", 1, cat="kernel", stream=9, **args)]).iloc[0]
    wanted = ["kind", "collective", "in_count", "out_count", "group_size", "dtype", "group", "seq"]
    assert row[wanted].tolist() == ["communication", "allreduce", 10, 10, 2, "Float", "0", 4]


def test_further_arguments_become_columns_when_asked_for(events):
    rows = [
        event("a", 1, **{"Input Dims": [[4, 3], []], "n": 3}),
        event("b", 2, n=4.5),
        event("c", 3),
    ]
    table = events(rows, args=("Input Dims", "n", "absent"))
    assert table["Input Dims"].astype("object").tolist()[0] == "[[4,3],[]]"
    assert table["n"].tolist()[:2] == [3.0, 4.5]
    assert table["absent"].isna().all()


def test_users_rules_decide_before_the_shipped_ones(trace_file, engine):
    rules = pd.DataFrame({"kind": ["other"], "rule": ["mine"], "pattern": ["gemm"]})
    rows = launched(1, 1) + launched(2, 50, kernel="zzz_unheard_of")
    trace = load.traces(trace_file(rows), engine=engine, rules=rules)
    assert trace.events["kind"].dropna().tolist() == ["other", "compute"]
    assert finding(trace, "unlabelled kernels, counted as compute (50.0% of kernel time)") == 1


# --- metadata ----------------------------------------------------------------


def test_metadata_become_tables_wherever_they_stand(trace_file, engine):
    info = {
        "backend": "nccl", "rank": 3, "world_size": 8,
        "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 8, "ranks": [0, 1, 3]}],
    }  # fmt: skip
    device = {
        "id": 0,
        "name": "",
        "totalGlobalMem": 64,
        "computeMajor": 9,
        "computeMinor": 0,
        "numSms": 132,
    }
    path = trace_file([event("a", 1)], distributedInfo=info, deviceProperties=[device])
    trace = load.traces(path, engine=engine)
    assert trace.ranks[["rank", "rank_source", "world_size", "backend"]].to_numpy().tolist() == [
        [3, "trace", 8, "nccl"]
    ]
    assert trace.process_groups["members"].tolist() == ["0,1,3"]
    assert trace.devices[["name", "capability", "processor_count"]].to_numpy().tolist() == [
        ["", "9.0", 132]
    ]


def test_a_key_named_like_the_event_list_inside_metadata_is_not_it(trace_file, engine):
    path = trace_file([event("a", 1)], x={"traceEvents": [1, 2]}, y='"traceEvents": [')
    assert load.traces(path, engine=engine).events["name"].tolist() == ["a"]


@pytest.mark.parametrize("text", ["[]", "[ \n ]"])
def test_an_empty_event_list_gives_an_empty_table(trace_file, engine, text):
    trace = load.traces(trace_file(text), engine=engine)
    assert len(EVENTS.check(trace.events)) == 0


def test_an_engine_that_does_not_exist_is_named(trace_file):
    with pytest.raises(ValueError, match="engine must be one of"):
        load.traces(trace_file([]), engine="fast")


def test_a_file_that_is_no_trace_says_what_is_expected(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text('{"schemaVersion": 1, "deviceProperties": []}')
    with pytest.raises(LoadError, match=r"trace\.json: no 'traceEvents' array"):
        load.traces(path)


@pytest.mark.parametrize("behind", [False, True])
def test_a_name_that_no_encoding_has_costs_that_name_alone(tmp_path, engine, behind):
    metadata = {
        "deviceProperties": [{"id": 0, "name": "H\ud800100"}, {"id": 1, "name": "H200"}],
        "hostname": "n\udcff", "distributedInfo": {"rank": 3, "pg_config": [{"pg_name": "0"}]},
    }  # fmt: skip
    rows = {"traceEvents": [event("a\ud800", 1)]}
    path = tmp_path / "t.json"
    path.write_text(json.dumps(rows | metadata if behind else metadata | rows))
    trace = load.traces(path, engine=engine)
    assert trace.devices["name"].tolist() == ["H\ufffd100", "H200"]
    assert trace.ranks[["rank", "host"]].to_numpy().tolist() == [[3, "n\ufffd"]]
    assert trace.events["name"].tolist() == ["a\ufffd"]
    told = trace.quality[trace.quality["finding"] == "repaired"]
    assert told["what"].str.startswith("texts with bytes that are not UTF-8").all()
    assert told["count"].sum() == 3
