"""A simulated job: reproducible, coherent in all telemetry, with exactly the faults it names."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data import make
from data.make import FLEET_TRUTH
from data.make._fleet.engine import Engine
from data.make._fleet.power import window_mean
from data.make._fleet.program import Cluster, plan, training_step
from workbench import load
from workbench.errors import LoadError


def contents(folder):
    """Read every file below a folder, unpacked, so that only the content counts."""
    return {
        path.relative_to(folder).as_posix(): (
            gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def trace(fleet_demo):
    return load.traces(fleet_demo / "traces", progress=False)


@pytest.fixture(scope="module")
def demo(trace):
    return trace.events


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("healthy") / "job"
    truth = make.fleet(folder, seed=7, faults=())
    assert truth.empty
    return folder


@pytest.fixture(scope="module")
def healthy_events(healthy):
    return load.traces(healthy / "traces", progress=False).events


@pytest.fixture(scope="module")
def truth(fleet_demo):
    return make.fleet_truth(fleet_demo)


def fault(truth, what, unit=""):
    rows = truth[(truth["what"] == what) & truth["unit"].str.startswith(unit)]
    return rows.iloc[0]


def gpu_work(events, kind):
    return events[events["kind"] == kind].assign(end_ns=lambda t: t["start_ns"] + t["dur_ns"])


def instances(events):
    """Give the collectives with the key that the profiler gives each instance."""
    work = gpu_work(events, "communication")
    keys = work[["group", "seq"]].astype({"group": str})
    return work.assign(group=keys["group"], key=keys["group"] + "/" + keys["seq"].astype(str))


def blamed(events):
    """Add up, per rank, how long others waited for it: the definition, written plainly."""
    work = instances(events)
    latest = work.groupby("key")["start_ns"].transform("max")
    last = work.loc[work.groupby("key")["start_ns"].idxmax()].set_index("key")["rank"]
    waits = (latest - work["start_ns"]).groupby(work["key"]).sum()
    return waits.groupby(last).sum().reindex(range(8), fill_value=0)


@pytest.mark.long
def test_the_bundled_set_is_what_its_command_makes(fleet_demo, tmp_path):
    truth = make.fleet(tmp_path / "again", seed=7)
    assert contents(tmp_path / "again") == contents(fleet_demo)
    pd.testing.assert_frame_equal(truth, make.fleet_truth(fleet_demo))


@pytest.mark.long
def test_another_seed_is_another_job(tmp_path):
    jobs = []
    for seed in (8, 9):
        make.fleet(tmp_path / str(seed), seed=seed, ranks=2, gpus_per_node=2, steps=1)
        jobs.append(contents(tmp_path / str(seed)))
    same = {name for name in jobs[0] if jobs[0][name] == jobs[1][name]}
    assert set(jobs[0]) == set(jobs[1])
    assert not any(name.startswith(("traces", "power")) for name in same)


def test_compressed_files_carry_no_time(fleet_demo):
    for path in (fleet_demo / "traces").iterdir():
        assert path.read_bytes()[4:8] == b"\0\0\0\0"


@pytest.mark.long
def test_every_file_says_that_it_is_synthetic(fleet_demo):
    for name, content in contents(fleet_demo).items():
        assert "synthetic" in name or b"ynthetic" in content or name == "truth.csv", name
    for name, content in contents(fleet_demo).items():
        if name.startswith("traces/"):
            assert json.loads(content)["synthetic"] is True


def test_the_loader_has_nothing_to_say_about_the_traces(trace):
    quality = trace.quality
    assert set(quality["finding"]) == {"read", "skipped by design", "noted"}
    noted = quality.loc[quality["finding"] == "noted", "what"]
    assert set(noted) == {"the file says that it is synthetic"}
    assert trace.ranks["rank"].tolist() == list(range(8))
    assert set(trace.ranks["rank_source"]) == {"trace"}
    assert set(trace.ranks["clock"]) == {"epoch"}
    assert sorted(trace.steps["step"].unique()) == [10, 11, 12, 13, 14, 15]


def test_all_gpu_work_has_a_launch_that_came_first_and_a_step(demo):
    work = demo[demo["kind"].notna()]
    assert work["launch"].notna().all()
    launches = demo.loc[work["launch"].astype("int64")]
    assert (launches["start_ns"].to_numpy() < work["start_ns"].to_numpy()).all()
    assert (launches["correlation"].to_numpy() == work["correlation"].to_numpy()).all()
    assert work["step"].notna().all()


def test_work_on_one_stream_never_overlaps(demo):
    work = demo[demo["kind"].notna()].sort_values(["rank", "stream", "start_ns"])
    grouped = work.groupby(["rank", "stream"])
    previous_end = (
        (work["start_ns"] + work["dur_ns"]).groupby([work["rank"], work["stream"]]).shift()
    )
    assert (work["start_ns"] >= previous_end.fillna(0)).all()
    assert grouped.ngroups == 8 * 3


def test_collectives_end_together_once_the_last_rank_has_come(demo):
    work = instances(demo)
    size = work.groupby("key").size()
    assert (size == work.groupby("key")["group_size"].first()).all()
    spread = work.groupby("key")["end_ns"].agg(lambda ends: ends.max() - ends.min())
    assert spread.max() < 1_000
    assert (work.groupby("key")["end_ns"].min() > work.groupby("key")["start_ns"].max()).all()


@pytest.mark.parametrize(("group", "bus"), [("0", "job"), ("1", "node"), ("2", "node")])
def test_large_collectives_reach_the_bandwidth_of_the_network(demo, group, bus):
    work = instances(demo)
    work = work[(work["group"] == group) & (work["collective"] != "allreduce")]
    largest = work[["in_count", "out_count"]].max(axis=1).groupby(work["key"]).max()
    members = work.groupby("key")["group_size"].first()
    transfer = work.groupby("key")["dur_ns"].min()
    achieved = 2 * largest * (members - 1) / members / transfer
    limit = getattr(Cluster(), f"{bus}_bus_bytes_per_s") / 1e9
    assert achieved.astype("float64").between(0.94 * limit, 1.025 * limit).all()


def test_a_step_takes_as_long_as_its_slowest_rank(fleet_demo, trace):
    steps = trace.steps
    longest = steps.groupby("step")["dur_ns"].max() / 1e6
    log = read_log(fleet_demo)
    logged = log[(log["event"] == "step") & (log["attempt"] == 1)].set_index("step")
    shown = logged.loc[longest.index.to_numpy(), "step_time_ms"]
    assert shown.to_numpy() == pytest.approx(longest.to_numpy(), abs=0.001)


def test_cuda_sync_rows_point_at_events_that_were_recorded(demo):
    waits = demo[(demo["category"] == "cuda_sync") & demo["wait_correlation"].notna()]
    records = demo[demo["name"] == "cudaEventRecord"]
    known = set(zip(records["rank"], records["correlation"], strict=True))
    assert len(waits) > 3_000
    assert set(zip(waits["rank"], waits["wait_correlation"], strict=True)) <= known


def test_the_profiled_format_is_complete(fleet_demo):
    text = gzip.decompress((fleet_demo / "traces/synthetic_rank_5.pt.trace.json.gz").read_bytes())
    trace = json.loads(text)
    assert trace["schemaVersion"] == 1
    assert trace["baseTimeNanoseconds"] % (7_889_238 * 10**9) == 0
    assert trace["distributedInfo"]["rank"] == 5
    groups = {g["pg_desc"]: g["ranks"] for g in trace["distributedInfo"]["pg_config"]}
    assert groups == {"default_pg": list(range(8)), "mesh_expert": [4, 5, 6, 7]}
    events = trace["traceEvents"]
    assert events[-1]["name"] == "Record Window End"
    arrows = pd.Series([e["id"] for e in events if e.get("cat") == "ac2g"]).value_counts()
    assert set(arrows) == {2}
    launches = {e["args"]["correlation"] for e in events if e.get("cat") == "kernel"}
    assert launches <= set(arrows.index)


def test_cpu_calls_are_nested(demo):
    calls = demo[demo["category"].isin(["cpu_op", "cuda_runtime"]) & (demo["rank"] == 0)]
    for _, thread in calls.groupby("thread", observed=True):
        open_ends = []
        for start, dur in zip(thread["start_ns"], thread["dur_ns"], strict=True):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or start + dur <= open_ends[-1]
            open_ends.append(start + dur)


def test_the_slow_rank_is_the_most_blamed(demo, truth):
    slow = fault(truth, "slow rank")
    shares = blamed(demo) / blamed(demo).sum()
    assert shares.idxmax() == slow["rank"]
    assert shares.max() > 0.6


def test_in_a_healthy_job_nobody_is_much_to_blame(healthy_events, demo):
    assert blamed(healthy_events).sum() < 0.05 * blamed(demo).sum()


def test_late_steps_blame_the_late_host(demo, truth):
    late = truth[truth["what"] == "late host"]
    assert late["first_step"].tolist() == [11, 14]
    before_the_slow_rank = demo[demo["step"] == 11]
    assert blamed(before_the_slow_rank).idxmax() == late["rank"].iloc[0]
    loader = demo[demo["name"].astype(str).str.startswith("enumerate(DataLoader)")]
    means = loader.groupby(["rank", "step"])["dur_ns"].mean() / 1e6
    usual = means.median()
    longer = means[means > usual + 20]
    assert list(longer.index) == [(late["rank"].iloc[0], 11), (late["rank"].iloc[0], 14)]
    assert longer.to_numpy() - usual == pytest.approx(late["size"].to_numpy(), abs=1.5)


def test_only_the_named_gpus_compute_longer_and_by_the_named_factor(demo, healthy_events, truth):
    slow, cap = fault(truth, "slow rank"), fault(truth, "power cap", "x")
    ratio = compute_ns(demo) / compute_ns(healthy_events)
    expected = pd.Series(1.0, index=ratio.index)
    steps = expected.index.get_level_values("step")
    ranks = expected.index.get_level_values("rank")
    for row in (slow, cap):
        hit = (ranks == row["rank"]) & (steps >= row["first_step"]) & (steps <= row["last_step"])
        expected[hit] = row["size"]
    assert ratio.to_numpy(dtype=float) == pytest.approx(expected.to_numpy(), abs=2e-5)


def compute_ns(events):
    work = events[events["kind"] == "compute"]
    return work.groupby(["rank", "step"])["dur_ns"].sum()


def read_power(folder, node):
    log = pd.read_csv(folder / f"power/synthetic_{node}_nvidia_smi.csv", skipinitialspace=True)
    time = pd.to_datetime(log["timestamp"], format="%Y/%m/%d %H:%M:%S.%f", utc=True)
    numbers = log.drop(columns="timestamp").apply(
        lambda column: pd.to_numeric(column.astype(str).str.extract(r"^([\d.]+)")[0])
    )
    numbers["reasons"] = log["clocks_event_reasons.active"].map(lambda cell: int(cell, 16))
    numbers["time_ns"] = time.dt.as_unit("ns").astype("int64")
    return numbers.set_index("index")


def test_the_power_cap_shows_in_power_clock_and_kernels(fleet_demo, truth):
    cap = fault(truth, "power cap", "W")
    device = int(cap["rank"]) % 4
    log = read_power(fleet_demo, cap["node"])
    inside = log[(log["time_ns"] > cap["start_ns"] + 1e9) & (log["time_ns"] < cap["end_ns"])]
    inside = inside[inside["utilization.gpu [%]"] >= 95]  # not while a checkpoint is written
    capped, others = inside.loc[device], inside.drop(index=device)
    assert set(capped["enforced.power.limit [W]"]) == {cap["size"]}
    assert set(capped["reasons"]) == {0x4}
    assert set(others["reasons"]) == {0}
    assert capped["power.draw [W]"].max() <= cap["size"] + 2
    assert others["power.draw [W]"].min() > capped["power.draw [W]"].max()
    clocks = others["clocks.current.sm [MHz]"].max() / capped["clocks.current.sm [MHz]"].max()
    assert clocks == pytest.approx(fault(truth, "power cap", "x")["size"], abs=1e-6)


def test_power_follows_what_the_gpu_does(fleet_demo, demo, truth):
    fail = fault(truth, "failing node")
    log = read_power(fleet_demo, "node002").loc[1]
    start = demo["start_ns"].min()
    running = log[(log["time_ns"] > start + 2e9) & (log["time_ns"] < fail["start_ns"])]
    hung = log[(log["time_ns"] > fail["start_ns"] + 1.6e9) & (log["time_ns"] < fail["end_ns"])]
    down = log[log["time_ns"].between(fail["end_ns"] + 2e9, fail["end_ns"] + 20e9)]
    power = [part["power.draw [W]"].median() for part in (running, hung, down)]
    assert power == pytest.approx([530, 240, 95], abs=40)
    assert hung["utilization.gpu [%]"].min() == 100
    assert down["utilization.gpu [%]"].max() == 0


@given(
    st.lists(st.tuples(st.integers(1, 10**9), st.floats(90, 700)), min_size=1, max_size=30),
    st.integers(0, 10**9),
)
def test_sampling_conserves_energy(pieces, offset):
    """Second-long windows laid end to end over any load hold exactly its energy."""
    lengths = np.array([length for length, _ in pieces], dtype=np.int64)
    edges = np.concatenate([[0], np.cumsum(lengths)])
    watts = np.array([power for _, power in pieces] + [95.0])
    samples = 10**9 * np.arange(0, edges[-1] // 10**9 + 3) + offset
    energy = window_mean(edges, watts, samples).sum() * 1e9
    covered = samples[-1] - samples[0] + 10**9
    expected = 95 * (covered - edges[-1]) + (watts[:-1] * lengths).sum()
    assert energy == pytest.approx(expected, rel=1e-9)


def read_log(folder):
    log = pd.DataFrame(map(json.loads, (folder / "steps.jsonl").read_text().splitlines()))
    return log.assign(time=pd.to_datetime(log["time"], utc=True).dt.as_unit("ns"))


def test_the_node_meter_sees_its_gpus(fleet_demo):
    gpus = read_power(fleet_demo, "node002")
    lines = (fleet_demo / "power/synthetic_node002_ac.txt").read_text().splitlines()
    rows = pd.DataFrame([json.loads(line.removeprefix(":::MLLOG ")) for line in lines])
    meter = rows[rows["key"] == "power_reading"].set_index("time_ms")["value"].astype(float)
    total = gpus.groupby(gpus["time_ns"] // 500_000_000 * 500)["power.draw [W]"].sum()
    assert meter.to_numpy() == pytest.approx(
        (950 + 1.06 * total.loc[meter.index]).to_numpy() / 0.95, abs=1
    )


def test_the_failure_is_the_same_in_every_log(fleet_demo, truth):
    fail, restart = fault(truth, "failing node"), fault(truth, "job restart")
    kernel = (fleet_demo / f"failures/synthetic_{fail['node']}_kernel.log").read_text()
    xid = next(line for line in kernel.splitlines() if f": {fail['size']:.0f}, pid=" in line)
    at = pd.Timestamp(xid.split()[3].replace(",", "."))
    assert abs(at.value - fail["start_ns"]) < 1_000
    others = [
        p for p in (fleet_demo / "failures").glob("*kernel.log") if fail["node"] not in p.name
    ]
    assert len(others) == 2
    assert not any("Xid" in path.read_text() for path in others)
    jobs = pd.read_csv(fleet_demo / "failures/synthetic_sacct.txt", sep="|")
    jobs = jobs[~jobs["JobID"].astype(str).str.contains(".", regex=False)]
    assert jobs["State"].tolist() == ["NODE_FAIL", "COMPLETED"]
    assert pd.Timestamp(jobs["End"].iloc[0]).value // 10**9 == fail["end_ns"] // 10**9
    assert fail["node"][-3:] not in jobs["NodeList"].iloc[1]
    log = read_log(fleet_demo)
    events = log.drop_duplicates("event").set_index("event")["time"]
    assert events["interrupt"].value // 1000 == fail["start_ns"] // 1000
    assert events["detected"].value // 1000 == restart["start_ns"] // 1000


def test_the_job_goes_on_from_its_last_checkpoint(fleet_demo, truth):
    log = read_log(fleet_demo)
    assert log["time"].is_monotonic_increasing
    saved = log[log["event"] == "checkpoint_end"]
    fail = fault(truth, "failing node")
    before = saved[saved["time"] < pd.Timestamp(fail["start_ns"], tz="UTC")]
    steps = log[log["event"] == "step"]
    again = steps[steps["attempt"] == 2]["step"]
    assert again.min() == before["step"].max() == fault(truth, "job restart")["first_step"]
    assert steps[steps["attempt"] == 1]["step"].tolist() == list(range(int(fail["first_step"])))
    assert again.is_monotonic_increasing
    assert again.max() + 1 == log["step"].iloc[-1]


def test_the_lost_gpu_falls_silent_and_the_spare_takes_over(fleet_demo, truth):
    fail = fault(truth, "failing node")
    lost = read_power(fleet_demo, fail["node"]).loc[int(fail["rank"]) % 4]
    assert lost["time_ns"].max() < fail["start_ns"] + 1e9
    spare = read_power(fleet_demo, "node003")
    before, after = (
        spare[spare["time_ns"] < fail["end_ns"]],
        spare[spare["time_ns"] > fail["end_ns"]],
    )
    assert before["power.draw [W]"].max() < 100
    assert (after.groupby("index")["power.draw [W]"].max() > 500).all()


def test_the_truth_fits_its_table(truth):
    FLEET_TRUTH.check(truth)
    assert (truth["end_ns"] > truth["start_ns"]).all()
    assert truth["what"].unique().tolist() == [*make.FAULTS, "job restart"]


@settings(max_examples=12)
@given(
    seed=st.integers(min_value=0, max_value=10_000),
    shape=st.sampled_from([(2, 2), (4, 2), (4, 4), (8, 4), (8, 8), (12, 4)]),
)
def test_whatever_the_seed_the_slow_rank_is_last_most_often(seed, shape):
    ranks, per_node = shape
    job = plan(seed=seed, ranks=ranks, gpus_per_node=per_node, steps=3, faults=["slow rank"])
    program = training_step(job.cluster, ranks, per_node)
    engine = Engine(job, program, attempt=1, start_ns=job.start_ns)
    step = engine.run(job.faults.slow_first_step)
    collectives = [at for at, op in enumerate(program) if op.group == "job" and op.in_count > 1]
    last = step.gpu_start[collectives].argmax(axis=1)
    assert np.bincount(last, minlength=ranks).argmax() == job.faults.slow_rank
    for name in ("call_end", "host_end", "gpu_end"):
        begin = getattr(step, name.replace("end", "start"))
        assert (getattr(step, name) >= begin).all()


@given(seed=st.integers(min_value=0, max_value=10_000), steps=st.integers(1, 12))
def test_faults_hit_different_ranks_inside_the_traced_window(seed, steps):
    job = plan(seed=seed, ranks=8, gpus_per_node=4, steps=steps, faults=make.FAULTS)
    faults = job.faults
    hit = {faults.slow_rank, faults.late_rank, faults.capped_rank, faults.failing_rank}
    assert len(hit) == 4
    window = range(job.first_traced_step, job.last_traced_step + 1)
    assert faults.slow_first_step in window
    assert faults.cap_first_step in window
    assert set(faults.late_steps) <= set(window)


@pytest.mark.parametrize("ranks", [2, 6])
def test_small_jobs_load_too(ranks, tmp_path):
    make.fleet(tmp_path / "job", seed=1, ranks=ranks, gpus_per_node=2, steps=1, faults=())
    trace = load.traces(tmp_path / "job" / "traces", progress=False)
    assert trace.ranks["world_size"].tolist() == [ranks] * ranks
    sacct = (tmp_path / "job/failures/synthetic_sacct.txt").read_text()
    assert "NODE_FAIL" not in sacct


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": 1, "gpus_per_node": 1}, "ranks=1: a job needs at least 2 ranks"),
        ({"ranks": 8, "gpus_per_node": 3}, "gpus_per_node=3 must be at least 2 and divide ranks=8"),
        ({"steps": 0}, "steps=0: at least one step must be traced"),
        ({"faults": ["fire"]}, r"unknown faults \['fire'\]; choose from \['slow rank'"),
    ],
)
def test_impossible_jobs_are_refused(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        make.fleet(tmp_path / "job", seed=1, **options)
    assert not (tmp_path / "job").exists()


def test_existing_files_are_never_overwritten(tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(FileExistsError, match="is not empty; name a new folder"):
        make.fleet(tmp_path, seed=1)


def test_a_folder_without_truth_is_an_error(tmp_path):
    with pytest.raises(LoadError, match=r"pass a folder written by data\.make"):
        make.fleet_truth(tmp_path)
