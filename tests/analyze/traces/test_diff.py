"""Difference of two traces: what it must be of a trace and itself, then by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze
from workbench.analyze._traces.diff import short_name
from workbench.tables import EVENTS, TRACE_DIFF

row = st.fixed_dictionaries(
    {
        "start_ns": st.integers(0, 50),
        "dur_ns": st.integers(0, 9),
        "name": st.sampled_from("abc"),
        "category": st.sampled_from(["cpu_op", "cuda_runtime"]),
        "step": st.sampled_from([None, 3, 4]),
    }
)
rows = st.lists(row, max_size=12)
groupings = st.sampled_from(["name", "category", "step"])


@given(rows, rows, groupings)
def test_nothing_is_lost_on_either_side(make_events, a, b, by):
    table = TRACE_DIFF.check(analyze.trace_diff(make_events(*a), make_events(*b), by=by))
    for side, mine in (("a", a), ("b", b)):
        assert table[f"{side}_count"].sum() == len(mine)
        assert table[f"{side}_total_ns"].sum() == sum(r["dur_ns"] for r in mine)
    assert (table["b_total_ns"] - table["a_total_ns"] == table["difference_ns"]).all()
    assert table["difference_ns"].abs().is_monotonic_decreasing


@given(rows, groupings)
def test_a_trace_does_not_differ_from_itself(make_events, some, by):
    events = make_events(*some)
    table = analyze.trace_diff(events, events, by=by)
    assert (table["difference_ns"] == 0).all()
    assert (table["difference_count"] == 0).all()
    assert set(table["change"]) <= {"both"}


@pytest.mark.long
@given(rows, rows, groupings)
def test_swapping_the_traces_swaps_the_signs(make_events, a, b, by):
    a, b = make_events(*a), make_events(*b)
    there, back = analyze.trace_diff(a, b, by=by), analyze.trace_diff(b, a, by=by)
    keys = ["category", "name", "step"]
    signs = [
        table.astype(dict.fromkeys(keys, str)).set_index(keys)["difference_ns"].sort_index()
        for table in (there, back)
    ]
    assert (signs[0] == -signs[1]).all()


def test_what_is_new_and_what_is_gone_is_said(make_events):
    a = make_events({"start_ns": 0, "dur_ns": 5, "name": "old"}, {"start_ns": 9, "name": "x"})
    b = make_events({"start_ns": 0, "dur_ns": 9, "name": "new"}, {"start_ns": 9, "name": "x"})
    table = analyze.trace_diff(a, b).set_index("name")
    assert table["change"].to_dict() == {"new": "added", "old": "removed", "x": "both"}
    assert table["total_ratio"].isna().to_dict() == {"new": True, "old": False, "x": True}


def test_traces_of_different_length_are_compared_per_step(make_events):
    def trace(steps, dur):
        return make_events(
            *(
                {"start_ns": 9 * s, "dur_ns": dur, "step": s, "rank": r}
                for s in steps
                for r in (0, 1)
            )
        )

    table = analyze.trace_diff(trace([1, 2], 6), trace([7, 8, 9], 4))
    assert table["a_per_step_ns"].tolist() == [6]
    assert table["b_per_step_ns"].tolist() == [4]
    by_step = analyze.trace_diff(trace([1, 2], 6), trace([7, 8, 9], 4), by="step")
    by_step = by_step.sort_values("step")
    assert by_step["step"].tolist() == [0, 1, 2]
    assert by_step["change"].tolist() == ["both", "both", "added"]
    assert by_step["b_per_step_ns"].tolist() == [4, 4, 4]
    assert by_step["a_per_step_ns"].isna().tolist() == [False, False, True]


@pytest.mark.parametrize("by", ["name", "category", "module"])
def test_work_outside_of_the_steps_is_in_no_mean_of_a_step(make_events, by):
    usual = {"name": "k", "kind": "compute", "dur_ns": 6}
    steps = [usual | {"start_ns": 10 * at, "step": at} for at in range(2)]
    warm_up = [usual | {"start_ns": 100 + 10 * at} for at in range(20)]
    table = analyze.trace_diff(make_events(*steps), make_events(*steps, *warm_up), by=by)
    assert table["a_per_step_ns"].tolist() == table["b_per_step_ns"].tolist() == [6]
    assert table["b_total_ns"].tolist() == [22 * 6]


def test_without_steps_there_is_no_time_per_step(make_events):
    events = make_events({"start_ns": 0, "dur_ns": 5})
    assert analyze.trace_diff(events, events)["a_per_step_ns"].isna().all()


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::foo<float, Tuple<int, int>>(float*, int)", "at::native::foo"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD"),
        ("ProfilerStep#12", "ProfilerStep"),
        ("(anonymous)", "(anonymous)"),
        ("aten::mm", "aten::mm"),
        ("", ""),
    ],
)
def test_short_names_leave_out_what_changes_with_versions(name, short):
    assert short_name(name) == short


def test_short_names_bring_versions_together(make_events):
    a = make_events({"start_ns": 0, "name": "void k<4>(int)", "kind": "compute"})
    b = make_events({"start_ns": 0, "name": "void k<8>(int, int)", "kind": "compute"})
    assert set(analyze.trace_diff(a, b)["change"]) == {"added", "removed"}
    table = analyze.trace_diff(a, b, short_names=True)
    assert (table["name"].tolist(), table["change"].tolist()) == (["k"], ["both"])


def test_empty_traces_compare(make_events):
    assert analyze.trace_diff(EVENTS.empty(), EVENTS.empty()).empty
    assert analyze.trace_diff(EVENTS.empty(), make_events({"start_ns": 0}))["change"].tolist() == [
        "added"
    ]


def test_refuses_an_unknown_grouping():
    with pytest.raises(ValueError, match="by must be one of"):
        analyze.trace_diff(EVENTS.empty(), EVENTS.empty(), by="rank")


@pytest.mark.oracle
def test_real_traces_are_compared_by_their_steps(real_events):
    a, b = (
        real_events("kineto-hta", f"trace_diff/{name}/{name}.json.gz")
        for name in ("control", "test")
    )
    table = analyze.trace_diff(a, b, by="category").set_index("category")
    assert table.loc["kernel", ["a_count", "b_count"]].tolist() == [8_568, 9_876]
    by_name = analyze.trace_diff(a, b)
    graphs = by_name[by_name["name"] == "cudaGraphLaunch"].iloc[0]
    assert (graphs["change"], graphs["b_count"]) == ("added", 12)
