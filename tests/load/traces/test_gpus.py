"""A GPU is a rank: processes with several GPUs in every format."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.load.traces.xplane.xplane_files import add_line, space_class
from workbench import analyze, datasets, load
from workbench.errors import WorkbenchError

US = 1000
GEMM, REDUCE = "sgemm_128x64", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def loaded(path, **options):
    return load.traces(path, progress=False, **options)


def stored(folder, events, name="a.json", **metadata):
    path = folder / name
    path.write_text(json.dumps({"schemaVersion": 1, **metadata, "traceEvents": events}))
    return path


def on_gpu(device, start, dur, name=GEMM, *, stream=7, correlation=0, cat="kernel"):
    args = {"device": device, "stream": stream, "correlation": correlation}
    return {"ph": "X", "cat": cat, "name": name, "pid": device, "tid": stream, "ts": start,
            "dur": dur, "args": args}  # fmt: skip


def call(start, correlation, *, tid=1, name="cudaLaunchKernel", dur=2):
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 900, "tid": tid, "ts": start,
            "dur": dur, "args": {"correlation": correlation}}  # fmt: skip


def on_host(start, dur, name, cat="cpu_op"):
    return {"ph": "X", "cat": cat, "name": name, "pid": 900, "tid": 1, "ts": start, "dur": dur}


def findings_of(path):
    return analyze.findings(load.bundle(path)).findings


def told(trace, text):
    return trace.quality[trace.quality["what"].str.contains(text, regex=False)]


def test_two_gpus_that_take_turns_are_busy_half_of_the_time_each(tmp_path):
    """The union of both is busy all of the time, which is the figure of neither."""
    events = [call(0, 1), call(6, 2), on_gpu(0, 20, 500, correlation=1),
              on_gpu(1, 520, 500, correlation=2)]  # fmt: skip
    path = stored(tmp_path, events)
    trace = loaded(path)
    assert analyze.time_breakdown(trace.events)["busy_ns"].tolist() == [500 * US] * 2
    finding = findings_of(path).set_index("rule").loc["gpus_unused"]
    assert finding["time_share"] == 0.5


def test_compute_of_one_gpu_hides_no_communication_of_another(tmp_path):
    """Three of four GPUs wait for the last, which computes twice as long."""
    events = [
        row
        for step in range(10)
        for device in range(4)
        for row in (
            on_gpu(device, 1200 * step, 1000 if device == 3 else 500),
            on_gpu(device, 1200 * step + (1000 if device == 3 else 500),
                   100 if device == 3 else 600, REDUCE, stream=20 + device),
        )
    ]  # fmt: skip
    path = stored(tmp_path, events)
    trace = loaded(path)
    table = analyze.time_breakdown(trace.events)
    assert table["overlap_ns"].tolist() == [0] * 4
    assert table["exposed_communication_ns"].tolist() == [6000 * US] * 3 + [1000 * US]
    waits = analyze.collective_waits(trace.events)
    assert waits.groupby("rank")["wait_ns"].sum().tolist() == [5000 * US] * 3 + [0]
    assert set(waits["blamed_rank"]) == {3}
    first = findings_of(path).iloc[0]
    assert first["rule"] == "straggler"
    assert round(first["time_share"], 2) == 0.42


def test_ranks_of_gpus_are_told(tmp_path):
    trace = loaded(stored(tmp_path, [on_gpu(2, 0, 5), on_gpu(5, 3, 5)]))
    assert trace.ranks["source"].str.rsplit("!").str[-1].tolist() == ["GPU 2", "GPU 5"]
    row = told(trace, "2 GPUs of one process").iloc[0]
    assert (row["finding"], row["where"]) == ("noted", "GPU 2 is rank 0, GPU 5 is rank 1")
    assert trace.events["device"].tolist() == [2, 5]


def test_every_gpu_has_the_host_but_not_the_launches_of_another(tmp_path):
    events = [
        on_host(0, 40, "aten::mm"), call(1, 1), call(5, 2), call(9, 7, name="cudaDeviceSynchronize"),
        call(2, 1, name="cuLaunchKernel", dur=1), on_host(0, 50, "ProfilerStep#3", "user_annotation"),
        on_gpu(0, 20, 5, correlation=1), on_gpu(1, 30, 5, correlation=2),
        on_gpu(1, 30, 5, "ProfilerStep#3", cat="gpu_user_annotation"),
    ]  # fmt: skip
    trace = loaded(stored(tmp_path, events))
    names = {rank: sorted(rows["name"].astype(str)) for rank, rows in trace.events.groupby("rank")}
    common = ["ProfilerStep#3", "aten::mm", "cudaDeviceSynchronize", "cudaLaunchKernel", GEMM]
    assert names == {
        0: sorted([*common, "cuLaunchKernel"]), 1: sorted([*common, "ProfilerStep#3"])
    }  # fmt: skip
    work = trace.events[trace.events["kind"].notna()]
    calls = trace.events.loc[work["launch"].astype("int64")]
    assert (calls["correlation"].to_numpy() == work["correlation"].to_numpy()).all()
    assert (calls["rank"].to_numpy() == work["rank"].to_numpy()).all()
    assert work["step"].tolist() == [3, 3]
    assert trace.steps["rank"].tolist() == [0, 1]


def test_hosts_of_four_gpus_have_the_ranks_of_their_gpus(tmp_path):
    """Ranks of processes and members of groups become those of GPUs."""
    groups = [{"pg_name": "0", "pg_size": 2, "ranks": "[]"},
              {"pg_name": "1", "pg_size": 2, "ranks": "[0, 1]"}]  # fmt: skip
    for process in (0, 1):
        info = {"rank": process, "world_size": 2, "pg_config": groups}
        events = [on_gpu(device, 0, 100 + device + 10 * process) for device in range(4)]
        stored(tmp_path, events, f"{process}.json", distributedInfo=info)
    trace = loaded(tmp_path)
    assert trace.ranks["rank"].tolist() == list(range(8))
    assert trace.ranks["world_size"].tolist() == [8] * 8
    work = analyze.time_breakdown(trace.events)["busy_ns"]
    assert work.tolist() == [n * US for n in (100, 101, 102, 103, 110, 111, 112, 113)]
    members = trace.process_groups.groupby("rank")["members"].unique().str.join("; ")
    assert members.tolist() == ["0,4", "1,5", "2,6", "3,7"] * 2
    assert told(trace, "GPUs of one process")["finding"].tolist() == ["assumed"] * 2
    one_by_one = analyze.by_rank(load.rank_files(tmp_path), [analyze.time_breakdown])
    assert one_by_one["time_breakdown"]["busy_ns"].tolist() == work.tolist()
    assert one_by_one["ranks"]["rank"].tolist() == list(range(8))


def test_groups_of_processes_are_groups_of_their_gpus_of_one_place(tmp_path):
    """Both GPUs of a process use the group, each with its own communicator."""
    groups = [{"pg_name": "0", "pg_size": 2, "ranks": "[]"}]
    for process in (0, 1):
        info = {"rank": process, "world_size": 2, "pg_config": groups}
        events = []
        for device in (0, 1):
            start = 10 * device + 7 * process
            row = on_gpu(device, start, 50 - 7 * process, REDUCE)
            row["args"] |= {"Collective name": "allreduce", "Process Group Name": "0",
                            "Group size": 2, "In msg nelems": 8, "dtype": "Float"}  # fmt: skip
            events.append(row)
        stored(tmp_path, events, f"{process}.json", distributedInfo=info)
    trace = loaded(tmp_path)
    waits = analyze.collective_waits(trace.events, process_groups=trace.process_groups)
    waited = waits.groupby("collective")[["rank", "wait_ns"]].agg(list)
    assert waited["rank"].tolist() == [[0, 2], [1, 3]]
    assert waited["wait_ns"].tolist() == [[7 * US, 0]] * 2


def test_processes_with_unlike_many_gpus_have_ranks_without_gaps(tmp_path):
    for process, devices in enumerate([(0,), (0, 1, 2), (4, 5)]):
        info = {"rank": process, "world_size": 3}
        events = [on_gpu(device, 0, 5) for device in devices]
        stored(tmp_path, events, f"{process}.json", distributedInfo=info)
    trace = loaded(tmp_path)
    assert trace.ranks["rank"].tolist() == list(range(6))
    assert trace.ranks["world_size"].tolist() == [6] * 6
    assert trace.events["device"].tolist() == [0, 0, 1, 2, 4, 5]
    # Read one by one, a file cannot know how many GPUs the others use.
    with pytest.raises(WorkbenchError, match="reads them together"):
        analyze.by_rank(load.rank_files(tmp_path), [analyze.time_breakdown])


def test_processes_that_share_a_gpu_stay_ranks(tmp_path):
    for process in (0, 1):
        info = {"rank": process, "world_size": 2}
        stored(tmp_path, [on_gpu(0, 0, 5 + process)], f"{process}.json", distributedInfo=info)
    trace = loaded(tmp_path)
    assert trace.ranks["rank"].tolist() == [0, 1]
    assert analyze.time_breakdown(trace.events)["busy_ns"].tolist() == [5 * US, 6 * US]
    assert told(trace, "GPUs of one process").empty


def test_a_copy_to_another_gpu_makes_no_rank_of_a_distributed_job(tmp_path):
    """Every process of a job has its GPU; a context on the first one is a usual slip."""
    events = [on_gpu(3, 0, 5000), on_gpu(0, 100, 20, "Memcpy PtoP", cat="gpu_memcpy")]
    trace = loaded(stored(tmp_path, events, distributedInfo={"rank": 3, "world_size": 8}))
    assert trace.ranks["rank"].tolist() == [3]
    assert len(told(trace, "GPU work on other GPUs")) == 1
    alone = loaded(stored(tmp_path, events))
    assert alone.ranks["rank"].tolist() == [0, 1]


def test_work_without_a_device_is_counted_and_told(tmp_path):
    lost = on_gpu(0, 50, 5)
    del lost["args"]["device"]
    trace = loaded(stored(tmp_path, [on_gpu(0, 0, 5), on_gpu(1, 0, 9), lost]))
    assert analyze.time_breakdown(trace.events)["busy_ns"].tolist() == [5 * US, 14 * US]
    assert told(trace, "GPU work without a device")["finding"].tolist() == ["suspicious"]


def test_a_cache_keeps_the_gpus_apart(tmp_path):
    path = stored(tmp_path, [on_gpu(0, 0, 5), on_gpu(1, 3, 9)])
    first, again = (loaded(path, cache=tmp_path / "kept") for _ in range(2))
    for name in ("events", "ranks", "quality"):
        assert getattr(first, name).equals(getattr(again, name))
    assert again.ranks["rank"].tolist() == [0, 1]


def test_a_stored_copy_beside_the_trace_is_left_out(tmp_path):
    path = stored(tmp_path, [on_gpu(0, 0, 5), on_gpu(1, 3, 9)])
    trace = loaded(path)
    load.write_ranks(load.rank_files(path), tmp_path / "stored")
    assert loaded(tmp_path / "stored").events.equals(trace.events)
    by_rank = analyze.by_rank(load.rank_files(tmp_path / "stored"), [analyze.time_breakdown])
    assert by_rank["time_breakdown"].equals(analyze.time_breakdown(trace.events))
    both = loaded(tmp_path)
    assert both.ranks.equals(trace.ranks)
    assert len(told(both, "was converted from traces beside it")) == 1


def test_devices_that_mark_their_steps_keep_their_own(tmp_path):
    """Cores of a TPU begin a step apart; a row is of the step of its own core."""
    space = space_class()()
    for core, first in ((0, 0), (1, 60)):
        plane = space.planes.add(id=core, name=f"/device:TPU:{core}")
        ops = [(f"fusion.{n}", (first + 100 * n) * US * US, 80 * US * US, {}) for n in (0, 1)]
        marks = [(str(n), (first + 100 * n) * US * US, 100 * US * US, {}) for n in (0, 1)]
        add_line(plane, "XLA Ops", ops)
        add_line(plane, "Steps", marks)
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(space.SerializeToString())
    trace = loaded(path)
    assert trace.steps[["rank", "step", "start_ns"]].to_numpy().tolist() == [
        [0, 0, 0], [0, 1, 100 * US], [1, 0, 60 * US], [1, 1, 160 * US],
    ]  # fmt: skip
    work = trace.events[trace.events["kind"].notna()]
    assert work[["rank", "step"]].to_numpy().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]


def test_collectives_of_a_real_process_of_eight_gpus_are_counted_on_each():
    events = loaded(datasets.path("xplane")).events
    table = analyze.time_breakdown(events)
    assert table["rank"].tolist() == list(range(8))
    assert table["device_count"].tolist() == [1] * 8


# One process, or a file for each of its GPUs.

_KERNELS = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 60), st.sampled_from([GEMM, REDUCE, "Memcpy HtoD"])
    ),
    min_size=1, max_size=6,
)  # fmt: skip
_GPUS = st.lists(_KERNELS, min_size=2, max_size=4)


def _work(gpus):
    """Yield device, stream, start, duration, name and correlation; streams run in order."""
    number = 0
    for device, kernels in enumerate(gpus):
        end = [0, 0]
        for gap, dur, name in kernels:
            stream = int(name != GEMM)
            start = end[stream] + gap + 3
            end[stream] = start + dur
            number += 1
            yield device, stream, start, dur, name, number


def _as_kineto(gpus, folder, devices):
    rows = [row for row in _work(gpus) if row[0] in devices]
    events = [call(number, number, dur=1) for *_, number in rows]
    events += [on_host(0, 40, "ProfilerStep#1", "user_annotation"), on_host(1, 30, "aten::mm")]
    for device, stream, start, dur, name, number in rows:
        cat = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
        events.append(on_gpu(device, start, dur, name, stream=stream, correlation=number, cat=cat))
    return stored(folder, events, f"rank{min(devices)}.json")


def _as_xplane(gpus, folder, devices):
    space = space_class()()
    for device in devices:
        plane = space.planes.add(id=device, name=f"/device:GPU:{device}")
        for stream in (0, 1):
            rows = [
                (name, start * US * US, dur * US * US, {"correlation_id": number})
                for of, on, start, dur, name, number in _work(gpus)
                if (of, on) == (device, stream)
            ]
            if rows:
                add_line(plane, f"Stream #{stream}(Compute)", rows)
    host = space.planes.add(name="/host:CPU")
    calls = [
        ("cuLaunchKernel", number * US * US, US * US, {"correlation_id": number})
        for device, *_, number in _work(gpus) if device in devices
    ]  # fmt: skip
    add_line(host, "python", [("train", 0, 40 * US * US, {"step_num": 1}), *calls])
    path = folder / f"rank{min(devices)}.xplane.pb"
    path.write_bytes(space.SerializeToString())
    return path


def _figures(trace):
    waits = analyze.collective_waits(trace.events)
    idle = analyze.idle_time(trace.events)
    tables = {
        "breakdown": analyze.time_breakdown(trace.events),
        "steps": analyze.step_times(trace.events),
        "idle": idle, "streams": analyze.idle_time(trace.events, method="stream"),
        "launches": analyze.launches(trace.events), "queue": analyze.queue_length(trace.events),
        "waits": waits, "stragglers": analyze.straggler_attribution(waits),
        "kernels": analyze.kernels(trace.events),
    }  # fmt: skip
    return {
        name: table.drop(columns=["event", "launch"], errors="ignore").astype(str).values.tolist()
        for name, table in tables.items()
    }


@pytest.mark.long
@pytest.mark.parametrize("write", [_as_kineto, _as_xplane])
@settings(max_examples=12, deadline=None)
@given(gpus=_GPUS)
def test_a_file_for_each_gpu_of_a_process_changes_no_figure(write, gpus, tmp_path_factory):
    together, apart = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("many")
    write(gpus, together, range(len(gpus)))
    for device in range(len(gpus)):
        write(gpus, apart, [device])
    assert _figures(loaded(together)) == _figures(loaded(apart))
