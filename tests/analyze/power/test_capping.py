"""Capping: the synthetic job with its truth first, then each kind of evidence, gaps, and coverage."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyze.power.capping_tables import SECOND, START, run, telemetry
from workbench import analyze, load
from workbench.errors import TableError, WorkbenchError
from workbench.tables import CAPPING_EVENTS, POWER, POWER_STATES

CAPPED = {"reasons": 0x4, "clock_mhz": 1_600, "limit_w": 500, "power_w": 440}
FREE = {"reasons": 0, "clock_mhz": 1_800, "limit_w": 700, "power_w": 600}


@pytest.fixture(scope="module")
def demo(fleet_demo):
    log = load.power(fleet_demo / "power", tz="UTC", progress=False)
    truth = pd.read_csv(fleet_demo / "truth.csv")
    cap = truth[(truth["what"] == "power cap") & (truth["unit"] == "W")].iloc[0]
    return log, analyze.capping_events(log.power, log.states), cap


@pytest.mark.oracle
def test_the_capped_gpu_of_the_demo_is_found_and_no_other(demo):
    _, events, truth = demo
    CAPPING_EVENTS.check(events)
    (entity,) = set(events["entity"])
    assert "gpu0" in entity, "rank 4 is the first GPU of its host"
    assert truth["node"] in entity
    assert set(events["limit_w"]) == {truth["size"]}
    assert set(events["reason"]) == {"power cap"}
    # Half a period is what sampling leaves open.
    slack = 0.25 * SECOND
    assert events["start_ns"].min() == pytest.approx(truth["start_ns"], abs=slack)
    assert events["end_ns"].max() == pytest.approx(truth["end_ns"], abs=slack)


@pytest.mark.oracle
def test_depth_is_clock_and_limit(demo):
    _, events, _ = demo
    assert set(events["clock_mhz"]) == {1_605}
    assert set(events["uncapped_clock_mhz"]) == {1_830}
    assert events["clock_loss_ratio"].to_numpy() == pytest.approx(1 - 1_605 / 1_830)
    assert events["power_to_limit_ratio"].between(0.85, 0.92).all()


@pytest.mark.oracle
def test_every_gpu_of_the_demo_is_covered_by_its_evidence(demo):
    log, events, _ = demo
    shares = analyze.capped_share(log.power, log.states)
    gpus = shares[shares["evidence"] == "clock reasons"]
    assert len(gpus) == 12
    assert (gpus["capped_s"] > 0).sum() == 1
    assert gpus["capped_s"].sum() == pytest.approx(events["duration_s"].sum())


def test_reasons_make_maximal_events_with_both_ends_halfway():
    events = analyze.capping_events(
        *telemetry(*run(range(3), **FREE), *run(range(3, 6), **CAPPED), *run(range(6, 9), **FREE))
    )
    (event,) = events.to_dict("records")
    assert event["start_ns"] == START + 2.5 * SECOND
    assert event["end_ns"] == START + 5.5 * SECOND
    assert (event["duration_s"], event["uncertain_s"], event["reading_count"]) == (3, 0.5, 3)
    assert event["evidence"] == "clock reasons"
    assert event["clock_loss_ratio"] == pytest.approx(1 - 1_600 / 1_800)
    assert not event["is_cut"]
    assert np.isnan(event["held_back_s"])


@pytest.mark.parametrize(
    ("masks", "reason"),
    [
        ([0x4, 0x4], "power cap"),
        ([0x80, 0x80], "power brake"),
        ([0x4, 0x80], "power cap and power brake"),
        ([0x84, 0x25], "power cap and power brake"),
    ],
)
def test_the_reason_is_told(masks, reason):
    rows = [{"at": at, **CAPPED, "reasons": mask} for at, mask in enumerate(masks)]
    assert analyze.capping_events(*telemetry(*rows))["reason"].tolist() == [reason]


@pytest.mark.parametrize("mask", [0x1, 0x8, 0x20, 0x40, 0x100])
def test_other_reasons_are_no_capping(mask):
    rows = [{"at": at, **CAPPED, "reasons": mask} for at in range(5)]
    assert analyze.capping_events(*telemetry(*rows)).empty


def test_a_gap_ends_an_event_and_is_told():
    rows = [*run(range(4), **CAPPED), *run(range(60, 64), **CAPPED)]
    events = analyze.capping_events(*telemetry(*rows))
    assert events["reading_count"].tolist() == [4, 4]
    assert events["is_cut"].all()
    assert events["duration_s"].tolist() == [4, 4], "the gap counts for none"
    whole = analyze.capping_events(*telemetry(*rows), longest_gap_periods=100)
    assert whole["duration_s"].tolist() == [64]


def test_readings_without_reasons_are_unknown_and_not_free():
    rows = [*run(range(5), **CAPPED), *run(range(5, 25), power_w=440, clock_mhz=1_600),
            *run(range(25, 30), **CAPPED)]  # fmt: skip
    assert analyze.capping_events(*telemetry(*rows))["reading_count"].tolist() == [5, 5]
    (share,) = analyze.capped_share(*telemetry(*rows)).to_dict("records")
    assert share["known_s"] == 10
    assert share["capped_share"] == 1
    assert share["covered_share"] == pytest.approx(1 / 3)


def test_a_counter_tells_of_the_time_before_its_reading():
    held = [0, 0, 800_000_000, 1_600_000_000, 1_600_000_000]
    rows = [{"at": at, "power_violation_ns": ns, "power_w": 500} for at, ns in enumerate(held)]
    (event,) = analyze.capping_events(*telemetry(*rows)).to_dict("records")
    assert event["evidence"] == "violation counter"
    assert (event["start_ns"], event["end_ns"]) == (START + SECOND, START + 3 * SECOND)
    assert event["held_back_s"] == pytest.approx(1.6)
    assert event["reason"] == "not told"


def test_a_counter_that_falls_was_reset_and_tells_nothing():
    rows = [{"at": at, "power_violation_ns": ns} for at, ns in enumerate([900, 900, 0, 0])]
    assert analyze.capping_events(*telemetry(*rows)).empty
    (share,) = analyze.capped_share(*telemetry(*rows)).to_dict("records")
    assert share["known_s"] == 2, "the step across the reset is not known"


def test_power_at_its_limit_is_a_hint_if_it_stays():
    at_limit = {"power_w": 690, "limit_w": 700}
    below = {"power_w": 500, "limit_w": 700}
    rows = [*run([0, 1], **at_limit), *run([2], **below), *run([3, 4, 5], **at_limit)]
    (event,) = analyze.capping_events(*telemetry(*rows)).to_dict("records")
    assert event["evidence"] == "power at limit"
    assert event["reading_count"] == 3
    more = analyze.capping_events(*telemetry(*rows), least_reading_count=1)
    assert more["reading_count"].tolist() == [2, 3]
    assert analyze.capping_events(*telemetry(*rows), limit_share=0.99).empty


def test_the_best_evidence_of_each_device_is_taken():
    rows = [
        *run(range(4), **CAPPED, entity="a"),
        *run(range(4), power_w=699, limit_w=700, reasons=0, entity="b"),
        *run(range(4), power_w=699, limit_w=700, entity="c"),
        *run(range(4), power_w=699, entity="d"),
    ]
    shares = analyze.capped_share(*telemetry(*rows)).set_index("entity")
    assert shares["evidence"].to_dict() == {
        "a": "clock reasons", "b": "clock reasons", "c": "power at limit", "d": "none",
    }  # fmt: skip
    assert shares["event_count"].to_dict() == {"a": 1, "b": 0, "c": 1, "d": 0}
    assert np.isnan(shares.loc["d", "capped_share"]), "nothing known is not nothing capped"


def test_a_device_with_power_alone_is_listed_as_unknown():
    power, states = telemetry(*run(range(4), **CAPPED), *run(range(4), power_w=9, entity="node"))
    states = states[states["entity"] != "node"].reset_index(drop=True)
    shares = analyze.capped_share(power, states).set_index("entity")
    assert shares.loc["node", "evidence"] == "none"
    assert shares.loc["node", "covered_share"] == 0


def test_an_idle_device_is_no_measure_of_the_uncapped_clock():
    idle = {"reasons": 0, "clock_mhz": 345, "limit_w": 700, "power_w": 95}
    rows = [*run(range(50), **idle), *run([50, 51], **FREE), *run([52, 53], **CAPPED)]
    events = analyze.capping_events(*telemetry(*rows))
    assert events["uncapped_clock_mhz"].tolist() == [1_800]
    mixed = analyze.capping_events(*telemetry(*rows), least_load_share=0)
    assert mixed["uncapped_clock_mhz"].tolist() == [345]


def test_a_device_that_was_always_capped_has_no_depth_of_clock():
    events = analyze.capping_events(*telemetry(*run(range(4), **CAPPED)))
    assert events["clock_loss_ratio"].isna().all()
    assert events["is_cut"].all()


def test_states_and_power_need_not_be_read_in_the_same_instant():
    power, states = telemetry(*run(range(6), **CAPPED))
    late = power.assign(time_ns=power["time_ns"] + SECOND // 3)
    assert analyze.capping_events(late, states)["power_w"].tolist() == [440]
    later = power.assign(time_ns=power["time_ns"] + 100 * SECOND)
    assert analyze.capping_events(later, states)["power_w"].isna().all()


@pytest.mark.slow
@given(st.lists(st.booleans(), min_size=2, max_size=40))
def test_events_and_the_rest_add_up_to_what_is_known(flags):
    rows = [{"at": at, **(CAPPED if flag else FREE)} for at, flag in enumerate(flags)]
    power, states = telemetry(*rows)
    (share,) = analyze.capped_share(power, states).to_dict("records")
    assert share["known_s"] == pytest.approx(len(flags))
    assert share["capped_s"] == pytest.approx(sum(flags))
    events = analyze.capping_events(power, states)
    assert events["reading_count"].sum() == sum(flags)
    assert (events["start_ns"].to_numpy()[1:] > events["end_ns"].to_numpy()[:-1]).all()


def test_one_reading_alone_stands_for_no_time():
    power, states = telemetry({"at": 0, **CAPPED})
    (event,) = analyze.capping_events(power.iloc[:0], states).to_dict("records")
    assert (event["duration_s"], event["uncertain_s"], event["is_cut"]) == (0, 0, True)


def test_empty_telemetry_has_no_events():
    assert analyze.capping_events(POWER.empty(), POWER_STATES.empty()).empty
    assert analyze.capped_share(POWER.empty(), POWER_STATES.empty()).empty


def test_the_input_is_not_changed():
    power, states = telemetry(*run(range(4), **CAPPED))
    before = power.copy(deep=True), states.copy(deep=True)
    analyze.capped_share(power, states)
    assert power.equals(before[0])
    assert states.equals(before[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit_share": 97}, "limit_share must be above 0 and at most 1"),
        ({"least_reading_count": 0}, "least_reading_count must be 1 or more"),
        ({"longest_gap_periods": 0}, "longest_gap_periods must be above 0"),
        ({"least_load_share": -1}, "least_load_share must be 0 or more"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(WorkbenchError, match=message):
        analyze.capping_events(POWER.empty(), POWER_STATES.empty(), **options)


def test_a_wrong_table_is_refused_by_its_name():
    with pytest.raises(TableError, match="states is not a valid 'power_states' table"):
        analyze.capping_events(POWER.empty(), POWER.empty())
