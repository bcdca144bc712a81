"""Stamps as `date`, controllers and scripts write them."""

import pandas as pd
import pytest

from workbench.errors import LoadError
from workbench.load._files.findings import Findings
from workbench.load._power.part import PowerOptions
from workbench.load._power.stamps import Stamps, stamp_line


def stamps(tz="UTC"):
    return Stamps("power.txt", PowerOptions(tz=tz), Findings("power.txt"))


NOON = pd.Timestamp("2024-04-23 12:00:00", tz="UTC")


@pytest.mark.parametrize(
    "text",
    [
        "Tue Apr 23 12:00:00 2024",
        "Tue Apr 23 12:00:00 UTC 2024",
        "Tue Apr 23 12:00:00 PM UTC 2024",
        "Tue 23 Apr 2024 12:00:00 PM UTC",
        "Tue Apr 23 14:00:00 +0200 2024",
        "04/23/2024 12:00:00 PM",
        "04/23/2024 12:00:00",
        "04/23/24 12:00:00",
        "04/23/2024 - 12:00:00",
        "23/04/2024 12:00:00",
        "2024/04/23 12:00:00.000",
        "2024-04-23T12:00:00Z",
        "2024-04-23T14:00:00+02:00",
        "2024-04-23 12:00:00",
        "1713873600",
        "1713873600.000",
        "1713873600000",
        "1713873600000000",
        "1713873600000000000",
        1713873600,
        1713873600.0,
    ],
)
def test_every_form_of_noon_is_noon(text):
    assert stamps().ns(text, 1) == NOON.as_unit("ns").value


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "Tue Xyz 23 12:00:00 2024", "13/32/2024 12:00:00", "2024-13-01T00:00:00Z",
     "25:61:00", "1e400", "-5", None, True, [1], float("nan"), float("inf"), 10**30, "9" * 4000],
)  # fmt: skip
def test_what_is_no_stamp_is_no_time_and_counted(text):
    each = stamps()
    assert each.ns(text, 7) is None
    assert each.findings.count("stamps that are not times; the readings have none") == 1


def test_a_local_stamp_asks_for_the_zone():
    with pytest.raises(LoadError, match=r"power.txt, line 7: 'Tue Apr.*pass tz="):
        stamps(None).ns("Tue Apr 23 12:00:00 2024", 7)


def test_the_zone_of_the_caller_is_taken_and_said():
    each = stamps("America/New_York")
    assert (
        each.ns("10/08/2026 06:02:12 PM EDT", 1)
        == pd.Timestamp("2026-10-08 22:02:12", tz="UTC").as_unit("ns").value
    )
    assert each.assumed == "tz=America/New_York"


def test_a_zone_that_contradicts_the_stamp_is_refused():
    with pytest.raises(LoadError, match=r"is in EDT, and tz='UTC' is UTC then"):
        stamps("UTC").ns("10/08/2026 06:02:12 PM EDT", 1)
    assert stamps("-04:00").ns("10/08/2026 06:02:12 PM EDT", 1) is not None


def test_a_clock_that_was_never_set_gives_no_time():
    each = stamps()
    assert each.ns("Thu Jan  1 00:00:00 1970", 3) is None
    assert each.findings.count("stamps of a clock that was never set; the readings have no time")


def test_an_order_of_day_and_month_that_nobody_tells_is_said():
    each = stamps()
    each.ns("10/19/2025 12:00:00", 1)
    assert each.findings.rows() == []
    each.ns("10/08/2026 12:00:00", 2)
    assert [row[1] for row in each.findings.rows()] == ["assumed"]


def test_only_a_line_that_holds_nothing_else_is_a_stamp():
    assert stamp_line("# 2024-04-23T12:00:00Z") == "2024-04-23T12:00:00Z"
    assert stamp_line("Tue Apr 23 12:00:00 UTC 2024\n") == "Tue Apr 23 12:00:00 UTC 2024"
    assert stamp_line("2024-04-23T12:00:00Z 300 W") is None
    assert stamp_line("300") is None
    assert stamp_line("## 2024") is None
