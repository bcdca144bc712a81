"""Readings in the hour that the end of summer time repeats, by the order in which they stand."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import load
from workbench.load._files.findings import Findings
from workbench.load._power.part import PowerOptions
from workbench.load._power.stamps import Stamps

ZONE = "Europe/Berlin"
# The first of the two hours from 02:00 to 03:00 begins.
FIRST = int(datetime(2026, 10, 25, 0, tzinfo=UTC).timestamp())
FORMS = ("%Y-%m-%d %H:%M:%S", "%a %b %d %H:%M:%S %Y", "%m/%d/%Y %I:%M:%S %p")


def local(at, form):
    return datetime.fromtimestamp(at, ZoneInfo(ZONE)).strftime(form)


def every(period_s):
    return range(FIRST - 3600, FIRST + 3 * 3600, period_s)


@pytest.mark.parametrize("period_s", [1, 60, 600, 1200])
def test_a_table_of_readings_loses_none(tmp_path, period_s):
    path = tmp_path / "power.csv"
    rows = [f"{local(at, FORMS[0])},{300 + n % 7}.0" for n, at in enumerate(every(period_s))]
    path.write_text("\n".join(["time,power_w", *rows, ""]))
    power = load.power(path, tz=ZONE, progress=False).power
    assert power["time_ns"].tolist() == [at * 10**9 for at in every(period_s)]


@pytest.mark.parametrize("period_s", [60, 600])
def test_polls_of_nvidia_smi_lose_none(tmp_path, period_s):
    path = tmp_path / "gpu.csv"
    stamp = "%Y/%m/%d %H:%M:%S.000"
    rows = [f"{local(at, stamp)}, {gpu}, 70 W" for at in every(period_s) for gpu in (0, 1)]
    path.write_text("\n".join(["timestamp, index, power.draw [W]", *rows, ""]))
    power = load.power(path, tz=ZONE, progress=False).power
    assert sorted(set(power["time_ns"])) == [at * 10**9 for at in every(period_s)]


@pytest.mark.long
@given(form=st.sampled_from(FORMS), period_s=st.integers(1, 1500))
def test_stamps_read_one_by_one_follow_each_other(form, period_s):
    stamps = Stamps("log", PowerOptions(tz=ZONE), Findings("log"))
    read = [stamps.ns(local(at, form), line) for line, at in enumerate(every(period_s), 1)]
    assert read == [at * 10**9 for at in every(period_s)]


def test_a_log_that_begins_in_the_hour_has_no_time_until_the_order_tells():
    stamps = Stamps("log", PowerOptions(tz=ZONE), Findings("log"))
    assert stamps.ns(local(FIRST + 600, FORMS[0]), 1) is None
    assert stamps.findings.count("stamps that are not times; the readings have none") == 1
