"""Flight-recorder dumps: real ones, all versions, and files that want to do harm."""

import contextlib
import gzip
import io
import json
import os
import pickle
import shutil
import tarfile
import time

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench import load
from workbench.errors import LoadError
from workbench.load._failures.flight_dumps.reader import node_in_name, rank_in_dump_name
from workbench.load._files.safe_pickle import PickleError, plain_values
from workbench.tables import FLIGHT_ENTRIES, FLIGHT_GROUPS, FLIGHT_RANKS, FLIGHT_STATUS

GROUPS = {"0": (0, 1), "1": (0,), "2": (1,)}


@pytest.fixture
def content(make_flight_dump):
    return make_flight_dump(0, GROUPS, [("0", "all_reduce 7"), ("0", "send 3 >1")])


@pytest.fixture
def write(tmp_path):
    def to(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = content if isinstance(content, bytes) else pickle.dumps(content, protocol=2)
        path.write_bytes(raw)
        return path

    return to


def quiet(path, **options):
    return load.flight_recorder(path, progress=False, **options)


def findings(recording):
    return dict(zip(recording.quality["what"], recording.quality["finding"], strict=True))


@pytest.mark.oracle
@pytest.mark.parametrize(("case", "entries"), [("lock_gil_1st", 142), ("gpu_error_1st", 289)])
def test_real_dumps_load_whole(case, entries, real_data):
    recording = quiet(real_data("flight-recorder") / case)
    assert recording.ranks["rank"].tolist() == list(range(16))
    assert set(recording.ranks["version"]) == {"2.9"}
    assert set(recording.ranks["nccl_version"]) == {"2.27.3"}
    assert len(recording.entries) == entries
    assert set(recording.entries["state"]) == {"scheduled"}
    assert set(recording.entries["timeout_ms"]) == {180_000, 600_000}
    assert recording.status["group"].notna().all()
    log = recording.quality[recording.quality["source"].str.endswith("fault_injection.log")]
    assert log["finding"].tolist() == ["skipped by design"]


@pytest.mark.oracle
def test_numbers_of_groups_are_joined_to_names_through_entries(real_data):
    recording = quiet(real_data("flight-recorder") / "lock_gil_1st")
    status = recording.status.set_index(["rank", "local_group"])
    assert tuple(status.loc[(0, "5"), ["group", "joined_by"]]) == ("35", "entries")
    assert tuple(status.loc[(8, "5"), ["group", "joined_by"]]) == ("37", "entries")
    assert tuple(status.loc[(9, "5"), ["group", "joined_by"]]) == ("37", "order")
    assert status.loc[(9, "11"), "last_enqueued"] == 45_264
    assert status["last_started"].isna().all(), "-1 means that starts are not watched"
    assert recording.groups.set_index("group").loc["35", "members"] == "0,1,2,3"


@pytest.mark.oracle
def test_peers_are_global_ranks(real_data):
    entries = quiet(real_data("flight-recorder") / "gpu_error_1st").entries
    sent = entries[(entries["rank"] == 4) & (entries["operation"] == "send")]
    assert sent["peer"].tolist() == [8, 0], "send 1->2 and 1->0 in the group 0, 4, 8, 12"


@pytest.mark.parametrize(
    ("name", "rank", "node"),
    [
        ("_dump_0", 0, None),
        ("nccl_trace_rank_3", 3, None),
        ("nccl_trace_host-12_rank_7", 7, "host-12"),
        ("comm_lib_trace_rank_12", 12, None),
        ("gpu-node-4.cluster_nccl_trace_rank_31.json", 31, "gpu-node-4.cluster"),
        ("trace12", 12, None),
        ("fr_rank5.pkl", 5, None),
        ("nodes-only", None, "nodes-only"),
    ],
)
def test_names_tell_rank_and_host(name, rank, node):
    assert rank_in_dump_name(f"runs/7/{name}") == rank
    assert node_in_name(f"runs/7/{name}") == node


def test_json_dumps_read_as_pickled_ones_do(content, write):
    pickled = quiet(write("a/_dump_0", content))
    listed = json.loads(json.dumps(content))
    for entry in listed["entries"]:
        entry["time_discovered_started_ns"] = entry["time_discovered_completed_ns"] = 0
    listed["comm_lib_version"] = listed.pop("nccl_version")
    text = quiet(write("b/nccl_trace_rank_0.json", json.dumps(listed).encode()))
    pd.testing.assert_frame_equal(pickled.entries, text.entries)
    pd.testing.assert_frame_equal(pickled.groups, text.groups)
    assert text.ranks["nccl_version"].tolist() == ["2.27.3"]


def test_a_json_dump_of_an_idle_rank_has_no_entries(write):
    recording = quiet(write("_dump_0", b'{"version": "2.9", "pg_config": {}, "pg_status": {}}'))
    assert recording.ranks["pending_count"].tolist() == [0]
    assert recording.entries.empty


def test_old_dumps_without_members_of_groups_can_be_read(write):
    for rank in (0, 1):
        entry = {"profiling_name": "nccl:all_reduce", "seq_id": 4, "pg_id": 0, "state": "started"}
        write(f"_dump_{rank}", {"version": "1.5", "entries": [entry]})
    recording = quiet(write("_dump_1", {"version": "1.5", "entries": [entry]}).parent)
    assert recording.groups.loc[0, ["group", "members", "is_recorded"]].tolist() == [
        "0", "0,1", False,
    ]  # fmt: skip
    assert recording.entries["seq"].tolist() == [4, 4]
    what = "groups without a list of members: taken to be the ranks that used them"
    assert findings(recording)[what] == "assumed"


def test_groups_of_one_name_with_other_members_are_kept_apart(make_flight_dump, write):
    for rank in range(4):
        pair = (0, 1) if rank < 2 else (2, 3)
        write(f"_dump_{rank}", make_flight_dump(rank, {"1": pair}, [("1", "all_reduce 1")]))
    recording = quiet(write("_dump_0", make_flight_dump(0, {"1": (0, 1)}, [])).parent)
    assert sorted(recording.groups["group"]) == ["1 (0, 1)", "1 (2, 3)"]


def test_members_of_a_batch_have_the_state_of_the_batch(make_flight_dump, write):
    calls = [("0", "send 3 >1"), ("0", "recv 3 >1"), ("0", "coalesced 3 completed")]
    dump = make_flight_dump(0, GROUPS, calls)
    dump["entries"][2] |= {"p2p_seq_id": 3, "collective_seq_id": 0, "is_p2p": True}
    recording = quiet(write("_dump_0", dump))
    assert recording.entries["state"].tolist() == ["completed"] * 3
    dump["entries"].pop()
    recording = quiet(write("_dump_0", dump))
    assert recording.entries["state"].tolist() == ["completed"] * 2
    assert recording.quality["finding"].tolist()[-1] == "assumed"


def test_ranks_that_left_no_dump_are_counted(content, write):
    what = "members of groups that left no dump; where they are is not known: rank 1"
    assert findings(quiet(write("_dump_0", content)))[what] == "suspicious"


def test_an_archive_is_read_without_unpacking(content, tmp_path):
    raw = pickle.dumps(content, protocol=2)
    with tarfile.open(tmp_path / "hang.tar.gz", "w:gz") as archive:
        for name, data in (("d/_dump_0", raw), ("d/readme.txt", b"hello")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    recording = quiet(tmp_path / "hang.tar.gz")
    assert recording.ranks["source"].str.endswith("hang.tar.gz!d/_dump_0").all()
    assert len(recording.entries) == 2


def test_ranks_come_from_the_argument_the_name_or_the_groups(content, write):
    path = write("unnamed", content)
    recording = quiet(path)
    assert recording.ranks[["rank", "rank_source"]].to_numpy().tolist() == [[0, "groups"]]
    assert quiet(path, rank=0).ranks["rank_source"].tolist() == ["argument"]
    assert quiet(path, rank={"unn": 0}).ranks["rank"].tolist() == [0]
    # Misspelt, the key would leave the file with the rank that its name tells.
    with pytest.raises(LoadError, match=r"rank= names \['umm'\], which no file name has: unnamed"):
        quiet(path, rank={"unn": 0, "umm": 1})
    recording = quiet(write("_dump_5", content))
    assert recording.ranks["rank"].tolist() == [0]
    assert any("its groups only fit rank 0" in what for what in findings(recording))


def test_two_dumps_of_one_rank_are_refused_by_name(content, write):
    write("a/_dump_0", content)
    path = write("b/_dump_0", content)
    with pytest.raises(LoadError, match=r"two dumps are of rank 0: .*a.*and .*b/_dump_0"):
        quiet(path.parents[1])


def test_a_dump_of_nobody_is_refused(make_flight_dump, write):
    dump = make_flight_dump(0, {"0": (0, 1)}, [])
    with pytest.raises(LoadError, match="neither its name nor its groups state its rank"):
        quiet(write("unnamed", dump))
    with pytest.raises(LoadError, match="rank 9, which is not a member of all groups"):
        quiet(write("_dump_9", dump))


class Evil:
    def __init__(self, act):
        self.act = act

    def __reduce__(self):
        return self.act


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_that_a_pickle_asks_for_is_run(protocol, content, write, tmp_path):
    mark = tmp_path / "was-run"
    content["entries"].append(Evil((os.mkdir, (str(mark),))))
    path = write("_dump_0", pickle.dumps(content, protocol=protocol))
    with pytest.raises(LoadError, match=r"asks for .*; a dump holds plain values only"):
        quiet(path)
    assert not mark.exists()


def deep(opening, closing, times=200_000):
    return b"\x80\x02" + opening * times + b"K\x01" + closing * times + b"."


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "damaged or cut off"),
        (b"\x80\x02", "damaged or cut off"),
        (b"\x80\x02cos\nsystem\n.", "asks for GLOBAL"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "asks for STACK_GLOBAL"),
        (b"\x80\x02(S'ls'\nios\nsystem\n.", "asks for INST"),
        (b"\x80\x02P0\n.", "asks for PERSID"),
        (b"\x80\x02K\x01Q.", "asks for BINPERSID"),
        (b"\x80\x02\x82\x01.", "asks for EXT1"),
        (b"\x80\x02]2.", "asks for DUP"),
        (b"\x80\x02\x8b\xff\xff\xff\x7f" + b"\x01" * 64 + b".", "damaged or cut off"),
        (b"\x80\x02\x8a\x20" + b"\x01" * 32 + b".", "more than 64 bits"),
        (b"L" + b"9" * 100_000 + b"L\n.", "damaged or cut off"),
        (b"\x80\x02]r\xff\xff\xff\x7f.", "keeps a value at place"),
        (b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7fabc.", "damaged or cut off"),
        (deep(b"", b"\x85"), "tuples of more than 1,000 values"),
        (deep(b"(", b"t"), "nested more than 64 deep"),
        (deep(b"(", b"l"), "nested more than 64 deep"),
        (b"\x80\x02}K\x01" + b"q\x00h\x00\x86" * 60 + b"Ns.", "tuples of more than 1,000 values"),
        # What a run of values got before its place was taken by a light one weighs what it did.
        (
            b"\x80\x02(" + b"K\x01" * 900 + b"tq\x00" + b"h\x00h\x00" + b"K\x01q\x000" + b"\x86.",
            "tuples of more than 1,000 values",
        ),
        (b"\x80\x02(h\x00e.", "takes more values than there are"),
        (b"\x80\x02K\x01\x87.", "takes more values than there are"),
        (b"\x80\x02e.", "ends a list that never began"),
        (b"\x80\x02}]K\x01s.", "damaged or cut off"),
        (b"\x80\x02h\x07.", "damaged or cut off"),
        (b"\x80\x63K\x01.", "damaged or cut off"),
        (b"\x80\x02K\x01.trailing", "goes on for 8 bytes"),
    ],
)
def test_hostile_and_damaged_pickles_are_refused(raw, message):
    with pytest.raises(PickleError, match=message):
        plain_values(raw)


@pytest.mark.parametrize("limit", ["LARGEST_BYTES", "_MOST_OPCODES"])
def test_pickles_beyond_any_dump_are_refused(limit, content, monkeypatch):
    monkeypatch.setattr(
        f"workbench.load._files.safe_pickle.{limit}",
        100 if limit[0] == "_" else 1 << 9,
    )
    with pytest.raises(PickleError, match=r"larger than|more than 100 instructions"):
        plain_values(pickle.dumps(content, protocol=2))


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), 1 << 63) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(value=plain, protocol=st.integers(0, 5))
def test_plain_values_come_back_as_they_were(value, protocol):
    assert repr(plain_values(pickle.dumps(value, protocol=protocol))) == repr(value)


@given(
    value=st.recursive(
        st.integers(-(1 << 40), 1 << 40) | st.floats(allow_nan=False) | st.none(),
        lambda inner: st.lists(inner, max_size=5).map(tuple), max_leaves=40,
    ),
    copies=st.integers(1, 40), protocol=st.integers(0, 5),
)  # fmt: skip
def test_tuples_are_weighed_by_all_that_they_hold(value, copies, protocol):
    def weight(value):
        return 1 + sum(map(weight, value)) if isinstance(value, tuple) and value else 1

    held = [((value,) * copies, {"key": value})]
    raw = pickle.dumps(held, protocol=protocol)
    if weight(held[0]) <= 1000:
        assert plain_values(raw) == held
    elif weight(held[0][0]) > 1000:
        with pytest.raises(PickleError, match="tuples of more than"):
            plain_values(raw)


@given(raw=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw):
    with contextlib.suppress(PickleError):
        plain_values(b"\x80\x02" + raw)


@pytest.mark.long
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.sampled_from(["pg_config", "pg_status", "entries", "version"]), value=plain)
def test_a_dump_of_odd_values_is_read_or_refused(key, value, content, write):
    for odd in (value, [value], {"0": value}, [{**content["entries"][0], "input_sizes": value}]):
        try:
            recording = quiet(write("_dump_0", {**content, key: odd}))
        except LoadError:
            continue
        for table, frame in (
            (FLIGHT_RANKS, recording.ranks), (FLIGHT_GROUPS, recording.groups),
            (FLIGHT_STATUS, recording.status), (FLIGHT_ENTRIES, recording.entries),
        ):  # fmt: skip
            table.check(frame)


@pytest.mark.parametrize("field", ["record_id", "time_created_ns", "pg_id", "timeout_ms"])
def test_numbers_out_of_range_are_missing_not_wrong(field, content, write):
    content["entries"][0][field] = -5
    entries = quiet(write("_dump_0", content)).entries
    assert len(entries) == 2


def test_a_truncated_dump_in_a_folder_is_left_out_and_named(content, write):
    raw = pickle.dumps(content, protocol=2)
    write("_dump_1", raw[: len(raw) // 2])
    write("_dump_2", b"")
    write("notes.log", b"hello")
    write("nccl_trace_rank_9", pickle.dumps([1, 2]))
    recording = quiet(write("_dump_0", raw).parent)
    assert recording.ranks["rank"].tolist() == [0]
    found = recording.quality.set_index(recording.quality["source"].str.rsplit("/").str[-1])
    assert found.loc["_dump_1", "finding"] == "dropped"
    assert "damaged or cut off" in found.loc["_dump_1", "what"]
    assert "empty" in found.loc["_dump_2", "what"]
    assert found.loc["notes.log", "finding"] == "skipped by design"
    assert found.loc["nccl_trace_rank_9", "finding"] == "skipped by design"


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("_dump_0", b"\x80\x02]q\x00(K\x01", "the dump is damaged or cut off"),
        ("_dump_0", b"", "is empty"),
        ("_dump_0", pickle.dumps([1]), "it holds no dict"),
        ("_dump_0", pickle.dumps({"a": 1}), "it holds a dict with 'a'; a dump is a dict with"),
        ("fault_injection.log", b"Fault ranks: [9]", "neither a pickle nor JSON"),
        ("_dump_0.json", b'{"version": ', "is not valid JSON"),
        ("_dump_0.json", b'{"a":' * 100_000, "is not valid JSON"),
    ],
)
def test_a_file_that_is_no_dump_says_why(name, raw, message, write):
    with pytest.raises(LoadError, match=message):
        quiet(write(name, raw))


def test_a_folder_without_dumps_is_refused_with_reasons(write, tmp_path):
    write("run/a.log", b"hello")
    write("run/_dump_0", b"\x80\x02]q\x00(K\x01")
    with pytest.raises(LoadError, match=r"no flight-recorder dump that can be read(.|\n)*_dump_0"):
        quiet(tmp_path / "run")
    with pytest.raises(FileNotFoundError, match="no such file"):
        quiet(tmp_path / "nowhere")


def test_what_was_loaded_is_said_in_one_line(real_data, tmp_path):
    shutil.copytree(real_data("flight-recorder") / "lock_gil_1st", tmp_path / "run")
    (tmp_path / "run" / "_dump_14").unlink()
    text = repr(quiet(tmp_path / "run"))
    assert text.startswith("FlightRecording of 15 ranks: 142 operations, 142 of them pending")
    assert "members of groups that left no dump; where they are is not known: rank 14 (1)" in text


def folded(depth, width):
    """Make a list that holds one list ``width`` times, and so on; a pickle keeps each once."""
    inner = [1]
    for _ in range(depth):
        inner = [inner] * width
    return inner


@pytest.mark.parametrize(("depth", "width"), [(50, 2), (4, 250)])
@pytest.mark.parametrize("place", ["members", "frame", "number", "sizes", "another key"])
def test_lists_that_share_one_list_again_and_again_end_at_once(place, depth, width, content, write):
    value, entry = folded(depth, width), content["entries"][0]
    if place == "members":
        content["pg_config"]["0"]["ranks"] = [value]
    elif place == "another key":
        content[place] = value
    else:
        frame = [{"name": value, "filename": "train.py", "line": 1}]
        entry |= {"frame": {"frames": frame}, "number": {"record_id": value}}.get(
            place, {"input_sizes": value}
        )
    began = time.process_time()
    with pytest.raises(LoadError, match=r"_dump_0: the dump unfolds to more than 20,000,000 value"):
        quiet(write("_dump_0", content))
    assert time.process_time() - began < 2


def test_a_list_that_holds_itself_is_refused(content, write):
    content["further"] = itself = []
    itself.append(itself)
    with pytest.raises(LoadError, match="nested more than 64 deep, or contains itself"):
        quiet(write("_dump_0", content))


def test_copies_of_one_operation_are_refused_beyond_any_recorder(write):
    one = b"}(\x8c\x0eprofiling_name\x8c\x01au\x94"
    many = b"\x80\x04}(\x8c\x07version\x8c\x032.4\x8c\x07entries](" + one + b"h\x00" * 200_001
    began = time.process_time()
    with pytest.raises(LoadError, match="holds 200,002 operations, more than the 200,000"):
        quiet(write("_dump_0", many + b"eu."))
    assert time.process_time() - began < 5


@pytest.mark.parametrize("number", [10**400, -(10**4000), "9" * 5_000, 1e308, "1e999999"])
def test_numbers_of_any_length_are_read_as_missing_at_once(number, content, write):
    content["entries"][0]["record_id"] = number
    raw = json.dumps(content, default=list).encode()
    assert len(quiet(write("_dump_0.json", raw)).entries) == 2


def test_a_packed_dump_whose_sum_is_wrong_says_so(content, write):
    """One bit of a name can take all entries away, and leaves a sound document."""
    packed = bytearray(gzip.compress(json.dumps(content).encode()))
    packed[-8] ^= 1
    said = quiet(write("_dump_0.json.gz", bytes(packed))).quality
    assert said.loc[said["finding"] == "suspicious", "what"].str.contains("gzip|sum|damage").any()
