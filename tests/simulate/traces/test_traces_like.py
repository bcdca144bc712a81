"""Twins: laws of what is drawn, whatever the profile, and their cases by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.simulate.traces.profiles import EXPOSED, HIDDEN, overlapped, profile
from workbench import analyze, load, simulate
from workbench.errors import WorkbenchError
from workbench.simulate import TwinChange
from workbench.tables import EVENTS

KINDS = st.sampled_from(["compute", "communication", "memory", "other", "sync"])


@st.composite
def profiles(draw):
    """Any motif of up to four operations, on up to three streams, with waits of any reach."""
    operations = []
    for name in draw(st.lists(KINDS, min_size=1, max_size=4)):
        stream = draw(st.integers(-1 if name == "sync" else 0, 2))
        words = {
            "stream": stream, "waits": draw(st.integers(-1, 2)), "back": draw(st.integers(0, 5)),
            "collective": "all-reduce" if name == "communication" else "",
            "group": draw(st.sampled_from([0, 2])) if name == "communication" else 0,
        }  # fmt: skip
        operations.append(((name, draw(st.integers(1_000, 500_000))), words))
    operations.append((("compute", 50_000), {}))
    order = draw(st.lists(st.integers(0, len(operations) - 1), min_size=1, max_size=25))
    noise = {"compute_noise_ratio": 0.1, "host_noise_ratio": 0.1}
    return profile(operations, [*order, len(operations) - 1], **noise)


@pytest.mark.long
@given(profiles(), st.integers(1, 4), st.integers(1, 3), st.integers(0, 9))
@settings(max_examples=30)
def test_any_twin_is_a_sound_trace(made, ranks, repeats, seed):
    twin = simulate.traces_like(made, ranks=ranks, repeats=repeats, seed=seed)
    events = EVENTS.check(twin.events)
    assert twin.is_synthetic
    assert len(twin.ranks) == ranks
    assert set(events["step"].dropna()) == set(range(repeats))
    work = events[events["kind"].notna()]
    length = sum(made.operations[code].kind != "sync" for code in made.motif[0].operations)
    assert len(work) == length * ranks * repeats
    # Each launch is before its work, and starts one piece of it.
    launch = events.loc[work["launch"].astype("int64")]
    assert (launch["start_ns"].to_numpy() < work["start_ns"].to_numpy()).all()
    assert work["launch"].is_unique
    for _, lane in work.groupby(["rank", "stream"]):
        rows = lane.sort_values("start_ns")
        ends = (rows["start_ns"] + rows["dur_ns"]).to_numpy()
        assert (rows["start_ns"].to_numpy()[1:] >= ends[:-1]).all()
    # Ranks issue collectives in one order; on two streams they may begin in another.
    sequences = [
        rank.sort_values("launch")[["group", "seq", "collective"]]
        .assign(group=0)
        .astype(str)
        .to_numpy()
        .tolist()
        for _, rank in work[work["kind"] == "communication"].groupby("rank")
    ]
    assert all(sequence == sequences[0] for sequence in sequences)
    calls = events[events["category"] == "cuda_runtime"]
    assert not calls.duplicated(["rank", "correlation"]).any()


# One of two gaps on a stream is a wait for another stream.
WAITS = (("compute", 24_000), {"stream": 1, "waits": 0, "back": 0, "collective": "", "group": 0})
WAITING = profile(
    [WAITS, (("compute", 50_000), {})], [0, 1], compute_noise_ratio=0.1, host_noise_ratio=0.1
)


@pytest.mark.long
@example(WAITING, 1)
@given(profiles(), st.integers(1, 3))
@settings(max_examples=15)
def test_the_graph_of_a_twin_has_no_circle_and_replays_to_its_time(made, ranks):
    events = simulate.traces_like(made, ranks=ranks).events
    graph = analyze.execution_graph(events, collectives=analyze.collectives(events))
    circles = graph.build.set_index("step").loc["circles"]
    assert circles["left_out_count"] == 0
    replayed = analyze.replay(graph).max()
    assert replayed == pytest.approx(graph.time_ns.max(), rel=0.02)


@pytest.mark.long
@given(st.sampled_from([0.5, 2.0, 4.0]), st.sampled_from(["compute", "communication"]))
@settings(max_examples=6)
def test_a_change_of_time_is_linear_and_touches_its_kind_alone(ratio, kind):
    made = overlapped()
    change = TwinChange(**{f"{kind}_ratio": ratio})
    plain, changed = (
        simulate.traces_like(made, ranks=1, change=way).events for way in (None, change)
    )
    sums = [table.groupby("kind", observed=True)["dur_ns"].sum() for table in (plain, changed)]
    share = sums[1] / sums[0]
    assert share[kind] == pytest.approx(ratio, rel=1e-4)
    assert share.drop(kind).eq(1).all()


@given(st.integers(1, 6))
@settings(max_examples=6)
def test_steps_take_time_in_proportion_to_their_number(repeats):
    made = overlapped()
    once, often = (
        analyze.time_breakdown(simulate.traces_like(made, ranks=1, repeats=count).events)
        for count in (1, repeats)
    )
    assert often["compute_ns"].iloc[0] == pytest.approx(repeats * once["compute_ns"].iloc[0], 0.02)


@pytest.mark.oracle
def test_the_order_decides_what_is_exposed_as_by_hand():
    """Hidden: 600 of 800 µs beside compute; exposed: nothing runs beside the 600 µs."""
    exposed = {}
    for order in (HIDDEN, EXPOSED):
        twin = simulate.traces_like(overlapped(order), ranks=1, repeats=1)
        parts = analyze.time_breakdown(twin.events).iloc[0]
        exposed[order is HIDDEN] = parts["exposed_communication_ns"] / 1e3
    assert exposed[True] == pytest.approx(5, abs=15)
    assert exposed[False] == pytest.approx(600, rel=0.03)


def test_a_late_rank_makes_the_others_wait_and_all_leave_together():
    made = overlapped(start_ns=tuple(np.linspace(0, 1e6, 33).tolist()))
    twin = simulate.traces_like(made, ranks=4, repeats=1)
    waits = analyze.collectives(twin.events, process_groups=twin.process_groups)
    assert waits["confidence"].eq("high").all()
    assert waits["end_skew_ns"].eq(0).all()
    assert waits["wait_ns"].max() == pytest.approx(750_000, rel=0.05)
    assert waits["transfer_ns"].nunique() == 1


def test_the_same_seed_draws_the_same_trace_and_another_one_another():
    first, again, other = (
        simulate.traces_like(overlapped(), seed=seed).events for seed in (1, 1, 2)
    )
    assert first.equals(again)
    assert not first.equals(other)


def test_a_twin_is_written_and_read_as_any_trace_and_still_says_that_it_is_synthetic(tmp_path):
    events = simulate.traces_like(overlapped(), ranks=1).events
    path = load.write_chrome_trace(events, tmp_path / "rank0.json.gz", synthetic=True)
    read = load.traces(path, progress=False)
    assert read.is_synthetic
    kinds = [table["kind"].value_counts().sort_index() for table in (events, read.events)]
    assert kinds[0].to_dict() == {k: n for k, n in kinds[1].to_dict().items() if n}
    graph = analyze.execution_graph(read.events)
    assert int(graph.build.set_index("step").loc["inter-stream", "read_count"]) > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ranks": 0}, "ranks must be 1 or more, not 0"),
        ({"repeats": 1.5}, "repeats must be a whole number from 1"),
        ({"seed": -1}, "seed must be 0 or more"),
        ({"ranks": 10**6}, "ask for fewer ranks or repeats"),
    ],
)
def test_numbers_out_of_range_are_refused(changes, message):
    with pytest.raises(WorkbenchError, match=message):
        simulate.traces_like(overlapped(), **changes)


def test_a_twin_of_centuries_is_refused_and_no_time_wraps_round():
    with pytest.raises(WorkbenchError, match="look at the durations and gaps of the profile"):
        simulate.traces_like(overlapped(), change=TwinChange(compute_ratio=1e15))


@pytest.mark.parametrize("name", ["compute_ratio", "communication_ratio"])
def test_a_change_is_a_positive_ratio(name):
    with pytest.raises(WorkbenchError, match=f"{name} must be above 0"):
        TwinChange(**{name: 0.0})


def test_doubts_of_a_profile_stand_in_the_quality_of_its_twin():
    made = replace(overlapped(), doubts=("one rank: waiting counts",))
    quality = simulate.traces_like(made).quality
    assert "one rank: waiting counts" in quality["what"].tolist()
