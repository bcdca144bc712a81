"""GPU time by module and phase: made cases, laws, brute force, SQL and PyTorch itself."""

import gzip
import json
import shutil
import sqlite3
from collections import Counter

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze, datasets, load
from workbench.analyze._traces.diff import matched
from workbench.analyze._traces.modules import phase_of
from workbench.errors import WorkbenchError
from workbench.tables import EVENTS, MODEL_TREE, PHASES, TRACE_DIFF


def frame(name, start, end, category="python_function", **more):
    return {"name": name, "start_ns": start, "end_ns": end, "category": category} | more


def module(name, start, end, **more):
    return frame(f"nn.Module: {name}", start, end, **more)


def launched(number, at, start, dur, name="kernel", kind="compute", **more):
    call = {"id": number, "name": "cudaLaunchKernel", "category": "cuda_runtime"} | more
    work = {"kind": kind, "name": name, "launch": number, "start_ns": start, "dur_ns": dur}
    return [call | {"start_ns": at, "dur_ns": 1}, work | {"rank": more.get("rank", 0)}]


# A host far ahead of its GPU: when the kernels of the first module run, the host is in the second,
# and the second module takes most of the host's time and least of the GPU's. Its backward pass runs
# the second module again (activation checkpointing) before it runs backward.
TRAINING = [
    module("Net_0", 0, 100),
    module("Linear_0", 5, 20),
    frame("aten::linear", 6, 19, "cpu_op", autograd_seq=7),
    *launched(1, 10, 30, 500),
    module("Linear_1", 25, 95),
    frame("aten::linear", 26, 94, "cpu_op", autograd_seq=8),
    *launched(2, 90, 530, 10),
    frame("autograd::engine::evaluate_function: AddmmBackward0", 600, 690, "cpu_op",
          autograd_seq=8, thread="2"),
    module("Linear_1", 610, 640, thread="2"),
    frame("aten::linear", 611, 639, "cpu_op", autograd_seq=0, thread="2"),
    *launched(3, 620, 700, 10, thread="2"),
    *launched(4, 650, 710, 40, thread="2"),
    frame("autograd::engine::evaluate_function: AddmmBackward0", 700, 790, "cpu_op",
          autograd_seq=7, thread="2"),
    *launched(5, 720, 760, 900, thread="2"),
    frame("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 800, 890,
          "cpu_op", thread="2"),
    *launched(6, 820, 1700, 3, thread="2"),
    *launched(7, 830, 1710, 70, name="ncclDevKernel", kind="communication", thread="2"),
    frame("Optimizer.step#AdamW.step", 900, 990, "user_annotation"),
    *launched(8, 950, 1800, 20),
    {"start_ns": 1900, "dur_ns": 5, "name": "lost", "kind": "compute"},
]  # fmt: skip


def by_path(table, *columns):
    return {
        row["path"].removeprefix("rank 0 > "): tuple(row[name] for name in columns)
        for row in table.to_dict("records")
    }


def test_work_counts_in_the_module_that_launched_it_not_in_the_one_that_runs_meanwhile(make_events):
    tree = MODEL_TREE.check(analyze.model_tree(make_events(*TRAINING)))
    columns = ("gpu_ns", "forward_ns", "backward_ns", "recompute_ns", "other_ns")
    assert by_path(tree, *columns) == {
        "rank 0": (1558, 510, 943, 10, 95),
        "[outside]": (5, 0, 0, 0, 5),
        # Nobody knows the module of accumulated gradients.
        "[backward]": (73, 0, 3, 0, 70),
        "Net_0": (1460, 510, 940, 10, 0),
        "Net_0 > Linear_0": (1400, 500, 900, 0, 0),
        "Net_0 > Linear_1": (60, 10, 40, 10, 0),
        "Optimizer.step#AdamW.step": (20, 0, 0, 0, 20),
    }
    host = by_path(tree, "cpu_ns", "call_count")
    assert host["Net_0 > Linear_0"] == (15, 1)
    assert host["Net_0 > Linear_1"] == (70 + 30, 2)


def test_a_module_that_runs_in_the_backward_pass_is_recomputed_not_forward(make_events):
    table = PHASES.check(analyze.phases(make_events(*TRAINING))).set_index("phase")
    assert table["gpu_ns"].to_dict() == {
        "forward": 510, "backward": 943, "recompute": 10, "optimizer": 20, "communication": 70,
        "other": 5,
    }  # fmt: skip
    assert table["gpu_share"].sum() == pytest.approx(1)


def test_a_number_that_two_threads_use_joins_nothing(make_events):
    other = frame("aten::relu", 1, 2, "cpu_op", autograd_seq=7, thread="3")
    tree = by_path(analyze.model_tree(make_events(*TRAINING, other)), "backward_ns")
    assert tree["Net_0 > Linear_0"] == (0,)
    assert tree["[backward]"] == (903,)


def test_layers_that_differ_by_their_number_can_be_one_node(make_events):
    tree = by_path(analyze.model_tree(make_events(*TRAINING), merged=True), "gpu_ns", "call_count")
    assert tree["Net > Linear"] == (1460, 3)


def test_functions_of_the_user_are_levels_where_they_are_asked_for(make_events):
    rows = [
        frame("train.py(3): step", 0, 90), frame("torch/nn/modules/module.py(9): _call", 1, 80),
        module("Net_0", 2, 70), *launched(1, 10, 100, 4),
    ]  # fmt: skip
    tree = analyze.model_tree(make_events(*rows), functions=True)
    assert tree["path"].iloc[-1] == "rank 0 > train.py(3): step > Net_0"


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("DistributedDataParallel.forward", 0), ("## backward ##", 1), ("forward-backward", -1),
        ("Optimizer.zero_grad#SGD.zero_grad", 3), ("FullyShardedDataParallel._post_backward", 1),
        ("opt-6.7b", -1), ("forwarding table", -1), ("_exec_forward_pass", 0), ("recompute", 2),
    ],
)  # fmt: skip
def test_ranges_tell_phases_by_whole_words(name, phase):
    assert phase_of(name) == phase


def test_micro_batches_are_those_of_the_ranges_around_the_launch(make_events):
    rows = [
        frame("Forward 0", 0, 10, "user_annotation"), *launched(1, 5, 100, 7),
        frame("Forward 1", 10, 20, "user_annotation"), *launched(2, 15, 107, 9),
        *launched(3, 30, 130, 1),
    ]  # fmt: skip
    table = analyze.phases(make_events(*rows), by="micro_batch")
    assert table["micro_batch"].tolist() == [pd.NA, 0, 1]
    assert table["gpu_ns"].tolist() == [1, 7, 9]


def test_without_gpu_work_there_is_no_tree(make_events):
    with pytest.raises(WorkbenchError, match="no GPU work, so no model tree"):
        analyze.model_tree(make_events(module("Net_0", 0, 9)))
    with pytest.raises(ValueError, match="by must be one of"):
        analyze.phases(EVENTS.empty(), by="module")


host_row = st.builds(
    lambda kind, name, start, dur, thread, rank: {
        "name": f"nn.Module: {name}" if kind == "python_function" else name, "category": kind,
        "start_ns": start, "dur_ns": dur, "thread": thread, "rank": rank,
    },
    st.sampled_from(["python_function", "user_annotation"]), st.sampled_from("ABC"),
    st.integers(0, 60), st.integers(1, 40), st.sampled_from("12"), st.integers(0, 1),
)  # fmt: skip
launch_row = st.tuples(
    st.integers(0, 99), st.integers(0, 50), st.sampled_from("12"), st.integers(0, 1)
)


@given(st.lists(host_row, max_size=10), st.lists(launch_row, min_size=1, max_size=8))
def test_every_level_adds_up_and_each_launch_counts_in_its_innermost_frame(
    make_events, host, launches
):
    rows = [
        row
        for number, (at, dur, thread, rank) in enumerate(launches)
        for row in launched(number, at, 1000 + at, dur, thread=thread, rank=rank)
    ]
    events = make_events(*host, *rows)
    tree = analyze.model_tree(events)
    roots = tree[tree["kind"] == "root"].set_index("rank")["gpu_ns"]
    spent = events[events["kind"].notna()].groupby("rank")["dur_ns"].sum()
    assert roots.to_dict() == spent.reindex(roots.index, fill_value=0).to_dict()
    assert tree.groupby("rank")["gpu_self_ns"].sum().to_dict() == roots.to_dict()
    below = tree.groupby(["rank", "parent"])["gpu_ns"].sum()
    for row in tree.to_dict("records"):
        children = below.get((row["rank"], row["node"]), 0)
        assert row["gpu_ns"] == row["gpu_self_ns"] + children
        phases = ("forward_ns", "backward_ns", "recompute_ns", "other_ns")
        assert row["gpu_ns"] == sum(row[name] for name in phases)
    # The quadratic way: of all frames around a launch, the last to begin, longest first.
    own = Counter()
    for at, dur, thread, rank in launches:
        around = [
            row
            for row in host
            if (row["thread"], row["rank"]) == (thread, rank)
            and row["start_ns"] <= at < row["start_ns"] + row["dur_ns"]
        ]
        frames = sorted(around, key=lambda row: (row["start_ns"], -row["dur_ns"]))
        name = frames[-1]["name"].removeprefix("nn.Module: ") if frames else "[outside]"
        own[rank, name] += dur
    got = tree.groupby(["rank", "name"])["gpu_self_ns"].sum()
    assert {key: value for key, value in got.items() if value} == {
        key: value for key, value in own.items() if value
    }


def test_pytorch_itself_draws_the_arrows_from_forward_to_backward_so(real_events):
    file = "nccl_parser_config/nccl_data.json.gz"
    tree = analyze.model_tree(real_events("kineto-hta", file))
    rows = json.loads(gzip.decompress((datasets.path("kineto-hta") / file).read_bytes()))
    assert arrows(rows["traceEvents"]) == {
        row["name"]: row["backward_ns"] for row in tree.to_dict("records") if row["backward_ns"]
        and row["name"] == "DistributedDataParallel.forward"
    }  # fmt: skip


def arrows(rows):
    """Add up backward kernels by the range in which the arrow to their operator begins."""
    ns = lambda row: (round(row["ts"] * 1000), round((row["ts"] + row.get("dur", 0)) * 1000))  # noqa: E731
    ends = {row["id"]: row for row in rows if row.get("cat") == "fwdbwd" and row["ph"] == "f"}
    starts = {row["id"]: row for row in rows if row.get("cat") == "fwdbwd" and row["ph"] == "s"}
    ranges = [ns(row) for row in rows if row["name"] == "DistributedDataParallel.forward"
              and row.get("cat") == "user_annotation"]  # fmt: skip
    origin = {
        (ns(end)[0], end["tid"]): any(low <= ns(starts[key])[0] < high for low, high in ranges)
        for key, end in ends.items()
    }
    # The arrow ends at the operator inside the row of the engine that runs it.
    engine = [
        (low, high, row["tid"]) for row in rows
        if row.get("cat") == "cpu_op" and row["name"].startswith("autograd::engine")
        for low, high in [ns(row)]
        if any(is_in and tid == row["tid"] and low <= at < high
               for (at, tid), is_in in origin.items())
    ]  # fmt: skip
    calls = {
        row["args"]["correlation"]: (ns(row)[0], row["tid"])
        for row in rows if row.get("cat") == "cuda_runtime"
    }  # fmt: skip
    total = 0
    for row in rows:
        if row.get("cat") not in {"kernel", "gpu_memset", "gpu_memcpy"} or "nccl" in row["name"]:
            continue
        at, thread = calls[row["args"]["correlation"]]
        if any(tid == thread and low <= at < high for low, high, tid in engine):
            total += round(row["dur"] * 1000)
    return {"DistributedDataParallel.forward": total}


@pytest.mark.slow
def test_ranges_of_nsight_systems_are_those_of_sql(real_data, tmp_path):
    copy = tmp_path / "ranges.sqlite"
    shutil.copy(real_data("nsight-systems") / "h100_2gpu_1s.sqlite", copy)
    copy.chmod(0o600)
    with sqlite3.connect(copy) as database:
        # As if a user had written the ranges: without the number, PyTorch's name is any name.
        database.execute("UPDATE NVTX_EVENTS SET text = substr(text, 1, instr(text, ',') - 1)")
        expected = database.execute("""
            SELECT name, SUM(ns) FROM (
                SELECT k.rowid, k.end - k.start AS ns, (
                    SELECT n.text FROM NVTX_EVENTS n
                    WHERE n.globalTid = r.globalTid AND n.start <= r.start AND r.start < n.end
                    ORDER BY n.start DESC, n.end LIMIT 1
                ) AS name
                FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
                ON r.correlationId = k.correlationId AND r.globalTid >> 24 = k.globalPid >> 24
            ) WHERE name IS NOT NULL GROUP BY name
        """).fetchall()
    events = load.traces(copy, progress=False).events
    kernels = events[(events["category"] == "kernel") | events["kind"].isna()]
    tree = analyze.model_tree(kernels)
    ranges = tree[tree["kind"] == "range"].groupby("name")["gpu_self_ns"].sum()
    assert ranges[ranges > 0].to_dict() == dict(expected)


@pytest.mark.parametrize("is_reentrant", [None, False, True])
def test_backward_operators_of_pytorch_return_to_their_module(make_events, tmp_path, is_reentrant):
    torch = pytest.importorskip("torch")
    table = analyze.model_tree(_profiled(torch, tmp_path, is_reentrant))
    table = table[table["kind"] == "module"].set_index("name")
    # An operator of its own per module says in which module each kernel belongs.
    for name in ("Tanh_0", "Softplus_0"):
        assert table.loc[name, "forward_ns"] == 100
        assert table.loc[name, "backward_ns"] == 10
        assert table.loc[name, "recompute_ns"] == (0 if is_reentrant is None else 100)
    assert table.loc["Sequential_0", "gpu_ns"] == table[["gpu_self_ns"]].sum().item()


def _profiled(torch, folder, is_reentrant):
    """Profile a model on the CPU and give four of its operators a kernel each."""
    from torch.utils.checkpoint import checkpoint

    model = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Linear(4, 4), torch.nn.Softplus())
    inputs = torch.ones(2, 4, requires_grad=True)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, with_stack=True) as profile:
        run = model if is_reentrant is None else checkpoint
        more = () if is_reentrant is None else (model, inputs)
        options = {} if is_reentrant is None else {"use_reentrant": is_reentrant}
        (run(*(more or (inputs,)), **options)).sum().backward()
    path = folder / "trace.json"
    profile.export_chrome_trace(str(path))
    trace = json.loads(path.read_text())
    length = {
        "aten::tanh": 100,
        "aten::softplus": 100,
        "TanhBackward0": 10,
        "SoftplusBackward0": 10,
    }
    rows = trace["traceEvents"]
    for number, row in enumerate([row for row in rows if row.get("name") in length], start=1):
        args = {"correlation": number, "device": 0, "stream": 7}
        rows += [
            row | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 0,
                   "args": {"correlation": number}, "ts": row["ts"]},
            {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": row["ts"] + 9999,
             "dur": length[row["name"]] / 1000, "args": args},
        ]  # fmt: skip
    path.write_text(json.dumps(trace))
    return load.traces(path, progress=False).events


def test_renamed_and_reordered_kernels_stay_under_their_module(make_events):
    """By name everything changed; by module the second layer became slower, and nothing else."""

    def run(kernels, numbers, slow):
        a, b = (f"Linear_{number}" for number in numbers)
        inner = [(a, 10), (b, slow)]
        rows = []
        for at, (name, dur) in enumerate(inner):
            start = 10 + 20 * at
            rows += [
                module(name, start, start + 15),
                frame("aten::linear", start + 1, start + 14, "cpu_op"),
                *launched(f"{name}.0", start + 2, 500 + 50 * at, dur // 2, kernels[0]),
                *launched(f"{name}.1", start + 5, 520 + 50 * at, dur - dur // 2, kernels[1]),
            ]
        return make_events(module("Net_0", 0, 100), *rows)

    a = run(("sgemm_v1", "bias"), (0, 1), 20)
    b = run(("cutlass_0xabc", "sgemm_v2"), (8, 9), 26)
    assert set(analyze.trace_diff(a, b)["change"].iloc[:4]) == {"added", "removed"}
    table = TRACE_DIFF.check(analyze.trace_diff(a, b, by="module"))
    assert set(table["change"]) == {"both"}
    assert table.set_index("name")["difference_ns"].to_dict() == {
        "Net > Linear[1] > aten::linear": 6, "Net > Linear[0] > aten::linear": 0,
    }  # fmt: skip


def test_a_new_layer_is_added_and_its_neighbours_are_still_the_same(make_events):
    def run(*names):
        rows = []
        for at, name in enumerate(names):
            rows += [module(name, 10 * at, 10 * at + 9), *launched(name, 10 * at + 1, 999, 5)]
        return make_events(*rows)

    a, b = run("Norm_0", "Linear_0"), run("Linear_0", "Drop_0", "Norm_0")
    table = analyze.trace_diff(a, b, by="module").set_index("name")
    assert table["change"].to_dict() == {"Drop": "added", "Linear": "both", "Norm": "both"}


some = st.lists(st.tuples(st.sampled_from("ABC"), st.integers(0, 9)), min_size=1, max_size=6)


@pytest.mark.long
@given(some, some)
def test_differences_by_module_add_up_to_the_difference_of_gpu_time(make_events, a, b):
    def run(layers):
        rows = []
        for at, (name, dur) in enumerate(layers):
            rows += [module(f"{name}_{at}", 10 * at, 10 * at + 9),
                     *launched(at, 10 * at + 1, 999, dur)]  # fmt: skip
        return make_events(*rows)

    table = analyze.trace_diff(run(a), run(b), by="module")
    assert table["a_total_ns"].sum() == sum(dur for _, dur in a)
    assert table["difference_ns"].sum() == sum(d for _, d in b) - sum(d for _, d in a)
    back = analyze.trace_diff(run(b), run(a), by="module")
    assert back["difference_ns"].sum() == -table["difference_ns"].sum()
    itself = analyze.trace_diff(run(a), run(a), by="module")
    assert set(itself["change"]) == {"both"}
    assert (itself["difference_ns"] == 0).all()


@given(st.lists(st.sampled_from("ab"), max_size=9), st.lists(st.sampled_from("abc"), max_size=9))
def test_every_child_is_matched_once_and_as_many_as_have_a_name_in_common(a, b):
    pairs = matched(a, b)
    for side, names in enumerate((a, b)):
        assert sorted(p[side] for p in pairs if p[side] >= 0) == list(range(len(names)))
    both = [(i, j) for i, j in pairs if min(i, j) >= 0]
    assert all(a[i] == b[j] for i, j in both)
    assert len(both) == sum((Counter(a) & Counter(b)).values())


def test_a_layer_that_was_compiled_shows_where_it_is(real_events):
    a, b = (real_events("kineto-hta", f"trace_diff/{name}/{name}.json.gz")
            for name in ("control", "test"))  # fmt: skip
    table = analyze.trace_diff(a, b, by="module")
    spent = [events.loc[events["kind"].notna(), "dur_ns"].sum() for events in (a, b)]
    assert [table["a_total_ns"].sum(), table["b_total_ns"].sum()] == spent
    layer = "## forward ## > ## forward:over_arch ## > "
    changes = table.set_index("name")["change"]
    assert changes[f"{layer}CompiledFunctionBackward"] == "added"
    assert changes[f"{layer}AddmmBackward0"] == "removed"
