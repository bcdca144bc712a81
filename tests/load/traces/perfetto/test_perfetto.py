"""Perfetto traces: slices, clocks and interned texts as an independent encoder wrote them."""

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.load.traces.perfetto import perfetto_files as pf
from workbench import analyze, load
from workbench.errors import LoadError
from workbench.load.kinds import kinds_of


def loaded(path, **options):
    return load.traces(path, progress=False, **options)


def told(trace, finding):
    rows = trace.quality[trace.quality["finding"] == finding]
    return dict(zip(rows["what"], rows["count"], strict=True))


@pytest.fixture
def write(tmp_path):
    def written(*parts, name="a.pftrace"):
        path = tmp_path / name
        path.write_bytes(b"".join(parts))
        return path

    return written


def test_slices_of_rocm_are_gpu_work_with_their_launches(write):
    path = write(pf.rocm())
    trace = loaded(path)
    events = trace.events.set_index("name")
    assert kinds_of(path) == {"traces"}
    assert trace.ranks[["format", "clock"]].values.tolist() == [["perfetto", "own"]] * 2
    kernel, copy = events.loc["gemm(float*)"], events.loc["Memcpy HtoD"]
    columns = ["category", "start_ns", "dur_ns", "device", "stream", "process"]
    assert kernel[columns].tolist() == ["kernel", 2000, 500, 2, 3, "400"]
    assert copy[columns].tolist() == ["gpu_memcpy", 1000, 200, 1, 5, "400"]
    assert copy["size_bytes"] == 4096
    launches = trace.events.loc[[kernel["launch"], copy["launch"]]]
    assert launches["name"].tolist() == ["hipLaunchKernel", "hipMemcpyAsync"]
    assert launches["thread"].tolist() == ["77", "77"]
    assert trace.steps["step"].tolist() == [4, 4]
    assert "GPU rows numbered as agents of the node, of which CPUs are some" in told(trace, "noted")


def test_a_folder_of_rocm_systems_profiler_is_read(tmp_path):
    """It puts its name before the domains, and ends file names as schemas end."""
    for pid in (70, 71):
        span = pf.span(10, 20, "rocm_kernel_dispatch", "k", track=1)
        (tmp_path / f"perfetto-trace-{pid}.proto").write_bytes(pf.track(1, pid=pid) + span)
    trace = loaded(tmp_path)
    assert trace.events["kind"].tolist() == ["compute"] * 2
    assert trace.ranks["rank_source"].tolist() == ["assumed"] * 2


def test_nested_slices_end_innermost_first(write):
    trace = loaded(
        write(
            pf.event(pf.BEGIN, 10, name="outer", category="cpu_op"),
            pf.event(pf.BEGIN, 20, name="inner", category="cpu_op"),
            pf.event(pf.END, 30),
            pf.event(pf.END, 50),
            pf.event(pf.INSTANT, 60, name="mark", category="user_annotation"),
        )
    )
    rows = trace.events[["name", "start_ns", "dur_ns"]].values.tolist()
    assert rows == [["outer", 10, 40], ["inner", 20, 10], ["mark", 60, 0]]


def test_begins_and_ends_without_the_other_are_dropped_and_told(write):
    trace = loaded(
        write(
            pf.event(pf.END, 5),
            pf.span(10, 20, "cpu_op", "op"),
            pf.event(pf.BEGIN, 30, name="x"),
            pf.event(pf.COUNTER, 40),
        )
    )
    assert told(trace, "dropped") == {
        "ends of slices without a begin": 1, "begins of slices without an end": 1,
        "counter events, which have no place here": 1,
    }  # fmt: skip


def test_texts_by_number_are_those_of_their_writer_until_it_clears_them(write):
    def interned(name, sequence):
        texts = [(1, pf.message((1, 1), (2, "cpu_op"))), (2, pf.message((1, 1), (2, name)))]
        return (12, pf.message(*texts))

    def by_number(time, *more, sequence):
        begin = pf.message((9, pf.BEGIN), (11, sequence), (3, 1), (10, 1))
        return pf.packet((8, time), (11, begin), *more, sequence=sequence) + pf.event(
            pf.END, time + 1, track=sequence, sequence=sequence
        )

    trace = loaded(
        write(
            by_number(10, interned("first", 1), sequence=1),
            by_number(20, interned("second", 2), sequence=2),
            by_number(30, sequence=1),
            by_number(40, (13, 1), sequence=2),
        )
    )
    assert trace.events["name"].tolist() == ["first", "second", "first", "(name lost)"]
    assert trace.events["category"].tolist() == ["cpu_op"] * 3 + ["uncategorised"]
    finding = "events whose name was lost with an earlier packet"
    assert told(trace, "suspicious")[finding] == 1


EPOCH = 1_750_000_000_000_000_000


def test_times_are_wall_time_where_a_snapshot_tells_it(write):
    trace = loaded(
        write(pf.snapshot((1, EPOCH), (6, 1_000)), pf.span(1_500, 1_700, "cpu_op", "op"))
    )
    assert trace.ranks["clock"].tolist() == ["epoch"]
    assert trace.events["start_ns"].tolist() == [EPOCH + 500]


def test_an_own_clock_counts_up_in_its_unit(write):
    """Read as times of the trace's clock, the stamps of its packets would lie at its beginning."""
    trace = loaded(
        write(
            pf.snapshot((6, 5_000_000), (64, 5_000, 1, 1_000)),
            pf.packet((59, pf.message((58, 64)))),
            pf.span(3, 2, "cpu_op", "a"),
            pf.span(10, 1, "cpu_op", "b"),
        )
    )
    assert trace.events[["start_ns", "dur_ns"]].values.tolist() == [
        [5_003_000, 2_000], [5_015_000, 1_000],
    ]  # fmt: skip


def test_packed_packets_are_read(write):
    inner = pf.span(10, 20, "cpu_op", "op")
    trace = loaded(write(pf.track(1, pid=4, tid=4), pf.packet((50, zlib.compress(inner)))))
    assert trace.events["dur_ns"].tolist() == [10]
    assert trace.events["thread"].tolist() == ["4"]


def test_each_process_with_gpu_work_is_a_rank(write):
    idle = pf.track(50, pid=9, tid=9) + pf.span(1, 2, "cpu_op", "op", track=50)
    trace = loaded(write(pf.rocm(), pf.rocm(offset=10, pid=500), idle))
    assert trace.ranks["rank"].tolist() == [0, 1, 2, 3]
    processes = trace.ranks["source"].str.split("!").str[1:].str.join(", ")
    assert processes.tolist() == [
        f"process {pid}, GPU {gpu}" for pid in (400, 500) for gpu in (1, 2)
    ]
    # A launch, its work and the step.
    assert trace.events.groupby("rank").size().tolist() == [3] * 4
    assert told(trace, "skipped by design") == {"slices of processes that used no GPU": 1}


def test_arguments_in_words_of_kineto_become_columns(write):
    arguments = {"correlation": 5, "stream": 7, "device": 0, "Collective name": "allreduce"}
    trace = loaded(write(pf.span(10, 20, "kernel", "ncclDevKernel_AllReduce", **arguments)))
    row = trace.events.iloc[0]
    assert (row["stream"], row["device"], row["collective"], row["kind"]) == (
        7, 0, "allreduce", "communication",
    )  # fmt: skip


def test_a_cut_trace_gives_what_is_before_the_cut(write):
    whole = pf.rocm()
    trace = loaded(write(whole[:-20]))
    assert len(trace.events) == 4
    assert "a last packet without its end" in told(trace, "truncated")


def test_damage_in_the_middle_ends_the_trace_and_is_told(write):
    trace = loaded(write(pf.span(1, 2, "cpu_op", "op"), b"\xff" * 40, pf.span(3, 4, "cpu_op", "b")))
    assert len(trace.events) == 1
    assert any("everything behind damage" in what for what in told(trace, "truncated"))


@pytest.mark.parametrize("length", [1 << 40, (1 << 64) - 1])
def test_a_packet_longer_than_the_file_takes_no_memory(write, length):
    trace = loaded(write(pf.span(1, 2, "cpu_op", "op"), b"\x0a" + pf.varint(length) + b"x" * 99))
    assert len(trace.events) == 1
    assert told(trace, "truncated")


@pytest.mark.slow
def test_a_bomb_of_a_packed_packet_is_cut_short(write):
    bomb = zlib.compress(pf.event(pf.INSTANT, 1) * (8 << 20 >> 4))
    trace = loaded(write(pf.span(1, 2, "cpu_op", "op"), pf.packet((50, bomb))))
    assert len(trace.events) > 1


def test_a_track_that_is_its_own_parent_ends(write):
    loop = pf.track(1, "COMPUTE GPU [0] STREAM [1]", parent=1)
    assert len(loaded(write(loop, pf.span(1, 2, "kernel_dispatch", "k"))).events) == 1


def test_a_trace_without_slices_is_refused(write):
    path = write(pf.track(1, pid=4, tid=4), pf.event(pf.COUNTER, 4))
    with pytest.raises(LoadError, match="holds no slice of a track event"):
        loaded(path)


SPANS = st.lists(st.tuples(st.integers(0, 10**5), st.integers(0, 10**3)), min_size=1, max_size=30)


@given(SPANS)
@settings(max_examples=40)
def test_busy_time_is_that_of_the_points_covered(tmp_path_factory, spans):
    path = tmp_path_factory.mktemp("made") / "a.pftrace"
    parts = [
        pf.span(start, start + dur, "kernel_dispatch", "k", track=at)
        for at, (start, dur) in enumerate(spans)
    ]
    path.write_bytes(b"".join(parts))
    covered = {point for start, dur in spans for point in range(start, start + dur)}
    table = analyze.time_breakdown(loaded(path).events)
    assert table["busy_ns"].sum() == len(covered)
