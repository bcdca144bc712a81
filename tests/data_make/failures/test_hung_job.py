"""Simulated hangs: the fault is found, and the bundled one is the same each time."""

import json

import pandas as pd
import pytest

from data import make
from data.make import HANG_TRUTH, HangJob
from workbench import analyze, load
from workbench.tables import SAYS_SYNTHETIC

TENSOR, DATA = "TENSOR_MODEL_PARALLEL_GROUP", "DATA_PARALLEL_GROUP"
WORLD, MODEL = "default_pg", "MODEL_PARALLEL_GROUP"
# What the rules of analyze.flight_suspects allow each fault to be called.
JUDGED = {
    "frozen host": ("never arrived", "high"),
    "failed GPU": ("stalled", "medium"),
    "mismatched operation": ("mismatch", "high"),
    "mismatched size": ("mismatch", "medium"),
}
DEEP = HangJob(tensor_ranks=4, dp_ranks=1, stages=4, micro_batches=6, layers=1, buffer_count=64)


@pytest.fixture
def hang(tmp_path):
    """Simulate a hang, and return its recording and truth."""

    def hung(**options):
        folder = tmp_path / f"hang{len(list(tmp_path.iterdir()))}"
        truth = make.hang(folder, **options)
        return load.flight_recorder(folder, progress=False), truth

    return hung


def accused(recording):
    table = analyze.flight_suspects(recording)
    return [
        (None if pd.isna(row.rank) else row.rank, row.reason, row.confidence)
        for row in table.itertuples()
    ]


@pytest.mark.parametrize("fault", JUDGED)
@pytest.mark.parametrize("seed", range(6))
def test_every_fault_is_found_alone(fault, seed, hang):
    recording, truth = hang(seed=seed, fault=fault)
    assert accused(recording) == [(truth.loc[0, "rank"], *JUDGED[fault])]


@pytest.mark.parametrize("fault", JUDGED)
@pytest.mark.parametrize("group", [WORLD, DATA, MODEL, TENSOR])
def test_a_fault_is_found_in_every_kind_of_group(fault, group, hang):
    # Groups of four tensor-parallel ranks have a majority.
    job = HangJob(tensor_ranks=4, dp_ranks=3, micro_batches=2, layers=1, buffer_count=32)
    recording, truth = hang(seed=3, fault=fault, group=group, job=job)
    assert accused(recording) == [(truth.loc[0, "rank"], *JUDGED[fault])]
    assert truth["description"].tolist() == [group]


@pytest.mark.parametrize("rank", [0, 6, 11, 15])
@pytest.mark.parametrize("fault", ["frozen host", "failed GPU"])
def test_a_fault_is_found_in_every_stage_of_a_deep_pipeline(fault, rank, hang):
    recording, _ = hang(seed=1, fault=fault, rank=rank, job=DEEP)
    assert accused(recording) == [(rank, *JUDGED[fault])]


@pytest.mark.parametrize("seed", range(4))
def test_a_frozen_host_has_nothing_pending_and_all_others_wait(seed, hang):
    recording, truth = hang(seed=seed)
    (rank,) = truth["rank"]
    ranks = recording.ranks.set_index("rank")
    assert ranks.index[ranks["pending_count"] == 0].tolist() == [rank]
    suspect = analyze.flight_suspects(recording).iloc[0]
    assert suspect["waiting_count"] == 15
    group, seq, operation = truth.loc[0, ["group", "seq", "operation"]]
    assert suspect["group"] == group
    assert f"last called number {seq - 1:,} of group {group}" in suspect["evidence"]
    # The source of a broadcast waits for nobody, so the next collective is the first that waits.
    assert suspect["seq"] - seq in ((0, 1) if operation == "broadcast" else (0,))


@pytest.mark.parametrize("job", [HangJob(), HangJob(1, 3, 1), HangJob(2, 1, 3), DEEP])
def test_without_a_fault_nothing_hangs(job, hang):
    recording, truth = hang(seed=0, fault=None, job=job)
    assert HANG_TRUTH.check(truth).empty
    assert accused(recording) == [(None, "nothing hangs", "none")]


def test_two_that_call_different_things_cannot_be_told_apart(hang):
    recording, truth = hang(seed=0, fault="mismatched operation", group=TENSOR)
    found = analyze.flight_suspects(recording)
    assert truth.loc[0, "rank"] in set(found["rank"])
    assert set(found["verdict"]) == {"cannot tell"}


@pytest.mark.parametrize("fault", JUDGED)
@pytest.mark.parametrize("seed", range(3))
def test_a_recorder_that_is_too_short_accuses_nobody_else(fault, seed, hang):
    job = HangJob(buffer_count=3, layers=4)
    recording, truth = hang(seed=seed, fault=fault, group=TENSOR, job=job)
    found = analyze.flight_suspects(recording)
    certain = found.loc[found["confidence"].isin(["high", "medium"]), "rank"]
    assert set(certain) <= {truth.loc[0, "rank"]}


def test_the_bundled_dumps_are_what_their_command_makes(hang_demo, tmp_path):
    truth = make.hang(tmp_path / "again", seed=7)
    made = {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()}
    assert made == {path.name: path.read_bytes() for path in hang_demo.iterdir()}
    assert HANG_TRUTH.check(truth)["fault"].tolist() == ["frozen host"]


def test_the_bundled_hang_is_judged_by_its_truth(hang_demo):
    recording = load.flight_recorder(hang_demo, progress=False)
    truth = pd.read_csv(hang_demo / "truth.csv")
    assert accused(recording) == [(truth.loc[0, "rank"], *JUDGED["frozen host"])]
    assert recording.ranks["rank"].tolist() == list(range(16))
    assert recording.ranks["node"].isna().all()


def test_the_bundled_dumps_are_small_and_say_that_they_are_synthetic(hang_demo):
    files = list(hang_demo.iterdir())
    assert sum(path.stat().st_size for path in files) <= 150_000
    assert "Nothing here was measured" in (hang_demo / "README.md").read_text()
    recording = load.flight_recorder(hang_demo, progress=False)
    assert recording.is_synthetic
    assert (recording.quality["what"] == SAYS_SYNTHETIC).sum() == 16


def test_another_seed_is_another_hang(tmp_path):
    for seed in (1, 2):
        make.hang(tmp_path / str(seed), seed=seed)
    dumps = [
        json.loads((tmp_path / seed / "synthetic_nccl_trace_rank_0.json").read_text())
        for seed in "12"
    ]
    assert dumps[0]["entries"] != dumps[1]["entries"]


def test_a_folder_with_files_is_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(FileExistsError, match="is not empty; name a new folder"):
        make.hang(tmp_path, seed=7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fault": "gone"}, "unknown fault 'gone'; it must be one of frozen host"),
        ({"rank": 16}, "rank is 16; the job has ranks 0 to 15"),
        ({"group": "TENSOR"}, "unknown group 'TENSOR'"),
        ({"group": "PIPELINE_MODEL_PARALLEL_GROUP"}, "calls no collective in PIPELINE"),
        ({"fault": "mismatched size", "job": HangJob(2, 1, 1)}, "no collective of 3 ranks or more"),
        ({"job": HangJob(steps=1)}, "job.steps is 1; it must be at least 2"),
        ({"job": HangJob(1, 1, 1)}, "a job of one rank has no other rank to wait for"),
    ],
)
def test_what_cannot_be_simulated_is_refused(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        make.hang(tmp_path / "new", seed=1, **options)
    assert not (tmp_path / "new").exists()
