"""Entries of ml-goodput-measurement. Their fields are those that `GoodputRecorder` writes
(src/goodput.py, 0.0.1 to 0.2), their order that of the README's training loop."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.load.failures.log_files import FOREIGN, findings, read, recognised
from workbench.load._failures.formats import ml_goodput

T0 = 1_700_000_000
S = 1_000_000_000


def entry(second, field, **more):
    return {"job_name": "llama", field: T0 + second, **more}


def step(second, number):
    return entry(second, "step_start_time", step_count=number)


def run(begin, first, last, *, step_s=10, ends=True):
    """One run: 5 s to initialise, 15 s to prepare, then steps, each with 2 s of data loading."""
    entries = [
        entry(begin, "job_start_time"),
        entry(begin + 1, "tpu_init_start_time"),
        entry(begin + 5, "tpu_init_end_time"),
        entry(begin + 5, "training_prep_start_time"),
        entry(begin + 20, "training_prep_end_time"),
    ]
    at = begin + 20
    for number in range(first, last + 1):
        entries += [step(at, number)]
        entries += [entry(at + step_s - 2, "data_loading_start_time")]
        entries += [entry(at + step_s, "data_loading_end_time")]
        at += step_s
    return entries + ([entry(at, "job_end_time")] if ends else [])


def lines(entries):
    return "".join(json.dumps(each) + "\n" for each in entries)


def seconds(timeline, attempt=None):
    kept = timeline if attempt is None else timeline[timeline["attempt"] == attempt]
    length = (kept["end_ns"] - kept["start_ns"]) / S
    return length.groupby(kept["state"]).sum().to_dict()


def test_a_run_without_trouble_is_a_timeline_without_failures(tmp_path):
    part = read(ml_goodput, tmp_path, lines(run(0, 0, 4)))
    assert part.failures.empty
    assert seconds(part.timeline) == {
        "starting": 5.0,
        "loading": 15.0,
        "running": 5 * 8.0,
        "data loading": 5 * 2.0,
    }
    running = part.timeline[part.timeline["state"] == "running"]
    assert running["first_step"].tolist() == running["last_step"].tolist() == [0, 1, 2, 3, 4]
    assert part.timeline["job"].unique().tolist() == ["llama"]
    assert findings(part) == {}


def test_a_step_seen_twice_is_a_disruption(tmp_path):
    entries = run(0, 0, 9, ends=False) + run(200, 6, 12)
    part = read(ml_goodput, tmp_path, lines(entries))
    row = part.failures.iloc[0]
    assert len(part.failures) == 1
    assert row["cause"] == "went back from step 9 to 6"
    assert (row["start_ns"], row["end_ns"]) == ((T0 + 120) * S, (T0 + 200) * S)
    assert (row["kind"], row["category"], row["severity"]) == ("goodput", "unknown", "fatal")
    assert row["line"] == len(run(0, 0, 9, ends=False)) + 1
    assert seconds(part.timeline, 1)["down"] == 80


def test_a_step_seen_twice_needs_no_new_start_of_the_job(tmp_path):
    entries = [*run(0, 0, 3, ends=False), step(100, 2), step(110, 3), step(120, 4)]
    part = read(ml_goodput, tmp_path, lines(entries))
    assert part.failures["cause"].tolist() == ["went back from step 3 to 2"]


@pytest.mark.parametrize(
    ("entries", "cause", "category"),
    [
        (run(0, 0, 3, ends=False) + run(100, 4, 5), "restarted after step 3", "unknown"),
        (run(0, 0, -1, ends=False) + run(100, 0, 5), "restarted before the first step", "unknown"),
        (run(0, 0, 3) + run(100, 2, 5), "ended in order, went back from step 3 to 2", "planned"),
    ],
)
def test_says_how_a_run_was_left(tmp_path, entries, cause, category):
    failures = read(ml_goodput, tmp_path, lines(entries)).failures
    assert failures[["cause", "category"]].to_numpy().tolist() == [[cause, category]]


def test_a_run_that_goes_on_after_an_end_is_no_failure(tmp_path):
    assert read(ml_goodput, tmp_path, lines(run(0, 0, 3) + run(100, 4, 5))).failures.empty


def test_nested_spans_are_counted_once(tmp_path):
    def custom(second, what):
        field = f"custom_badput_event_{what}_time"
        return entry(second, field, custom_badput_event_type="eval")

    entries = [step(0, 0), custom(10, "start"), entry(12, "data_loading_start_time")]
    entries += [entry(15, "data_loading_end_time"), custom(20, "end"), entry(30, "job_end_time")]
    timeline = read(ml_goodput, tmp_path, lines(entries)).timeline
    assert seconds(timeline) == {"running": 20.0, "eval": 7.0, "data loading": 3.0}
    assert timeline["state"].tolist() == ["running", "eval", "data loading", "eval", "running"]


FIELDS = [name for name in ml_goodput._FIELDS if name != "step_start_time"]


@settings(max_examples=20)
@given(
    st.lists(
        st.one_of(
            st.builds(step, st.integers(0, 50), st.integers(0, 9)),
            st.builds(entry, st.integers(0, 50), st.sampled_from(FIELDS)),
        )
    )
)
def test_states_of_a_job_never_overlap(tmp_path_factory, entries):
    text = lines(entries) or "[]"
    timeline = read(ml_goodput, tmp_path_factory.mktemp("goodput"), text).timeline
    assert (timeline["end_ns"] > timeline["start_ns"]).all()
    assert (timeline["start_ns"].to_numpy()[1:] >= timeline["end_ns"].to_numpy()[:-1]).all()


@pytest.mark.parametrize(
    "form",
    [
        lines,
        json.dumps,
        lambda entries: json.dumps(entries, indent=2),
        lambda entries: json.dumps([{"insertId": "x", "jsonPayload": each} for each in entries]),
        lambda entries: "\n".join(json.dumps(each, indent=4) for each in entries),
        lambda entries: "\ufeff" + lines(entries).replace("\n", "\r\n"),
    ],
)
def test_reads_every_form_of_export(tmp_path, form):
    entries = run(0, 0, 4, ends=False) + run(100, 3, 6)
    part = read(ml_goodput, tmp_path, form(entries))
    assert part.failures["cause"].tolist() == ["went back from step 4 to 3"]
    assert part.timeline.drop(columns=["line", "source"]).equals(
        read(ml_goodput, tmp_path, lines(entries)).timeline.drop(columns=["line", "source"])
    )
    assert findings(part) == {}


def test_jobs_are_kept_apart_and_copies_counted_once(tmp_path):
    other = [{**each, "job_name": "gemma"} for each in run(5, 0, 2)]
    part = read(ml_goodput, tmp_path, lines([*run(0, 0, 2), *other, *other]))
    assert part.failures.empty
    assert sorted(part.timeline["job"].unique()) == ["gemma", "llama"]
    assert findings(part) == {
        "entries that are there more than once": ("skipped by design", len(other))
    }


def test_times_shifted_by_the_zone_of_the_host_are_flagged(tmp_path):
    export = {"timestamp": "2023-11-15T06:13:20Z", "jsonPayload": entry(0, "job_start_time")}
    part = read(ml_goodput, tmp_path, json.dumps([export]))
    assert [kind for kind, _ in findings(part).values()] == ["suspicious"]


@pytest.mark.parametrize(
    "bad",
    [
        entry(-2 * T0, "job_start_time"),
        {"job_name": "llama", "job_start_time": float("nan")},
        {"job_name": "llama", "job_start_time": "1e999"},
        {"job_name": "llama", "job_start_time": [1]},
        {"job_name": "llama", "job_start_time": True},
        entry(0, "step_start_time"),
        entry(0, "step_start_time", step_count=-1),
        entry(0, "step_start_time", step_count=1.5),
        entry(0, "step_start_time", step_count=10**30),
        {"job_name": "llama", "loss": 2.5},
        ["job_name"],
        7,
    ],
)
def test_entries_of_wrong_types_are_counted(tmp_path, bad):
    part = read(ml_goodput, tmp_path, lines([bad, *run(0, 0, 2)]))
    assert len(part.timeline) == 8
    assert [kind for kind, _ in findings(part).values()] in (["dropped"], ["skipped by design"])


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (lines(run(0, 0, 2)) + '{"job_name": "llama", "job_st', "truncated"),
        ("[" * 100_000 + "\n" + lines(run(0, 0, 2)), "dropped"),
        ('{"job_name": ' * 100_000 + "\n" + lines(run(0, 0, 2)), "dropped"),
        (bytes(range(256)) * 100 + b"\n" + lines(run(0, 0, 2)).encode(), "skipped by design"),
        ('{"a": ' + "9" * 10_000 + "}\n" + lines(run(0, 0, 2)), "dropped"),
    ],
)  # fmt: skip
def test_damage_leaves_out_only_what_is_damaged(tmp_path, text, kind):
    part = read(ml_goodput, tmp_path, text)
    assert len(part.timeline) == 8
    assert kind in {said for said, _ in findings(part).values()}


def test_recognises_its_own_and_nothing_else():
    assert recognised(ml_goodput, lines(run(0, 0, 2)))
    assert recognised(ml_goodput, json.dumps([{"jsonPayload": step(0, 0)}]))
    assert [name for name, text in FOREIGN.items() if recognised(ml_goodput, text)] == []
