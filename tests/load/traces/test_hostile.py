"""What files that look whole but are not, or lie, must not pass for; times in the tests are µs."""

import os

import pandas as pd
import pytest

from tests.load.conftest import event, launched
from workbench import load
from workbench.errors import LoadError

EPOCH_US = 1_712_195_495_519_689


def count(trace, text, finding=None):
    """Add up the findings whose words hold ``text``."""
    table = trace.quality[trace.quality["what"].str.contains(text, regex=False)]
    if finding is not None:
        assert set(table["finding"]) <= {finding}
    return int(table["count"].sum())


def test_a_correlation_used_twice_joins_to_the_nearest_call_before(trace_file, engine):
    rows = launched(7, 0, kernel="first") + launched(7, 100, kernel="second")
    trace = load.traces(trace_file(rows), engine=engine)
    table = trace.events
    started = table.loc[table.loc[table["category"] == "kernel", "launch"], "start_ns"]
    assert started.tolist() == [0, 100_000]
    assert count(trace, "correlation of an earlier one", "suspicious") == 1


def test_a_driver_call_inside_its_runtime_call_is_no_repetition(trace_file, engine):
    inside = event("cuLaunchKernel", 0.5, 1, cat="cuda_driver", correlation=7)
    trace = load.traces(trace_file([*launched(7, 0), inside]), engine=engine)
    kernel = trace.events.set_index("name").loc["gemm"]
    assert trace.events["name"][kernel["launch"]] == "cudaLaunchKernel"
    assert count(trace, "correlation of an earlier one") == 0


def test_step_numbers_that_repeat_or_are_no_numbers_are_counted(trace_file, engine):
    names = ("ProfilerStep#1", "ProfilerStep#1", "ProfilerStep#12345678901")
    rows = [event(name, 100 * at, 50, cat="user_annotation") for at, name in enumerate(names)]
    trace = load.traces(trace_file(rows), engine=engine)
    assert count(trace, "step numbers that occur more than once", "suspicious") == 1
    assert count(trace, "step numbers of ten and more digits", "dropped") == 1
    assert trace.steps["step"].tolist() == [1, 1]


def test_an_event_between_overlapping_steps_has_the_one_that_still_runs(trace_file, engine):
    long = event("ProfilerStep#1", 0, 100, cat="user_annotation")
    short = event("ProfilerStep#2", 10, 5, cat="user_annotation")
    trace = load.traces(trace_file([long, short, event("op", 50)]), engine=engine)
    assert trace.events.set_index("name").loc["op", "step"] == 1


def test_stamps_of_two_clocks_in_one_file_are_suspicious(trace_file, engine):
    rows = [event("a", EPOCH_US + at) for at in range(5)] + [event("b", 77)]
    trace = load.traces(trace_file(rows), engine=engine)
    assert count(trace, "no wall time, unlike the others", "suspicious") == 1


def test_ranks_on_two_clocks_cannot_be_compared(trace_file):
    files = [
        trace_file([event("a", at)], name=f"rank{rank}.json")
        for rank, at in enumerate((EPOCH_US, 5))
    ]
    assert count(load.traces(files), "different clocks", "suspicious") == 1


def test_ranks_of_the_job_that_are_not_loaded_are_told(trace_file):
    files = [
        trace_file(
            [event("a", 1)], name=f"r{rank}.json", distributedInfo={"rank": rank, "world_size": 4}
        )
        for rank in (0, 3)
    ]
    trace = load.traces(files)
    assert count(trace, "cannot be seen: 1, 2", "suspicious") == 2
    assert count(load.traces(files[0]), "not loaded") == 0, "one rank is not a comparison"


def test_arguments_of_a_wrong_type_are_counted(trace_file, engine):
    rows = [
        event("k", 1, cat="kernel", stream="0x7f34", device=1 << 40, correlation="one"),
        event("k", 2, cat="kernel", stream=7, device=0, correlation=None),
    ]
    trace = load.traces(trace_file(rows), engine=engine)
    assert count(trace, "'stream' that are not of its type", "dropped") == 1
    assert count(trace, "'correlation' that are not of its type", "dropped") == 1
    assert count(trace, "values of device beyond 32 bits", "dropped") == 1
    assert trace.events["stream"].isna().tolist() == [True, False]


def test_an_end_event_of_another_name_is_suspicious(trace_file, engine):
    rows = [
        event("outer", 1, None, ph="B"),
        event("inner", 2, None, ph="B"),
        event("outer", 4, None, ph="E"),
        event("inner", 9, None, ph="E"),
    ]
    trace = load.traces(trace_file(rows), engine=engine)
    assert count(trace, "close a begin event of another name", "suspicious") == 2


def test_a_second_list_of_events_is_counted(trace_file, tmp_path, engine):
    text = trace_file([event("a", 1)]).read_text()
    twice = tmp_path / "twice.json"
    twice.write_text(text[:-1] + ', "traceEvents": [{"ph": "X"}, {"ph": "X"}]}')
    trace = load.traces(twice, engine=engine)
    assert len(trace.events) == 1
    assert count(trace, "another traceEvents list", "dropped") == 2


@pytest.mark.parametrize("stamp", ["1e999999", "1e30", "-1e400"])
def test_stamps_of_absurd_size_are_left_out_at_once(trace_file, engine, stamp):
    rows = f'[{{"ph":"X","name":"a","ts":{stamp},"dur":1}},{{"ph":"X","name":"b","ts":1,"dur":1}}]'
    trace = load.traces(trace_file(rows), engine=engine)
    assert trace.events["name"].tolist() == ["b"]
    assert count(trace, "without a readable time stamp", "dropped") == 1


@pytest.mark.parametrize("base", [1 << 70, "soon", 1.5, True])
def test_a_base_time_that_is_none_is_not_added(trace_file, engine, base):
    trace = load.traces(trace_file([event("a", 1)], baseTimeNanoseconds=base), engine=engine)
    assert trace.events["start_ns"].tolist() == [1_000]
    assert count(trace, "baseTimeNanoseconds is no time", "suspicious") == 1


def test_device_properties_beyond_their_columns_are_missing(trace_file):
    device = {"id": 1 << 50, "name": ["odd"], "totalGlobalMem": -5, "numSms": 1 << 40}
    trace = load.traces(trace_file([event("a", 1)], deviceProperties=[device, "text", None]))
    assert trace.devices[["device", "memory_bytes", "processor_count"]].isna().all().all()


@pytest.mark.parametrize(
    ("rank", "message"),
    [
        ({"no such": 1}, "which no file name has"),
        ([True], "is not a rank"),
        ([1 << 40], "is not a rank"),
    ],
)
def test_ranks_that_cannot_be_are_refused(trace_file, rank, message):
    with pytest.raises(LoadError, match=message):
        load.traces(trace_file([event("a", 1)]), rank=rank)


def test_one_text_for_args_is_refused(trace_file):
    with pytest.raises(TypeError, match=r"args=\('grid',\)"):
        load.traces(trace_file([event("a", 1)]), args="grid")


@pytest.mark.parametrize("path", [None, 5, b"trace.json"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(TypeError, match="path"):
        load.traces(path)


def test_links_in_a_circle_are_passed_over(trace_file, tmp_path):
    trace_file([event("a", 1)], name="run/trace.json")
    (tmp_path / "run" / "back").symlink_to(tmp_path / "run")
    (tmp_path / "run" / "self.json").symlink_to(tmp_path / "run" / "self.json")
    assert len(load.traces(tmp_path / "run").events) == 1


def test_a_cache_that_cannot_be_used_is_noted(trace_file, tmp_path):
    (tmp_path / "cache").write_text("a file")
    trace = load.traces(trace_file([event("a", 1)]), cache=tmp_path / "cache")
    assert len(trace.events) == 1
    assert count(trace, "the cache cannot be used", "noted") == 1


def test_a_kept_file_with_a_flipped_bit_is_parsed_anew(trace_file, tmp_path):
    trace = trace_file([event(f"name {at}", at) for at in range(1_000)])
    first = load.traces(trace, cache=tmp_path / "cache").events
    (kept,) = (tmp_path / "cache").glob("*.columns")
    raw = bytearray(kept.read_bytes())
    raw[len(raw) // 3] ^= 0x40
    kept.write_bytes(raw)
    pd.testing.assert_frame_equal(load.traces(trace, cache=tmp_path / "cache").events, first)


def test_a_file_name_that_is_no_text_is_shown_escaped(trace_file, tmp_path):
    plain = trace_file([event("a", 1)])
    odd = os.fsencode(tmp_path) + b"/tr\xff_rank3.json"
    trace = load.traces(plain.rename(os.fsdecode(odd)))
    assert trace.ranks["rank"].tolist() == [3]
    trace.quality.to_json().encode()
    str(trace).encode()


@pytest.mark.long
def test_long_metadata_before_the_events_is_searched_a_few_times_only(
    trace_file, engine, monkeypatch
):
    from workbench.load._traces.kineto import _stream as _kineto_stream

    calls = []
    find = _kineto_stream.event_list
    monkeypatch.setattr(
        _kineto_stream, "event_list", lambda *a, **k: calls.append(1) or find(*a, **k)
    )
    trace = load.traces(trace_file([event("a", 1)], padding=["x" * 1_000] * 60_000), engine=engine)
    assert len(trace.events) == 1
    assert 1 < len(calls) < 10


def test_own_files_that_say_they_are_synthetic_are_believed(trace_file):
    files = [trace_file([event("a", 1)], name=f"rank{n}.json", synthetic=n == 1) for n in range(2)]
    assert load.traces(files).is_synthetic
    assert not load.traces(files[0]).is_synthetic


def test_a_cache_that_is_no_folder_is_refused(trace_file):
    for door in (load.traces, load.rank_files):
        with pytest.raises(TypeError, match=r"cache must be a folder, or None.*; got False"):
            door(trace_file([event("a", 1)]), cache=False)
