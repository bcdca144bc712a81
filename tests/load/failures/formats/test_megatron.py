"""Megatron logs: lines as published, then rollbacks with and without stamps."""

import pandas as pd
import pytest

from workbench.errors import LoadError
from workbench.load._failures.formats import megatron
from workbench.load._files.archive import Source
from workbench.load._files.time import Given
from workbench.tables import FAILURES, TIMELINE

# Of bigscience-workshop/bigscience, train/tr11-176B-ml (Apache-2.0).
BLOOM = (
    " [default7]: iteration    12695/  115311 | consumed samples:      9841584 | "
    "consumed tokens:  20155564032 | elapsed time per iteration (s): 105.22 | "
    "learning rate: 5.969E-05 | global batch size:  2048 | lm loss: 2.463556E+00 | "
    "grad norm: 0.174 | num zeros: 0.0 | number of skipped iterations:   0 | "
    "number of nan iterations:   0 | samples per second: 19.463 | TFLOPs: 149.02 |"
)


def line(step, seconds=10, *, stamp="", unit="ms", skipped=0, nan=0):
    time = seconds * 1000 if unit == "ms" else seconds
    return (
        f"{stamp} iteration {step:8d}/    1000 | elapsed time per iteration ({unit}): {time:.1f} | "
        f"lm loss: 2.0 | number of skipped iterations: {skipped:3d} | "
        f"number of nan iterations: {nan:3d} |"
    )


@pytest.fixture
def log(tmp_path):
    """Write a log and read it."""

    def read(*lines, tz="UTC"):
        path = tmp_path / "train.log"
        path.write_bytes(b"\n".join(e if isinstance(e, bytes) else e.encode() for e in lines))
        part = megatron.read(Source("train.log", path), Given(tz=tz))
        FAILURES.check(part.failures)
        TIMELINE.check(part.timeline)
        return part

    return read


def found(part):
    return {(row.finding, row.what): row.count for row in part.findings.frame().itertuples()}


def ns(text):
    return pd.Timestamp(text, tz="UTC").value


@pytest.mark.oracle
def test_the_published_line_of_bloom_is_read(log):
    assert megatron.looks_like(BLOOM.encode(), "x")
    part = log(BLOOM)
    [run] = part.timeline.itertuples()
    assert (run.first_step, run.last_step) == (12_695, 12_695)
    assert run.end_ns - run.start_ns == 105_220_000_000
    assert part.failures.empty


def test_a_falling_iteration_is_a_rollback(log):
    part = log(*[line(step) for step in (98, 99, 100, 91, 92)])
    [failure] = part.failures.itertuples()
    assert failure.cause == "rolled back from iteration 100 to 90"
    assert failure.text.startswith("10 iterations lost; ")
    assert (failure.kind, failure.clock, failure.line) == ("megatron", "none", 4)
    assert pd.isna(failure.start_ns)
    table = part.timeline
    assert table[["first_step", "last_step"]].to_numpy().tolist() == [[98, 100], [91, 92]]
    assert table["attempt"].tolist() == [1, 2]
    assert set(table["clock"]) == {"own"}
    assert table["end_ns"].tolist() == [30_000_000_000, 50_000_000_000]


def test_stamps_give_rollbacks_a_time_and_show_the_gap(log):
    lines = [
        line(10, stamp="[2026-01-02 08:00:10]"),
        line(11, stamp="[2026-01-02 08:00:20]"),
        line(11, 12, stamp="[2026-01-02 08:05:00]"),
    ]
    part = log(*lines)
    [failure] = part.failures.itertuples()
    assert (failure.clock, failure.assumed) == ("epoch", "tz=UTC")
    assert failure.start_ns == ns("2026-01-02 08:00:20")
    assert failure.end_ns == ns("2026-01-02 08:05:00")
    assert part.timeline["state"].tolist() == ["running", "down", "running"]
    assert part.timeline["start_ns"].tolist() == [
        ns("2026-01-02 08:00:00"),
        ns("2026-01-02 08:00:20"),
        ns("2026-01-02 08:04:48"),
    ]


@pytest.mark.parametrize(
    "stamp",
    [
        "[2026-01-02T09:00:00+01:00]",
        "2026-01-02 08:00:00,000Z: ",
        "[\x1b[32m2026-01-02 08:00:00Z\x1b[0m][rank-7/8]",
    ],
)
def test_stamps_with_an_offset_need_no_zone(log, stamp):
    part = log(line(1, stamp=stamp), tz=None)
    assert part.timeline["end_ns"].tolist() == [ns("2026-01-02 08:00:00")]


def test_local_stamps_need_a_zone(log):
    with pytest.raises(LoadError, match="has no time zone; pass tz="):
        log(line(1, stamp="[20260102 08:00:00]"), tz=None)


def test_stamps_on_some_lines_only_are_not_used(log):
    part = log(line(1, stamp="[2026-01-02 08:00:00]"), line(2))
    assert set(part.timeline["clock"]) == {"own"}
    assert found(part)["suspicious", "lines without a usable stamp, so that no stamp is used"] == 1


def test_both_units_and_several_iterations_per_line(log):
    part = log(*[line(step, 2, unit="s") for step in (10, 20, 30)])
    [run] = part.timeline.itertuples()
    assert (run.first_step, run.last_step, run.end_ns) == (1, 30, 60_000_000_000)
    assert any(finding == "assumed" for finding, _ in found(part))


def test_a_checkpoint_that_is_named_tells_where_a_run_begins(log):
    loaded = " successfully loaded checkpoint from /ckpt [ t 0, p 0 ] at iteration 25"
    part = log(line(10), line(20), line(30), loaded, line(40), line(50))
    [failure] = part.failures.itertuples()
    assert failure.cause == "rolled back from iteration 30 to 25"
    assert part.timeline["first_step"].tolist() == [1, 26]


def test_skipped_iterations_and_nans_are_counted(log):
    part = log(line(1, skipped=2), line(2, nan=1))
    assert found(part)["noted", "iterations skipped"] == 2
    assert found(part)["noted", "iterations with NaN"] == 1


def test_the_same_line_of_two_ranks_counts_once(log):
    part = log("[default6]:" + line(5), "[default7]:" + line(5), line(6))
    assert part.failures.empty
    assert found(part)["skipped by design", "lines written twice"] == 1


def test_missing_lines_are_pointed_out(log):
    part = log(*[line(step) for step in (1, 2, 3, 7, 8)])
    assert found(part)["suspicious", "iterations without a line; their time is missing"] == 3


def test_a_line_without_its_time_is_counted(log):
    part = log(" iteration 1/ 10 | lm loss: 2.0 |", line(2))
    assert found(part)["dropped", "lines without the time of an iteration"] == 1


def test_the_number_of_gpus_is_taken_from_the_head(log):
    part = log("using world size: 384, data-parallel-size: 8", line(1))
    assert part.timeline["gpu_count"].tolist() == [384]


@pytest.mark.parametrize("noise", [bytes(range(256)), b"iteration | iteration / |", b"\n\n"])
def test_noise_is_passed_over(log, noise):
    part = log(noise, line(1), noise)
    assert len(part.timeline) == 1


@pytest.mark.parametrize(("last", "to_come"), [(1000, None), (999, 1), (220, 780)])
def test_a_log_that_ends_before_the_last_iteration_says_how_many_are_to_come(log, last, to_come):
    rows = log(*map(line, range(1, last + 1))).findings.frame()
    told = rows.loc[rows["what"].str.startswith("iterations to come"), "count"].tolist()
    assert told == [to_come] * (to_come is not None)


def test_a_log_that_never_trained_is_empty(log):
    part = log("------------------------ arguments ------------------------")
    assert part.timeline.empty
    assert part.failures.empty


@pytest.mark.parametrize("head", [b"", b"iteration 5 of 7", b"JobID|State\n", b"\xff\x00"])
def test_other_files_are_not_taken_for_logs(head):
    assert not megatron.looks_like(head, "train.log")


def test_stamps_that_jump_back_are_flagged(log):
    days = ("[2025-03-03 10:00:00]", "[2025-03-01 10:00:00]")
    part = log(*(line(step, stamp=day) for step, day in zip((20, 10), days, strict=True)))
    what = "stamps that jump back: several logs in one? the step back is counted as a rollback"
    assert found(part)["suspicious", what] == 1
