"""Several ranks in one file: processes that somebody merged, and documents behind each other."""

import json

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.load.conftest import event
from workbench import analyze, load
from workbench.errors import LoadError

# Every process counts its calls from 1 on, and uses the first GPU of its host.
HOSTS = (900, 901, 1_417)


def rank_events(rank, kernels):
    """Make launches and kernels of one rank from (gap to the launch before, duration), in us."""
    host, ts, rows = HOSTS[rank], 10 * rank, []
    for at, (gap, dur) in enumerate(kernels, 1):
        ts += gap
        rows += [
            event("aten::mm", ts, 4, pid=host, tid=host, **{"External id": at}),
            event("cudaLaunchKernel", ts, 2, cat="cuda_runtime", pid=host, tid=host,
                  correlation=at, **{"External id": at}),
            event(f"gemm_{rank}", ts + 3, dur, cat="kernel", pid=0, tid=7, device=0, stream=7,
                  correlation=at, **{"External id": at}),
        ]  # fmt: skip
    rows.append(event("Iteration Start", 0, cat="Trace", pid="Traces", tid="Trace"))
    return rows


def offset(rank, row):
    """As scripts do that keep the processes of the host, and move those of GPUs."""
    return row["pid"] + 1_000 * rank if row["cat"] == "kernel" else row["pid"]


def offset_all(rank, row):
    return row["pid"] + 10_000 * rank if isinstance(row["pid"], int) else row["pid"]


def labelled(rank, row):
    return f"[TP{rank:02d}-PP00] {row['pid']}"


def named(rank, row):
    return f"rank{rank} {'GPU' if row['cat'] == 'kernel' else 'python'} {row['pid']}"


def unchanged(rank, row):
    return row["pid"]


def merged(ranks, scheme, *, key=None):
    rows = [{**row, "pid": scheme(rank, row)} for rank, rows in enumerate(ranks) for row in rows]
    return rows if key is None else sorted(rows, key=key)


def own_ids(rank, row):
    """Move the ids of launches too, as TraceLens does."""
    args = row.get("args", {})
    if "correlation" in args:
        args = args | {"correlation": args["correlation"] + 100_000 * rank}
    return {**row, "pid": offset_all(rank, row), "args": args}


def by_time(row):
    return row["ts"]


def figures(trace):
    """Return what analyses say of each rank, and the launch of each kernel by its time."""
    events = trace.events
    work = events[events["kind"].notna()]
    waited = work["start_ns"].to_numpy() - events["start_ns"].reindex(work["launch"]).to_numpy()
    breakdown = analyze.time_breakdown(events)
    idle = analyze.idle_time(events)
    return (
        breakdown, idle, work.assign(waited_ns=waited)[["rank", "name", "start_ns", "waited_ns"]]
    )  # fmt: skip


kernels = st.lists(st.tuples(st.integers(5, 60), st.integers(1, 90)), min_size=1, max_size=6)


@settings(max_examples=15, deadline=None)
@given(st.lists(kernels, min_size=2, max_size=3), st.data())
def test_merging_the_files_of_ranks_changes_no_figure(tmp_path_factory, jobs, data):
    folder = tmp_path_factory.mktemp("merged")
    ranks = [rank_events(rank, rows) for rank, rows in enumerate(jobs)]
    for rank, rows in enumerate(ranks):
        (folder / f"rank{rank}.json").write_text(json.dumps({"traceEvents": rows}))
    apart = load.traces(folder, progress=False)
    scheme, key = data.draw(
        st.sampled_from(
            [(offset, None), (offset_all, None), (unchanged, None), (labelled, None),
             (labelled, by_time), (named, by_time), (own_ids, None), (own_ids, by_time)]
        )
    )  # fmt: skip
    if scheme is own_ids:
        rows = [own_ids(rank, row) for rank, rows in enumerate(ranks) for row in rows]
        rows = rows if key is None else sorted(rows, key=key)
    else:
        rows = merged(ranks, scheme, key=key)
    path = folder / "all.json"
    # The metadata are those of the first file, whose rank is not that of the others.
    info = {"rank": 0, "world_size": len(ranks)}
    path.write_text(json.dumps({"distributedInfo": info, "traceEvents": rows}))
    engine = data.draw(st.sampled_from(["auto", "python"]))
    trace = load.traces(path, engine=engine, progress=False)
    assert trace.ranks["rank"].tolist() == list(range(len(ranks)))
    for one, other in zip(figures(trace), figures(apart), strict=True):
        pd.testing.assert_frame_equal(one.reset_index(drop=True), other.reset_index(drop=True))


def test_each_kernel_is_joined_to_the_call_of_its_own_process(trace_file, engine):
    ranks = [rank_events(rank, [(20, 5)] * 10) for rank in (0, 1)]
    rows = merged(ranks, offset)
    trace = load.traces(trace_file(rows), engine=engine)
    work = trace.events[trace.events["kind"].notna()]
    launch = trace.events.loc[work["launch"]]
    assert launch["process"].tolist() == ["900"] * 10 + ["901"] * 10
    assert (launch["correlation"].to_numpy() == work["correlation"].to_numpy()).all()
    said = trace.quality.loc[trace.quality["finding"] == "assumed", "what"].tolist()
    assert said[0].startswith("processes merged into one file, each of them a rank, in the order")


def test_ranks_that_names_of_processes_state_are_taken(trace_file, engine):
    ranks = [rank_events(rank, [(20, 5)] * 3) for rank in (0, 1)]
    rows = [
        {**row, "pid": f"rank {7 - 4 * rank} {row['pid']}"}
        for rank, rows in enumerate(ranks) for row in rows
    ]  # fmt: skip
    ranks = load.traces(trace_file(rows), engine=engine).ranks
    assert ranks[["rank", "rank_source"]].to_numpy().tolist() == [[3, "trace"], [7, "trace"]]
    assert ranks["source"].str.endswith(("process rank 3 901", "process rank 7 900")).all()


def test_what_cannot_be_told_apart_is_refused(trace_file, engine):
    ranks = [rank_events(rank, [(20, 5)] * 10) for rank in (0, 1)]
    path = trace_file(merged(ranks, offset, key=by_time))
    with pytest.raises(LoadError, match=r"2 processes, merged into one file, and 20 rows of GPUs"):
        load.traces(path, engine=engine)
    # Launches in none but the other process contradict the order of the file.
    rows = merged(ranks, offset)
    for row in rows:
        if row["pid"] == 901 and "correlation" in row.get("args", {}):
            row["args"]["correlation"] += 50
    with pytest.raises(LoadError, match="load the files of the ranks as the profiler wrote them"):
        load.traces(trace_file(rows), engine=engine)


def test_a_process_that_two_profilers_number_differently_is_one(trace_file, engine):
    rows = rank_events(0, [(20, 5)] * 3)
    for row in rows:
        # Inside a container the host counts otherwise.
        row["pid"] = 77_001 if row["cat"] == "cuda_runtime" else row["pid"]
    trace = load.traces(trace_file(rows), engine=engine)
    assert len(trace.ranks) == 1
    assert trace.events["launch"].notna().sum() == 3


def document(rank, rows):
    return json.dumps({"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": rows})


@pytest.mark.parametrize("between", ["", "\n", ",", "\n\x1e", "\ufeff", "\0\0 "])
def test_two_documents_in_one_file_are_two_traces(tmp_path, engine, between):
    path, rows = tmp_path / "t.json", [rank_events(rank, [(20, 5)] * 3) for rank in (0, 1)]
    path.write_text(document(1, rows[1]) + between + document(0, rows[0]), encoding="utf-8")
    trace = load.traces(path, engine=engine)
    assert trace.ranks["source"].tolist() == [f"{path}!document 2", f"{path}!document 1"]
    assert trace.ranks["event_count"].tolist() == [10, 10]
    assert not trace.quality["finding"].isin(["dropped", "repaired", "assumed"]).any()
    names = trace.events.groupby("rank")["name"].agg(set).tolist()
    assert [name for of_rank in names for name in of_rank if "gemm" in name] == ["gemm_0", "gemm_1"]


def test_documents_longer_than_a_block_are_read_whole(tmp_path, engine, monkeypatch):
    monkeypatch.setattr("workbench.load._traces.kineto._stream.BLOCK_BYTES", 700)
    rows = [rank_events(rank, [(20, 5)] * 40) for rank in (0, 1)]
    path = tmp_path / "t.json"
    metadata = json.dumps({"note": "x" * 3_000})[1:]
    first = document(0, rows[0])[:-1] + ", " + metadata
    path.write_text("\n".join([first, json.dumps(rows[1]), document(2, rows[1])]))
    named = {"document 1": 0, "document 2": 1, "document 3": 2}
    trace = load.traces(path, engine=engine, rank=named)
    assert trace.ranks["event_count"].tolist() == [121, 121, 121]


@pytest.mark.parametrize(
    "text",
    [
        '{"traceEvents": [EVENT, {"traceEvents": [EVENT]}]}',  # where the first was cut
        '[{"traceEvents": [EVENT]}, {"traceEvents": [EVENT]}]',
        '{"traceEvents": [EVENT], "path": "C:\\dir\\x"}{"traceEvents": [EVENT]}',
        '{"traceEvents": [EVENT, {"traceEvents": [',
    ],
)
def test_a_second_trace_is_never_counted_as_something_else(tmp_path, engine, text):
    path = tmp_path / "t.json"
    path.write_text(text.replace("EVENT", json.dumps(event("a", 1))))
    with pytest.raises(LoadError, match="another trace begins, inside what belongs to the first"):
        load.traces(path, engine=engine)


def test_bytes_behind_a_trace_that_are_none_are_still_dropped(tmp_path, engine):
    path = tmp_path / "t.json"
    path.write_text(document(0, rank_events(0, [(20, 5)])) + "{}")
    quality = load.traces(path, engine=engine).quality
    assert quality["finding"].tolist() == ["dropped", "read"]
