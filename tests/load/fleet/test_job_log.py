"""Job logs: the public run and the demo job, then tables of people's own, and damage."""

import json

import pytest

from workbench import load
from workbench.errors import LoadError
from workbench.load._files.text import CUT_LINE
from workbench.tables import LOGGED_SPANS, LOGGED_STEPS, SAYS_SYNTHETIC

RESULT = "result_5848-240517221859825376616_2.txt"
AT = 1_700_000_000_000


def mllog(key, time_ms, value=None, *, event="POINT_IN_TIME", prefix="  0: ", **metadata):
    record = {"namespace": "", "time_ms": time_ms, "event_type": event, "key": key}
    return f"{prefix}:::MLLOG {json.dumps({**record, 'value': value, 'metadata': metadata})}"


def edge(key, time_ms, **more):
    event = "INTERVAL_START" if key.endswith("start") else "INTERVAL_END"
    return mllog(key, time_ms, event=event, **more)


def step(count, time_ms, seconds=0.5, **more):
    return mllog("tracked_stats", time_ms, {"train_step_timing in s": seconds}, step=count, **more)


@pytest.fixture
def log(tmp_path):
    """Write a log and load it."""

    def read(text, name="log.txt", **said):
        path = tmp_path / name
        path.write_text(text if isinstance(text, str) else "\n".join(text))
        loaded = load.job_log(path, progress=False, **said)
        LOGGED_STEPS.check(loaded.steps)
        LOGGED_SPANS.check(loaded.spans)
        return loaded

    return read


def told(job):
    return {(row.finding, row.what): row.count for row in job.quality.itertuples()}


def seconds(job):
    return ((job.steps["end_ns"] - job.steps["start_ns"]) / 1e9).tolist()


@pytest.fixture(scope="module")
def public(real_data):
    """Give the log of the public run."""
    return load.job_log(real_data("power-mlperf-gpt3-512gpu") / RESULT, progress=False)


@pytest.mark.oracle
def test_the_public_run_has_288_steps_of_10_638_s(public):
    spent_s = (public.steps["end_ns"] - public.steps["start_ns"]) / 1e9
    assert public.steps["step"].tolist() == list(range(288))
    assert spent_s.median() == pytest.approx(10.638, abs=5e-4)
    assert set(public.steps["token_count"]) == {4_194_304}
    assert set(public.steps["sample_count"]) == {2048}


@pytest.mark.oracle
def test_the_public_run_lasted_3412_67_s_and_evaluated_for_a_tenth_of_it(public):
    spent = public.spans["end_ns"] - public.spans["start_ns"]
    run = public.spans["kind"] == "run"
    assert spent[run].tolist() == [3_412_670_000_000]
    kinds = public.spans["kind"].value_counts().to_dict()
    assert (kinds["evaluation"], kinds["training"], kinds["initialisation"]) == (24, 24, 1)
    share = spent[public.spans["kind"] == "evaluation"].sum() / spent[run].sum()
    assert share == pytest.approx(0.091, abs=5e-4)


@pytest.mark.oracle
def test_evaluations_of_the_public_run_follow_every_twelfth_step(public):
    after = public.spans[public.spans["kind"] == "evaluation"]["step"].tolist()
    assert after == list(range(11, 288, 12))


@pytest.mark.oracle
def test_starts_that_all_ranks_of_the_public_run_wrote_are_one_span(public):
    starts = "starts and stops that several ranks wrote; first start and last stop count"
    assert told(public)["noted", starts] == 511
    assert not public.quality["finding"].isin(["dropped", "suspicious", "assumed"]).any()


def test_the_demo_job_is_read_with_its_restart(fleet_demo):
    job = load.job_log(fleet_demo / "steps.jsonl")
    assert job.is_synthetic
    assert told(job)["noted", SAYS_SYNTHETIC] == 143
    assert len(job.steps) == 128
    assert job.steps.groupby("attempt")["step"].agg(["min", "max"]).values.tolist() == [
        [0, 68],
        [50, 108],
    ]
    spans = job.spans.set_index("kind")
    restart = spans.loc["restart"]
    assert restart["attempt"] == 2
    assert restart["step"] == 68
    first_again = job.steps[job.steps["attempt"] == 2]["start_ns"].min()
    assert abs(restart["end_ns"] - first_again) < 2_000
    assert spans.loc["checkpoint", "step"].tolist() == [24, 49, 74, 99]
    assert spans.loc["run", "attempt"].tolist() == [1, 2]


def test_a_folder_gives_the_one_log_in_it(fleet_demo):
    job = load.job_log(fleet_demo, progress=False)
    assert len(job.steps) == 128
    assert (job.quality["finding"] == "skipped by design").sum() > 10


def test_a_step_ends_at_its_stamp_and_lasted_as_long_as_it_says(log):
    job = log([step(1, AT + 1000, 0.75), step(2, AT + 2000, 0.25)])
    assert job.steps["end_ns"].tolist() == [(AT + 1000) * 10**6, (AT + 2000) * 10**6]
    assert seconds(job) == [0.75, 0.25]
    assert job.steps["step"].tolist() == [1, 2]
    assert job.steps["token_count"].isna().all()


def test_numbers_of_steps_may_count_tokens_or_samples(log):
    sizes = [mllog("global_batch_size", AT, 8), mllog("max_sequence_length", AT, 100)]
    tokens = log([*sizes, step(800, AT + 1000), step(1600, AT + 2000)])
    samples = log([*sizes, step(8, AT + 1000), step(16, AT + 2000)])
    assert tokens.steps["step"].tolist() == samples.steps["step"].tolist() == [0, 1]
    assert set(tokens.steps["token_count"]) == {800}
    said = log([*sizes, step(8, AT + 1000)], tokens_per_step=42)
    assert said.steps["token_count"].tolist() == [42]


def test_steps_that_several_ranks_wrote_are_taken_once(log):
    lines = [step(n, AT + 1000 * n, prefix=f"{rank}: ") for n in (1, 2) for rank in range(3)]
    job = log(lines)
    assert job.steps["step"].tolist() == [1, 2]
    assert told(job)["noted", "steps that several ranks wrote; the first line counts"] == 4


def test_a_second_run_in_one_file_is_another_attempt(log):
    job = log(
        [
            *(edge("run_start", AT), step(1, AT + 1000), edge("run_stop", AT + 1500)),
            *(edge("init_start", AT + 5000), edge("run_start", AT + 6000), step(1, AT + 8000)),
        ]
    )
    assert job.steps["attempt"].tolist() == [1, 2]
    runs = job.spans[job.spans["kind"] == "run"]
    assert runs["attempt"].tolist() == [1, 2]
    assert runs["end_ns"].isna().tolist() == [False, True]


def test_a_result_that_is_cut_off_keeps_what_was_whole(log):
    lines = [edge("run_start", AT), step(1, AT + 1000), step(2, AT + 2000)]
    job = log("\n".join(lines)[:-15])
    assert job.steps["step"].tolist() == [1]
    assert job.spans["end_ns"].isna().all()
    assert told(job)["truncated", "lines of the logger that do not end"] == 1


@pytest.mark.parametrize("bad", [None, "fast", -1, float("nan"), float("inf"), 1e300, [1]])
def test_a_step_without_a_duration_is_left_out_and_counted(log, bad):
    job = log([step(1, AT, bad), step(2, AT + 1000)])
    assert job.steps["step"].tolist() == [2]
    assert told(job)["dropped", "steps whose duration is not a number from 0 s"] == 1


def test_a_stop_without_a_start_is_left_out_and_counted(log):
    job = log([edge("eval_stop", AT), step(1, AT + 1000)])
    assert told(job)["dropped", "eval_stop without a start before it"] == 1


def test_steps_that_overlap_are_flagged_with_their_line(log):
    job = log([step(1, AT + 1000, 0.5), step(2, AT + 1400, 0.9)])
    flagged = job.quality.set_index("what").loc["steps that begin before the one before them ended"]
    assert (flagged["finding"], flagged["where"]) == ("suspicious", "line 2")


def event(second, name, **more):
    return json.dumps({"time": f"2026-01-12T08:00:{second:06.3f}Z", "event": name, **more})


def test_a_checkpoint_that_a_failure_cuts_ends_with_it(log):
    job = log(
        [
            *(event(0, "start"), event(1, "step", step=0, step_time_ms=500)),
            *(event(2, "checkpoint_start"), event(3, "interrupt"), event(9, "detected")),
        ]
    )
    spans = job.spans.set_index("kind")
    assert spans.loc["checkpoint", "end_ns"] == spans.loc["restart", "start_ns"]
    assert spans["end_ns"].isna().tolist() == [False, False, False, True]
    assert spans.loc["initialisation", "end_ns"] == job.steps["start_ns"].iloc[0]


def test_attempts_are_counted_where_events_do_not_number_them(log):
    job = log(
        [
            *(event(0, "start"), event(1, "step", step=0, step_time_ms=500), event(2, "interrupt")),
            *(event(3, "nodes_ready"), event(4, "running")),
            event(5, "step", step=0, step_time_s=0.5),
        ]
    )
    assert job.steps["attempt"].tolist() == [1, 2]
    assert job.spans.set_index("kind").loc["restart", "attempt"] == 2


def test_columns_are_found_by_common_names_and_units(log):
    header = "Iteration,Timestamp,Step Time (ms),num_tokens,loss\n"
    job = log(header + "7,2024-05-01T10:00:01Z,250,64,0.1\n8,2024-05-01T10:00:02Z,500,64,0.1\n")
    assert job.steps["step"].tolist() == [7, 8]
    assert seconds(job) == [0.25, 0.5]
    assert job.steps["token_count"].tolist() == [64, 64]
    assert job.steps["line"].tolist() == [2, 3]
    assert "taken as the ends of steps" in " ".join(job.quality["what"])


def test_columns_of_the_callers_own_are_named_by_what_they_are(log):
    text = "nr;wann;dauer\n1;2024-05-01 12:00:00;0.5\n2;2024-05-01 12:00:01;0.25\n"
    job = log(text, tz="+02:00", columns={"step": "nr", "start": "wann", "duration_s": "dauer"})
    assert job.steps["start_ns"].tolist() == [1714557600 * 10**9, 1714557601 * 10**9]
    assert seconds(job) == [0.5, 0.25]
    assert not job.quality["finding"].eq("assumed").any()


@pytest.mark.parametrize(
    ("stamps", "unit"),
    [
        (["1715960318.123456789", "1715960319"], "s"),
        (["1715960318123", "1715960319000"], "ms"),
        (["1715960318123456", "1715960319000000"], "us"),
        (["1715960318123456789", "1715960319000000000"], "ns"),
    ],
)
def test_numbers_since_1970_are_told_by_their_size_and_kept_to_the_digit(log, stamps, unit):
    job = log("step,time,step_time_s\n" + "".join(f"{n},{s},0.1\n" for n, s in enumerate(stamps)))
    first = int("1715960318" + stamps[0].replace(".", "")[10:].ljust(9, "0"))
    assert job.steps["end_ns"].tolist() == [first, 1715960319 * 10**9]
    assert (
        told(job)["assumed", f"numbers of column 'time' taken as {unit} since 1970, by their size"]
        == 2
    )


def test_json_lines_and_lists_of_steps_are_tables_too(log):
    steps = [{"step": n, "start_time": 1.7e9 + n, "end_time": 1.7e9 + n + 0.5} for n in range(3)]
    by_line = log([json.dumps(each) for each in steps], name="steps.jsonl")
    by_list = log(json.dumps(steps, indent=1), name="steps.json")
    for job in (by_line, by_list):
        assert seconds(job) == [0.5] * 3
        assert job.steps["step"].tolist() == [0, 1, 2]


def test_without_durations_a_step_begins_where_the_one_before_ended(log):
    job = log("step,time\n1,1715960318\n2,1715960320\n3,1715960323\n1,1715960330\n2,1715960331\n")
    assert job.steps[["attempt", "step"]].values.tolist() == [[1, 2], [1, 3], [2, 2]]
    assert seconds(job) == [2, 3, 1]
    assumed = "steps without a duration; each begins where the one before it ended"
    assert told(job)["assumed", assumed] == 3
    assert told(job)["noted", "stamps that only begin or end the steps beside them"] == 2


def test_bad_cells_cost_their_step_only_and_are_counted(log):
    job = log(
        "step,end_time,step_time_s\n"
        "1,2024-05-01T10:00:01Z,0.5\n"
        "2,yesterday,0.5\n"
        "x,2024-05-01T10:00:03Z,0.5\n"
        "4,2024-05-01T10:00:04Z,-0.5\n"
        "5,2024-05-01T10:00:05Z,nan\n"
        "6,2024-05-01T10:00:06Z,1e999\n"
        "7,2024-05-01T10:00:07Z,0.5,8\n"
        "8,2024-05-01T10:00:08Z,0.5\n"
        "9,2024-05-0"
    )
    assert job.steps["line"].tolist() == [2, *[9] * 7]
    found = told(job)
    assert found["noted", "steps between two lines, each as long as the mean of its interval"] == 6
    assert found["dropped", "cells of 'step' that are not whole numbers from 0"] == 1
    assert found["dropped", "cells of 'step_time_s' that are not durations from 0"] == 2
    assert found["dropped", "rows with more or fewer cells than the header"] == 1
    assert found["truncated", CUT_LINE] == 1
    assert found["dropped", "steps whose start or end is not known"] == 4
    assert found["dropped", "steps without a number"] == 1


def test_rows_in_another_order_and_rows_written_twice_are_put_right(log):
    job = log("step,end_time,step_time_s\n2,1715960320,0.5\n1,1715960319,0.5\n2,1715960320,0.5\n")
    assert job.steps["step"].tolist() == [1, 2]
    assert told(job)["repaired", "steps not in order of time; they were sorted"] == 1
    assert told(job)["skipped by design", "steps written more than once"] == 1


def test_steps_that_end_before_they_begin_are_left_out(log):
    job = log("step,start_time,end_time\n1,1715960319,1715960318\n2,1715960320,1715960321\n")
    assert job.steps["step"].tolist() == [2]
    assert told(job)["dropped", "steps that end before they begin"] == 1


def test_a_stated_duration_that_is_not_that_of_the_stamps_is_flagged(log):
    job = log("step,start_time,end_time,step_time_s\n1,1715960319,1715960320,5\n")
    assert told(job)["suspicious", "steps whose duration is not that of their stamps"] == 1


def test_logs_of_two_runs_are_counted_on_in_order_of_time(log, tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "first.csv").write_text("step,end_time,step_time_s\n1,1715960320,0.5\n")
    log("step,end_time,step_time_s\n1,1715970320,0.5\n", name="second.csv")
    job = load.job_log(tmp_path)
    assert job.steps["attempt"].tolist() == [1, 2]
    assert [source[-9:] for source in job.steps["source"]] == ["first.csv", "econd.csv"]


def test_local_stamps_need_a_zone(log):
    with pytest.raises(LoadError, match=r"log\.txt, line 2: .* has no time zone; pass tz="):
        log("step,time,step_time_s\n1,2024-05-01 10:00:00,0.5\n")


def test_a_duration_without_a_unit_is_asked_for(log):
    with pytest.raises(LoadError, match=r"'step_time' does not state its unit; pass columns=.*_ms"):
        log("step,time,step_time\n1,1715960318,0.5\n")


def test_numbers_that_are_no_times_are_refused(log):
    with pytest.raises(
        LoadError, match=r"column 'time' holds 17\.5, which is not a time since 1970"
    ):
        log("step,time,step_time_s\n1,17.5,0.5\n")


def test_a_unit_that_the_numbers_do_not_have_is_refused(log):
    with pytest.raises(LoadError, match="'time_ms' holds 1715960318, in ms, which is not a time"):
        log("step,time_ms,step_time_s\n1,1715960318,0.5\n")


def test_columns_must_be_those_of_a_step_and_of_the_file(log):
    with pytest.raises(LoadError, match=r"columns= names \['speed'\], which no step has"):
        log("step,time\n1,2\n", columns={"speed": "v"})
    with pytest.raises(LoadError, match="no step and no span of a job found"):
        log("a,b\n1,2\n", columns={"step": "nr"})


def test_two_columns_of_one_name_are_refused(log):
    with pytest.raises(LoadError, match=r"columns \['time'\] occur twice"):
        log("step,time,time\n1,2,3\n")


@pytest.mark.parametrize("tokens", [0, -1, 1.5, True, "many"])
def test_tokens_per_step_must_be_a_whole_number(log, tokens):
    with pytest.raises(ValueError, match="tokens_per_step must be a whole number from 1"):
        log("step,time\n", tokens_per_step=tokens)


def test_a_zone_that_is_none_is_refused(log):
    with pytest.raises(ValueError, match="tz must be a time zone"):
        log("step,time\n", tz="Mars/Olympus")


@pytest.mark.parametrize("text", ["garbage", "step,time\n", "{", "[[[[", "a,b\n\0\n"])
def test_what_is_no_log_is_refused_with_what_is_known(log, text):
    with pytest.raises(
        LoadError, match=r"(?s)no step and no span of a job found; supported: MLLOG"
    ):
        log(text)


def iteration(number, stamp, *, spent_ms=500.0, batch=8):
    text = f"iteration {number:8d}/ 100 | consumed samples: {number * batch} | "
    text += f"elapsed time per iteration (ms): {spent_ms} | global batch size: {batch} | loss: 1"
    return f" [2024-05-17 {stamp}] {text}"


def test_lines_of_megatron_are_steps_and_a_fall_back_is_a_restart(log):
    arguments = "  seq_length ...................................... 4096"
    job = log(
        [
            *(arguments, iteration(1, "10:00:01.5"), iteration(2, "10:00:02.5")),
            *(iteration(2, "10:01:00.0", spent_ms=400.0), iteration(3, "10:01:01.0")),
        ],
        tz="UTC",
    )
    assert job.steps[["attempt", "step"]].values.tolist() == [[1, 1], [1, 2], [2, 2], [2, 3]]
    assert seconds(job) == [0.5, 0.5, 0.4, 0.5]
    assert set(job.steps["token_count"]) == {8 * 4096}
    restart = job.spans.iloc[0]
    assert (restart["kind"], restart["attempt"], restart["step"]) == ("restart", 2, 2)
    assert restart["end_ns"] - restart["start_ns"] == 57_100_000_000


def test_a_line_of_megatron_on_many_iterations_is_that_many_steps(log):
    job = log([iteration(10, "10:00:10"), iteration(20, "10:00:20")], tz="UTC")
    assert seconds(job) == [0.5] * 20
    assert job.steps["step"].tolist() == list(range(1, 21))
    assert set(job.steps["line"]) == {1, 2}


def test_a_log_of_megatron_without_stamps_is_refused(log):
    with pytest.raises(LoadError, match="line 1: not every line on an iteration has a time"):
        log([iteration(1, "10:00:00")[23:]])
