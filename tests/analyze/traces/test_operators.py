"""Intervals around intervals, which own GPU work by where it was launched."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workbench.analyze._lib.rows import enclosing

interval = st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(0, 12))


@given(st.lists(interval, max_size=25))
def test_the_enclosing_interval_is_the_latest_that_still_runs(some):
    some = sorted(some, key=lambda i: (i[0], i[1], -i[2]))
    group, start, length = np.array(some, dtype=np.int64).reshape(-1, 3).T
    end = start + length
    found = enclosing(start, end, group)
    for i in range(len(some)):
        running = [j for j in range(i) if group[j] == group[i] and end[j] > start[i]]
        assert found[i] == (running[-1] if running else -1)
