"""Clocks: a real job with its clocks set wrong, then laws on made-up ones, then each doubt."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench import analyze
from workbench.errors import WorkbenchError
from workbench.tables import CLOCKS, COLLECTIVES, EVENTS

DLRM = ("kineto-dlrm-8rank", "dlrm_kineto.tar.gz")
US, MS = 1_000, 1_000_000
WRONG_NS = {
    0: 3 * MS, 1: -3 * MS, 2: 0, 3: 17, 4: -1_234_567, 5: 2 * MS, 6: 40 * MS, 7: -2_500_000
}  # fmt: skip


def shifted(events, by_rank):
    return events.assign(start_ns=events["start_ns"] + events["rank"].map(by_rank).to_numpy())


def clocks_of(events):
    return CLOCKS.check(analyze.clocks(analyze.collectives(events)))


@pytest.mark.oracle
def test_the_clocks_of_the_dlrm_job_agree_within_7_us(real_events):
    table = clocks_of(real_events(*DLRM))
    assert table["offset_ns"].abs().max() <= 7 * US
    assert table["residual_ns"].between(500, 7 * US).all(), "whole microseconds hide half a one"
    assert set(table["clock"]) == {"0-7"}
    assert table["is_sure"].all()
    assert table["note"].isna().all()
    assert table["collective_count"].tolist() == [8] * 8


@pytest.mark.oracle
def test_clocks_that_are_right_leave_the_waits_of_the_dlrm_job_as_published(real_events, published):
    events = real_events(*DLRM)
    table = clocks_of(events)
    found = analyze.collectives(events, clocks=table)
    first = found.groupby("collective").first()
    printed = published("trace_dlrm_collectives")
    assert first["blamed_rank"].tolist() == printed["blamed_rank"].tolist()
    assert first["is_sure"].all()
    assert first["end_skew_ns"].max() <= 7 * US
    off = first["start_skew_ns"] - printed["start_skew_us"] * US
    assert off.abs().max() <= 2 * table["residual_ns"].max()
    waits = found.groupby("rank")["wait_ns"].sum()
    printed = published("trace_dlrm_ranks").set_index("rank")["wait_us"] * US
    assert (waits - printed).abs().max() <= 8 * 2 * table["residual_ns"].max()


@pytest.mark.oracle
def test_clocks_that_are_wrong_by_milliseconds_are_found_and_set_right(real_events):
    events = real_events(*DLRM)
    wrong = shifted(events, WRONG_NS)
    spoilt = analyze.collectives(wrong)
    assert spoilt["wait_ns"].isna().all()
    assert spoilt["note"].str.contains("clocks disagree by more than the collective").all()

    before, after = clocks_of(events), analyze.clocks(spoilt)
    found = after["offset_ns"] - before["offset_ns"] - pd.Series(WRONG_NS)
    assert (found - found[0]).abs().max() <= before["residual_ns"].min()
    off = after["offset_ns"].abs() > 10 * US
    assert after.loc[off, "note"].str.contains("off by more than its shortest").all()
    assert off.sum() == 6, "ranks 2 and 3 have the clock of the median rank"

    right = analyze.collective_waits(events, clocks=before)
    mended = analyze.collective_waits(wrong, clocks=after)
    assert analyze.straggler_attribution(mended).equals(analyze.straggler_attribution(right))
    assert analyze.straggler_attribution(mended)["blamed_rank"].nunique() == 3


def nccl(rank, start, end, **more):
    row = {"rank": rank, "start_ns": start, "end_ns": end, "kind": "communication"}
    known = {"name": "ncclDevKernel_AllReduce_Sum_f32", "collective": "allreduce", "group": "0"}
    return row | known | more


def job(groups, *, offset, instances=12, jitter=0, seed=0):
    """Make collectives of some groups of ranks, whose clocks are off."""
    rng = np.random.default_rng(seed)
    rows = []
    for number, ranks in enumerate(groups):
        for at in range(instances):
            begin = (at * len(groups) + number) * 1_000 * US
            late = rng.integers(0, 300 * US, len(ranks))
            end = begin + late.max() + 77_003
            for rank, delay in zip(ranks, late, strict=True):
                early = int(rng.integers(-jitter, jitter + 1))
                more = {"group": str(number), "group_size": len(ranks), "seq": at}
                row = nccl(rank, begin + int(delay), end + early, **more)
                row["start_ns"] += offset[rank]
                row["end_ns"] += offset[rank]
                rows.append(row)
    return rows


off_by = st.lists(st.integers(-(10**12), 10**12), min_size=6, max_size=6)
GROUPS = {
    "one group": [range(6)],
    "tensor and data parallel": [(0, 1), (2, 3), (4, 5), (0, 2, 4), (1, 3, 5)],
    "a chain": [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)],
}


@pytest.mark.long
@settings(max_examples=15)
@given(off_by, st.sampled_from(sorted(GROUPS)), st.integers(0, 9))
def test_any_offsets_are_found_however_the_ranks_are_grouped(make_events, offset, shape, seed):
    events = make_events(*job(GROUPS[shape], offset=offset, seed=seed))
    table = clocks_of(events)
    error = table["offset_ns"].astype("int64").to_numpy() - np.array(offset)
    assert np.ptp(error) <= 1, "all but a common shift"
    assert table["offset_ns"].eq(0).any(), "the median rank has the common clock"
    assert table["residual_ns"].max() <= 1
    assert set(table["clock"]) == {"0-5"}
    right = analyze.collectives(make_events(*job(GROUPS[shape], offset=[0] * 6, seed=seed)))
    mended = analyze.collectives(events, clocks=table)
    assert mended.groupby("collective")["wait_ns"].sum().sum() == pytest.approx(
        right["wait_ns"].sum(), abs=len(right)
    )


@pytest.mark.long
@settings(max_examples=15)
@given(off_by, st.sampled_from(sorted(GROUPS)), st.integers(0, 9))
def test_noisy_ends_are_forgiven_and_tell_the_uncertainty(make_events, offset, shape, seed):
    rows = job(GROUPS[shape], offset=offset, instances=40, jitter=5 * US, seed=seed)
    table = clocks_of(make_events(*rows))
    error = table["offset_ns"].astype("int64").to_numpy() - np.array(offset)
    error = np.abs(error - np.median(error))
    assert table["residual_ns"].between(1 * US, 8 * US).all()
    assert error.max() <= 2 * table["residual_ns"].max()


def test_a_few_collectives_with_other_ends_do_not_move_a_clock(make_events):
    rows = job([range(4)], offset=[0, 50, -70, 9], instances=20)
    for row in rows[:20:4]:
        row["end_ns"] += 900 * US
    assert clocks_of(make_events(*rows))["offset_ns"].tolist() == [0, 50, -70, 9]


def test_a_group_whose_ends_differ_every_time_is_outvoted_by_the_others(make_events):
    groups = [range(4), range(4), range(4), (0, 1)]
    rows = job(groups, offset=[0] * 4)
    for row in rows:
        if row["group"] == "3" and row["rank"] == 1:
            row["end_ns"] += 20 * US
    table = clocks_of(make_events(*rows))
    assert table["offset_ns"].abs().max() < 2 * US


def test_clocks_of_different_epochs_keep_their_nanoseconds(make_events):
    offset = [0, 1_700_000_000_123_456_789, 5]
    table = clocks_of(make_events(*job([range(3)], offset=offset)))
    assert (table["offset_ns"] - table["offset_ns"][0]).tolist() == offset


def test_ranks_that_share_no_collective_stay_on_clocks_of_their_own(make_events):
    events = make_events(*job([(0, 1, 2), (3, 5)], offset=[9, 9, 10, 1_000, 0, 2_000]))
    table = clocks_of(events).set_index("rank")
    assert table["clock"].to_dict() == dict.fromkeys((0, 1, 2), "0-2") | {3: "3, 5", 5: "3, 5"}
    assert table["offset_ns"].tolist() == [0, 0, 1, 0, 1_000]
    assert table["note"].str.contains("no collective joins its clock").all()
    rows = job([(0, 1, 2), (3, 5)], offset=[0] * 6)
    rows += [nccl(rank, 10**9, 10**9 + rank, collective="broadcast", group="9") for rank in (0, 3)]
    across = analyze.collectives(make_events(*rows), clocks=table.reset_index())
    across = across[across["group"] == "9"]
    assert not across["is_sure"].any()
    assert set(across["note"]) == {"its ranks are not on one clock"}


def test_a_rank_alone_has_no_common_clock(make_events):
    table = clocks_of(make_events(nccl(3, 0, 9)))
    assert table["rank"].tolist() == [3]
    assert table[["clock", "offset_ns", "residual_ns"]].isna().all(axis=None)
    assert not table["is_sure"].any()
    assert table["note"][0].startswith("no matched collective that ends together")


def test_without_collectives_there_are_no_clocks(make_events):
    assert clocks_of(EVENTS.empty()).empty
    assert clocks_of(make_events({"start_ns": 0, "kind": "compute"})).empty
    assert len(CLOCKS.check(analyze.clocks(COLLECTIVES.empty()))) == 0


@pytest.mark.parametrize("operation", ["broadcast", "reduce", "gather", "scatter"])
def test_operations_that_some_ranks_leave_early_say_nothing_about_clocks(make_events, operation):
    rows = [nccl(r, 100 * n, 100 * n + 9 + r, collective=operation) for r in (0, 1) for n in (1, 2)]
    assert clocks_of(make_events(*rows))["offset_ns"].isna().all()


def test_uneven_exchanges_are_not_used_unless_asked_for(make_events):
    rows = [
        nccl(rank, 100 * n, 100 * n + 9, collective="all_to_all", dtype="Float", in_count=count)
        for rank, count in enumerate((100, 300))
        for n in range(4)
    ]
    table = analyze.collectives(make_events(*rows))
    assert analyze.clocks(table)["offset_ns"].isna().all()
    assert analyze.clocks(table, largest_imbalance_ratio=2)["offset_ns"].tolist() == [0, 0]


def test_two_collectives_are_too_few_to_know_how_well_a_clock_agrees(make_events):
    events = make_events(*job([(0, 1)], offset=[0, 500], instances=2))
    table = clocks_of(events)
    assert table["offset_ns"].tolist() == [0, 500]
    assert table["residual_ns"].isna().all()
    assert not table["is_sure"].any()
    found = analyze.collectives(events, clocks=table)
    assert set(found["note"]) == {"how well the clocks of its ranks agree is not known"}
    assert not found["is_sure"].any()


def test_an_arrival_order_within_the_uncertainty_is_withheld(make_events):
    rows = job([range(3)], offset=[0] * 3, instances=30, jitter=4 * US)
    close = 10**9
    rows += [
        nccl(rank, close + late, close + 9 * MS, group="0", group_size=3, seq=30)
        for rank, late in ((0, 0), (1, 5 * MS), (2, 5 * MS + 3 * US))
    ]
    events = make_events(*rows)
    table = clocks_of(events)
    agree = 2 * table["residual_ns"].nlargest(2).sum()
    assert 3 * US < agree < 30 * US
    plain = analyze.collectives(events).groupby("collective").first().iloc[-1]
    assert plain["is_sure"], "ends agree, and nothing is known of clocks"
    careful = analyze.collectives(events, clocks=table).groupby("collective").first().iloc[-1]
    assert not careful["is_sure"]
    assert "apart and clocks agree to" in careful["note"]
    assert careful["start_skew_ns"] > 4 * MS, "the wait is told all the same"
    waits = analyze.collective_waits(events, clocks=table)
    assert (
        analyze.straggler_attribution(waits).attrs["left_out"]["it is not sure who was last"] >= 1
    )


@pytest.mark.long
@settings(max_examples=20)
@given(st.integers(0, 40 * US), st.integers(0, 9))
def test_a_start_skew_within_the_uncertainty_is_never_sure(make_events, skew, seed):
    rows = job([range(2)], offset=[0, 0], instances=30, jitter=4 * US, seed=seed)
    rows += [nccl(r, 10**9 + r * skew, 10**9 + MS, group_size=2, seq=30) for r in (0, 1)]
    events = make_events(*rows)
    table = clocks_of(events)
    found = analyze.collectives(events, clocks=table)
    agree = 2 * table["residual_ns"].sum()
    sure = found["is_sure"].astype(bool)
    assert not (sure & (found["start_skew_ns"] <= agree)).any()
    assert (sure == (found["start_skew_ns"] > agree))[-2:].all()


def test_a_clock_that_runs_fast_is_seen_and_corrected_if_asked(make_events):
    rows = job([range(3)], offset=[0] * 3, instances=60, jitter=1 * US)
    for row in rows:
        if row["rank"] == 2:
            fast = round(row["end_ns"] * 300e-6)
            row["start_ns"] += fast
            row["end_ns"] += fast
    events = make_events(*rows)
    table = clocks_of(events)
    assert table["drift_ratio"][2] == pytest.approx(300e-6, rel=0.05)
    assert table["drift_ratio"][:2].isna().all()
    assert table["residual_ns"][2] > 3 * US
    straight = analyze.align_clocks(events, table, correct_drift=True)
    again = clocks_of(straight)
    assert again["residual_ns"].max() < 2 * US
    assert again["drift_ratio"].isna().all()
    plain = analyze.align_clocks(events, table)
    assert clocks_of(plain)["residual_ns"][2] > 3 * US, "drift is corrected only if asked"


def test_events_are_shifted_and_nothing_else(make_events):
    events = make_events(*job([range(3)], offset=[0, 70, -80])).iloc[2:]
    before = events.copy(deep=True)
    table = clocks_of(events)
    mended = EVENTS.check(analyze.align_clocks(events, table))
    assert events.equals(before)
    assert mended.index.equals(events.index)
    assert mended.drop(columns="start_ns").equals(events.drop(columns="start_ns"))
    assert (events["start_ns"] - mended["start_ns"]).groupby(events["rank"]).first().tolist() == [
        0, 70, -80,
    ]  # fmt: skip
    assert clocks_of(mended)["offset_ns"].abs().max() == 0


def test_ranks_without_a_known_offset_keep_their_clock_and_are_listed(make_events):
    rows = job([range(2)], offset=[0, 70])
    table = clocks_of(make_events(*rows))
    more = make_events(*rows, {"rank": 7, "start_ns": 5}, nccl(8, 5, 9, group="alone"))
    mended = analyze.align_clocks(more, table)
    assert mended.attrs["own_clock"] == [7, 8]
    assert mended.loc[mended["rank"].isin([7, 8]), "start_ns"].tolist() == [5, 5]


def test_a_clock_that_jumped_is_not_called_sure(make_events):
    rows = job([range(2)], offset=[0, 0], instances=12)
    for row in rows:
        if row["rank"] == 1 and row["seq"] >= 11:
            row["start_ns"] += 40 * MS
            row["end_ns"] += 40 * MS
    events = make_events(*rows)
    found = analyze.collectives(events, clocks=clocks_of(events))
    jumped = found[found["start_skew_ns"] > 30 * MS]
    assert len(jumped) == 2
    assert jumped["wait_ns"].isna().all()


def in_order(late, *, count=31, skip=None, offset=0, every=None):
    """Make collectives of two ranks without sequence numbers, of which a trace lacks some."""
    every = every or [MS] * count
    rows = []
    for at, begin in enumerate(np.cumsum(every).tolist()):
        for rank in (0, 1):
            if (rank, at) not in (skip or ()):
                shift = offset * rank
                start, end = begin + late(rank, at) + shift, begin + 277 * US + 13 * rank + shift
                rows.append(nccl(rank, start, end, group_size=2))
    return rows


def late_in_turn(rank, at):
    return 200 * US if (at % 3 == 0) == (rank == 0) else 0


def test_a_trace_that_begins_one_collective_later_is_not_taken_for_a_clock(make_events):
    events = make_events(*in_order(late_in_turn, skip={(1, 0), (0, 30)}))
    table = clocks_of(events)
    assert table["offset_ns"].tolist() == [0, MS + 13], "an offset that there is not"
    assert table["is_sure"].tolist() == [True, False]
    assert "a trace that begins one or some collectives later" in table["note"][1]
    waits = analyze.collective_waits(events, clocks=table)
    assert not waits["is_sure"].any()
    assert analyze.straggler_attribution(waits).empty


def test_in_order_a_clock_that_is_right_is_sure_however_regular_the_collectives(make_events):
    table = clocks_of(make_events(*in_order(late_in_turn)))
    assert table["offset_ns"].tolist() == [0, 13]
    assert table["is_sure"].all()
    assert table["note"].isna().all()


@pytest.mark.long
@settings(max_examples=20)
@given(st.integers(-(10**9), 10**9), st.integers(0, 99))
def test_irregular_times_tell_an_offset_from_a_shift_of_the_order(make_events, offset, seed):
    every = np.random.default_rng(seed).integers(MS, 3 * MS, 20).tolist()
    rows = in_order(late_in_turn, count=20, every=every, offset=offset)
    assert clocks_of(make_events(*rows))["is_sure"].all()
    shifted = in_order(late_in_turn, count=20, every=every, skip={(1, 0), (0, 19)})
    found = clocks_of(make_events(*shifted))
    assert not found["is_sure"].all() or found["residual_ns"].min() > 100 * US


def test_sequence_numbers_stand_for_the_clocks_that_order_would_shift(make_events):
    rows = in_order(late_in_turn, skip={(1, 0), (0, 30)})
    rows += job([range(2)], offset=[0, 70])
    table = clocks_of(make_events(*[row | {"group": str("seq" in row)} for row in rows]))
    assert table["offset_ns"].tolist() == [0, 70]
    assert table["is_sure"].all()
    assert table["collective_count"].tolist() == [12, 12]


def equal_steps(*, offset, slow=3, late=150 * US, steps=4, each=6, lacks=(), groups=None, **more):
    """Make all-reduces that come as regularly as clocks; one rank is late in every one.

    Returned are the rows on clocks that are off, and by rank the true waiting.
    """
    drift, first = more.get("drift", {}), more.get("first", {})
    groups = groups or {"0": range(len(offset))}
    rows, waited = [], dict.fromkeys(range(len(offset)), 0)
    begin = 0
    for step, number, (group, ranks) in product(range(steps), range(each), groups.items()):
        begin += MS
        last = max(late * (rank == slow) for rank in ranks)
        for rank in ranks:
            start, end = begin + late * (rank == slow), begin + last + 300 * US
            if (rank, step, number) in lacks:
                continue
            waited[rank] += last - late * (rank == slow)
            times = [
                round(time * (1 + drift.get(rank, 0)) + offset[rank]) + 10 * US * 3_600_000
                for time in (start, end)
            ]
            marks = {"group": group, "group_size": len(ranks), "step": step + first.get(rank, 0)}
            rows.append(nccl(rank, *times, **marks))
    return rows, waited


GROUPED = {
    "one group": None,
    "two ranks": {"0": (2, 3)},
    "tensor and data parallel": {"a": (0, 1), "b": (2, 3), "c": (0, 2), "d": (1, 3)},
}


@pytest.mark.long
@settings(max_examples=10)
@given(
    st.lists(st.integers(-300 * US, 300 * US), min_size=4, max_size=4),
    st.sampled_from(sorted(GROUPED)),
)
def test_steps_of_equal_collectives_fix_the_match_however_far_clocks_are_apart(
    make_events, offset, shape
):
    rows, waited = equal_steps(offset=offset, groups=GROUPED[shape])
    events = make_events(*rows)
    table = clocks_of(events)
    assert table["is_sure"].all()
    waits = analyze.collective_waits(events, clocks=table)
    assert waits.groupby("rank")["wait_ns"].sum().to_dict() == {
        rank: waited[rank] for rank in table["rank"]
    }
    blame = analyze.straggler_attribution(waits)
    assert set(blame.loc[blame["wait_ns"] > 0, "blamed_rank"]) == {3}


def test_without_steps_equal_collectives_say_nothing_of_clocks(make_events):
    rows, _ = equal_steps(offset=[0, 90 * US, -200 * US, 140 * US])
    without = [{name: row[name] for name in row if name != "step"} for row in rows]
    assert clocks_of(make_events(*without))["is_sure"].tolist() == [True, False, False, False]


def test_a_step_in_which_a_rank_lacks_a_collective_moves_no_clock(make_events):
    offset = [0, 90 * US, -200 * US, 140 * US]
    for group in ("0", None):
        rows, _ = equal_steps(offset=offset, lacks={(1, 2, 0), (2, 1, 3)})
        events = make_events(*[row | {"group": group} for row in rows])
        table = clocks_of(events)
        assert (table["offset_ns"] - offset).tolist() == [0] * 4
        assert table["is_sure"].all()
        waits = analyze.collective_waits(events, clocks=table)
        assert waits["wait_ns"].isin([0, 150 * US]).all(), "none over two collectives"
        assert set(waits.loc[waits["wait_ns"] > 0, "blamed_rank"]) == {3}


def test_numbers_of_steps_overrule_an_order_that_contradicts_them(make_events):
    rows, _ = equal_steps(offset=[0] * 4)
    # The window of rank 1 begins a step later; with all its collectives, order fits to the end.
    kept = [row for row in rows if row["step"] != (0 if row["rank"] == 1 else 3)]
    events = make_events(*kept)
    found = analyze.collectives(events)
    matched = found[found["collective"].notna()]
    assert set(matched["step"]) == {1, 2}
    assert matched.groupby("collective")["start_ns"].max().sub(
        matched.groupby("collective")["start_ns"].min()
    ).eq(150 * US).all()  # fmt: skip
    assert clocks_of(events)["offset_ns"].tolist() == [0] * 4


def test_steps_that_are_counted_from_different_ones_are_not_taken_for_a_clock(make_events):
    rows, _ = equal_steps(offset=[0, 3 * US, 0, 0], first={1: 1})
    table = clocks_of(make_events(*rows))
    assert table["is_sure"].tolist() == [True, False, True, True]
    assert "off by whole steps" in table["note"][1]


@pytest.mark.parametrize("group", ["0", None])
def test_clocks_that_drift_by_steps_are_put_on_one(make_events, group):
    drift = {0: 40e-6, 1: -60e-6, 2: 100e-6}
    rows, waited = equal_steps(offset=[0] * 4, drift=drift, steps=60, each=10)
    events = make_events(*[row | {"group": group} for row in rows])
    first = clocks_of(events)
    assert first["is_sure"].all()
    events = analyze.align_clocks(events, first, correct_drift=True)
    waits = analyze.collective_waits(events, clocks=clocks_of(events))
    assert waits["is_sure"].all()
    total = waits.groupby("rank")["wait_ns"].sum()
    assert (total - pd.Series(waited)).abs().max() < 0.01 * max(waited.values())


def test_a_wrong_table_is_refused(make_events):
    events = make_events(nccl(0, 0, 9))
    with pytest.raises(WorkbenchError, match="'offset_ns' is missing"):
        analyze.collectives(events, clocks=clocks_of(events).drop(columns="offset_ns"))
    with pytest.raises(WorkbenchError, match="is not a valid 'collectives' table"):
        analyze.clocks(events)
