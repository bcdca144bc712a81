"""Incidents and their number by window; how lines fold is proven in tests/test_incidents.py."""

import pytest

from workbench import analyze, load
from workbench.errors import TableError
from workbench.tables import FAILURES, INCIDENT_COUNTS


@pytest.fixture(scope="module")
def xid_119(real_data):
    path = real_data("failures-kmsg") / "dmesg-with-xid-119.log"
    return load.failures(path, tz="UTC", window_s=0).failures


@pytest.mark.oracle
def test_the_public_log_with_xid_119_holds_as_many_incidents_as_the_window_allows(xid_119):
    counts = analyze.incident_counts(xid_119, windows_s=[300, 0, 60, 60])
    assert counts["window_s"].tolist() == [0, 60, 300]
    assert counts["incident_count"].tolist() == [5, 3, 1]
    assert counts["line_count"].tolist() == [5, 5, 5]


def test_folding_later_gives_what_loading_folds(real_data, xid_119):
    path = real_data("failures-kmsg") / "dmesg-with-xid-119.log"
    loaded = load.failures(path, tz="UTC", window_s=60).failures
    assert analyze.incidents(xid_119, window_s=60).equals(loaded)
    assert len(analyze.incidents(xid_119)) == 1, "300 s is usual"


def test_no_failures_give_no_counts():
    assert analyze.incident_counts(FAILURES.empty()).empty
    INCIDENT_COUNTS.check(analyze.incident_counts(FAILURES.empty(), windows_s=[]))


@pytest.mark.parametrize("window_s", [-1, float("nan"), None, "60"])
def test_a_window_that_is_no_time_is_refused(xid_119, window_s):
    with pytest.raises(ValueError, match="window_s must be a number of seconds"):
        analyze.incidents(xid_119, window_s=window_s)
    with pytest.raises(ValueError, match="window_s must be a number of seconds"):
        analyze.incident_counts(xid_119, windows_s=[10, window_s])


def test_another_table_is_refused(xid_119):
    with pytest.raises(TableError, match="'start_ns' is missing"):
        analyze.incidents(xid_119.drop(columns="start_ns"))
    with pytest.raises(TableError, match="'code' is missing"):
        analyze.incident_counts(xid_119.drop(columns="code"), windows_s=[])
