"""Operators: nothing is spent twice, nothing is lost."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze
from workbench.analyze._lib.rows import enclosing
from workbench.tables import EVENTS, OPERATORS

interval = st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(0, 12))


def op(start, end, name, **more):
    return {"start_ns": start, "end_ns": end, "name": name} | more


def launch(number, start, **more):
    row = {"id": number, "start_ns": start, "dur_ns": 1, "category": "cuda_runtime"}
    return row | {"name": "cudaLaunchKernel"} | more


def kernel(start, end, **more):
    return {"start_ns": start, "end_ns": end, "kind": "compute"} | more


def by_name(events):
    table = OPERATORS.check(analyze.operators(events))
    return table.assign(name=table["name"].astype(object).fillna("nobody")).set_index("name")


@given(st.lists(interval, max_size=25))
def test_the_enclosing_interval_is_the_latest_that_still_runs(some):
    some = sorted(some, key=lambda i: (i[0], i[1], -i[2]))
    group, start, length = np.array(some, dtype=np.int64).reshape(-1, 3).T
    end = start + length
    found = enclosing(start, end, group)
    for i in range(len(some)):
        running = [j for j in range(i) if group[j] == group[i] and end[j] > start[i]]
        assert found[i] == (running[-1] if running else -1)


@st.composite
def trees(draw, low=0, high=64, depth=0):
    """Draw operators that lie properly inside one another."""
    rows, start = [], low
    while depth < 4 and start < high and draw(st.booleans()):
        start = draw(st.integers(start, high - 1))
        end = draw(st.integers(start + 1, high))
        rows.append(op(start, end, draw(st.sampled_from("abc"))))
        rows += draw(trees(low=start, high=end, depth=depth + 1))
        start = end
    return rows


@given(trees(), st.lists(st.tuples(st.integers(0, 70), st.integers(0, 9)), max_size=6))
def test_own_times_add_up_to_the_time_with_operators(make_events, rows, kernels):
    gpu = []
    for number, (start, length) in enumerate(kernels):
        gpu += [launch(number, start), kernel(start + 2, start + 2 + length, launch=number)]
    events = make_events(*rows, *gpu)
    table = by_name(events)
    starts, ends = [r["start_ns"] for r in rows], [r["end_ns"] for r in rows]
    assert table["self_ns"].sum() == analyze.intervals.measure(starts, ends)
    assert table["op_count"].sum() == len(rows)
    assert table["gpu_self_ns"].sum() == sum(length for _, length in kernels)
    assert table["kernel_count"].sum() == len(kernels)
    assert (table["gpu_ns"] >= table["gpu_self_ns"]).all()
    assert (table["total_ns"] >= table["self_ns"]).all()
    for name in set("abc") & set(table.index):
        mine = [r for r in rows if r["name"] == name]
        starts, ends = [r["start_ns"] for r in mine], [r["end_ns"] for r in mine]
        covered = analyze.intervals.measure(starts, ends)
        assert table.loc[name, "total_ns"] == covered, "recursion counts once"


def test_gpu_work_belongs_to_the_innermost_operator_and_all_around_it(make_events):
    events = make_events(
        op(0, 50, "aten::linear"),
        op(10, 30, "aten::addmm"),
        launch(1, 20),
        launch(2, 40),
        kernel(60, 70, launch=1),
        kernel(70, 75, launch=2),
    )
    table = by_name(events)
    assert table["gpu_self_ns"].to_dict() == {"aten::linear": 5, "aten::addmm": 10}
    assert table["gpu_ns"].to_dict() == {"aten::linear": 15, "aten::addmm": 10}
    assert table["self_ns"].to_dict() == {"aten::linear": 30, "aten::addmm": 20}


def test_operators_of_another_thread_are_not_around(make_events):
    events = make_events(
        op(0, 50, "here", thread="1"),
        op(0, 50, "there", thread="2"),
        launch(1, 20, thread="2"),
        kernel(60, 70, launch=1),
    )
    assert by_name(events)["gpu_self_ns"].to_dict() == {"there": 10, "here": 0}


def test_an_external_id_stands_in_for_a_missing_launch(make_events):
    events = make_events(
        op(0, 50, "aten::mm", external_id=5),
        kernel(60, 70, external_id=5, correlation=9),
        launch(1, 80, thread="other", external_id=5, correlation=10),
        kernel(90, 92, launch=1, correlation=10),
    )
    assert by_name(events)["gpu_self_ns"].to_dict() == {"aten::mm": 12}


@pytest.mark.parametrize(
    "ids", [{"external_id": 5, "correlation": 5}, {"external_id": 7}, {"external_id": 0}, {}]
)
def test_work_that_nobody_is_known_to_have_started_is_kept(make_events, ids):
    events = make_events(
        op(0, 50, "aten::mm", external_id=5), op(0, 9, "x", external_id=0), kernel(60, 70, **ids)
    )
    table = by_name(events)
    assert table.loc["nobody", ["op_count", "kernel_count", "gpu_ns"]].tolist() == [0, 1, 10]


def test_without_operators_and_gpu_work_the_table_is_empty(make_events):
    assert analyze.operators(EVENTS.empty()).empty
    assert analyze.operators(make_events({"start_ns": 0, "category": "user_annotation"})).empty


@pytest.mark.oracle
@pytest.mark.parametrize(
    "file",
    [
        "nccl_parser_config/nccl_data.json.gz",
        "ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    ],
)
def test_nesting_finds_the_operator_that_the_profiler_recorded(file, real_events):
    """New traces carry the operator's id on the kernel: an independent answer."""
    events = real_events("kineto-hta", file)
    blind = events.assign(external_id=pd.Series(pd.NA, index=events.index, dtype="Int64"))
    operators, expected = events[events["category"] == "cpu_op"], {}
    names = operators.set_index("external_id")["name"]
    work = events[events["kind"].notna()]
    for name, duration in zip(names.loc[work["external_id"]], work["dur_ns"], strict=True):
        expected[name] = expected.get(name, 0) + duration
    found = by_name(blind)["gpu_self_ns"]
    assert found[found > 0].to_dict() == expected


@pytest.mark.oracle
def test_every_nanosecond_of_real_gpu_work_has_one_owner(real_events):
    events = real_events("kineto-dlrm-8rank", "dlrm_kineto.tar.gz")
    spent = events[events["kind"].notna()].groupby("rank")["dur_ns"].sum()
    owned = analyze.operators(events).groupby("rank")["gpu_self_ns"].sum()
    assert owned.to_dict() == spent.to_dict()


@pytest.mark.parametrize("category", ["cpu_op", "user_annotation"])
def test_operators_that_the_compiler_traces_are_in_no_sum(make_events, category):
    """Only the call after compilation, and the one that tunes a kernel, computed."""
    phase = "compile_inner (dynamo_timed)"
    events = make_events(
        op(0, 1_000, phase, category=category),
        op(100, 300, "aten::linear"), op(110, 290, "aten::mm"),
        op(400, 600, "aten::mm"), launch(1, 450), kernel(460, 500, launch=1),
        op(2_000, 2_050, "Torch-Compiled Region: 0/0"),
        op(2_010, 2_040, "aten::mm"), launch(2, 2_020), kernel(2_030, 2_090, launch=2),
        op(500, 700, "aten::mm", thread="other"),
    )  # fmt: skip
    table = by_name(events)
    assert table.loc["aten::mm", "op_count"] == 3
    assert table.loc["aten::mm", "total_ns"] == 200 + 30 + 200
    assert table.loc["aten::mm", "gpu_self_ns"] == 40 + 60
    assert "aten::linear" not in table.index
    if category == "cpu_op":
        assert table.loc[phase, "self_ns"] == 1_000 - 200


@given(trees(), st.integers(1, 60))
def test_operators_outside_of_the_compiler_keep_their_sums(make_events, rows, at):
    phase = op(100, 100 + at, "phase (dynamo_timed)")
    traced = [row | {"start_ns": 100 + row["start_ns"] * at // 64,
                     "end_ns": 100 + row["end_ns"] * at // 64} for row in rows]  # fmt: skip
    inside = [row for row in traced if row["start_ns"] < 100 + at]
    alone = by_name(make_events(*rows, phase))
    assert by_name(make_events(*rows, phase, *inside)).equals(alone)
