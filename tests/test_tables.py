"""Tables say everything that is wrong with a frame at once, and nothing about a good one."""

import math
import re

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rules import for_every
from workbench import tables
from workbench.errors import TableError
from workbench.tables import Column, Table, Trace

TABLES = {n: table for n in tables.__all__ if isinstance(table := getattr(tables, n), Table)}
READINGS = Table(
    "readings",
    "One row per reading.",
    {
        "rank": Column("int32", "global rank", lower=0),
        "busy_share": Column("float64", "busy time", lower=0, upper=1, nullable=True),
        "name": Column("str", "name"),
    },
)


def readings(**changes):
    good = {
        "rank": pd.Series([0, 1], dtype="int32"),
        "busy_share": [0.5, None],
        "name": ["a", "b"],
    }
    return pd.DataFrame({**good, **changes})


def test_a_good_frame_comes_back_as_it_is():
    frame = readings()
    assert READINGS.check(frame) is frame


def test_columns_beyond_the_table_are_left_alone():
    assert "extra" in READINGS.check(readings(extra=1))


def test_all_misfits_are_told_at_once():
    frame = readings(rank=[-1, 0], busy_share=[0.5, 1.5]).drop(columns="name")
    frame["rank"] = frame["rank"].astype("int32")
    with pytest.raises(TableError) as caught:
        READINGS.check(frame, origin="mine.csv")
    assert str(caught.value).splitlines() == [
        "mine.csv is not a valid 'readings' table:",
        "  - 'name' is missing",
        "  - 'rank' has 1 values below 0, e.g. row 0",
        "  - 'busy_share' has 1 values above 1, e.g. row 1",
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rank": [0, 1]}, "'rank' has dtype int64, needs int32"),
        ({"name": [1, 2]}, "'name' has dtype int64, needs str"),
        ({"name": ["a", None]}, "'name' has 1 missing values, none are allowed"),
    ],
)
def test_a_misfit_is_named_with_what_is_needed(changes, message):
    with pytest.raises(TableError, match=message):
        READINGS.check(readings(**changes))


def test_what_is_no_frame_is_refused_with_what_to_pass():
    with pytest.raises(TableError, match="the frame is a list, not a 'readings' table"):
        READINGS.check([1, 2])


def trace(**changes):
    parts = ("events", "ranks", "devices", "process_groups", "steps", "nodes", "dependencies")
    empty = {part: TABLES[part.upper()].empty() for part in (*parts, "quality")}
    return Trace(**{**empty, **changes})


def test_a_whole_trace_is_refused_with_the_table_to_pass():
    with pytest.raises(TableError, match=r"pass one of its tables, e\.g\. trace\.events"):
        tables.EVENTS.check(trace())


def test_a_trace_says_in_one_line_what_it_holds():
    assert repr(trace()) == "Trace of 0 ranks: no events; 0 findings to look at (see .quality)"


@for_every(table=TABLES)
def test_the_empty_frame_fits_its_table(table):
    frame = table.check(table.empty())
    assert list(frame.columns) == list(table.columns)
    assert len(frame) == 0


@for_every(table=TABLES)
def test_the_documentation_has_a_line_per_column(table):
    text = table.markdown()
    assert len(text.splitlines()) == 4 + len(table.columns)
    assert [name for name in table.columns if f"| `{name}` |" not in text] == []


@given(st.lists(st.floats(min_value=-2, max_value=2), min_size=1))
def test_limits_refuse_exactly_the_values_outside(values):
    frame = pd.DataFrame({"rank": 0, "busy_share": values, "name": "x"}).astype({"rank": "int32"})
    inside = all(0 <= value <= 1 for value in values)
    try:
        READINGS.check(frame)
    except TableError:
        assert not inside
    else:
        assert inside


def test_cast_gives_the_columns_and_dtypes_of_the_table_and_keeps_what_is_missing():
    table = Table(
        "t",
        "t",
        {"stream": Column("Int64", "x", nullable=True), "name": Column("str", "x", nullable=True)},
    )
    loose = pd.DataFrame({"extra": 1, "name": ["a", None], "stream": [1.0, None]}, dtype=object)
    frame = table.check(table.cast(loose))
    assert list(frame.columns) == ["stream", "name"]
    assert frame.isna().to_numpy().tolist() == [[False, False], [True, True]]


def test_a_trace_lists_only_findings_that_need_a_look():
    quality = pd.DataFrame(
        {
            "finding": ["read", "noted", "truncated", "truncated"],
            "what": ["events", "a", "cut", "cut"],
            "count": [9, 1, 1, 2],
        }
    )
    shown = repr(trace(quality=quality)).splitlines()
    assert "1 finding to look at" in shown[0]
    assert shown[1:] == ["  truncated: cut (3)"]


def test_missing_values_of_nullable_integers_are_no_misfit():
    table = Table("t", "t", {"stream": Column("Int64", "stream", lower=0, nullable=True)})
    frame = pd.DataFrame({"stream": pd.Series([1, None], dtype="Int64")})
    assert table.check(frame) is frame


NUMBERS = Table(
    "numbers",
    "Numbers as files hold them.",
    {
        "small": Column("int32", "a number"), "whole": Column("int64", "a number"),
        "lacking": Column("Int64", "a number", nullable=True), "real": Column("float64", "a number"),
    },
)  # fmt: skip
HELD = {
    "small": (-(1 << 31), 1 << 31),
    "whole": (-(1 << 63), 1 << 63),
    "lacking": (-(1 << 63), 1 << 63),
}


@given(
    st.sampled_from([*NUMBERS.columns]),
    st.integers(-(10**400), 10**400)
    | st.floats(allow_nan=False)
    | st.integers(-(1 << 64), 1 << 64),
    st.booleans(),
)
def test_a_number_is_held_as_it_is_or_refused_with_its_column_and_row(column, value, as_object):
    """NumPy would wrap 3e9 around in an int32 and 1e30 in an int64, without an error."""
    cells = pd.Series([1, value], dtype=object)
    if not as_object and isinstance(value, float):
        cells = cells.astype("float64")
    frame = pd.DataFrame({name: [1, 1] for name in NUMBERS.columns}).assign(**{column: cells})
    lower, upper = HELD.get(column, (-(10**308), 10**308))
    is_held = (isinstance(value, int) or math.isfinite(value)) and lower <= value < upper
    said, made = "", None
    try:
        made = NUMBERS.cast(frame)[column]
    except TableError as error:
        said = str(error)
    if made is None:
        assert re.search(rf"'{column}' of table 'numbers' holds .* in row 1", said)
        assert not is_held or int(value) != value or abs(value) > 1 << 53
    elif column == "real":
        assert made[1] == float(value)
    else:
        assert is_held
        assert made[1] == int(value)
