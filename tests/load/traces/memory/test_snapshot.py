"""Memory snapshots: what a small allocator wrote, of which the truth is known."""

import gzip
import importlib
import io
import os
import pickle
import re
import time
from contextlib import redirect_stdout

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data import make
from data.make import Frame, MemoryAllocator
from workbench import load
from workbench.errors import LoadError
from workbench.load._traces.memory import stacks
from workbench.load.kinds import kinds_of
from workbench.tables import MEMORY, MEMORY_BLOCKS

STACK = (Frame("empty", "torch/x.py", 1), Frame("main", "train.py", 7))
# What to do: allocate so many bytes on a stream, free the n-th, request its free, complete one.
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("alloc"), st.integers(1, 30 << 20), st.integers(0, 1)),
        st.tuples(st.sampled_from(["free", "request", "complete"]), st.integers(0, 99), st.just(0)),
    ),
    min_size=1, max_size=60,
)  # fmt: skip


def run(actions, max_entries=None, limit_bytes=256 << 20):
    """Carry actions out; give the allocator and what was held after each entry it recorded."""
    allocator, held, pending = MemoryAllocator(limit_bytes, max_entries), [], {}

    def note():
        state = sum(allocator.held.values()), sum(allocator.held.values()) + sum(pending.values())
        held.extend([(*state, allocator.reserved_bytes)] * (len(allocator.acts) - len(held)))

    for name, value, stream in actions:
        alive = [*allocator.held]
        try:
            if name == "alloc":
                allocator.alloc(value, STACK, stream)
            elif name == "complete" and pending:
                address = [*pending][value % len(pending)]
                allocator.complete(address)
                del pending[address]
            elif name == "request" and alive:
                address = alive[value % len(alive)]
                pending[address] = allocator.held[address]
                allocator.free(address, is_pending=True)
            elif alive:
                allocator.free(alive[value % len(alive)])
        except MemoryError:
            pass
        note()
    return allocator, held


def written(tmp_path, content, name="rank0.pickle", protocol=4):
    path = tmp_path / name
    path.write_bytes(pickle.dumps(content, protocol))
    return path


@pytest.fixture
def read(tmp_path):
    return lambda content, **more: load.memory(written(tmp_path, content, **more), rank=0)


@given(ACTIONS)
def test_what_is_held_after_each_action_is_what_the_allocator_held(tmp_path_factory, actions):
    allocator, held = run(actions)
    if not held:
        return
    path = written(tmp_path_factory.mktemp("memory"), allocator.snapshot())
    memory = MEMORY.check(load.memory(path).memory)
    # One call may record several entries: the last of each call is when it has settled.
    times = {act["time_us"] * 1000: at for at, act in enumerate(allocator.acts)}
    rows = memory[memory["time_ns"].map(times).notna()]
    settled = [
        n for n, act in enumerate(allocator.acts)
        if act["action"] in ("alloc", "oom", "free_completed")
    ]  # fmt: skip
    got = rows[["allocated_bytes", "active_bytes", "reserved_bytes"]].to_numpy(dtype=np.int64)
    assert [tuple(got[n]) for n in settled] == [held[n] for n in settled]


@pytest.mark.long
@given(ACTIONS, st.integers(1, 40))
def test_a_recorder_that_lost_the_beginning_tells_the_same_of_the_rest(
    tmp_path_factory, actions, kept
):
    allocator, _ = run(actions)
    if not allocator.acts:
        return
    folder = tmp_path_factory.mktemp("memory")
    whole = load.memory(written(folder, allocator.snapshot(), "rank0.pickle")).memory
    allocator.max_entries = kept
    late = load.memory(written(folder, allocator.snapshot(), "rank1.pickle")).memory
    known = ["action", "allocated_bytes", "active_bytes", "reserved_bytes", "size_bytes"]
    rows = late[~late["is_before_trace"]]
    before = whole.tail(len(rows))
    assert (rows[known].astype(str).to_numpy() == before[known].astype(str).to_numpy()).all()
    # At every action the held allocations sum to what is allocated.
    for event, allocated in zip(late["event"], late["allocated_bytes"], strict=True):
        ends = late["freed_event"].fillna(1 << 60)
        alive = late[(late["action"] == "alloc") & (late["event"] <= event) & (ends > event)]
        is_first = event < late["is_before_trace"].sum()
        assert is_first or alive["size_bytes"].sum() == allocated


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol_is_read_and_torch_counts_the_same(read, protocol):
    viewer = pytest.importorskip("torch.cuda._memory_viz")
    allocator, _ = run([("alloc", n * 700_000 + 13, 0) for n in range(1, 9)] + [("free", 3, 0)])
    content = allocator.snapshot()
    blocks = MEMORY_BLOCKS.check(read(content, protocol=protocol).blocks)
    said = viewer.segsum(content)
    used = blocks[blocks["state"] == "active_allocated"]
    total = blocks.drop_duplicates("segment_address")["segment_bytes"].sum()
    assert f"total_allocated: {viewer.Bytes(int(used['requested_bytes'].sum()))}" in said
    assert f"total_reserved: {viewer.Bytes(int(total))}" in said
    assert re.search(rf"segments: {blocks['segment_address'].nunique()}\b", said)
    with redirect_stdout(io.StringIO()):
        assert "8 entries" in viewer.trace(content) or "entries" in viewer.trace(content)


def test_memory_that_was_there_before_is_marked_and_keeps_its_stack(read):
    allocator = MemoryAllocator(1 << 30, max_entries=1)
    allocator.alloc(5 << 20, STACK)
    allocator.free(allocator.alloc(3 << 20, STACK))
    memory = read(allocator.snapshot()).memory
    before = memory[memory["is_before_trace"] & (memory["action"] == "alloc")]
    assert sorted(before["size_bytes"]) == [3 << 20, 5 << 20]
    assert before["stack"].notna().sum() == 1
    # The free was requested before the recording, its completion was recorded.
    assert memory["allocated_bytes"].tolist()[-1] == 5 << 20
    assert memory["action"].tolist()[-2:] == ["free_requested", "free_completed"]


def test_a_requested_free_leaves_what_is_allocated_and_stays_active(read):
    allocator = MemoryAllocator(1 << 30)
    allocator.free(allocator.alloc(3 << 20, STACK), is_pending=True)
    last = read(allocator.snapshot()).memory.iloc[-1]
    assert (last["allocated_bytes"], last["active_bytes"]) == (0, 3 << 20)


def test_a_snapshot_without_history_says_so_and_still_tells_the_end(read):
    allocator, _ = run([("alloc", 5 << 20, 0)])
    recording = read(allocator.snapshot(device_traces=[[]]))
    assert recording.memory["allocated_bytes"].iloc[-1] == 5 << 20
    assert recording.quality["what"].str.contains("no history of actions").any()


def test_old_snapshots_without_times_addresses_of_blocks_and_devices_are_read(read):
    allocator, _ = run([("alloc", 5 << 20, 0), ("alloc", 6 << 20, 0), ("free", 0, 0)])
    content = allocator.snapshot()
    for act in content["device_traces"][0]:
        del act["time_us"]
    for segment in content["segments"]:
        for name in ("device", "segment_pool_id", "is_expandable"):
            del segment[name]
        for block in segment["blocks"]:
            real = block.pop("requested_size")
            block["history"] = [{"real_size": real, "frames": block.pop("frames")}]
            del block["address"]
    del content["external_annotations"], content["allocator_settings"]
    memory = read(content).memory
    assert memory["time_ns"].isna().all()
    assert memory["allocated_bytes"].iloc[-1] == 6 << 20


def test_an_address_above_what_a_float_holds_stays_exact_beside_a_missing_one(read):
    allocator = MemoryAllocator(1 << 30)
    allocator.alloc(5 << 20)
    content = allocator.snapshot()
    acts = content["device_traces"][0]
    acts[-1] |= {"addr": (1 << 62) + 1}
    acts.append({"action": "oom", "size": 1, "device_free": 2, "frames": []})
    assert (1 << 62) + 1 in read(content).memory["address"].dropna().tolist()


def test_steps_come_from_the_marks_of_the_profiler(tmp_path):
    path = make.memory_snapshot(tmp_path / "rank0.pickle", seed=1, steps=3)
    recording = load.memory(path)
    assert recording.is_synthetic
    assert sorted(recording.memory["step"].dropna().unique()) == [0, 1, 2]
    assert {"parameters", "forward", "backward", "optimizer"} <= set(recording.memory["phase"])


def test_ranks_come_from_names_and_a_folder_is_one_job(tmp_path):
    for rank in (0, 1):
        make.memory_snapshot(tmp_path / f"rank{rank}_snapshot.pickle", seed=rank)
    recording = load.memory(tmp_path)
    assert recording.memory["rank"].unique().tolist() == [0, 1]
    assert kinds_of(tmp_path) == {"memory snapshots"}


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/never",)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_pickle_that_asks_for_a_function_is_refused_and_not_run(tmp_path, monkeypatch, protocol):
    ran = []
    monkeypatch.setattr(os, "system", ran.append)
    allocator, _ = run([("alloc", 5 << 20, 0)])
    content = allocator.snapshot(more=Evil) | {"allocator_settings": Evil()}
    with pytest.raises(LoadError, match=r"a dump holds plain values only|asks for"):
        load.memory(written(tmp_path, content, protocol=protocol))
    assert not ran


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"segments": 3, "device_traces": [], "total_size": 0, "blocks": 0}, "no list of segments"),
        ({"segments": [], "device_traces": [], "total_size": 0}, "no segment and no action"),
        ({"some": "dict"}, "holds no memory snapshot and no profile"),
    ],
)
def test_what_is_no_snapshot_says_why(tmp_path, content, message):
    with pytest.raises(LoadError, match=message):
        load.memory(written(tmp_path, content))


def test_a_snapshot_that_was_cut_is_refused_and_a_packed_one_is_read(tmp_path):
    path = make.memory_snapshot(tmp_path / "rank0.pickle", seed=1)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LoadError, match="cut off"):
        load.memory(path)
    packed = tmp_path / "rank3.pickle.gz"
    packed.write_bytes(gzip.compress(whole))
    assert load.memory(packed).memory["rank"].unique().tolist() == [3]
    damaged = bytearray(gzip.compress(whole))
    damaged[-8] ^= 1
    packed.write_bytes(damaged)
    assert "suspicious" in set(load.memory(packed).quality["finding"])


@pytest.mark.long
@given(st.recursive(
    st.one_of(st.integers(-9, 1 << 70), st.text(max_size=3), st.none(), st.floats()),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["action", "addr", "size", "blocks", "state", "frames",
                                       "address", "total_size", "name", "line"]), inner, max_size=4),
    max_leaves=12,
))  # fmt: skip
def test_any_plain_content_gives_tables_or_our_error(tmp_path_factory, inner):
    act = {"action": "alloc", "addr": inner, "size": 5, "frames": inner}
    content = {
        "segments": [inner, {"address": 7, "total_size": 9, "blocks": [inner], "active_size": 0}],
        "device_traces": [[act, inner, act | {"addr": 3}], inner], "external_annotations": inner,
    }  # fmt: skip
    path = written(tmp_path_factory.mktemp("odd"), content)
    said = ""
    try:
        MEMORY.check(load.memory(path).memory)
    except LoadError as error:
        said = str(error)
    assert not re.search("KeyError|TypeError|AttributeError", said)


def many_actions(count):
    """Give a snapshot of actions that share their frames, as torch writes it: lists are not."""
    frames = [{"filename": f"/torch/nn/modules/m{n}.py", "line": n, "name": "f"} for n in range(40)]
    block = {"address": 1, "size": 512, "state": "inactive"}
    segment = {"device": 0, "address": 1, "total_size": 512, "segment_type": "large",
               "segment_pool_id": (0, 0), "blocks": [block]}  # fmt: skip
    acts = [
        {"action": ("alloc", "free_requested", "free_completed")[n % 3], "addr": 512 * (n // 3),
         "size": 512, "stream": 0, "time_us": 1_700_000_000_000_000 + n, "frames": [*frames]}
        for n in range(count)
    ]  # fmt: skip
    return {"segments": [segment], "device_traces": [acts], "external_annotations": []}


@pytest.mark.long
def test_a_snapshot_costs_at_most_ten_times_what_its_pickle_costs(tmp_path):
    path = written(tmp_path, many_actions(24_000))

    def cpu_s(action):
        began = time.process_time()
        action()
        return time.process_time() - began

    loaded, plain = [], []
    for _ in range(4):
        loaded.append(cpu_s(lambda: load.memory(path, rank=0)))
        plain.append(cpu_s(lambda: pickle.loads(path.read_bytes())))  # noqa: S301 - written above
    assert min(loaded) < 10 * min(plain)


FRAMES = st.sampled_from(
    ["f (a.py:1)", "forward (torch/nn/modules/x.py:3)", "backward (y.py:9)", "step (torch/optim/a.py:1)",
     "PyEval_Frame", "ncclAllReduce", "main", "_start", "torch::autograd::Engine::run"]
)  # fmt: skip


@given(st.lists(FRAMES, max_size=14))
def test_a_stack_reads_as_its_frames_read_one_by_one(frames):
    """The definition, without anything kept between stacks."""
    shown = [frame for frame in frames if not stacks._NOISE.search(frame)] or frames
    shown = [frame for frame in shown if ".py:" in frame] or shown
    phase = None
    for frame in reversed(frames):
        phase = next((name for name, words in stacks._PHASES if words.search(frame)), phase)
    if phase == "forward" and any(stacks._BACKWARD.search(frame) for frame in frames):
        phase = "recompute"
    expected = (" < ".join(shown[:8]) or None, phase)
    assert stacks.stack_of(frames) == expected
    of_snapshot, lists = stacks.StackTexts(), [[{"name": frame} for frame in frames]] * 2
    assert [of_snapshot.of(frames) for frames in lists] == [expected] * 2


def test_no_module_of_torch_is_needed():
    assert "torch" not in vars(importlib.import_module("workbench.load._traces.memory.snapshot"))


@pytest.mark.parametrize(
    ("told", "devices"),
    [
        ({"trace_alloc_overflowed": [True, False, True]}, "device 0, 2"),
        ({"trace_alloc_overflowed": True}, None),
        ({"allocator_settings": {"trace_alloc_overflowed": True}}, None),
        ({"trace_alloc_overflowed": [False]}, ""),
        ({"allocator_settings": {"trace_alloc_overflowed": False}}, ""),
    ],
)
def test_a_recorder_that_was_full_is_told_by_device(read, told, devices):
    allocator, _ = run([("alloc", 1 << 20, 0)])
    content = {**allocator.snapshot(), **told}
    quality = read(content).quality
    rows = quality[quality["what"].str.startswith("history that begins late")]
    assert [row if isinstance(row, str) else None for row in rows["where"]] == (
        [] if devices == "" else [devices]
    )
    assert set(rows["finding"]) <= {"truncated"}
