"""What capping cost: the confounded demo first, then clean cases, laws, and every doubt."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyze.power.capping_tables import SECOND, START, made_steps
from workbench import analyze, load
from workbench.errors import WorkbenchError
from workbench.tables import CAPPING_BLAME, CAPPING_COST, CAPPING_EVENTS, LOGGED_STEPS


def events(*rows):
    """Make events from (device, start, end) in seconds, and more."""
    usual = {"uncertain_s": 0.0, "evidence": "clock reasons", "reason": "power cap",
             "reading_count": 3, "is_cut": False, "clock_mhz": 1_600.0}  # fmt: skip
    made = []
    for entity, start, end, *more in rows:
        row = dict.fromkeys(CAPPING_EVENTS.columns) | usual | {"entity": entity}
        row |= {"start_ns": START + round(start * SECOND), "end_ns": START + round(end * SECOND)}
        made.append(row | {"duration_s": end - start} | (more[0] if more else {}))
    frame = pd.DataFrame(made, columns=list(CAPPING_EVENTS.columns))
    return CAPPING_EVENTS.check(CAPPING_EVENTS.cast(frame))


@pytest.fixture(scope="module")
def demo(fleet_demo):
    log = load.power(fleet_demo / "power", tz="UTC", progress=False)
    job = load.job_log(fleet_demo / "steps.jsonl")
    return analyze.capping_events(log.power, log.states), job.steps


@pytest.mark.oracle
def test_the_capped_steps_of_the_demo_are_those_of_the_truth(demo):
    first = analyze.capping_cost(*demo).set_index("attempt").loc[1]
    assert first["capped_step_count"] == 57 - 13 + 1
    (blame,) = analyze.capping_blame(*demo).to_dict("records")
    assert blame["capped_step_count"] == blame["blamed_step_count"] == 45
    assert blame["blamed_share"] == 1


@pytest.mark.oracle
def test_a_slow_rank_in_the_same_steps_makes_the_cost_doubtful(demo):
    # Another rank is slower still in steps 12 to 68, so the cap cost the job nothing.
    first = analyze.capping_cost(*demo).set_index("attempt").loc[1]
    assert "before and after the capping differ by 22 %" in first["doubt"]
    assert abs(first["local_cost_s"]) < 0.05
    assert "differ by 22 %" in analyze.capping_blame(*demo)["doubt"].iloc[0]


def test_capped_steps_cost_what_they_take_beyond_the_median_of_others():
    steps = made_steps([1.0] * 20 + [1.5] * 10 + [1.0] * 20)
    (cost,) = analyze.capping_cost(events(("a", 20, 35)), steps).to_dict("records")
    assert (cost["capped_step_count"], cost["uncapped_step_count"]) == (10, 39)
    assert cost["cost_s"] == pytest.approx(5)
    assert cost["low_cost_s"] == cost["high_cost_s"] == pytest.approx(5)
    assert cost["local_cost_s"] == pytest.approx(5)
    assert cost["cost_ratio"] == pytest.approx(5 / 54)
    assert cost["doubt"] == ""


def noisy(seed, extra):
    rng = np.random.default_rng(seed)
    durations = 1 + 0.01 * rng.standard_normal(60)
    durations[20:40] += extra
    return durations


@pytest.mark.slow
def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    inside = 0
    for seed in range(60):
        durations = noisy(seed, 0.2)
        start = durations[:20].sum()
        capped = events(("a", start, start + durations[20:40].sum()))
        (cost,) = analyze.capping_cost(capped, made_steps(durations)).to_dict("records")
        inside += cost["low_cost_s"] <= 20 * 0.2 <= cost["high_cost_s"]
    assert inside / 60 > 0.8


@pytest.mark.slow
@given(st.floats(0.1, 10), st.integers(0, 9))
def test_the_cost_scales_with_time_and_the_seed_decides_the_interval_only(scale, seed):
    durations = noisy(1, 0.3)
    found = []
    for factor in (1.0, scale):
        times = durations * factor
        start = times[:20].sum()
        capped = events(("a", start + 1e-6, start + times[20:40].sum() - 1e-6))
        found.append(analyze.capping_cost(capped, made_steps(times), seed=seed).iloc[0])
    assert found[1]["cost_s"] == pytest.approx(scale * found[0]["cost_s"], rel=1e-6)
    assert found[0]["low_cost_s"] <= found[0]["high_cost_s"]


def test_the_same_seed_gives_the_same_interval():
    durations = noisy(2, 0.2)
    capped = events(("a", 20, 40))
    once, again = (analyze.capping_cost(capped, made_steps(durations), seed=3) for _ in range(2))
    assert once.equals(again)


def test_first_steps_and_evaluations_are_no_cost_of_capping():
    durations = [9.0] + [1.0] * 19 + [1.2] * 5 + [30.0] + [1.2] * 4 + [1.0] * 20
    (cost,) = analyze.capping_cost(events(("a", 28, 68.8)), made_steps(durations)).to_dict(
        "records"
    )
    assert cost["left_out_step_count"] == 2
    assert cost["cost_s"] == pytest.approx(9 * 0.2)
    (raw,) = analyze.capping_cost(
        events(("a", 28, 68.8)), made_steps(durations), longest_step_ratio=100
    ).to_dict("records")
    assert raw["cost_s"] == pytest.approx(9 * 0.2 + 29)


def test_steps_at_an_uncertain_end_are_neither():
    steps = made_steps([1.0] * 50)
    (cost,) = analyze.capping_cost(
        events(("a", 20, 30, {"uncertain_s": 0.5})), steps, first_step_count=0
    ).to_dict("records")
    assert (cost["capped_step_count"], cost["uncapped_step_count"]) == (10, 38)
    assert cost["left_out_step_count"] == 2


def test_attempts_are_compared_with_themselves():
    both = pd.concat([
        made_steps([1.0] * 20 + [1.5] * 10 + [1.0] * 20),
        made_steps([3.0] * 20, attempt=2, start_s=1_000),
    ], ignore_index=True)  # fmt: skip
    cost = CAPPING_COST.check(analyze.capping_cost(events(("a", 20, 35)), both))
    assert cost["attempt"].tolist() == [1, 2]
    assert cost["cost_s"].tolist() == pytest.approx([5, 0])


@pytest.mark.parametrize(
    ("durations", "span", "doubt"),
    [
        ([1.0] * 50, (20, 22), "too few capped steps: 2"),
        ([1.0] * 3 + [1.5] * 20 + [1.0] * 3, (3, 33), "too few uncapped steps: 5"),
        ([1.0] * 20 + [1.5] * 20, (20, 50), "uncapped steps on one side only"),
        ([1.0] * 20 + [1.5] * 40, (20, 50), "differ by 50 %: something else changed"),
        ([1.0] * 40 + [1.5] * 30, (40, 55), "against the nearest uncapped steps the cost is 0 s"),
        ([1.0] * 50, (900, 950), "no event overlaps any step"),
        ([1.0] * 50, (-1, 60), "no uncapped step to compare with"),
    ],
)
def test_every_reason_to_doubt_is_named(durations, span, doubt):
    (cost,) = analyze.capping_cost(events(("a", *span)), made_steps(durations)).to_dict("records")
    assert doubt in cost["doubt"]


def test_capping_that_was_only_inferred_is_doubted():
    steps = made_steps([1.0] * 20 + [1.5] * 10 + [1.0] * 20)
    guessed = events(("a", 20, 35, {"evidence": "power at limit"}))
    assert analyze.capping_cost(guessed, steps)["doubt"].tolist() == [
        "capping was inferred from power at its limit"
    ]


def test_a_job_without_capping_cost_nothing():
    cost = analyze.capping_cost(CAPPING_EVENTS.empty(), made_steps([1.0] * 5))
    assert cost["cost_s"].tolist() == [0]
    assert cost["doubt"].tolist() == [""]
    assert analyze.capping_cost(CAPPING_EVENTS.empty(), LOGGED_STEPS.empty()).empty


def test_the_device_whose_clock_fell_most_is_blamed():
    steps = made_steps([1.0] * 20 + [1.5] * 10 + [1.0] * 20)
    deep, shallow = {"clock_loss_ratio": 0.3}, {"clock_loss_ratio": 0.1}
    table = CAPPING_BLAME.check(
        analyze.capping_blame(events(("b", 20, 29, deep), ("a", 20, 35, shallow)), steps)
    ).set_index("entity")
    assert table["capped_step_count"].to_dict() == {"b": 6, "a": 10}
    assert table["blamed_step_count"].to_dict() == {"b": 6, "a": 4}
    assert table["blamed_share"].to_dict() == pytest.approx({"b": 0.6, "a": 0.4})
    assert table["blamed_s"].to_dict() == pytest.approx({"b": 3, "a": 2})
    assert table.index[0] == "b"


def test_without_a_loss_the_lowest_clock_decides_and_ties_are_shared():
    steps = made_steps([1.0] * 20 + [1.5] * 10 + [1.0] * 20)
    slow = {"clock_mhz": 1_200.0}
    table = analyze.capping_blame(events(("a", 20, 35), ("b", 20, 35, slow)), steps)
    assert table.set_index("entity")["blamed_step_count"].to_dict() == {"b": 10, "a": 0}
    assert table["doubt"].str.contains("no uncapped clock to compare with").all()
    tied = analyze.capping_blame(events(("a", 20, 35), ("b", 20, 35)), steps)
    assert tied["blamed_share"].tolist() == [1, 1]
    assert tied["doubt"].str.contains("other devices were held back as much").all()


def test_a_device_capped_outside_the_job_is_listed_without_blame():
    table = analyze.capping_blame(events(("a", 900, 950)), made_steps([1.0] * 50))
    assert table["blamed_step_count"].tolist() == [0]
    assert "capped in no step that was kept" in table["doubt"].iloc[0]
    assert analyze.capping_blame(CAPPING_EVENTS.empty(), LOGGED_STEPS.empty()).empty


def test_steps_of_two_jobs_are_refused_with_their_lines():
    both = pd.concat([made_steps([1.0] * 5), made_steps([1.0] * 5, start_s=0.1)])
    with pytest.raises(WorkbenchError, match=r"step 0 \(job.log, line 1\) runs beside step 0"):
        analyze.capping_cost(CAPPING_EVENTS.empty(), both)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"first_step_count": -1}, "first_step_count must be 0 or more"),
        ({"longest_step_ratio": 0}, "longest_step_ratio must be above 0"),
        ({"confidence_level": 95}, "confidence_level must be between 0 and 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(WorkbenchError, match=message):
        analyze.capping_cost(CAPPING_EVENTS.empty(), made_steps([1.0]), **options)
