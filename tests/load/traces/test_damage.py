"""Damaged Kineto files: what is whole is kept, what is repaired is counted, the rest is named."""

import contextlib
import gzip
import json
import time

import pytest

from tests.load.conftest import event
from workbench import load
from workbench.errors import LoadError
from workbench.load._files import json_events as _json_events
from workbench.load._traces.kineto import _stream as _kineto_stream

GOOD = json.dumps(event("good", 1))


def found(trace, finding):
    rows = trace.quality[trace.quality["finding"] == finding]
    return dict(zip(rows["what"], rows["count"], strict=True))


def one(text, finding_text):
    assert len(finding_text) == 1, finding_text
    ((what, count),) = finding_text.items()
    assert text in what
    return count


def named(name, ts=2):
    """Return the raw text of an event with a raw (unescaped) name."""
    return f'{{"ph": "X", "cat": "python_function", "name": "{name}", "pid": 1, "tid": 2, "ts": {ts}, "dur": 3}}'


@pytest.mark.parametrize(
    ("raw", "name", "repair"),
    [
        (r"C:\Temp\x.py(3): f", "C:\\Temp\\x.py(3): f", "backslashes that start no JSON escape"),
        ("a\tb\x01c", "a\tb\x01c", "raw control characters"),
        ('f("x") and y', 'f("x") and y', "quotes inside a string"),
    ],
)
def test_broken_strings_are_mended_and_counted(trace_file, engine, raw, name, repair):
    trace = load.traces(trace_file(f"[{GOOD}, {named(raw)}, {GOOD}]"), engine=engine)
    assert name in trace.events["name"].tolist()
    assert len(trace.events) == 3
    assert one(repair, found(trace, "repaired")) == 1


def test_bytes_that_are_not_utf8_are_shown_and_counted(trace_file, engine):
    trace = load.traces(trace_file(f"[{named(chr(0xDCFF) + 'x')}]"), engine=engine)
    assert trace.events["name"].tolist() == ["\ufffdx"]
    assert one("not UTF-8", found(trace, "repaired")) == 1


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-Infinity", "nan", "inf", "-nan", "-nan(ind)"]
)
def test_numbers_that_json_does_not_know_do_not_stop_the_loader(trace_file, engine, value):
    text = GOOD[:-1] + f', "args": {{"bandwidth": {value}}}}}'
    trace = load.traces(trace_file(f"[{text}]"), engine=engine)
    assert trace.events["name"].tolist() == ["good"]


def test_trailing_and_missing_commas_between_events_are_counted(trace_file, engine):
    trace = load.traces(trace_file(f"[{GOOD} {GOOD}, {GOOD},]"), engine=engine)
    assert len(trace.events) == 3
    assert one("commas between events", found(trace, "repaired")) == 2


def test_a_trailing_comma_inside_an_event_is_mended(trace_file, engine):
    trace = load.traces(trace_file(f"[{GOOD[:-1]}, }}]"), engine=engine)
    assert len(trace.events) == 1
    assert one("trailing commas", found(trace, "repaired")) == 1


def test_the_last_of_two_equal_keys_wins(trace_file, engine):
    text = GOOD[:-1] + ', "name": "last", "args": {"correlation": 1}, "args": {"stream": 2}}'
    events = load.traces(trace_file(f"[{text}]"), engine=engine).events
    assert events["name"].tolist() == ["last"]
    assert events["correlation"].isna().all()


def test_a_byte_order_mark_and_zero_padding_are_passed_over(tmp_path, engine):
    path = tmp_path / "rank0.json"
    path.write_bytes(b"\xef\xbb\xbf" + f'{{"traceEvents": [{GOOD}]}}'.encode() + b"\0" * 512)
    assert len(load.traces(path, engine=engine).events) == 1


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_file_cut_anywhere_keeps_its_whole_events_and_says_where_it_ends(tmp_path, engine, cut):
    whole = f'{{"schemaVersion": 1, "traceEvents": [{GOOD}, {GOOD}, {named("cut")}'
    path = tmp_path / "rank0.json"
    path.write_text(whole[:-cut])
    trace = load.traces(path, engine=engine)
    assert trace.events["name"].tolist() == ["good", "good"]
    assert "whole events were read" in "".join(found(trace, "truncated"))
    where = trace.quality.loc[trace.quality["finding"] == "truncated", "where"].iloc[0]
    assert where.startswith("byte ")


def test_a_crashed_profiler_leaves_an_open_array_that_is_read(tmp_path, engine):
    path = tmp_path / "trace.json.tmp"
    path.write_text(f'{{"schemaVersion": 1, "traceEvents": [\n{GOOD},\n')
    trace = load.traces(path, engine=engine)
    assert len(trace.events) == 1
    assert found(trace, "truncated")


def test_a_file_without_its_closing_brace_keeps_the_metadata_behind_the_events(tmp_path, engine):
    path = tmp_path / "t.json"
    path.write_text(f'{{"traceEvents": [{GOOD}], "distributedInfo": {{"rank": 5}}')
    trace = load.traces(path, engine=engine)
    assert trace.ranks["rank"].tolist() == [5]
    assert found(trace, "truncated")


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.9])
def test_a_truncated_gzip_file_keeps_its_whole_events(tmp_path, engine, keep):
    events = ",".join(named(f"event {i} {i * 7919 % 1000}", i) for i in range(3000))
    packed = gzip.compress(f'{{"traceEvents": [{events}]}}'.encode(), mtime=0)
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(packed[: int(len(packed) * keep)])
    trace = load.traces(path, engine=engine)
    assert 0 < len(trace.events) < 3000
    assert (trace.events["name"].astype("str").str.startswith("event ")).all()
    assert found(trace, "truncated")


def test_broken_metadata_do_not_cost_the_events(tmp_path, engine):
    path = tmp_path / "rank0.json"
    path.write_text(f'{{"traceName": "C:\\Users\\x", "traceEvents": [{GOOD}], "a": "D:\\Work"}}')
    trace = load.traces(path, engine=engine)
    assert len(trace.events) == 1
    assert (
        one("metadata before", {k: v for k, v in found(trace, "repaired").items() if "before" in k})
        == 1
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"[{GOOD}, {named(chr(92).join(['C:', 'dir', '']))}, {GOOD}]",
            "a backslash before a quote",
        ),
        (f"[{GOOD}, 17, {GOOD}]", "expected an event or the end of the list, found b'17"),
        (f'[{GOOD}, {{"ph": "X", "name" "a"}}, {GOOD}]', "Expecting"),
    ],
)
def test_what_cannot_be_mended_is_one_error_with_file_and_byte(trace_file, engine, text, message):
    path = trace_file(text, name="broken.json")
    with pytest.raises(LoadError, match=r"broken\.json: .* at byte [\d,]+") as error:
        load.traces(path, engine=engine)
    assert message in str(error.value)


def test_the_byte_that_is_named_is_the_one(trace_file, engine):
    path = trace_file(f"[{GOOD}, ?]", name="broken.json")
    with pytest.raises(LoadError) as error:
        load.traces(path, engine=engine)
    at = int(str(error.value).split("at byte ")[1].split(":")[0].replace(",", ""))
    assert path.read_bytes()[at : at + 1] == b"?"


def test_events_that_span_blocks_are_read_whole(trace_file, engine, monkeypatch):
    monkeypatch.setattr(_kineto_stream, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(_kineto_stream, "HEADROOM_BYTES", 64)
    rows = [event(f"n{i}" * (i % 50), i, 1, correlation=i) for i in range(500)]
    trace = load.traces(trace_file(rows, padding="x" * 3000), engine=engine)
    assert trace.events["correlation"].dropna().tolist() == list(range(1, 500))


def test_an_event_that_never_ends_is_refused_with_its_place(tmp_path, engine, monkeypatch):
    monkeypatch.setattr(_json_events, "REPAIR_WINDOW", 2000)
    monkeypatch.setattr(_kineto_stream, "LARGEST_EVENT", 10_000)
    monkeypatch.setattr(_kineto_stream, "BLOCK_BYTES", 4000)
    path = tmp_path / "rank0.json"
    path.write_text(f'{{"traceEvents": [{GOOD}, {{"name": "' + "x" * 100_000)
    with pytest.raises(LoadError, match="does not end"):
        load.traces(path, engine=engine)


def test_many_damaged_events_are_mended_in_time_that_grows_with_their_number(trace_file, engine):
    rows = ",".join(named(rf"C:\Temp\{i}.py(3)", i) for i in range(3000))
    trace = load.traces(trace_file(f"[{rows}]"), engine=engine)
    assert len(trace.events) == 3000
    assert one("backslashes", found(trace, "repaired")) == 3000


def test_numbers_too_long_for_any_parser_are_an_error_with_a_place(trace_file, engine):
    path = trace_file(f'[{GOOD[:-1]}, "id": {"9" * 6000}}}]', name="long.json")
    with pytest.raises(LoadError, match=r"long\.json: .* at byte"):
        load.traces(path, engine=engine)


def test_a_run_of_blanks_between_events_costs_no_time(trace_file, engine):
    rows = f'[{{"ph":"X","name":"a","ts":1,"dur":1}}{" " * 400_000}\n "x", {{"ph":"X","ts":2}}]'
    began = time.process_time()
    with contextlib.suppress(LoadError):
        load.traces(trace_file(rows), engine=engine)
    assert time.process_time() - began < 10
