"""GPU work whose stated duration cannot be: an event of a stream ends before the next one begins."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.load.conftest import event, launched
from tests.load.traces.nsight import nsight_files
from tests.load.traces.rocm import rocm_files
from tests.load.traces.xplane import xplane_files
from workbench import analyze, load
from workbench._shared.kernel_kinds import BOUNDED, DOUBTFUL
from workbench.load._traces.durations import bound_durations
from workbench.load._traces.kineto.blocks import CodedTexts

MS = 1_000_000
SECOND = 1_000_000_000


def busy(trace):
    return analyze.time_breakdown(trace.events)["busy_ns"].sum()


def count(trace, what):
    return trace.quality.loc[trace.quality["what"] == what, "count"].sum()


def kernels(*durations_us, every=1_000, **options):
    """Make kernels that begin one after the other, and their launches."""
    rows = []
    for number, dur in enumerate(durations_us):
        rows += launched(number + 1, every * number, dur=dur, **options)
    return rows


def union(spans):
    """Return the time that spans cover, one after the other."""
    total, reach = 0, -1
    for start, end in sorted(spans):
        total += max(end - max(start, reach), 0)
        reach = max(reach, end)
    return total


@pytest.mark.parametrize("dur_us", [3.4e6, 4.2e5, 9 * 24 * 3600e6])
def test_work_ends_at_the_latest_when_the_next_of_its_stream_begins(trace_file, engine, dur_us):
    rows = kernels(*[990] * 7, dur_us, *[990] * 32)
    trace = load.traces(trace_file(rows), engine=engine)
    assert busy(trace) == 39 * 990_000 + MS
    assert len(trace.events) == 80
    told = trace.quality.set_index("what").loc[BOUNDED]
    assert told["count"] == 1
    assert told["finding"] == "repaired"
    assert "'gemm'" in told["where"]


def test_early_starts_and_streams_that_share_a_number_keep_their_overlap(trace_file):
    early = [row | {"dur": 1_040} for row in kernels(*[990] * 20) if row["cat"] == "kernel"]
    assert load.traces(trace_file(early)).events["dur_ns"].eq(1_040_000).all()
    shared = kernels(*[1_500, 2_400, 700] * 40)
    shared[60] = shared[60] | {"dur": 10}
    shared += launched(900, 5_000, dur=1.2e6, kernel="ncclDevKernel_AllReduce")
    shared.append(event("aten::mm", 0, 2.5e6))
    trace = load.traces(trace_file(shared))
    assert trace.events["dur_ns"].isin([1_200 * MS]).sum() == 1
    assert count(trace, BOUNDED) == 0
    assert count(trace, DOUBTFUL) == 1


def test_other_streams_and_gpus_do_not_end_work(trace_file):
    long = [launched(1, 0, dur=3.4e6)[1], event("train", 0, 4e6)]
    others = [
        row | {"args": row["args"] | {"stream": 8} | more}
        for at in (1_000, 2_000)
        for row in launched(at, at)[1:]
        for more in ({}, {"stream": 7, "device": 1})
    ]
    trace = load.traces(trace_file(long + others))
    assert trace.events["dur_ns"].max() == 4_000 * MS
    assert count(trace, BOUNDED) == 0
    assert trace.events.loc[trace.events["kind"].notna(), "dur_ns"].max() == 3_400 * MS


@pytest.mark.parametrize(
    ("call", "ends"), [("hipDeviceSynchronize", 40_000), ("cudaStreamSynchronize", 40_000)]
)
def test_the_last_work_of_a_stream_ends_before_the_call_that_waited_for_it(trace_file, call, ends):
    rows = kernels(*[990] * 39, 3.4e6)
    wait = event(call, 39_500, ends - 39_500, cat="cuda_runtime")
    assert busy(load.traces(trace_file([*rows, wait]))) == 39 * 990_000 + (ends - 39_010) * 1_000
    # Without that call nothing says that it ended, so it is only told.
    trace = load.traces(trace_file(rows))
    assert busy(trace) == 39 * 990_000 + 3_400 * MS
    assert count(trace, DOUBTFUL) == 1


def test_a_wait_that_returned_before_work_began_shows_that_clocks_differ(trace_file):
    rows = kernels(*[990] * 5) + launched(99, 6_000, dur=3.4e6, gap=5_000)
    rows.append(event("cudaDeviceSynchronize", 6_100, 500, cat="cuda_runtime"))
    assert busy(load.traces(trace_file(rows))) == 5 * 990_000 + 3_400 * MS


def test_an_operation_of_xla_that_holds_others_keeps_its_time(trace_file):
    rows = [row | {"name": "while.3"} for row in kernels(2.5e6)] + kernels(*[990] * 20)
    assert load.traces(trace_file(rows)).events["dur_ns"].max() == 2_500 * MS


def nsight(tmp_path, spans):
    content = nsight_files.tables()
    key = nsight_files.pid(101)
    rows = [(start, end, 0, 7, 100 + at, key, 3, 4) for at, (start, end) in enumerate(spans)]
    name = f"{nsight_files.K}KERNEL"
    content = {"StringIds": content["StringIds"], name: (content[name][0], rows)}
    return nsight_files.write(tmp_path / "a.sqlite", content)


def rocprofv3(tmp_path, spans):
    rows = [rocm_files.dispatch(start, end, 20 + at) for at, (start, end) in enumerate(spans)]
    process = rocm_files.process(kernel_dispatch=rows, memory_copy=[], hip_api=[])
    return rocm_files.write_json(tmp_path / "400_results.json", process)


def rocpd(tmp_path, spans):
    tables = rocm_files.rocpd_tables()
    columns, rows = tables["rocpd_kernel_dispatch_abc"]
    place = [columns.split().index(name) for name in ("start", "end")]
    made = []
    for at, span in enumerate(spans):
        row = list(rows[0])
        row[0] = at + 1
        for where, time in zip(place, span, strict=True):
            row[where] = time
        made.append(tuple(row))
    tables["rocpd_kernel_dispatch_abc"] = (columns, made)
    tables["rocpd_memory_copy_abc"] = (tables["rocpd_memory_copy_abc"][0], [])
    return rocm_files.write_rocpd(tmp_path / "400_results.db", tables)


def xplane(tmp_path, spans):
    space = xplane_files.space_class()()
    gpu = space.planes.add(id=1, name="/device:GPU:0")
    rows = [("gemm", start * 1_000, (end - start) * 1_000, {}) for start, end in spans]
    xplane_files.add_line(gpu, "Stream #17(Compute)", rows)
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(space.SerializeToString())
    return path


@pytest.mark.parametrize("write", [nsight, rocprofv3, rocpd, xplane])
def test_every_format_of_profilers_bounds_it(tmp_path, write):
    starts = [10_000 + at * MS for at in range(40)]
    spans = [(start, start + 990_000) for start in starts]
    spans[7] = (starts[7], starts[7] + 3_400 * MS)
    trace = load.traces(write(tmp_path, spans), progress=False)
    assert busy(trace) == 39 * 990_000 + MS
    assert count(trace, BOUNDED) == 1


work = st.lists(
    st.tuples(
        st.integers(0, 200), st.sampled_from([0, 1, 5, 40, 1_500, 3_400, 90_000]),
        st.integers(0, 1), st.integers(0, 1),
    ),
    min_size=1, max_size=12,
)  # fmt: skip


class Counted:
    """The rows of one file, without findings."""

    def __init__(self, rows):
        self.rows = slice(0, rows)

    def counts(self, chosen):
        return [int(chosen.sum())]

    def __iter__(self):
        yield self, self.rows

    def add(self, *_):
        pass


@given(work)
@settings(max_examples=200)
def test_no_work_is_longer_than_stated_or_ends_a_second_into_the_next_unless_streams_mix(rows):
    rows = sorted(rows)
    start, dur = (np.array(column) * MS for column in list(zip(*rows, strict=True))[:2])
    device, stream = (np.array(column) for column in list(zip(*rows, strict=True))[2:])
    names = CodedTexts(np.zeros(len(rows), np.int32), ["gemm"])
    every, none = np.ones(len(rows), bool), np.full(len(rows), -1)
    new = bound_durations(Counted(len(rows)), (start, dur), every, none, names, (device, stream))
    assert ((new >= 0) & (new <= dur)).all()
    for place in set(zip(device.tolist(), stream.tolist(), strict=True)):
        at = [n for n, pair in enumerate(zip(device, stream, strict=True)) if pair == place]
        ends = [start[n] + dur[n] for n in at]
        over = [ends[i] - start[at[i + 1]] for i in range(len(at) - 1)]
        mixed = sum(
            ends[i] - start[at[i + 2]] > 10_000 and over[i] <= SECOND for i in range(len(at) - 2)
        )
        seconds = sum(late > SECOND for late in over)
        for i, late in enumerate(over):
            if late > SECOND and mixed <= seconds:
                assert start[at[i]] + new[at[i]] == start[at[i + 1]]
            if late <= 10 * MS:
                assert new[at[i]] == dur[at[i]]
