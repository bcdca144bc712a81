"""Late arrivals: a simulated job whose faults are known, a real one, then each rule by hand."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data import make
from workbench import analyze, load
from workbench.errors import WorkbenchError
from workbench.tables import COLLECTIVE_WAITS, EVENTS, LATE_ARRIVALS

DLRM = ("kineto-dlrm-8rank", "dlrm_kineto.tar.gz")
MS = 1_000_000
PARTS = ["compute_ns", "communication_ns", "memory_ns", "other_ns", "idle_ns"]


def late(events, **options):
    waits = analyze.collective_waits(events, **options)
    return LATE_ARRIVALS.check(analyze.late_arrivals(events, waits))


@pytest.fixture(scope="module")
def fleet(fleet_demo):
    return late(load.traces(fleet_demo / "traces", progress=False).events)


@pytest.fixture(scope="module")
def truth(fleet_demo):
    return make.fleet_truth(fleet_demo).drop_duplicates("what").set_index("what")


def test_the_slow_rank_is_late_because_its_gpu_computes_as_much_slower_as_injected(fleet, truth):
    slow = truth.loc["slow rank"]
    mine = fleet[(fleet["blamed_rank"] == slow["rank"]) & (fleet["step"] > slow["first_step"])]
    by_kind = mine.groupby("excess_kind", observed=True)["wait_ns"].sum()
    assert by_kind["compute"] > 0.99 * by_kind.sum()
    weighty = mine[mine["wait_ns"] > MS]
    assert len(weighty) > 100
    assert weighty["compute_ratio"].astype(float).between(1.235, 1.265).all()
    assert weighty["compute_ratio"].median() == pytest.approx(slow["size"], rel=0.005)
    assert weighty["excess_ns"].sum() == pytest.approx(weighty["late_ns"].sum(), rel=0.05)


def test_the_late_host_leaves_its_gpu_idle_while_it_loads_data(fleet, truth):
    host = truth.loc["late host"]
    mine = fleet[(fleet["blamed_rank"] == host["rank"]) & (fleet["wait_ns"] > 100 * MS)]
    assert mine["step"].tolist() == [11, 14], "the two steps in which it was late"
    assert mine["excess_kind"].tolist() == ["idle", "idle"]
    assert mine["excess_ns"].astype(float).tolist() == pytest.approx(
        [host["size"] * MS] * 2, rel=0.02
    )
    assert mine["host_operator"].str.startswith("enumerate(DataLoader)").all()
    assert (mine["host_operator_ns"] > 0.95 * mine["longest_idle_ns"]).all()
    assert mine["compute_ratio"].astype(float).tolist() == pytest.approx([1, 1], rel=0.01)


def test_the_parts_of_the_simulated_job_fill_its_windows(fleet):
    assert (fleet[PARTS].sum(axis=1) == fleet["window_ns"]).all()
    assert fleet["is_sure"].mean() > 0.85
    assert (fleet["longest_kernel_ns"].fillna(0) <= fleet["window_ns"]).all()


@pytest.mark.oracle
def test_rank_7_of_the_dlrm_job_is_late_because_its_gpu_had_nothing_to_run(real_events, published):
    table = late(real_events(*DLRM))
    printed = published("trace_dlrm_collectives")
    assert table["blamed_rank"].tolist() == printed["blamed_rank"].tolist()
    blame = published("trace_dlrm_blame").set_index("blamed_rank")["wait_us"] * 1000
    assert table.groupby("blamed_rank")["wait_ns"].sum().to_dict() == blame.to_dict()
    assert table["excess_kind"].tolist() == ["began late", *["idle"] * 7]
    assert (table[PARTS].sum(axis=1) == table["window_ns"]).all()
    first, rest = table.iloc[0], table.iloc[1:]
    assert "not in the trace" in first["note"]
    assert rest["note"].isna().all()
    assert table["is_sure"].all()
    assert rest["host_operator"].notna().all()
    assert (rest["excess_ns"] > 0.75 * rest["late_ns"]).all()


def nccl(rank, start, end, **more):
    row = {"rank": rank, "start_ns": start, "end_ns": end, "kind": "communication", "group": "0"}
    return row | {"name": "ncclDevKernel_AllReduce_Sum_f32", "collective": "allreduce"} | more


def kernel(rank, start, end, kind="compute", **more):
    return {"rank": rank, "start_ns": start, "end_ns": end, "kind": kind, "name": kind} | more


def between(*rows, arrivals=(100, 500), **more):
    """Make two collectives of ranks that all leave the first at 50, and what happens between."""
    ranks = range(len(arrivals))
    return [
        *(nccl(rank, 10, 50, group_size=len(arrivals), **more) for rank in ranks),
        *(nccl(rank, at, 600, group_size=len(arrivals), **more) for rank, at in enumerate(arrivals)),
        *rows,
    ]  # fmt: skip


def last(make_events, *rows, **options):
    return late(make_events(*between(*rows, **options))).iloc[-1]


@pytest.mark.parametrize("kind", ["compute", "memory", "other"])
def test_more_work_of_a_kind_is_the_excess(make_events, kind):
    row = last(make_events, kernel(0, 60, 90, kind), kernel(1, 60, 460, kind))
    assert (row["excess_kind"], row["excess_ns"]) == (kind, 370)
    assert (row["window_ns"], row[f"{kind}_ns"], row["idle_ns"]) == (450, 400, 50)
    assert (row["wait_ns"], row["late_ns"], row["began_late_ns"]) == (400, 400, 0)
    assert (row["longest_kernel"], row["longest_kernel_ns"]) == (kind, 400)
    assert row["is_sure"]
    assert pd.isna(row["note"])


def test_being_kept_by_another_group_is_an_excess_of_communication(make_events):
    other = [nccl(1, 60, 450, group="1", group_size=2, stream=9), kernel(1, 80, 100)]
    row = last(make_events, *other)
    assert (row["excess_kind"], row["excess_ns"]) == ("communication", 370)
    assert row["compute_ns"] == 20, "communication under compute counts as compute"


def test_a_gpu_without_work_is_explained_by_what_its_host_did(make_events):
    launching = {"rank": 1, "category": "cuda_runtime", "name": "cudaLaunchKernel"}
    host = [
        {"rank": 1, "start_ns": 20, "end_ns": 540, "name": "ProfilerStep#3", **annotation()},
        {"rank": 1, "start_ns": 60, "end_ns": 70, "name": "aten::mm"},
        {"rank": 1, "start_ns": 80, "end_ns": 470, "name": "DataLoader", **annotation()},
        {"rank": 1, "start_ns": 90, "end_ns": 460, "name": "aten::inner"},
        {"rank": 1, "start_ns": 80, "end_ns": 490, "name": "elsewhere", "thread": "2"},
        launching | {"id": "call", "start_ns": 475, "end_ns": 480},
    ]
    rows = [*between()[:3], nccl(1, 500, 600, group_size=2, launch="call"), *host]
    row = late(make_events(*rows)).iloc[-1]
    assert (row["excess_kind"], row["excess_ns"], row["longest_idle_ns"]) == ("idle", 400, 450)
    assert (row["host_operator"], row["host_operator_ns"]) == ("DataLoader", 390)
    assert pd.isna(row["longest_kernel"])


def annotation():
    return {"category": "user_annotation"}


def test_the_median_of_the_others_is_compared(make_events):
    busy = [kernel(rank, 60, 60 + spent) for rank, spent in enumerate((10, 20, 190, 340))]
    row = last(make_events, *busy, arrivals=(100, 100, 300, 500))
    assert row["excess_ns"] == 340 - 20
    assert row["late_ns"] == 500 - 100
    assert row["wait_ns"] == 400 + 400 + 200


def test_the_same_work_is_compared_whenever_it_ran(make_events):
    # Rank 0 computes while it waits in the first collective; rank 1 only afterwards.
    calls = [
        {"id": f"{rank}{at}", "rank": rank, "start_ns": at, "end_ns": at + 1, "name": "launch",
         "category": "cuda_runtime"}
        for rank in (0, 1) for at in (1, 2, 3)
    ]  # fmt: skip
    rows = [
        nccl(0, 10, 400, launch="01"), kernel(0, 20, 220, launch="02", stream=8),
        nccl(0, 410, 900, launch="03"), nccl(1, 390, 400, launch="11"),
        kernel(1, 400, 650, launch="12"), nccl(1, 660, 900, launch="13"),
    ]  # fmt: skip
    row = late(make_events(*calls, *rows)).iloc[-1]
    assert (row["excess_kind"], row["excess_ns"]) == ("compute", 250)
    assert row["compute_ratio"] == 250 / 200


def test_a_rank_whose_step_began_late_is_not_said_to_be_slow(make_events):
    rows = [kernel(0, 0, 90, step=1), kernel(1, 400, 480, step=1)]
    rows += [nccl(0, 100, 600, step=1), nccl(1, 500, 600, step=1)]
    row = late(make_events(*rows)).iloc[-1]
    assert (row["excess_kind"], row["excess_ns"]) == ("began late", 400)
    assert (row["window_ns"], row["compute_ns"]) == (100, 80)
    assert row["is_sure"], "who was last is"
    assert "the window begins with the step" in row["note"]
    assert pd.isna(row["compute_ratio"])


def test_outside_every_step_the_window_begins_with_the_trace(make_events):
    rows = [{"rank": 1, "start_ns": 5, "step": 1}, nccl(0, 100, 600), nccl(1, 500, 600)]
    assert late(make_events(*rows))["window_ns"].tolist() == [495]


def test_doubts_about_who_was_last_carry_over(make_events):
    rows = between()
    rows[-1]["end_ns"] = 900
    doubtful = late(make_events(*rows)).iloc[-1]
    assert doubtful["note"] == "it is not sure who was last"
    assert not doubtful["is_sure"]
    missing = between()
    for row in missing:
        row["group_size"] = 4
    assert late(make_events(*missing))["note"].tolist()[-1] == "a rank of the group is missing"


def test_collectives_that_overlap_have_an_empty_window(make_events):
    rows = [nccl(rank, 10, 300) for rank in (0, 1)]
    rows += [nccl(rank, 100 + rank, 400, stream=9) for rank in (0, 1)]
    row = late(make_events(*rows)).iloc[-1]
    assert (row["window_ns"], row["idle_ns"]) == (0, 0)
    assert pd.isna(row["longest_idle_ns"])


spans = st.tuples(st.integers(0, 400), st.integers(0, 300), st.sampled_from(["compute", "memory"]))


@pytest.mark.long
@given(st.lists(spans, max_size=8), st.integers(60, 590), st.integers(60, 590))
def test_parts_fill_the_window_and_excesses_explain_the_delay_of_two(make_events, work, one, two):
    rows = [kernel(n % 2, s, s + d, kind, stream=8) for n, (s, d, kind) in enumerate(work)]
    events = make_events(*between(*rows, arrivals=(one, two)))
    row = late(events).iloc[-1]
    assert row[PARTS].sum() == row["window_ns"] == max(one, two) - 50
    assert row["late_ns"] == abs(one - two)
    if one != two:
        assert row["excess_ns"] * 5 >= row["late_ns"], "five parts add up to the delay"
    assert row["began_late_ns"] == 0


def test_waits_of_other_events_are_refused(make_events):
    events = make_events(*between())
    waits = analyze.collective_waits(events)
    moved = events.assign(start_ns=events["start_ns"] + 7)
    with pytest.raises(WorkbenchError, match=r"collective 0 begins at 10 ns on rank 0.*align_clo"):
        analyze.late_arrivals(moved, waits)


def test_with_clocks_the_shifted_events_are_needed_and_tell_the_same(make_events):
    rows = [
        nccl(rank, at + 10 + 200 * rank, at + 300, group_size=2)
        for at in range(0, 4_000, 400) for rank in (0, 1)
    ]  # fmt: skip
    busy = [kernel(1, at + 300, at + 590) for at in range(0, 3_600, 400)]
    events = make_events(*rows, *busy)
    plain = late(events)
    wrong = events.assign(start_ns=events["start_ns"] + 9_000 * events["rank"].astype("int64"))
    clocks = analyze.clocks(analyze.collectives(wrong))
    waits = analyze.collective_waits(wrong, clocks=clocks)
    mended = analyze.late_arrivals(analyze.align_clocks(wrong, clocks), waits)
    names = ["blamed_rank", "wait_ns", "window_ns", "excess_kind", "excess_ns", "compute_ns"]
    assert mended[names].equals(plain[names])
    with pytest.raises(WorkbenchError, match="align_clocks"):
        analyze.late_arrivals(wrong, waits)


def test_without_waits_the_table_is_empty(make_events):
    for events in (EVENTS.empty(), make_events(kernel(0, 0, 9))):
        assert late(events).empty
    events = make_events(*between())
    assert analyze.late_arrivals(events, COLLECTIVE_WAITS.empty()).empty
