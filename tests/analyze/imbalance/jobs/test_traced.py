"""Operations of a job from traces of its ranks: times of the GPU, not of the host that launches."""

import json

import pandas as pd
import pytest

from data import make
from workbench import analyze, load
from workbench.errors import WorkbenchError

SHORT = {
    "forward-compute": "F",
    "backward-compute": "B",
    "forward-send": "SEND_F",
    "forward-recv": "RECV_F",
    "backward-send": "SEND_B",
    "backward-recv": "RECV_B",
}
RANKS, STAGES, BATCHES, STEPS = 3, 2, 4, 3
SHAPE = (RANKS, STAGES, BATCHES, STEPS)


def job(causes=None):
    """Simulate a job; keep what stands in its traces."""
    rows = make.pipeline_job(causes, seed=5, shape=SHAPE).operations
    rows = rows[rows["operation"].isin(list(SHORT))]
    return rows.assign(operation=rows["operation"].cat.remove_unused_categories())


def records(rows, *, name_of, marks_steps):
    """Write one rank as Kineto does: a host that runs ahead, kernels where the truth has them."""
    made, number = [], 0
    for step, operations in rows.groupby("step"):
        begin = operations["start_ns"].min()
        for at, row in enumerate(operations.sort_values("start_ns").itertuples()):
            # Each range takes 10 us on the host, whatever it takes on the GPU.
            number, host = number + 2, begin / 1e3 - 900 + 20 * at
            passes = row.operation in ("forward-compute", "backward-compute")
            kernel = "gemm" if passes else "ncclDevKernel_SendRecv"
            thread = 2 if row.operation == "backward-compute" else 1
            made.append({"name": name_of(row), "cat": "user_annotation", "tid": 1, "ts": host,
                         "dur": 10})  # fmt: skip
            half = row.dur_ns // 2
            for part in (0, 1):
                link = {"correlation": number + part, "stream": 7 if passes else 20, "device": 0}
                start = int(row.start_ns) + part * half
                length = row.dur_ns - half if part else half
                made += [
                    {"name": "cudaLaunchKernel", "cat": "cuda_runtime", "tid": thread,
                     "ts": host + 1 + part, "dur": 1, "args": link},
                    {"name": kernel, "cat": "kernel", "pid": 0, "tid": link["stream"],
                     "ts": start / 1e3, "dur": length / 1e3, "args": link},
                ]  # fmt: skip
        if marks_steps:
            made.append({"name": f"ProfilerStep#{step}", "cat": "user_annotation", "tid": 1,
                         "ts": begin / 1e3 - 950, "dur": 800})  # fmt: skip
    return [{"ph": "X", "pid": 1, **record} for record in made]


def action(row):
    """Name an operation as torch.distributed.pipelining does."""
    number = row.sequence if pd.isna(row.micro_batch) else row.micro_batch
    return f"PP:{row.stage}{SHORT[row.operation]}{number}"


def traced(rows, folder, *, name_of=action, marks_steps=True, tensor=1):
    """Write and load the traces of a job; ranks of a stage follow each other."""
    files = []
    for (stage, dp_rank), operations in rows.groupby(["stage", "dp_rank"]):
        for twin in range(tensor):
            rank = int(stage * RANKS + dp_rank) * tensor + twin
            # The second rank of a tensor-parallel group is 1 us slower in everything.
            late = operations.assign(dur_ns=operations["dur_ns"] + 1_000 * twin)
            events = records(late, name_of=name_of, marks_steps=marks_steps)
            world = RANKS * STAGES * tensor
            about = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": world}}
            files.append(folder / f"rank_{rank}.json")
            files[-1].write_text(json.dumps({**about, "traceEvents": events}))
    return load.traces(files, progress=False).events


def plain(table):
    """Give what must be equal, in one order and with plain types; times from the first start."""
    table = table.assign(start_ns=table["start_ns"] - table["start_ns"].min())
    table = table.astype({"operation": str, "micro_batch": "Int64", "chunk": "Int64"})
    keys = ["step", "dp_rank", "stage", "operation", "sequence"]
    return table.sort_values(keys, ignore_index=True)[[*keys, "micro_batch", "chunk", "start_ns",
                                                       "dur_ns"]]  # fmt: skip


def test_traces_give_the_operations_that_ran(tmp_path):
    truth = job({"slow worker": 1.8})
    found = analyze.job_operations(traced(truth, tmp_path))
    pd.testing.assert_frame_equal(plain(found), plain(truth), check_dtype=False)
    assert found.attrs["left_out"] == {}


def test_the_slow_worker_is_found_although_all_hosts_take_the_same_time(tmp_path):
    truth = job({"slow worker": 1.8})
    events = traced(truth, tmp_path)
    hosts = events[events["name"].astype(str).str.startswith("PP:")]
    assert hosts["dur_ns"].nunique() == 1
    (row,) = analyze.job_slowdown(analyze.job_operations(events)).to_dict("records")
    (expected,) = analyze.job_slowdown(truth).to_dict("records")
    assert row["verdict"] == expected["verdict"] == "worker"
    assert row["slowdown_ratio"] == pytest.approx(expected["slowdown_ratio"], rel=1e-6)


def test_without_marked_steps_runs_of_the_schedule_are_counted(tmp_path):
    truth = job()
    found = analyze.job_operations(traced(truth, tmp_path, marks_steps=False))
    assert sorted(found["step"].unique()) == list(range(STEPS))
    truth["step"] = truth["step"].rank(method="dense").astype("int64") - 1
    pd.testing.assert_frame_equal(plain(found), plain(truth), check_dtype=False)


def test_ranks_of_a_tensor_parallel_group_share_rows_until_the_last_is_done(tmp_path):
    truth = job()
    found = analyze.job_operations(traced(truth, tmp_path, tensor=2), tensor_ranks=2)
    truth["dur_ns"] += 1_000
    pd.testing.assert_frame_equal(plain(found), plain(truth), check_dtype=False)


def word(row):
    names = {"forward-compute": "Forward", "backward-compute": "Backward"}
    return f"{names.get(row.operation, 'Transfer')} {action(row)[-1]}"


def test_names_without_a_stage_need_the_stage_of_each_rank(tmp_path):
    truth = job()
    events = traced(truth, tmp_path, name_of=word)
    with pytest.raises(WorkbenchError, match=r"stage of ranks \[0, 1, 2, 3, 4, 5\].*stages="):
        analyze.job_operations(events)
    stages = {rank: rank // RANKS for rank in range(RANKS * STAGES)}
    found = analyze.job_operations(events, stages=stages)
    passes = truth[truth["operation"].isin(["forward-compute", "backward-compute"])]
    pd.testing.assert_frame_equal(plain(found), plain(passes), check_dtype=False)


def test_ranges_that_launched_nothing_are_counted(tmp_path):
    truth = job()
    events = traced(truth, tmp_path)
    is_lost = events["kind"].notna() & (events["rank"] == 0) & (events["step"] == 0)
    found = analyze.job_operations(events[~is_lost])
    lost = ((truth["dp_rank"] == 0) & (truth["stage"] == 0) & (truth["step"] == 0)).sum()
    assert found.attrs["left_out"] == {"ranges without GPU work": lost}
    assert len(found) == len(truth) - lost


def test_traces_of_the_host_alone_are_refused(tmp_path):
    events = traced(job(), tmp_path)
    with pytest.raises(WorkbenchError, match="launched no GPU work; record CUDA activities"):
        analyze.job_operations(events[events["kind"].isna()])


def test_a_missing_rank_is_no_reason_to_pair_ranks_of_other_pipelines(tmp_path):
    events = traced(job(), tmp_path)
    with pytest.raises(WorkbenchError, match="stage 0: 2, stage 1: 3"):
        analyze.job_operations(events[events["rank"] != 1])


def test_traces_without_a_pipeline_are_refused(tmp_path):
    events = traced(job(), tmp_path)
    with pytest.raises(WorkbenchError, match="no range of these traces is named like"):
        analyze.job_operations(events[~events["name"].astype(str).str.startswith("PP:")])


def test_a_split_backward_pass_is_refused(tmp_path):
    events = traced(job(), tmp_path, name_of=lambda row: action(row).replace("B", "W", 1)
                    if row.operation == "backward-compute" else action(row))  # fmt: skip
    with pytest.raises(WorkbenchError, match="weight gradients as operations of their own"):
        analyze.job_operations(events)


def test_ranges_inside_each_other_are_refused(tmp_path):
    events = traced(job(), tmp_path)
    names = events["name"].astype(str)
    longer = events["dur_ns"].where(~names.str.startswith("PP:"), events["dur_ns"] * 3)
    with pytest.raises(WorkbenchError, match=r"rank 0: the range 'PP:.*' overlaps the next"):
        analyze.job_operations(events.assign(dur_ns=longer))
