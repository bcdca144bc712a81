"""Intervals: every operation against counting single nanoseconds on a small grid."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.analyze import intervals

SIZE = 30
moment = st.integers(min_value=0, max_value=SIZE)
pairs = st.lists(st.tuples(moment, moment), max_size=12)


def arrays(some):
    starts, ends = zip(*some, strict=True) if some else ((), ())
    return np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64)


def cells(some):
    """Say for each nanosecond of the grid whether an interval holds it."""
    grid = np.zeros(SIZE, dtype=bool)
    for start, end in some:
        grid[start:end] = True
    return grid


def as_cells(result):
    starts, ends = result
    assert (starts < ends).all()
    assert (starts[1:] > ends[:-1]).all(), "sorted, disjoint and not touching"
    return cells(zip(starts, ends, strict=True))


@given(pairs)
def test_union_holds_what_any_interval_holds(some):
    assert (as_cells(intervals.union(*arrays(some))) == cells(some)).all()


@given(pairs)
def test_measure_counts_what_overlaps_once(some):
    assert intervals.measure(*arrays(some)) == cells(some).sum()


@given(pairs, pairs)
def test_intersection_holds_what_both_hold(a, b):
    both = intervals.intersect(*arrays(a), *arrays(b))
    assert (as_cells(both) == (cells(a) & cells(b))).all()


@given(pairs, pairs)
def test_difference_holds_what_only_the_first_holds(a, b):
    rest = intervals.subtract(*arrays(a), *arrays(b))
    assert (as_cells(rest) == (cells(a) & ~cells(b))).all()


@given(pairs, moment, moment)
def test_gaps_hold_what_no_interval_of_the_window_holds(some, low, high):
    gaps = intervals.gaps(*arrays(some), window=(low, high))
    assert (as_cells(gaps) == (~cells(some) & cells([(low, high)]))).all()


@given(pairs)
def test_gaps_without_a_window_lie_between_first_start_and_last_end(some):
    held = np.flatnonzero(cells(some))
    window = (int(held[0]), int(held[-1]) + 1) if len(held) else (0, 0)
    plain = intervals.gaps(*arrays(some))
    for ours, theirs in zip(plain, intervals.gaps(*arrays(some), window=window), strict=True):
        assert ours.tolist() == theirs.tolist()


@given(pairs, pairs)
def test_measure_within_counts_each_window_by_itself(some, windows):
    expected = [int((cells(some) & cells([window])).sum()) for window in windows]
    assert intervals.measure_within(*arrays(some), *arrays(windows)).tolist() == expected


@given(st.lists(st.tuples(moment, moment, st.integers(0, 2), st.integers(0, 3)), max_size=15))
def test_coverage_counts_each_combination_of_classes_in_each_group(some):
    starts, ends, classes, groups = np.array(some, dtype=np.int64).reshape(-1, 4).T
    covered = intervals.coverage(starts, ends, classes, groups)
    for group in range(len(covered)):
        held = [cells([s[:2] for s in some if s[2:] == (kind, group)]) for kind in range(3)]
        mask = sum(cell.astype(int) << kind for kind, cell in enumerate(held))
        for combination in range(1, covered.shape[1]):
            assert covered[group, combination] == (mask == combination).sum()
        active = np.flatnonzero(mask)
        extent = active[-1] + 1 - active[0] if len(active) else 0
        assert covered[group].sum() == extent, "column 0 is the time between the intervals"


@given(pairs, st.lists(moment, max_size=9), st.booleans())
def test_windows_in_order_and_in_disorder_cover_the_same(some, moments, is_sorted):
    low = np.array(sorted(moments) if is_sorted else moments, dtype=np.int64)
    high = low + 5
    covered = intervals.measure_within(*arrays(some), low, high)
    single = [int(intervals.measure_within(*arrays(some), [a], [a + 5])[0]) for a in low]
    assert covered.tolist() == single


@given(
    st.lists(st.tuples(st.integers(-2, 3), moment | st.sampled_from([-(1 << 62), 1 << 62]))),
    st.booleans(),
)
def test_the_running_end_is_the_latest_so_far_of_its_group(some, is_sorted):
    some = sorted(some, key=lambda pair: pair[0]) if is_sorted else some
    latest, expected = {}, []
    for group, end in some:
        latest[group] = max(latest.get(group, end), end)
        expected.append(latest[group])
    groups, ends = (np.array([pair[at] for pair in some], dtype=np.int64) for at in (0, 1))
    assert intervals.running_end(ends, groups).tolist() == expected


def test_coverage_survives_clocks_that_are_decades_apart():
    epoch = 1_700_000_000_000_000_000
    starts = np.array([0, epoch, 5, 2 * epoch, 3 * epoch, 4 * epoch])
    covered = intervals.coverage(
        starts, starts + 10, np.zeros(6, int), np.array([0, 0, 1, 2, 3, 3])
    )
    assert covered[:, 1].tolist() == [20, 10, 10, 20]
    assert covered[:, 0].tolist() == [epoch - 10, 0, 0, epoch - 10]


def test_nanoseconds_of_today_stay_exact():
    today = 1_763_600_000_000_000_001
    assert intervals.measure([today, today + 2], [today + 1, today + 5]) == 4


def test_empty_sets_are_fine():
    nothing = np.zeros(0, dtype=np.int64)
    assert intervals.measure([], []) == 0
    assert intervals.gaps([], [])[0].tolist() == []
    assert intervals.gaps([], [], window=(3, 5))[1].tolist() == [5]
    assert intervals.subtract([], [], [1], [2])[0].tolist() == []
    assert intervals.coverage(nothing, nothing, nothing, nothing).shape == (0, 1)


def test_the_arguments_are_left_as_they_were():
    starts, ends = np.array([5, 1]), np.array([6, 9])
    intervals.union(starts, ends)
    assert starts.tolist() == [5, 1]
    assert ends.tolist() == [6, 9]


@pytest.mark.parametrize(
    ("starts", "ends", "message"),
    [
        ([1.5], [2.5], "whole nanoseconds"),
        ([1, 2], [3], "lists of one length"),
        ([[1]], [[2]], "lists of one length"),
    ],
)
def test_refuses_what_is_no_list_of_whole_nanoseconds(starts, ends, message):
    with pytest.raises(ValueError, match=message):
        intervals.union(starts, ends)


def test_refuses_more_classes_than_a_mask_can_hold():
    with pytest.raises(ValueError, match="classes must be 0 to 7"):
        intervals.coverage([0], [1], [8], [0])
    with pytest.raises(ValueError, match="as many classes"):
        intervals.coverage([0], [1], [0, 1], [0, 1])


@pytest.mark.slow
def test_a_million_intervals_agree_with_a_plain_loop():
    rng = np.random.default_rng(7)
    starts = rng.integers(0, 10**9, 1_000_000)
    ends = starts + rng.integers(0, 2_000, 1_000_000)
    total, reach = 0, -1
    for start, end in sorted(zip(starts.tolist(), ends.tolist(), strict=True)):
        total += max(0, end - max(start, reach))
        reach = max(reach, end)
    assert intervals.measure(starts, ends) == total


@pytest.fixture(scope="session")
def compiled_sweep(compiled):
    return compiled("workbench.analyze._lib._sweep")


@pytest.fixture(params=["compiled", "numpy"])
def sweep(request, monkeypatch, compiled_sweep):
    """Both ways to measure levels, which must agree."""
    cover = compiled_sweep.cover if request.param == "compiled" else None
    monkeypatch.setattr(intervals, "cover", cover)


levelled = st.lists(st.tuples(st.integers(-1, 4), moment, st.integers(-3, SIZE)), max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some=levelled, windows=pairs, is_sorted=st.booleans())
def test_levels_hold_what_they_and_those_below_hold(some, windows, is_sorted, sweep):
    windows = [(low, high) for low, high in windows if low <= high]
    if is_sorted:
        some = sorted(some, key=lambda row: row[1])
        windows = list(pairwise(sorted({moment for window in windows for moment in window})))
    level, starts, lasting = np.array(some, dtype=np.int64).reshape(-1, 3).T
    low, high = arrays(windows)
    found = intervals.measure_levels(level.astype(np.int8), starts, lasting, low, high, levels=4)
    for number in range(4):
        held = np.zeros(3 * SIZE, dtype=bool)
        for its_level, start, length in some:
            if 0 <= its_level <= number:
                held[start : start + max(length, 0)] = True
        assert found[number].tolist() == [held[a:b].sum() for a, b in windows]


def test_the_sweep_leaves_what_is_not_in_order_to_numpy(compiled_sweep):
    level, low, high = np.zeros(2, np.int8), np.array([0]), np.array([9])
    rows, reversed_rows = (np.array(starts) for starts in ([1, 2], [2, 1]))
    for starts, windows, done in (
        (rows, (low, high), True), (reversed_rows, (low, high), False),
        (rows, (high, low), False), (rows, (np.array([0, 1]), np.array([2, 3])), False),
    ):  # fmt: skip
        covered = np.zeros((1, len(windows[0])), np.int64)
        assert compiled_sweep.cover(level, starts, np.ones(2, np.int64), *windows, covered) is done


def test_the_sweep_refuses_arrays_that_do_not_fit(compiled_sweep):
    fit = [np.zeros(3, np.int8), *(np.zeros(3, np.int64) for _ in range(2))]
    fit += [np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros((4, 2), np.int64)]
    assert compiled_sweep.cover(*fit)
    for at in range(6):
        unfit = [
            array.reshape(-1)[:-1] if place == at else array for place, array in enumerate(fit)
        ]
        with pytest.raises(ValueError, match="differ in size"):
            compiled_sweep.cover(*unfit)
    with pytest.raises(ValueError, match="differ in size"):
        compiled_sweep.cover(*fit[:-1], np.zeros((9, 2), np.int64))
