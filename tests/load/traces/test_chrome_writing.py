"""Events written as a Chrome trace are read back as they were."""

import gzip
import json

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.load.conftest import event, launched
from workbench import analyze, load
from workbench.errors import LoadError
from workbench.load._traces import chrome_writing as chrome_trace
from workbench.tables import EVENTS, SAYS_SYNTHETIC


def read_back(events, path, **options):
    return load.traces(load.write_chrome_trace(events, path, **options), progress=False)


def assert_same(one, two):
    assert one.columns.tolist() == two.columns.tolist()
    for name in one:
        first, second = (
            frame[name].astype("object" if frame[name].dtype == "category" else frame[name].dtype)
            for frame in (one, two)
        )
        pd.testing.assert_series_equal(first, second, obj=name)


@pytest.mark.parametrize("name", ["again.json", "again.json.gz"])
def test_a_trace_is_read_back_as_it_was(trace_file, tmp_path, name):
    base = 1_700_000_000_000_000
    rows = [
        event("ProfilerStep#1", base, 90.5, cat="user_annotation"),
        *launched(11, base + 1.5),
        event("ncclDevKernel_AllReduce_Sum", base + 30, 20.001, cat="kernel", pid=0, tid=20,
              correlation=12, stream=20, device=0, **{"Collective name": "allreduce",
              "Process Group Name": "0", "Group size": 2, "Seq": 4, "In msg nelems": 7,
              "Out msg nelems": 7, "dtype": "Float"}),
        event("Stream Wait Event", base + 60, 1, cat="cuda_sync", pid=0, tid=7, stream=7,
              correlation=13, wait_on_stream=20, wait_on_cuda_event_record_corr_id=9),
        event("Memcpy", base + 70, 1, cat="gpu_memcpy", pid=0, tid="stream", stream=7, bytes=64),
    ]  # fmt: skip
    before = load.traces(trace_file(rows, distributedInfo={"rank": 3}), progress=False)
    again = read_back(before.events, tmp_path / name)
    assert_same(before.events, again.events)
    assert again.ranks["rank"].tolist() == [3]
    raw = (tmp_path / name).read_bytes()
    document = json.loads(gzip.decompress(raw) if name.endswith("gz") else raw)
    assert {row["ph"] for row in document["traceEvents"]} == {"X"}
    assert [row["ts"] for row in document["traceEvents"]][1] == 1.5


@pytest.mark.oracle
@pytest.mark.parametrize(
    "file",
    [
        "nccl_parser_config/nccl_data.json.gz",
        "critical_path/cuda_event_sync/event_sync_trace.json.gz",
    ],
)
def test_a_real_trace_is_read_back_as_it_was(real_data, tmp_path, file):
    trace = load.traces(real_data("kineto-hta") / file, progress=False)
    again = read_back(trace.events, tmp_path / "again.json.gz")
    assert_same(trace.events, again.events)


@pytest.mark.oracle
def test_a_replayed_trace_is_read_back_and_says_that_it_was_not_measured(real_data, tmp_path):
    file = (
        real_data("kineto-hta") / "critical_path" / "cuda_event_sync" / "event_sync_trace.json.gz"
    )
    events = load.traces(file, progress=False).events
    graph = analyze.execution_graph(events)
    replayed = EVENTS.check(analyze.replayed_events(events, graph, analyze.replay(graph)))
    again = read_back(replayed, tmp_path / "replayed.json", synthetic=True)
    moved = replayed[replayed["kind"].notna()]
    there = again.events[again.events["kind"].notna()]
    assert there["start_ns"].tolist() == moved["start_ns"].sort_values().tolist()
    assert SAYS_SYNTHETIC in set(again.quality["what"])


@pytest.mark.long
@given(name=st.text(min_size=1, max_size=20).filter(lambda text: not text.isspace()))
def test_any_name_survives(tmp_path_factory, name):
    folder = tmp_path_factory.mktemp("names")
    hostile = name.encode("utf-8", "replace").decode("utf-8")
    source = folder / "trace.json"
    source.write_text(json.dumps({"traceEvents": [event(hostile, 5), event("last", 9)]}))
    before = load.traces(source, progress=False).events
    again = read_back(before, folder / "again.json").events
    assert again["name"].astype(str).tolist() == before["name"].astype(str).tolist()


@pytest.mark.parametrize("name", ['</script><b>"', "a\\nb\n", "\u2028 \U0001f600", "=1+1"])
def test_hostile_names_are_escaped_by_json_only(trace_file, tmp_path, name):
    before = load.traces(trace_file([event(name, 5)]), progress=False).events
    path = load.write_chrome_trace(before, tmp_path / "again.json")
    (row,) = json.loads(path.read_text("ascii"))["traceEvents"]
    assert row["name"] == name


def test_no_events_are_a_trace_without_events(tmp_path):
    path = load.write_chrome_trace(EVENTS.empty(), tmp_path / "none.json")
    assert json.loads(path.read_text())["traceEvents"] == []


def test_several_ranks_do_not_fit_one_file(trace_file, tmp_path):
    events = load.traces(trace_file([event("op", 5)]), progress=False).events
    two = pd.concat([events, events.assign(rank=events["rank"] + 1)], ignore_index=True)
    with pytest.raises(LoadError, match="the events are of 2 ranks; write each to a file"):
        load.write_chrome_trace(two, tmp_path / "two.json")
    assert list(tmp_path.glob("*two*")) == []


def test_a_write_that_fails_leaves_the_old_file(trace_file, tmp_path, monkeypatch):
    events = load.traces(trace_file([event("op", 5)]), progress=False).events
    path = load.write_chrome_trace(events, tmp_path / "one.json")
    before = path.read_bytes()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(chrome_trace, "_arguments", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load.write_chrome_trace(events, path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.glob("*one*")] == ["one.json"]
