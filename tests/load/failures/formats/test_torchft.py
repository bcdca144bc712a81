"""Records of torchft. Their fields are those that `Manager` and `ProcessGroup` log
(torchft/manager.py), around them what OpenTelemetry's ConsoleLogRecordExporter prints."""

import json

import pytest

from tests.load.failures.log_files import FOREIGN, findings, ns, read, recognised
from workbench.load._failures.formats import torchft

A, B = "ddp_0:aaaa", "ddp_1:bbbb"


def record(second, replica_id, *, rank=0, quorum=1, **fields):
    """One record as the console exporter prints it, over several lines."""
    attributes = {"job_id": "j1", "replica_id": replica_id, "rank": rank, "quorum_id": quorum}
    return {
        "body": "",
        "severity_text": "INFO",
        "attributes": attributes | fields,
        "timestamp": f"2025-06-01T10:00:{second:02d}.250000Z",
        "resource": {"attributes": {"service.name": "torchft_commits"}},
    }


def commit(second, replica_id, step, *, result=True, **more):
    return record(second, replica_id, step=step, commit_result=result, **more)


def printed(records):
    return "".join(json.dumps(each, indent=4) + "\n" for each in records)


TRAINING = [
    record(0, A, step=0),
    commit(2, A, 0),
    commit(4, A, 1),
    commit(6, A, 2, result=False),
    record(9, A, quorum=2, step=2),
    commit(11, A, 2, quorum=2),
    commit(13, A, 3, quorum=2),
]


def test_only_committed_steps_are_running_time(tmp_path):
    part = read(torchft, tmp_path, printed(TRAINING))
    timeline = part.timeline
    assert timeline["state"].tolist() == ["running", "uncommitted", "joining", "running"]
    assert ((timeline["end_ns"] - timeline["start_ns"]) // 10**9).tolist() == [4, 2, 3, 4]
    assert timeline["first_step"].tolist()[0] == 0
    assert timeline["last_step"].tolist()[-1] == 3
    assert timeline["replica"].unique().tolist() == [0]
    assert timeline["job"].unique().tolist() == ["j1"]
    assert part.failures.empty
    assert findings(part) == {}


def test_of_the_errors_of_a_quorum_the_first_is_the_failure(tmp_path):
    errors = [
        record(5, A, error="process_group_abort"),
        record(6, B, error="process_group_abort", rank=3),
        record(50, A, error="torchcomm_abort", quorum=2),
    ]
    failures = read(torchft, tmp_path, printed(errors)).failures
    assert failures["category"].tolist() == ["unknown", "follow-on", "unknown"]
    assert failures["replica"].tolist() == [0, 1, 0]
    assert failures["kind"].unique().tolist() == ["torchft"]
    assert failures["start_ns"].iloc[0] == ns("2025-06-01 10:00:05.25")
    assert failures["rank"].isna().all()  # the rank is that inside the replica


def test_a_replica_with_a_new_name_was_started_again(tmp_path):
    again = [record(30, "ddp_0:cccc", quorum=3, step=4), commit(33, "ddp_0:cccc", 4, quorum=3)]
    part = read(torchft, tmp_path, printed([*TRAINING, *again]))
    row = part.failures.iloc[0]
    assert (row["cause"], row["code"]) == ("replica started again", "restart")
    assert (row["start_ns"], row["end_ns"]) == (
        ns("2025-06-01 10:00:13.25"),
        ns("2025-06-01 10:00:30.25"),
    )
    assert part.timeline["state"].tolist()[-2:] == ["down", "running"]


def test_the_ranks_of_a_replica_are_counted_once(tmp_path):
    others = [commit(second, A, step, rank=1) for second, step in [(2, 0), (4, 1)]]
    one = read(torchft, tmp_path, printed(TRAINING)).timeline
    both = read(torchft, tmp_path, printed([*TRAINING, *others])).timeline
    assert both["start_ns"].tolist() == one["start_ns"].tolist()


@pytest.mark.parametrize("stamp", [1_748_772_000, 1_748_772_000_000_000_000, "1748772000"])
def test_attributes_alone_are_enough(tmp_path, stamp):
    lines = [each["attributes"] | {"timestamp": stamp} for each in TRAINING[:2]]
    lines[1]["timestamp"] = "2025-06-01T10:00:02Z"
    text = "".join(json.dumps(each) + "\n" for each in lines)
    timeline = read(torchft, tmp_path, text).timeline
    assert timeline["start_ns"].tolist() == [ns("2025-06-01 10:00")]


@pytest.mark.parametrize(
    "bad",
    [
        {"attributes": {"replica_id": A, "quorum_id": 1}, "timestamp": "soon"},
        {"attributes": {"replica_id": A, "quorum_id": 1}, "timestamp": -5},
        {"attributes": {"replica_id": A, "quorum_id": 1}, "timestamp": float("nan")},
        {"attributes": {"replica_id": [A], "quorum_id": 1}, "timestamp": 1},
        {"attributes": {"replica_id": A}, "timestamp": 1_700_000_000},
        commit(1, A, "three"),
        commit(1, A, 3, result="yes"),
        commit(1, A, -3),
        {"attributes": 7},
        [7],
    ],
)
def test_records_of_wrong_types_are_counted(tmp_path, bad):
    part = read(torchft, tmp_path, printed([bad, *TRAINING]))
    assert len(part.timeline) == 4
    assert [kind for kind, _ in findings(part).values()] in (["dropped"], ["skipped by design"])


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (printed(TRAINING) + '{\n    "body": "', "truncated"),
        ("[" * 100_000 + "\n" + printed(TRAINING), "dropped"),
        (bytes(range(256)) * 100 + b"\n" + printed(TRAINING).encode(), "skipped by design"),
        ("INFO starting\n" + printed(TRAINING) + "bye\n", "skipped by design"),
    ],
)  # fmt: skip
def test_damage_leaves_out_only_what_is_damaged(tmp_path, text, kind):
    part = read(torchft, tmp_path, text)
    assert len(part.timeline) == 4
    assert kind in {said for said, _ in findings(part).values()}


def test_recognises_its_own_and_nothing_else():
    assert recognised(torchft, printed(TRAINING))
    assert recognised(torchft, "INFO starting\n" + printed(TRAINING))
    assert [name for name, text in FOREIGN.items() if recognised(torchft, text)] == []
