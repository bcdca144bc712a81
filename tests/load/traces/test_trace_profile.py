"""Profiles as files: what is written is read again, and no bad field passes."""

import contextlib
import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulate.traces.profiles import overlapped
from tests.simulate.traces.test_traces_like import profiles
from workbench import load, simulate
from workbench.errors import LoadError
from workbench.tables.trace_profile import MOST_BYTES, MOST_OPERATIONS, read_profile


@pytest.fixture
def written(tmp_path):
    """Write the JSON of a sound profile with some fields changed; give the path."""

    def write(**changes):
        data = json.loads(overlapped().as_json()) | changes
        kept = {name: value for name, value in data.items() if value is not ...}
        path = tmp_path / "profile.json"
        path.write_text(json.dumps(kept))
        return path

    return write


@given(profiles())
def test_any_profile_is_read_as_it_was_written(made):
    assert read_profile(made.as_json(), "memory") == made


def test_a_profile_goes_through_a_file(tmp_path):
    path = load.write_trace_profile(overlapped(), tmp_path / "shared" / "profile.json")
    read = load.trace_profile(str(path))
    assert read == overlapped()
    assert simulate.traces_like(read).events.equals(simulate.traces_like(overlapped()).events)


@pytest.mark.parametrize(
    ("changes", "field", "expected"),
    [
        ({"version": 2}, "version is 2", "1 of a trace profile"),
        ({"rank_count": 0}, "rank_count is 0", "a number from 1"),
        ({"rank_count": True}, "rank_count is True", "a number"),
        ({"rank_count": 1.5}, "rank_count is 1.5", "a whole number"),
        ({"launch_ns": -1}, "launch_ns is -1", "a number from 0"),
        ({"launch_ns": float("nan")}, "launch_ns is nan", "a number"),
        ({"launch_ns": 10**400}, "launch_ns is 1000", "a number"),
        ({"host_noise_ratio": 3}, "host_noise_ratio is 3", "to 2"),
        ({"is_synthetic": 1}, "is_synthetic is 1", "true or false"),
        ({"start_ns": [1.0] * 5}, "start_ns is", "33 numbers in order"),
        ({"start_ns": [2.0, *[1.0] * 32]}, "start_ns is", "33 numbers in order"),
        ({"kinds": []}, "kinds is []", "an object"),
        ({"kinds": {}}, "kinds is []", "an entry for communication"),
        ({"kinds": {"python": {}}}, "kinds is 'python'", "one of compute"),
        ({"kinds": {"compute": {}}}, "kinds.compute is []", "the fields count"),
        ({"operations": [["evil", 0, 1, -1, 0, "", 0]]}, "operations[0][0] is 'evil'", "one of"),
        ({"operations": [["compute", -1, 1, -1, 0, "", 0]]}, "operations[0][1] is -1", "a stream"),
        ({"operations": [["compute", 999, 1, -1, 0, "", 0]]}, "operations[0][1]", "to 256"),
        ({"operations": [["compute"]]}, "operations[0] is", "a list of 7"),
        ({"motif": [[1, [99], [1]]]}, "motif[0][1][0] is 99", "a number from 0 to 2"),
        ({"motif": [[1, [0, 0], [1]]]}, "motif[0][2] is '1 gaps'", "one per operation"),
        ({"motif": [[0, [0], [1]]]}, "motif[0][0] is 0", "a number from 1"),
        ({"motif": []}, "motif is '0 operations'", "1 to 200,000"),
        ({"motif": [[MOST_OPERATIONS, [0, 0], [1, 1]]]}, "motif is '400,000", "1 to 200,000"),
        (
            {"operations": [["sync", 0, 1, -1, 0, "", 0]], "motif": [[1, [0], [1]]], "chain": []},
            "motif is 'waits alone'",
            "work among the operations",
        ),
        ({"chain": [[[0] * 6, [[0, 1]]]]}, "chain[0][0] is", "at most 5 operations"),
        ({"chain": [[[], [[0]]]]}, "chain[0][1][0] is [0]", "a list of 2"),
        ({"doubts": ["x" * 500]}, "doubts[0] is", "at most 400 characters"),
        ({"doubts": "late"}, "doubts is 'late'", "a list"),
        ({"more": 1}, "more is 'unknown'", "the fields rank_count"),
        ({"motif": ...}, "motif is 'missing'", "the fields rank_count"),
    ],
)
def test_a_bad_field_is_refused_by_name_with_what_was_expected(written, changes, field, expected):
    path = written(**changes)
    with pytest.raises(LoadError) as caught:
        load.trace_profile(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert field in message
    assert expected in message
    assert "load.write_trace_profile" in message
    assert len(message) < len(str(path)) + 400


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"\xff\xfe", b"null", b"[" * 100_000])
def test_what_is_no_profile_is_refused(tmp_path, text):
    path = tmp_path / "profile.json"
    path.write_bytes(text)
    with pytest.raises(LoadError, match="expected"):
        load.trace_profile(path)


def test_a_file_of_hostile_size_is_refused_unread(tmp_path):
    path = tmp_path / "profile.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a sparse file of a TiB
    with pytest.raises(LoadError, match=f"expected at most {MOST_BYTES:,}"):
        load.trace_profile(path)


@given(st.text(max_size=40) | st.recursive(st.integers(), lambda x: st.lists(x, max_size=3)))
@settings(max_examples=20)
def test_any_value_in_any_field_is_read_or_refused_by_the_error_of_loaders(value):
    for name in json.loads(overlapped().as_json()):
        data = json.loads(overlapped().as_json()) | {name: value}
        with contextlib.suppress(LoadError):
            read_profile(json.dumps(data), "memory")


def test_numbers_of_thousands_of_digits_are_refused(tmp_path):
    path = tmp_path / "profile.json"
    path.write_text('{"version": ' + "9" * (sys.get_int_max_str_digits() + 1) + "}")
    with pytest.raises(LoadError, match="expected JSON"):
        load.trace_profile(path)
