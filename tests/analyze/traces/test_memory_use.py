"""Memory over time, at the peak and in pieces, against a small allocator and brute force."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data import make
from data.make import MemoryAllocator
from tests.load.traces.memory.test_snapshot import ACTIONS, STACK, run, written
from workbench import analyze, load
from workbench.tables import (
    MEMORY_FRAGMENTATION,
    MEMORY_PEAK,
    MEMORY_TIMELINE,
)

MB = 1 << 20


@pytest.fixture
def recorded(tmp_path):
    return lambda allocator: load.memory(written(tmp_path, allocator.snapshot()))


def test_most_reserved_is_neither_most_allocated_nor_at_the_same_time(recorded):
    allocator = MemoryAllocator(1 << 30)
    first = [allocator.alloc(60 * MB, STACK) for _ in range(3)]
    for address in first:
        allocator.free(address)
    allocator.alloc(100 * MB, STACK)
    memory = recorded(allocator).memory
    peak = MEMORY_PEAK.check(analyze.memory_peak(memory))
    # Naive: nvidia-smi shows 280 MiB, and the last allocation looks like the cause.
    assert memory["reserved_bytes"].max() == 280 * MB
    assert peak["size_bytes"].sum() == 180 * MB
    assert peak["peak_event"].iloc[0] < memory["event"].iloc[-1]


def test_out_of_memory_while_enough_is_free_is_fragmentation(recorded):
    allocator = MemoryAllocator(100 * MB)
    kept = [allocator.alloc(20 * MB, STACK) for _ in range(5)]
    # Halves of the segments are used again, so none of them can be released.
    for address in kept:
        allocator.free(address)
        allocator.alloc(11 * MB, STACK)
    with pytest.raises(MemoryError):
        allocator.alloc(30 * MB, STACK)
    table = MEMORY_FRAGMENTATION.check(analyze.memory_fragmentation(recorded(allocator)))
    failure = table.iloc[0]
    assert failure["moment"] == "out of memory"
    assert failure["free_bytes"] == 45 * MB
    assert failure["largest_free_bytes"] == 9 * MB
    assert failure["cause"] == "fragmentation"


def test_memory_that_another_stream_still_uses_is_neither_free_nor_allocated(recorded):
    allocator = MemoryAllocator(100 * MB)
    allocator.alloc(40 * MB, STACK)
    pending = allocator.alloc(40 * MB, STACK)
    allocator.free(pending, is_pending=True)
    with pytest.raises(MemoryError):
        allocator.alloc(38 * MB, STACK)
    failure = analyze.memory_fragmentation(recorded(allocator)).iloc[0]
    assert (failure["allocated_bytes"], failure["pending_bytes"]) == (40 * MB, 40 * MB)
    assert failure["cause"] == "frees not completed"


def test_free_memory_of_another_stream_does_not_help(recorded):
    allocator = MemoryAllocator(100 * MB)
    keep = allocator.alloc(40 * MB, STACK, stream=1)
    allocator.alloc(12 * MB, STACK, stream=1)
    allocator.alloc(40 * MB, STACK)
    allocator.free(keep)
    allocator.alloc(2 * MB, STACK, stream=1)
    with pytest.raises(MemoryError):
        allocator.alloc(30 * MB, STACK)
    failure = analyze.memory_fragmentation(recorded(allocator)).iloc[0]
    assert failure["free_bytes"] >= 30 * MB
    assert failure["usable_free_bytes"] == 0
    assert failure["cause"] == "too much allocated"


@pytest.mark.long
@given(ACTIONS)
def test_what_is_free_is_what_the_allocator_has_free(tmp_path_factory, actions):
    allocator, _ = run(actions)
    if not allocator.acts:
        return
    path = written(tmp_path_factory.mktemp("memory"), allocator.snapshot())
    table = analyze.memory_fragmentation(load.memory(path))
    row = table[table["moment"] == "snapshot"].iloc[0]
    free = [b.size for s in allocator.segments for b in s.blocks if b.state == "inactive"]
    assert row["free_bytes"] == sum(free)
    assert row["largest_free_bytes"] == max(free, default=0)
    assert row["reserved_bytes"] == allocator.reserved_bytes
    assert row[["allocated_bytes", "pending_bytes", "free_bytes"]].sum() == row["reserved_bytes"]


@pytest.mark.long
@given(ACTIONS)
def test_the_division_at_a_failure_is_that_of_its_moment(tmp_path_factory, actions):
    """What came after is taken back: a later snapshot tells the same of an earlier failure."""
    allocator, _ = run(actions, limit_bytes=64 * MB)
    while True:
        try:
            allocator.alloc(9 * MB, STACK)
        except MemoryError:
            break
    folder = tmp_path_factory.mktemp("memory")
    then = analyze.memory_fragmentation(load.memory(written(folder, allocator.snapshot()))).iloc[-2]
    for address in [*allocator.held][::2]:
        allocator.free(address)
    try:
        allocator.alloc(12 * MB, STACK)
    except MemoryError:
        return
    table = analyze.memory_fragmentation(load.memory(written(folder, allocator.snapshot())))
    later = table[table["event"] == then["event"]].iloc[0]
    assert later["reserved_bytes"] == then["reserved_bytes"]
    # Sizes of blocks that are gone are only known rounded to 512 B, not as they were split.
    assert abs(later["free_bytes"] - then["free_bytes"]) <= MB * len(allocator.acts)
    assert later["allocated_bytes"] <= then["allocated_bytes"]


@given(ACTIONS, st.integers(1, 30), st.sampled_from(["stack", "phase", "size"]))
def test_the_peak_is_that_of_brute_force_and_no_cell_loses_it(tmp_path_factory, actions, cells, by):
    allocator, _ = run(actions)
    if not allocator.acts:
        return
    memory = load.memory(written(tmp_path_factory.mktemp("m"), allocator.snapshot())).memory
    alive, most = {}, 0
    for act in allocator.acts:
        if act["action"] == "alloc":
            alive[act["addr"]] = act["size"]
        elif act["action"] == "free_requested":
            alive.pop(act["addr"])
        most = max(most, sum(alive.values()))
    peak = analyze.memory_peak(memory, by=by)
    assert peak["size_bytes"].sum() == most
    assert not len(peak) or peak["size_share"].sum() == pytest.approx(1)
    timeline = MEMORY_TIMELINE.check(analyze.memory_timeline(memory, cell_count=cells))
    assert len(timeline) <= cells
    assert timeline["highest_allocated_bytes"].max() == most
    assert timeline["lowest_allocated_bytes"].min() == memory["allocated_bytes"].min()
    assert timeline["highest_reserved_bytes"].max() == memory["reserved_bytes"].max()


def test_options_that_mean_nothing_are_refused(recorded):
    allocator = MemoryAllocator(1 << 30)
    allocator.alloc(5 * MB, STACK)
    memory = recorded(allocator).memory
    with pytest.raises(ValueError, match="cell_count=0"):
        analyze.memory_timeline(memory, cell_count=0)
    with pytest.raises(ValueError, match="'stack', 'phase' or 'size'"):
        analyze.memory_peak(memory, by="tensor")


def test_diagnose_names_who_asked_who_held_and_what_to_do(tmp_path):
    path = make.memory_snapshot(tmp_path / "rank0.pickle", seed=1, limit_bytes=400 * MB)
    found = analyze.findings(load.bundle(path)).findings
    first = found[found["rule"] == "out_of_memory"].iloc[0]
    assert "by fragmentation" in first["finding"]
    assert "model.py:58" in first["where"]
    assert "held by optimizer" in first["where"]
    assert "expandable_segments:True" in first["next_step"]


def test_diagnose_does_not_advise_what_would_not_help(recorded):
    allocator = MemoryAllocator(100 * MB)
    allocator.alloc(90 * MB, STACK)
    with pytest.raises(MemoryError):
        allocator.alloc(30 * MB, STACK)
    found = analyze.findings(recorded(allocator)).findings
    first = found[found["rule"] == "out_of_memory"].iloc[0]
    assert "too much allocated" in first["finding"]
    assert "would not help" in first["next_step"]
    assert "stranded_memory" not in set(found["rule"])
