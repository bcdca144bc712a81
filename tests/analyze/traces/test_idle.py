"""Idle time: a peer's numbers, the sum that must come out, then each cause by hand."""

import math
import statistics

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze
from workbench.analyze import intervals
from workbench.errors import WorkbenchError

US = 1_000
FILES = ["df_index_resolver/df_index_resolver.json.gz"]
FILES += [f"trace_filter/sampled_rank-{rank}.json.gz" for rank in (0, 1)]


@pytest.mark.oracle
@pytest.mark.parametrize("file", FILES)
def test_streams_idle_for_the_reasons_that_holistic_trace_analysis_gives(
    file, real_events, published
):
    printed = published("trace_hta_idle").query("file == @file").set_index("stream")
    found = analyze.idle_time(real_events("kineto-hta", file), method="stream")
    by_stream = found.pivot_table(
        index="stream",
        columns="cause",
        values="idle_ns",
        aggfunc="sum",
        fill_value=0,
        observed=False,
    )
    for cause in ("host wait", "kernel wait", "other"):
        expected = printed[f"{cause.replace(' ', '_')}_us"].sort_index() * US
        assert by_stream[cause].tolist() == expected.tolist(), cause
    assert by_stream["unknown"].sum() == 0


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("dataset", "file"),
    [("kineto-hta", FILES[1]), ("kineto-dlrm-8rank", "dlrm_kineto.tar.gz")],
)
def test_causes_of_real_idle_time_add_up_to_span_minus_busy(
    dataset, file, real_events, compiled, monkeypatch
):
    events = real_events(dataset, file)
    monkeypatch.setattr(intervals, "cover", compiled("workbench.analyze._lib._sweep").cover)
    causes = analyze.idle_time(events)
    idle = causes.groupby("rank")["idle_ns"].sum()
    assert idle.tolist() == analyze.time_breakdown(events)["idle_ns"].tolist()
    monkeypatch.setattr(intervals, "cover", None)
    pd.testing.assert_frame_equal(analyze.idle_time(events), causes)


call = st.fixed_dictionaries(
    {
        "start_ns": st.integers(0, 60),
        "delay": st.integers(-4, 40),
        "dur_ns": st.integers(0, 8),
        "stream": st.integers(1, 2),
        "device": st.integers(0, 1),
        "kind": st.sampled_from(["compute", "communication"]),
        "is_known": st.booleans(),
    }
)


def traced(calls):
    """Turn launches into rows: one call and one kernel each."""
    rows = []
    for number, c in enumerate(calls):
        kernel = {name: c[name] for name in ("dur_ns", "stream", "device", "kind")}
        kernel["start_ns"] = max(0, c["start_ns"] + c["delay"])
        if c["is_known"]:
            launch = {"start_ns": c["start_ns"], "dur_ns": 2, "category": "cuda_runtime"}
            rows.append(launch | {"name": "cudaLaunchKernel", "id": number})
            kernel["launch"] = number
        rows.append(kernel)
    return rows


def expected_causes(events, device, gap_ns):
    """Go through the work of a GPU one by one, as slowly as it can be said."""
    total = {}
    gaps = list(_gaps(events, device))
    delays = [until - ended for since, until, _, launched, ended in gaps if since < launched]
    usual = min(max(int(statistics.median(delays)), 0), 100 * US) if len(delays) > 2 else 6 * US
    for since, until, kind, launched, ended in gaps:
        for cause, time in _one_gap(since, until, kind, (launched, ended), usual, gap_ns):
            total[cause] = total.get(cause, 0) + time
    return {cause: time for cause, time in total.items() if time}


def _gaps(events, device):
    """Give start and end of each gap, and kind and launch of the work that ends it."""
    work = events[events["kind"].notna() & (events["device"] == device)]
    reach = None
    for row in work.itertuples():
        if reach is not None and row.start_ns > reach:
            launched, ended = math.inf, math.inf
            if row.launch is not None and row.launch == row.launch:
                call = events.loc[int(row.launch)]
                launched, ended = call["start_ns"], call["start_ns"] + call["dur_ns"]
            # What no call launched, and what began before its call, tells nothing of launches.
            known = launched <= row.start_ns
            yield reach, row.start_ns, row.kind, *((launched, ended) if known else (-1, None))
        end = row.start_ns + row.dur_ns
        reach = end if reach is None else max(reach, end)


def _one_gap(since, until, kind, call, usual, gap_ns):
    launched, ended = call
    if ended is None:
        return [("unknown", until - since)]
    parts = []
    if launched > since or (ended - since >= gap_ns and ended <= until):
        begun = max(launched, since)
        arrived = min(ended + usual, until)
        arrived = until if until - arrived < gap_ns else arrived
        parts = [("host late", begun - since), ("launch overhead", arrived - begun)]
        since = arrived
    rest = "sync wait" if kind == "communication" else "unknown"
    return [*parts, ("kernel gap" if until - since < gap_ns else rest, until - since)]


@given(st.lists(call, min_size=1, max_size=12), st.sampled_from([1, 7, 20]))
def test_every_gap_of_long_and_short_launches_has_its_cause(make_events, calls, scale):
    rows = traced(calls)
    for row in rows:
        row["start_ns"] *= scale * US
        is_call = "kind" not in row
        row["dur_ns"] *= US * (scale if is_call else 1)
    events = make_events(*rows)
    plain = events.assign(launch=events["launch"].astype("object").where(events["launch"].notna()))
    table = analyze.idle_time(events)
    for device in {c["device"] for c in calls}:
        mine = table[table["device"] == device].groupby("cause", observed=True)["idle_ns"].sum()
        assert mine.to_dict() == expected_causes(plain, device, 30 * US)


@given(st.lists(call, min_size=1, max_size=10))
def test_every_gap_has_the_cause_that_its_next_work_tells(make_events, calls):
    events = make_events(*traced(calls))
    events["launch"] = events["launch"].astype("object").where(events["launch"].notna(), None)
    plain = events.copy()
    events["launch"] = events["launch"].astype("Int64")
    table = analyze.idle_time(events, kernel_gap_ns=10)
    for device in {c["device"] for c in calls}:
        mine = table[table["device"] == device].groupby("cause", observed=True)["idle_ns"].sum()
        assert mine.to_dict() == expected_causes(plain, device, 10)


@given(st.lists(call, min_size=1, max_size=10))
def test_causes_of_a_stream_add_up_to_its_gaps(make_events, calls):
    rows = traced(calls)
    table = analyze.idle_time(make_events(*rows), method="stream")
    gaps = 0
    for place in {(c["device"], c["stream"]) for c in calls}:
        mine = [r for r in rows if (r.get("device"), r.get("stream")) == place]
        starts = [r["start_ns"] for r in mine]
        ends = [r["start_ns"] + r["dur_ns"] for r in mine]
        gaps += max(ends) - min(starts) - analyze.intervals.measure(starts, ends)
    assert table["idle_ns"].sum() == gaps


def kernel(start, end, **more):
    return {"start_ns": start * US, "end_ns": end * US, "kind": "compute"} | more


def launch(number, start, **more):
    row = {"id": number, "start_ns": start * US, "dur_ns": US, "category": "cuda_runtime"}
    return row | {"name": "cudaLaunchKernel"} | more


def causes(table):
    keys = zip(table["cause"], table["detail"].fillna(""), strict=True)
    return dict(zip(keys, (table["idle_ns"] // US).tolist(), strict=True))


def test_a_late_host_is_told_apart_by_what_it_did(make_events):
    events = make_events(
        kernel(0, 10),
        {"start_ns": 5 * US, "end_ns": 20 * US, "category": "cuda_runtime",
         "name": "cudaStreamSynchronize"},
        {"start_ns": 24 * US, "end_ns": 60 * US, "name": "aten::mm"},
        {"start_ns": 26 * US, "end_ns": 30 * US, "category": "cuda_runtime", "name": "cudaMalloc"},
        {"start_ns": 22 * US, "end_ns": 23 * US, "category": "python_function", "name": "f"},
        {"start_ns": 0, "end_ns": 99 * US, "name": "elsewhere", "thread": "2"},
        launch(1, 50),
        kernel(53, 60, launch=1),
    )  # fmt: skip
    assert causes(analyze.idle_time(events)) == {
        ("host late", "blocking call"): 10,
        ("host late", "runtime call"): 4,
        ("host late", "operator"): 22,
        ("host late", "Python"): 1,
        ("host late", "untraced"): 3,
        ("launch overhead", ""): 3,
    }


def launched_often(last_start, *, dur=5, work=None, **more):
    """Make launches that take 8 us after a call of 5 us, and one whose work is late."""
    rows = [kernel(-100, -90)]
    for number in range(8):
        at = 200 * number
        call = {"dur_ns": 5 * US} | more
        rows += [launch(number, at, **call), kernel(at + 13, at + 20, launch=number)]
    rows += [launch(99, 2_000, dur_ns=dur * US, **more)]
    return [*rows, kernel(last_start, last_start + 10, launch=99, **(work or {}))]


def test_time_long_after_a_launch_is_a_late_start_and_no_launch_overhead(make_events):
    late = causes(analyze.idle_time(make_events(*launched_often(465_013))))
    assert late["launch overhead", ""] == 9 * 13
    assert late["unknown", "late start"] == 463_000
    little = causes(analyze.idle_time(make_events(*launched_often(2_013 + 29))))
    assert little["launch overhead", ""] == 9 * 13 + 29
    assert ("unknown", "late start") not in little
    again = analyze.idle_time(make_events(*launched_often(465_013)), kernel_gap_ns=500_000 * US)
    assert causes(again)["launch overhead", ""] == 9 * 13 + 463_000


def test_work_that_waits_after_its_launch_is_no_launch_overhead_either(make_events):
    rows = launched_often(465_013, work={"kind": "communication"})
    assert causes(analyze.idle_time(make_events(*rows)))["sync wait", "collective"] == 463_000


def test_a_launch_call_that_lasts_is_launch_overhead_to_its_end(make_events):
    rows = launched_often(113_008, dur=111_000)
    found = causes(analyze.idle_time(make_events(*rows)))
    assert found["launch overhead", ""] == 8 * 13 + 111_008
    rows = [*rows, kernel(1_900, 2_500, stream=9)]  # the call began while other work ran
    assert causes(analyze.idle_time(make_events(*rows)))["launch overhead", ""] == 8 * 13 + 110_508


def test_holes_beside_work_of_a_cuda_graph_are_said_to_be_of_one(make_events):
    rows = [
        kernel(0, 5),
        launch(1, 10, name="cudaGraphLaunch"),
        launch(2, 12),
        kernel(14, 20, launch=1),
        kernel(63_020, 63_030, launch=1),
        kernel(126_030, 126_040, launch=2),
        launch(3, 130_000),
        kernel(130_004, 130_010, launch=3),
    ]
    found = causes(analyze.idle_time(make_events(*rows)))
    assert found["dark", "CUDA graph"] == 126_000
    assert ("unknown", "late start") not in found


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("cudaDeviceSynchronize", "blocking call"),
        ("hipMemcpyWithStream", "blocking call"),
        ("cudaMemcpy", "blocking call"),
        ("cudaMemcpyAsync", "runtime call"),
        ("cudaFuncGetAttributes", "runtime call"),
    ],
)
def test_calls_that_wait_for_the_gpu_are_known(make_events, name, detail):
    busy = {"start_ns": 0, "end_ns": 50 * US, "category": "cuda_runtime", "name": name}
    events = make_events(kernel(0, 10), busy, launch(1, 50), kernel(51, 60, launch=1))
    assert causes(analyze.idle_time(events))["host late", detail] == 40


def test_work_that_was_ready_was_held_up_by_the_gpu(make_events):
    rows = [launch(1, 1), launch(2, 2), kernel(5, 10, launch=1)]
    short = make_events(*rows, kernel(30, 40, launch=2))
    assert causes(analyze.idle_time(short)) == {("kernel gap", ""): 20}
    assert causes(analyze.idle_time(short, kernel_gap_ns=20_000)) == {("unknown", "late start"): 20}
    long = make_events(*rows, kernel(60, 70, launch=2))
    assert causes(analyze.idle_time(long)) == {("unknown", "late start"): 50}
    collective = make_events(*rows, kernel(60, 70, launch=2, kind="communication"))
    assert causes(analyze.idle_time(collective)) == {("sync wait", "collective"): 50}


@pytest.mark.parametrize(
    ("issued", "stream", "cause"),
    [(1.5, 7, ("sync wait", "stream wait")), (1.5, 8, ("unknown", "late start")),
     (0.5, 7, ("unknown", "late start")), (3, 7, ("unknown", "late start"))],
)  # fmt: skip
def test_a_stream_wait_counts_between_two_launches_on_its_stream(
    make_events, issued, stream, cause
):
    wait = {"start_ns": int(issued * US), "category": "cuda_sync", "name": "Stream Wait Event"}
    events = make_events(
        launch(1, 1),
        wait | {"stream": stream, "wait_stream": 9},
        launch(2, 2),
        kernel(5, 10, launch=1),
        kernel(60, 70, launch=2),
    )
    assert causes(analyze.idle_time(events)) == {cause: 50}


def test_nothing_is_guessed_without_a_launch_or_against_the_clock(make_events):
    events = make_events(kernel(0, 10), kernel(20, 30), kernel(35, 40, launch=1), launch(1, 36))
    assert causes(analyze.idle_time(events)) == {
        ("unknown", "no launch recorded"): 10,
        ("unknown", "launch recorded after the work began"): 5,
    }


def test_shares_are_of_the_span_and_missing_without_one(make_events):
    table = analyze.idle_time(make_events(kernel(0, 10), kernel(30, 40)))
    assert table["idle_share"].tolist() == [0.5]
    assert analyze.idle_time(make_events(kernel(0, 0))).empty


def test_a_selection_of_rows_keeps_its_launches(make_events):
    events = make_events(
        {"start_ns": 0, "dur_ns": 1}, kernel(1, 10), launch(1, 20), kernel(25, 30, launch=1)
    )
    selection = events.iloc[1:]
    assert causes(analyze.idle_time(selection)) == causes(analyze.idle_time(events))
    without = events[events["category"] == "kernel"]
    assert causes(analyze.idle_time(without)) == {("unknown", "no launch recorded"): 15}


def test_refuses_launches_that_a_reset_index_has_moved(make_events):
    events = make_events(
        {"start_ns": 0, "dur_ns": 1}, launch(1, 0), kernel(1, 2), kernel(25, 30, launch=1),
        kernel(26, 30),
    )  # fmt: skip
    moved = events.iloc[1:].assign(launch=lambda e: e["launch"].where(e["launch"].isna(), 3))
    with pytest.raises(WorkbenchError, match="keep the index of the loaded table"):
        analyze.idle_time(moved.reset_index(drop=True))


def test_refuses_an_unknown_method_and_a_trace_without_gpu(make_events):
    with pytest.raises(ValueError, match="method must be one of"):
        analyze.idle_time(make_events(kernel(0, 1)), method="rank")
    with pytest.raises(WorkbenchError, match="no GPU work, so no idle time"):
        analyze.idle_time(make_events({"start_ns": 0}))
