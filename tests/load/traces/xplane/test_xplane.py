"""XPlane and the JSON made of it: equal to what protobuf itself decodes."""

import gzip
import json
import re
from collections import Counter
from functools import reduce
from operator import or_

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.load.traces.xplane.xplane_files import (
    REAL,
    add_line,
    as_json,
    gpu_space,
    names_of,
    real_space,
    space_class,
    stat_id,
    tpu_space,
)
from workbench import analyze, datasets, load
from workbench.errors import LoadError
from workbench.load._traces.xplane.wire import fields
from workbench.load.kinds import kinds_of
from workbench.tables import EVENTS


def loaded(path, **options):
    return load.traces(path, progress=False, **options)


def stored(tmp_path, space, name="a.xplane.pb"):
    path = tmp_path / name
    path.write_bytes(space.SerializeToString())
    return path


def told(trace, finding):
    rows = trace.quality[trace.quality["finding"] == finding]
    return dict(zip(rows["what"], rows["count"], strict=True))


def test_every_event_is_the_one_that_protobuf_decodes():
    space = real_space()
    base = next(
        stat.uint64_value
        for plane in space.planes
        for stat in plane.stats
        if {e.key: e.value.name for e in plane.stat_metadata}[stat.metadata_id]
        == "profile_start_time"
    )
    plain = [
        (
            base + line.timestamp_ns + event.offset_ps // 1000,
            (event.offset_ps + event.duration_ps) // 1000 - event.offset_ps // 1000,
            names_of(plane)[event.metadata_id],
            plane.name.startswith("/device:"),
        )
        for plane in space.planes
        for line in plane.lines
        for event in line.events
    ]
    events = loaded(datasets.path("xplane") / REAL).events
    is_work = events["kind"].notna()
    columns = [events["start_ns"], events["dur_ns"], events["name"].astype(str), is_work]
    ours = [*zip(events["rank"], *columns, strict=True)]
    assert sorted(row for _, *row in ours if row[-1]) == sorted([*row] for row in plain if row[-1])
    # The host works for all GPUs of its process, but each launch is for one.
    on_host = Counter(row for row in plain if not row[-1])
    of_ranks = [Counter((*row,) for at, *row in ours if at == rank and not row[-1])
                for rank in range(8)]  # fmt: skip
    assert reduce(or_, of_ranks) == on_host
    launches = sum((on_host - of_rank).total() for of_rank in of_ranks)
    assert launches == 7 * events["launch"].nunique()


def test_devices_streams_and_launches_of_the_real_profile():
    space, events = real_space(), loaded(datasets.path("xplane") / REAL).events
    work = events[events["kind"].notna()]
    by_plain = {
        (int(plane.name.rsplit(":")[-1]), int(line.name.split("#")[1].split("(")[0])): len(
            line.events
        )
        for plane in space.planes
        if plane.name.startswith("/device:GPU")
        for line in plane.lines
    }
    assert work.groupby(["device", "stream"]).size().to_dict() == by_plain
    assert work["launch"].notna().all()
    calls = events.loc[work["launch"].astype("int64")]
    assert (calls["correlation"].to_numpy() == work["correlation"].to_numpy()).all()
    assert (calls["start_ns"].to_numpy() <= work["start_ns"].to_numpy()).all()


def test_busy_time_of_the_real_profile_is_that_of_its_nanoseconds():
    covered = {}
    for plane in real_space().planes:
        if plane.name.startswith("/device:GPU"):
            spans = [
                (line.timestamp_ns + e.offset_ps // 1000,
                 line.timestamp_ns + (e.offset_ps + e.duration_ps) // 1000)
                for line in plane.lines for e in line.events
            ]  # fmt: skip
            first, last = min(s for s, _ in spans), max(e for _, e in spans)
            busy = np.zeros(last - first, bool)
            for start, end in spans:
                busy[start - first : end - first] = True
            covered[int(plane.name.rsplit(":")[-1])] = int(busy.sum())
    events = loaded(datasets.path("xplane") / REAL).events
    for device, busy in covered.items():
        table = analyze.time_breakdown(events[events["device"] == device])
        assert table["busy_ns"].tolist() == [busy]


def test_a_gpu_profile_says_what_was_written(tmp_path):
    path = stored(tmp_path, gpu_space())
    trace = loaded(path, args=("hlo_op", "flops"))
    events = trace.events.set_index("name")
    gemm = events.loc["gemm"]
    # A picosecond clock: rounded down at both ends, so that what touches still touches.
    assert (gemm["start_ns"], gemm["dur_ns"]) == (100 + 2000, 1000)
    assert (gemm["hlo_op"], gemm["flops"], gemm["device"], gemm["stream"]) == (
        "dot.1",
        2.5e9,
        3,
        17,
    )
    assert (gemm["step"], gemm["kind"]) == (12, "compute")
    reduce, copy = events.loc["ncclDevKernel_AllReduce_Sum_f32"], events.loc["MemcpyH2D"]
    assert (reduce["kind"], copy["kind"], copy["size_bytes"]) == ("communication", "memory", 4096)
    assert trace.events.loc[int(copy["launch"]), "name"] == "cuMemcpyHtoDAsync"
    assert trace.steps[["step", "dur_ns"]].to_numpy().tolist() == [[12, 3000]]
    assert events.loc["$train.py:3 step"]["category"] == "python_function"
    assert any("XLA Ops" in what for what in told(trace, "skipped by design"))
    assert kinds_of(path) == {"traces"}


def test_a_tpu_profile_counts_each_operation_once(tmp_path):
    trace = loaded(stored(tmp_path, tpu_space()))
    work = trace.events[trace.events["kind"].notna()].set_index("name")
    # By the names of GPU kernels all would be compute, and the name scope would double them.
    assert work["kind"].astype(str).to_dict() == {
        "fusion.3": "compute", "all-reduce.7": "communication", "copy.1": "memory",
    }  # fmt: skip
    assert analyze.time_breakdown(trace.events)["busy_ns"].tolist() == [9000]
    assert trace.steps[["step", "dur_ns"]].to_numpy().tolist() == [[4, 9000]]
    assert work["step"].tolist() == [4, 4, 4]


def operations(tmp_path, **lines):
    """Make one TPU with lines of operations: name, start and duration in us."""
    space = space_class()()
    tpu = space.planes.add(id=1, name="/device:TPU:0")
    for line, ops in lines.items():
        rows = [(name, start * 10**6, dur * 10**6, {}) for name, start, dur in ops]
        add_line(tpu, line.replace("_", " "), rows)
    return stored(tmp_path, space), space


def test_copies_in_flight_hide_behind_compute_and_are_none(tmp_path):
    """By the union of both lines the TPU would compute all of the time."""
    steps = range(0, 5000, 1000)
    path, space = operations(
        tmp_path,
        Async_XLA_Ops=[("async-copy", at, 900) for at in steps],
        XLA_Ops=[row for at in steps for row in (
            ("copy-start.1", at, 1), ("copy-done.1", at + 1, 799), ("fusion.1", at + 800, 200),
        )],
    )  # fmt: skip
    busy = {}
    for line in space.planes[0].lines:
        names = names_of(space.planes[0])
        for event in line.events:
            kind = "compute" if names[event.metadata_id].startswith("fusion") else "memory"
            start = event.offset_ps // 10**6
            busy.setdefault(kind, set()).update(range(start, start + event.duration_ps // 10**6))
    table = analyze.time_breakdown(loaded(path).events).iloc[0]
    exposed = busy["memory"] - busy["compute"]
    assert (table["compute_ns"], table["memory_ns"], table["exposed_memory_ns"]) == (
        len(busy["compute"]) * 1000, len(busy["memory"]) * 1000, len(exposed) * 1000,
    )  # fmt: skip
    found = analyze.findings(load.bundle(path)).findings
    assert found["rule"].tolist()[0] == "exposed_copies"
    assert found["time_share"].tolist()[0] == 0.8


def test_work_in_flight_computes_nothing(tmp_path):
    path, _ = operations(
        tmp_path, Async_XLA_Ops=[("fusion.9", 0, 80), ("all-gather-start.2", 10, 50)],
        XLA_Ops=[("fusion.9", 100, 10)],
    )  # fmt: skip
    events = loaded(path).events
    assert events[["name", "kind"]].astype(str).to_numpy().tolist() == [
        ["fusion.9 (in flight)", "other"], ["all-gather-start.2", "communication"],
        ["fusion.9", "compute"],
    ]  # fmt: skip
    assert analyze.time_breakdown(events)["compute_ns"].tolist() == [10_000]


def test_a_loop_is_the_time_of_its_operations(tmp_path):
    """The loop spans what stands on the same line, and would hide its collective."""
    path, _ = operations(
        tmp_path, XLA_Ops=[("while.5", 0, 100), ("dot.1", 10, 30), ("all-reduce.1", 40, 60)]
    )
    table = analyze.time_breakdown(loaded(path).events).iloc[0]
    assert (table["compute_ns"], table["exposed_communication_ns"]) == (30_000, 60_000)


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("%copy-done.4 = f32[8,128]{1,0:T(8,128)} copy-done((f32[8]{0}, u32[]{:S(2)}) %copy-start)",
         "copy-done.4", "memory"),
        ("%fusion.3 = (bf16[8]{0}, f32[]) fusion(bf16[8]{0} %all-reduce.2, f32[] %flash_attention)",
         "fusion.3", "compute"),
        ("%psum.2 = f32[4]{0} all-reduce(f32[4]{0} %dot.1), channel_id=1", "all-reduce.psum.2",
         "communication"),
        ("%dot.7", "dot.7", "compute"),
        ("%all-gather-start.1.clone.2", "all-gather-start.1.clone.2", "communication"),
    ],
)  # fmt: skip
def test_an_instruction_in_full_is_of_its_own_kind(tmp_path, text, name, kind):
    """Its operands have kinds of their own."""
    path, _ = operations(tmp_path, XLA_Ops=[(text, 0, 5)])
    row = loaded(path).events.iloc[0]
    assert (row["name"], row["kind"]) == (name, kind)


def test_figures_that_a_kind_of_events_has_are_those_of_its_events(tmp_path):
    space = tpu_space()
    plane = space.planes[0]
    stat = plane.event_metadata[0].value.stats.add(metadata_id=stat_id(plane, "flops"))
    stat.uint64_value = 7_000
    events = loaded(stored(tmp_path, space), args=("flops",)).events.set_index("name")
    assert events.loc["fusion.3", "flops"] == 7_000
    assert pd.isna(events.loc["copy.1", "flops"])


@pytest.mark.parametrize("space", [gpu_space, tpu_space])
def test_the_json_form_holds_the_same_work(tmp_path, space):
    path = tmp_path / "host.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(as_json(space())).encode()))
    ours, whole = loaded(path), loaded(stored(tmp_path, space()))
    columns = ["start_ns", "dur_ns", "name", "category", "kind", "step", "device", "launch"]
    pd.testing.assert_frame_equal(
        ours.events[columns].astype(str), whole.events[columns].astype(str)
    )
    assert kinds_of(path) == {"traces"}
    assert len(load.rank_files(path)) == 1


def test_a_folder_of_jax_is_read_once(tmp_path):
    stored(tmp_path, gpu_space(), "host.xplane.pb")
    (tmp_path / "host.trace.json").write_text(json.dumps(as_json(gpu_space())))
    trace = loaded(tmp_path)
    assert trace.ranks["format"].tolist() == ["xplane"]
    assert any("JSON form" in what for what in told(trace, "skipped by design"))


def test_no_finding_takes_more_than_all_of_the_time_of_eight_devices():
    bundle = load.bundle(datasets.path("xplane") / REAL)
    rows = analyze.findings(bundle).findings
    titles = " ".join(rows["finding"].astype(str))
    assert all(int(share) <= 100 for share in re.findall(r"(\d+) %", titles))


# Hostile files.


@pytest.mark.parametrize("share", [0.02, 0.3, 0.7, 0.999])
def test_a_truncated_profile_is_refused(tmp_path, share):
    whole = (datasets.path("xplane") / REAL).read_bytes()
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(LoadError, match=r"a\.xplane\.pb"):
        loaded(path)


NUMBERS = st.sampled_from([0, 5, 10**9, -1, 1 << 40, (1 << 63) - 1, -(1 << 63)])


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=6), NUMBERS)
def test_times_beyond_reason_are_rows_or_findings(tmp_path_factory, rows, timestamp_ns):
    space = gpu_space()
    events = [("odd", offset, dur, {"correlation_id": c}) for offset, dur, c in rows]
    add_line(space.planes[0], "Stream #30(Kernel)", events, timestamp_ns=timestamp_ns)
    trace = loaded(stored(tmp_path_factory.mktemp("odd"), space))
    EVENTS.check(trace.events)
    assert (trace.events["dur_ns"] >= 0).all()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=8))
def test_fields_of_any_bytes_lie_inside_their_message(messages):
    data = np.frombuffer(b"".join(messages), np.uint8)
    end = np.cumsum([len(message) for message in messages], dtype=np.int64)
    begin = end - [len(message) for message in messages] if messages else end
    decoded = fields(data, np.asarray(begin, np.int64), end)
    assert (decoded.begin <= decoded.end).all()
    assert (decoded.begin >= np.asarray(begin)[decoded.message]).all()
    assert (decoded.end <= end[decoded.message]).all()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1 << 60), st.integers(0, 1 << 60), st.integers(0, 9)),
                max_size=20))  # fmt: skip
def test_numbers_are_those_that_protobuf_wrote(rows):
    space = space_class()()
    line = space.planes.add(name="p").lines.add()
    for offset, dur, count in rows:
        event = line.events.add(duration_ps=dur)
        event.offset_ps = offset
        for number in range(count):
            event.stats.add(metadata_id=number).int64_value = -number
    raw = [event.SerializeToString() for event in line.events]
    data = np.frombuffer(b"".join(raw), np.uint8)
    end = np.cumsum([len(event) for event in raw], dtype=np.int64)
    begin = np.asarray(end - [len(event) for event in raw] if raw else end, np.int64)
    decoded = fields(data, begin, end)
    assert decoded.damaged_count == 0
    for number, values in ((2, [row[0] for row in rows]), (3, [row[1] for row in rows])):
        of_number = decoded.of(number)
        full = np.zeros(len(raw), np.int64)
        full[of_number.message] = of_number.value
        assert full.tolist() == values
    assert len(decoded.of(4).message) == sum(count for *_, count in rows)


def test_a_name_that_no_encoding_has_is_repaired_and_told(tmp_path):
    document = json.dumps(as_json(gpu_space())).replace('"gemm"', '"gemm\\ud800"')
    (tmp_path / "host.trace.json").write_text(document)
    trace = loaded(tmp_path / "host.trace.json")
    assert "gemm\ufffd" in set(trace.events["name"])
    assert "repaired" in set(trace.quality["finding"])
