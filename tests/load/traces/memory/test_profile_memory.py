"""Memory events of profiles, against the totals that the profiler wrote beside them."""

import gzip
import json

import pytest

from workbench import load
from workbench.errors import LoadError


def event(ts, size, address, allocated, *, kind=1, reserved=4096, name="[memory]"):
    args = {"Bytes": size, "Addr": address, "Total Allocated": allocated, "Device Id": 0}
    args |= {"Total Reserved": reserved, "Device Type": kind, "Ev Idx": ts}
    return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": name, "pid": 1, "tid": 1,
            "ts": ts, "args": args}  # fmt: skip


def call(ts, dur, name, cat="cpu_op"):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur}


def read(tmp_path, *events):
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [*events]}))
    return load.memory(path, progress=False)


def test_totals_alone_tell_what_was_there_before(tmp_path):
    recording = read(
        tmp_path,
        call(0, 100, "nn.Module: Linear_0"), call(5, 20, "aten::empty"),
        event(10, 512, 64, 1512), event(30, -400, 1000, 1112), event(40, -512, 64, 600),
    )  # fmt: skip
    memory = recording.memory
    assert memory["allocated_bytes"].tolist()[-3:] == [1512, 1112, 600]
    before = memory[memory["is_before_trace"]]
    # 400 B are freed in the trace; of 600 B only the sum is known.
    assert sorted(before["size_bytes"]) == [400, 600]
    row = memory[memory["address"] == 64].iloc[0]
    assert row["stack"] == "aten::empty < nn.Module: Linear_0"
    assert row["phase"] == "forward"
    assert "suspicious" not in set(recording.quality["finding"])


def test_totals_that_contradict_the_events_are_told(tmp_path):
    recording = read(tmp_path, event(10, 512, 64, 512), event(20, 512, 128, 9999))
    said = recording.quality.query("finding == 'suspicious'")
    assert said["what"].str.contains("total is not the sum").any()


def test_a_profile_without_memory_says_how_to_record_it(tmp_path):
    with pytest.raises(LoadError, match="profile_memory=True"):
        read(tmp_path, call(0, 5, "aten::mm"))


@pytest.mark.oracle
def test_real_profiles_add_up_to_their_own_totals(real_data):
    """Every total that PyTorch wrote is the sum of the allocations that are replayed."""
    for path in sorted(real_data("kineto-h100").glob("*.json.gz")):
        recording = load.memory(path, progress=False)
        said = recording.quality
        assert not said["what"].str.contains("total is not the sum").any()
        with gzip.open(path) as stream:
            written = [
                (e["ts"], e["args"]) for e in json.load(stream)["traceEvents"]
                if e.get("name") == "[memory]" and e["args"]["Device Type"] == 1
            ]  # fmt: skip
        totals = [args["Total Allocated"] for _, args in sorted(written, key=lambda pair: pair[0])]
        gpu = recording.memory[recording.memory["device"] == "GPU 0"]
        assert gpu.loc[~gpu["is_before_trace"], "allocated_bytes"].tolist() == totals
        assert gpu["stack"].notna().mean() > 0.9
