"""Findings about public data, against the same numbers counted from the files by hand."""

import json
import re
import tarfile

import numpy as np
import pytest

from workbench import analyze, load


def length(intervals):
    """Add up what intervals cover together."""
    total, end = 0.0, -np.inf
    for first, last in sorted(intervals):
        total += max(0.0, last - max(first, end))
        end = max(end, last)
    return total


@pytest.mark.long
@pytest.mark.oracle
def test_findings_on_a_real_job_of_8_ranks_are_those_of_its_events(dlrm):
    """The naive reading takes the rank with most communication; most of that is waiting."""
    exposed, spans, loading = {}, {}, {}
    with tarfile.open(dlrm) as archive:
        for member in filter(tarfile.TarInfo.isfile, archive.getmembers()):
            events = json.load(archive.extractfile(member))["traceEvents"]
            events = [row for row in events if row.get("ph") == "X"]
            work = [(row["ts"], row["ts"] + row["dur"], row["name"]) for row in events
                    if row.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]  # fmt: skip
            kernels = [(row["ts"], row["ts"] + row["dur"]) for row in events
                       if row.get("cat") == "kernel" and "nccl" not in row["name"].lower()]  # fmt: skip
            moved = [(first, last) for first, last, name in work if "nccl" in name.lower()]
            rank = int(re.search(r"worker(\d+)", member.name)[1])
            exposed[rank] = length(moved + kernels) - length(kernels)
            spans[rank] = max(last for _, last, _ in work) - min(first for first, *_ in work)
            loading[rank] = sum(row["dur"] for row in events
                                if re.search(r"enumerate\(dataloader\)", row["name"], re.IGNORECASE))  # fmt: skip
    found = analyze.findings(load.bundle(dlrm, progress=False)).findings.set_index("rule")
    row = found.loc["exposed_communication"]
    least = min(exposed, key=exposed.get)
    assert (least, max(exposed, key=exposed.get)) == (7, 1)
    assert row["where"].startswith(f"read on rank {least};")
    assert row["cost"] == pytest.approx(exposed[least] / 1e3, rel=1e-3)
    assert row["time_share"] == pytest.approx(exposed[least] / np.mean([*spans.values()]), rel=1e-3)
    assert found.loc["data_loader", "cost"] == pytest.approx(min(loading.values()) / 1e3, rel=1e-3)
    # Removing communication saves nothing in a replay: a doubt of its cost, and no second finding.
    assert "communication_on_path" not in found.index
    assert "no communication at all would save nothing" in row["doubt"]
    assert row["confidence"] == "low"


@pytest.mark.long
@pytest.mark.oracle
def test_findings_on_a_real_run_of_512_gpus_are_those_of_its_log(real_data):
    folder = real_data("power-mlperf-gpt3-512gpu")
    (log,) = folder.glob("result_*.txt")
    events = [json.loads(line.partition(":::MLLOG")[2]) for line in log.read_text().splitlines()
              if ":::MLLOG" in line]  # fmt: skip
    times = {name: [row["time_ms"] / 1e3 for row in events if row["key"] == name]
             for name in ("eval_start", "eval_stop", "run_start", "run_stop")}  # fmt: skip
    seconds = sum(times["eval_stop"]) - sum(times["eval_start"])
    share = seconds / (times["run_stop"][0] - times["run_start"][0])
    tracks = []
    for file in folder.glob("power/*/node_*.txt"):
        rows = [json.loads(line.partition(":::MLLOG")[2]) for line in file.read_text().splitlines()
                if '"power_reading"' in line]  # fmt: skip
        tracks.append([(row["time_ms"] / 1e3, float(row["value"])) for row in rows])
    first, last = (np.median([track[at][0] for track in tracks]) for at in (0, -1))
    seconds_at = np.arange(first, last, 2.0)
    total = sum(np.interp(seconds_at, *np.transpose(track)) for track in tracks)
    low, high = np.percentile(total, [1, 99])
    result = analyze.findings(
        load.bundle(folder, tz="UTC", progress=False), rules=["evaluation_time", "power_swing"]
    )
    found = result.findings.set_index("rule")
    assert found.loc["evaluation_time", "finding"] == "24 evaluations take 13 s each"
    assert found.loc["evaluation_time", "cost"] == pytest.approx(seconds, rel=1e-3)
    assert found.loc["evaluation_time", "time_share"] == pytest.approx(share, rel=0.01)
    assert found.loc["power_swing", "cost"] == pytest.approx((high - low) / 1e3, rel=0.03)
    assert found.loc["power_swing", "where"] == f"sum of {len(tracks)} meters"


@pytest.mark.oracle
def test_traces_of_several_models_are_not_read_as_one_job(real_data):
    """No file tells a rank: the naive reading numbers three models as ranks 0 to 2."""
    bundle = load.bundle(real_data("kineto-h100"), progress=False)
    assert len(bundle.trace.ranks) == 1
    dropped = bundle.quality[bundle.quality["finding"] == "dropped"]
    assert dropped["what"].str.contains("other traces than .* pass this path").sum() == 2


@pytest.mark.oracle
def test_two_recorded_jobs_in_one_folder_give_the_findings_of_the_larger(real_data):
    folder = real_data("stragglers-bytedance")
    whole = load.bundle(folder, progress=False)
    alone = load.bundle(folder / "trace-SE.parquet", progress=False)
    assert whole.operations.equals(alone.operations)
    assert whole.quality["what"].str.contains("other job operations than").any()
    # Mean steps that were published with it: without launch delays, and with equal operations.
    printed = json.loads((folder / "result-SE.json").read_text())
    own, ideal = (np.mean([*printed[name].values()]) for name in ("step_t_nodelay", "step_t_noblk"))
    row = analyze.findings(whole, domains=["imbalance"]).findings.iloc[0]
    assert row["rule"] == "sequence_lengths"
    waste = float(analyze.job_slowdown(whole.operations)["waste_ratio"].iloc[0])
    assert waste == pytest.approx(1 - ideal / own, abs=0.01)
    # Equal micro-batches save a part of it; the stage with the loss keeps its own excess.
    assert 0.5 * waste <= row["time_share"] < waste


@pytest.mark.oracle
def test_sweeps_recorded_one_after_the_other_are_not_silent_meters(real_data):
    """All files have clocks of their own; by the median of all, each lacks most of the time."""
    bundle = load.bundle(real_data("power-zeus-sweeps"), progress=False)
    entities = bundle.power.entities
    assert (entities["last_ns"].max() - entities["first_ns"].min()) > 20 * (
        entities["last_ns"] - entities["first_ns"]
    ).median()
    found = analyze.findings(bundle, rules=["telemetry_gaps"]).findings
    assert found.empty, found["finding"].tolist()
