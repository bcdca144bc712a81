"""Dark time: idle time, execution graph and findings give one answer for what was not recorded."""

import json

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from workbench import analyze, load
from workbench.errors import PerformanceModelError

US, MS = 1_000, 1_000_000
GRAPH, PLAIN = "cudaGraphLaunch", "cudaLaunchKernel"


def call(name, start, end, number=None, **more):
    row = {"name": name, "start_ns": start * US, "end_ns": end * US, "category": "cuda_runtime"}
    return row | ({"id": number, "correlation": number} if number else {}) | more


def work(start, end, number=None, **more):
    launch = {"launch": number, "correlation": number} if number else {}
    return (
        {"start_ns": start * US, "end_ns": end * US, "kind": "compute", "stream": 7} | launch | more
    )


def steps_of(launch, *, hidden_us, recorded=True, count=4, sync="cudaStreamSynchronize"):
    """Make steps of 100 ms: a kernel of 30 ms, a graph of which one kernel of 100 us is known.

    The host waits while the rest of the graph runs for ``hidden_us``; then the GPU has no work.
    """
    rows = []
    for step in range(count):
        at, number = 100_000 * step, 10 * step + 1
        rows += [call(PLAIN, at + 10, at + 15, number), work(at + 20, at + 30_020, number)]
        rows += [call(launch, at + 50, at + 60, number + 1)]
        if recorded:
            rows += [work(at + 30_021, at + 30_121, number + 1)]
        ends = at + 30_020 + 101 * recorded + hidden_us
        rows += [call(sync, at + 100, ends, number + 2)]
        mark = {"name": f"ProfilerStep#{step}", "category": "user_annotation"}
        rows += [mark | {"start_ns": at * US, "end_ns": (at + 99_990) * US}]
    return rows


def idle(events, cause, detail=None):
    table = analyze.idle_time(events)
    table = table[table["cause"] == cause]
    if detail is not None:
        table = table[table["detail"].fillna("") == detail]
    return int(table["idle_ns"].sum())


def dark_edges(graph):
    """Return start and end of the dark time that each edge stands for."""
    edges = graph.edges[graph.edges["kind"] == "dark GPU time"]
    ends = (graph.time_ns + graph.origin_ns)[edges["target"].to_numpy()]
    starts = ends - edges["weight_ns"].to_numpy()
    return sorted(set(zip(starts.tolist(), ends.tolist(), strict=True)))


def overlap(spans, windows):
    return sum(
        max(0, min(end, until) - max(start, since))
        for start, end in spans
        for since, until in windows
    )


def gaps(events):
    """Go through the GPU work row by row and list the times without any."""
    rows = events[events["kind"].notna()].sort_values("start_ns")
    reach, listed = None, []
    for start, dur in zip(rows["start_ns"], rows["dur_ns"], strict=True):
        if reach is not None and start > reach:
            listed.append((reach, start))
        reach = max(reach or 0, start + dur)
    return listed


@pytest.mark.parametrize("sync", ["cudaStreamSynchronize", "cudaDeviceSynchronize",
                                  "hipStreamSynchronize", "cuCtxSynchronize"])  # fmt: skip
@pytest.mark.parametrize("launch", [GRAPH, "hipGraphLaunch"])
@pytest.mark.parametrize("recorded", [True, False])
def test_a_graph_that_runs_while_the_host_waits_is_dark_in_all_three(
    make_events, launch, sync, recorded
):
    rows = steps_of(launch, hidden_us=60_000, recorded=recorded, sync=sync)
    events = make_events(*rows)
    assert idle(events, "dark", "CUDA graph") == 3 * 60 * MS
    assert idle(events, "dark") == 3 * 60 * MS
    assert idle(events, "host late", "blocking call") == 0
    graph = analyze.execution_graph(events)
    assert overlap(dark_edges(graph), gaps(events)) == 3 * 60 * MS
    assert analyze.replay_fidelity(events, graph)["dark_ns"].tolist() == [4 * 60 * MS]


def findings_of(tmp_path, rows):
    """Write rows as a trace, load it and ask the rules."""
    listed = []
    for row in rows:
        args = {"correlation": row["correlation"]} if "correlation" in row else {}
        args |= {"device": 0, "stream": row["stream"]} if "kind" in row else {}
        dur = row["end_ns"] - row["start_ns"]
        listed.append({
            "ph": "X", "pid": 0 if "kind" in row else 1, "tid": row.get("stream", 1),
            "cat": "kernel" if "kind" in row else row["category"], "args": args,
            "name": row.get("name", "gemm"), "ts": row["start_ns"] / US, "dur": dur / US,
        })  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": listed}))
    return analyze.findings(load.traces(path, progress=False)).findings


def test_dark_time_comes_first_and_is_no_pause(tmp_path):
    table = findings_of(tmp_path, steps_of(GRAPH, hidden_us=69_700))
    assert table["rule"].iloc[0] == "graph_holes"
    assert "launches of CUDA graphs without recorded kernels" in table["finding"].iloc[0]
    assert not table["rule"].isin(["long_pauses", "synchronising_calls", "host_bound"]).any()
    # The host really pauses for 9 ms of each step.
    pausing = findings_of(tmp_path, steps_of(GRAPH, hidden_us=50_000))
    assert set(pausing["rule"]) == {"graph_holes", "long_pauses"}
    share = pausing.set_index("rule")["time_share"]
    assert share["graph_holes"] == pytest.approx(150 / 330.121, rel=1e-3)
    assert share["long_pauses"] == pytest.approx(3 * 19.889 / 330.121, rel=1e-3)


def test_without_a_graph_nothing_is_said_of_one(tmp_path, make_events):
    rows = steps_of(PLAIN, hidden_us=60_000, recorded=False)
    (first, *_) = findings_of(tmp_path, rows).to_dict("records")
    assert first["rule"] == "graph_holes"
    assert "the host waits for GPU work that the trace lacks" in first["finding"]
    events = make_events(*rows)
    assert idle(events, "dark", "") == 3 * 60 * MS
    graph = analyze.execution_graph(events)
    assert overlap(dark_edges(graph), gaps(events)) == 3 * 60 * MS
    doubt = analyze.replay_fidelity(events, graph)["doubt"].iloc[0]
    assert "240.0 ms of GPU work were not recorded" in doubt
    assert "graph" not in doubt.lower()


def test_a_wait_behind_recorded_work_alone_may_be_for_another_gpu(make_events):
    events = make_events(*steps_of(PLAIN, hidden_us=60_000))
    assert idle(events, "dark") == 0
    assert idle(events, "host late", "blocking call") == 3 * 60 * MS
    assert dark_edges(analyze.execution_graph(events)) == []


def late_starts(count=6):
    """Make launches whose kernels begin 1 ms later, while the host waits for them."""
    rows = []
    for number in range(1, count + 1):
        at = 2_000 * number
        rows += [call(PLAIN, at, at + 5, number), work(at + 1_005, at + 1_505, number)]
        rows += [call("cudaDeviceSynchronize", at + 10, at + 1_510, 100 + number)]
    return rows


def test_late_starts_are_unknown_and_not_of_graphs(tmp_path, make_events):
    table = findings_of(tmp_path, late_starts()).set_index("rule")
    assert table.index[0] == "unexplained_idle"
    assert "work starts late although it was launched" in table["finding"].iloc[0]
    assert "graph_holes" not in table.index
    assert table.loc["unexplained_idle", "time_share"] == pytest.approx(4.5 / 10.5, rel=1e-3)
    # What the late starts cost is no cost of the calls that wait.
    assert table.loc["synchronising_calls", "time_share"] == pytest.approx(2.5 / 10.5, rel=1e-3)
    events = make_events(*late_starts())
    assert idle(events, "dark") == 0
    assert dark_edges(analyze.execution_graph(events)) == []


def test_work_behind_a_graph_without_recorded_work_waits_for_it(make_events):
    rows = [call(PLAIN, 0, 5, 1), work(10, 100, 1), call(GRAPH, 20, 30, 2), call(PLAIN, 40, 45, 3),
            work(60_100, 60_200, 3)]  # fmt: skip
    assert idle(make_events(*rows), "dark", "CUDA graph") == 60 * MS
    rows[2] = call(PLAIN, 20, 30, 2)
    assert idle(make_events(*rows), "unknown", "late start") == 60 * MS


timeline = st.lists(
    st.tuples(
        st.sampled_from(["kernel", "graph", "hidden", "sync"]), st.integers(1, 400),
        st.integers(0, 300),
    ),
    min_size=2, max_size=14,
)  # fmt: skip


def played(items):
    """Play a host and a stream: return rows, and when the GPU did work that no row shows."""
    rows, hidden, now, free, has_work = [], [], 0, 0, False
    for number, (what, length, pause) in enumerate(items, 1):
        now += pause
        if what == "sync":
            rows.append(call("cudaDeviceSynchronize", now, max(now, free) + 3, 1_000 + number))
            now = max(now, free) + 3
            continue
        start = max(now + 5, free)
        free = start + length
        rows.append(call(PLAIN if what == "kernel" else GRAPH, now, now + 4, number))
        if what in ("kernel", "graph"):
            rows.append(work(start, free, number))
            has_work = True
        else:
            hidden.append((start, free))
        now += 4
    return rows, hidden, has_work


@pytest.mark.long
@given(timeline)
@settings(max_examples=60, deadline=None, phases=[Phase.explicit, Phase.generate])
def test_dark_time_is_never_more_than_the_hidden_work_and_what_the_calls_take(make_events, items):
    rows, hidden, has_work = played(items)
    if not has_work:
        return
    events = make_events(*rows)
    windows = gaps(events)
    table = analyze.idle_time(events)
    assert table["idle_ns"].sum() == sum(until - since for since, until in windows)
    true = overlap([(start * US, end * US) for start, end in hidden], windows)
    # A launch takes 5 us here, a return 3; a sync may follow other hidden work of the same wait.
    assert idle(events, "dark") <= true + len(items) * 308 * US * bool(hidden)
    if not hidden:
        assert idle(events, "dark") == 0


@given(st.integers(1, 5), st.integers(60, 60_000), st.booleans())
@settings(max_examples=15, deadline=None)
def test_idle_time_and_the_graph_agree_for_any_length(make_events, count, hidden_us, is_recorded):
    rows = steps_of(GRAPH, hidden_us=hidden_us, recorded=is_recorded, count=count + 1)
    events = make_events(*rows)
    assert idle(events, "dark") == count * hidden_us * US
    assert overlap(dark_edges(analyze.execution_graph(events)), gaps(events)) == idle(
        events, "dark"
    )


def unlaunched(share, count=50):
    """Make kernels of which the first ones have no launch, and a busy host beside them."""
    rows = []
    for at in range(count):
        number = at + 1 if at >= round(share * count) else None
        operator = {"name": "TfOp", "category": "cpu_op"}
        rows.append(operator | {"start_ns": at * MS, "end_ns": at * MS + 990 * US})
        if number:
            rows.append(call(PLAIN, 1_000 * at + 10, 1_000 * at + 12, number))
        rows.append(work(1_000 * at + 20, 1_000 * at + 520, number))
    return rows


@pytest.mark.parametrize(("share", "is_usable"), [(0.0, True), (0.28, True), (0.4, False),
                                                  (1.0, False)])  # fmt: skip
def test_a_graph_without_launches_is_not_usable(make_events, share, is_usable):
    events = make_events(*unlaunched(share))
    graph = analyze.execution_graph(events)
    fidelity = analyze.replay_fidelity(events, graph)
    assert fidelity["unlaunched_share"].tolist() == [pytest.approx(share)]
    assert fidelity["is_usable"].tolist() == [is_usable]
    half = [[analyze.Change(factor=0.5), analyze.Change(part="CPU", factor=0.5)]]
    if is_usable:
        ratio = analyze.what_if(events, graph, half)["speedup_ratio"].iloc[0]
        assert ratio == pytest.approx(2, rel=0.05)
    else:
        with pytest.raises(PerformanceModelError, match="the trace has no launch of"):
            analyze.what_if(events, graph, half)


@pytest.mark.parametrize("share", [0.0, 0.28, 1.0])
def test_the_halved_ratio_is_what_both_changes_together_give(make_events, share):
    events = make_events(*unlaunched(share))
    graph = analyze.execution_graph(events)
    fidelity = analyze.replay_fidelity(events, graph)
    half = [[analyze.Change(factor=0.5), analyze.Change(part="CPU", factor=0.5)]]
    row = analyze.what_if(events, graph, half, least_explained_share=0).iloc[0]
    expected = row["predicted_ns"] / row["measured_ns"]
    assert fidelity["halved_ratio"].iloc[0] == pytest.approx(expected, rel=0.01)


def test_gpus_without_launches_that_idle_are_a_finding(tmp_path):
    table = findings_of(tmp_path, unlaunched(1.0))
    assert table["rule"].tolist() == ["unexplained_idle"]
    assert "the trace has no launches" in table["finding"].iloc[0]
    assert table["time_share"].iloc[0] == pytest.approx(49 * 0.5 / 49.5, rel=1e-3)
    busy = [row for row in unlaunched(1.0) if "kind" in row]
    full = [row | {"end_ns": row["start_ns"] + 999 * US} for row in busy]
    assert findings_of(tmp_path, full).empty


def test_steps_whose_work_ends_in_another_order_have_no_negative_ratio(tmp_path):
    rows = steps_of(PLAIN, hidden_us=0, count=5)
    long = next(row for row in rows if "kind" in row)
    # On a stream of its own nothing bounds it; the work of four later steps ends before.
    rows.append(long | {"stream": 9, "end_ns": long["start_ns"] + 480 * MS})
    for text in findings_of(tmp_path, rows)["finding"]:
        assert "-" not in text.replace("all-", "")
    events = load.traces(tmp_path / "trace.json", progress=False).events
    fidelity = analyze.replay_fidelity(events, analyze.execution_graph(events))
    worst = fidelity["step_error_max_ratio"].fillna(0).to_numpy()
    assert np.all(worst < 10)
