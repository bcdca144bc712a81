"""Tables on pages: units that people read, nothing rounded away, all rows in the file."""

import base64
import csv
import io
import json

import numpy as np
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st

from workbench.share._tables import TABLE_MIME, as_data, figure_csv, shown


def page_of(frame):
    return shown(as_data(frame)[TABLE_MIME], 0)


def heads_and_rows(frame):
    soup = BeautifulSoup(page_of(frame).html, "html.parser")
    heads = [cell.get_text(" ", strip=True) for cell in soup.select("thead tr > *")]
    rows = [
        [cell.get_text(strip=True) for cell in row.select("td")] for row in soup.select("tbody tr")
    ]
    return heads, rows


def column(name, values):
    """Give the title and the cells of a column; bars aside."""
    heads, rows = heads_and_rows(pd.DataFrame({name: values}))
    at = next(place for place, head in enumerate(heads) if head)
    return heads[at], [row[at] for row in rows]


@pytest.mark.parametrize(
    ("name", "values", "title", "cells"),
    [
        ("dur_ns", [276378118, 1500000], "dur ms", ["276.38", "1.50"]),
        ("wait_ns", [7_200_000_000_000, 90_000_000_000], "wait min", ["120.00", "1.50"]),
        ("idle_share", [0.125, 0.5], "idle share %", ["12.5", "50.0"]),
        ("moved_bytes", [2_500_000.0, 0.0], "moved MB", ["2.50", "0"]),
        ("energy_j", [-1500.0, 3000.0], "energy kJ", ["−1.50", "3.00"]),
        ("events", [61032, 8], "events", ["61,032", "8"]),
        ("rank", [1024, 7], "rank", ["1024", "7"]),
        ("lost_gpu_h", [1234.5, 0.25], "lost GPU-h", ["1,234.500", "0.250"]),
    ],
)
def test_numbers_are_written_in_units_that_people_read(name, values, title, cells):
    assert column(name, values) == (title, cells)


def test_names_of_quantities_are_written_with_their_units():
    frame = pd.DataFrame(
        {"quantity": ["recovery_min", "energy_j", "idle_share", "is_sure", "GPUs"]}
    )
    _, rows = heads_and_rows(frame)
    assert [row[0] for row in rows] == [
        "recovery [min]", "energy [J]", "idle share", "is sure", "GPUs",
    ]  # fmt: skip
    aside = pd.DataFrame({"offset_s": [0.53], "doubt": [""]}).T
    heads, rows = heads_and_rows(aside)
    assert heads == ["", ""]
    assert rows[0] == ["offset [s]", "0.53"]


def test_names_of_operators_stay_as_they_are():
    assert column("name", ["elementwise_kernel_s"])[1] == ["elementwise_kernel_s"]


def test_a_time_of_day_is_no_duration():
    title, cells = column("start_ns", [1768204841957765000, 1768204898957765000])
    assert title == "start UTC"
    assert cells == ["2026-01-12\xa008:00:41.957", "2026-01-12\xa008:01:38.957"]


def test_missing_is_not_zero_and_small_is_not_zero():
    values = pd.array([None, 0.0, 0.00004, 812.0, 900.0], dtype="Float64")
    _, cells = column("power_w", values)  # numbers of one column, but none rounded away
    assert cells == ["–", "0", "4e-05", "812", "900"]


def test_quantities_of_one_column_keep_their_digits():
    _, cells = column("printed", [288.0, 11.2345, 0.02913, 405.25])
    assert cells == ["288.0", "11.2", "0.0291", "405.2"]


def test_a_bar_stands_only_before_amounts():
    def bars(frame):
        return len(BeautifulSoup(page_of(frame).html, "html.parser").select(".wb-bar"))

    rows = range(4)
    assert bars(pd.DataFrame({"wait_ns": [10, 20, 30, 40]})) == 4
    assert bars(pd.DataFrame({"event_count": [128] * 4})) == 0
    assert bars(pd.DataFrame({"start_ns": [10, 20, 30, 40]})) == 0
    assert bars(pd.DataFrame({"energy_j": [-10.0, 20, 30, 40]})) == 0
    assert bars(pd.DataFrame({"temperature_c": [10.0 * row for row in rows]})) == 0


def test_levels_of_an_index_are_columns_and_a_counted_one_is_none():
    frame = pd.DataFrame({"node": list("aab"), "kind": list("xyx"), "gpu_count": [1, 2, 3]})
    heads, rows = heads_and_rows(frame.set_index(["node", "kind"]))
    assert [head for head in heads if head] == ["node", "kind", "gpu count"]
    assert rows[1][:2] == ["a", "y"]
    assert [head for head in heads_and_rows(frame[["node"]])[0] if head] == ["node"]


def test_names_are_escaped_and_long_ones_kept_whole():
    name = "<script>alert(1)</script>" + "x" * 90
    soup = BeautifulSoup(page_of(pd.DataFrame({name: [name]})).html, "html.parser")
    assert soup.select("script") == []
    assert soup.td.span["title"] == name


def test_rows_that_are_not_shown_are_counted_and_stand_in_the_file():
    table = page_of(pd.DataFrame({"step": range(1234)}))
    assert "The first 200 of 1,234 rows." in table.html
    assert table.csv.count("\n") == 1235


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=8))
def test_the_file_holds_every_number_as_it_was(values):
    frame = pd.DataFrame({"dur_ns": values, "name": [f'a,"{n}"' for n in range(len(values))]})
    rows = list(csv.DictReader(io.StringIO(page_of(frame).csv)))
    assert [float(row["dur_ns"]) for row in rows] == values
    assert [row["name"] for row in rows] == list(frame["name"])


def test_an_empty_table_is_a_head_and_no_rows():
    heads, rows = heads_and_rows(pd.DataFrame({"rank": pd.array([], dtype="Int64")}))
    assert (heads, rows) == (["rank"], [])


def written(values):
    array = np.asarray(values, dtype="float64")
    text = base64.b64encode(array.tobytes()).decode()
    return {"dtype": "f8", "bdata": text, "shape": ", ".join(map(str, array.shape))}


def test_a_figure_gives_its_points_however_plotly_wrote_them():
    layout = {"xaxis": {"title": {"text": "wait [ms]"}}, "yaxis": {"title": {"text": "rank"}}}
    plain = {"name": "rank &lt;7&gt;", "x": [1.5, 2.5], "y": ["a", "b"]}
    coded = {**plain, "x": written([1.5, 2.5])}
    texts = {figure_csv({"data": [trace], "layout": layout}) for trace in (plain, coded)}
    assert texts == {"series,wait [ms],rank\nrank <7>,1.5,a\nrank <7>,2.5,b\n"}


@pytest.mark.parametrize("code", [list, written])
def test_a_heatmap_gives_a_row_per_cell(code):
    trace = {"x": ["a", "b", "c"], "y": [7, 9], "z": code([[1.0, 2, 3], [4, 5, 6]])}
    rows = list(csv.reader(io.StringIO(figure_csv({"data": [trace]}))))
    assert rows[0] == ["series", "x", "y", "z"]
    assert [row[1:3] for row in rows[1:]] == [[x, y] for y in "79" for x in "abc"]
    assert [float(row[3]) for row in rows[1:]] == [1, 2, 3, 4, 5, 6]


def test_a_figure_without_points_gives_no_file():
    assert figure_csv({"data": [], "layout": {}}) == ""


def test_what_a_kernel_hands_over_is_plain_json():
    frame = pd.DataFrame(
        {
            "at": pd.to_datetime(["2026-01-01", None], utc=True),
            "ok": pd.array([True, None], dtype="boolean"),
            "kind": pd.Categorical(["a", None]),
            "far": [np.inf, np.nan],
            "what": [{"a": 1}, [2]],
        }
    )
    rows = json.loads(as_data(frame)[TABLE_MIME])["rows"]
    assert rows == [
        ["2026-01-01 00:00:00+00:00", True, "a", "inf", "{'a': 1}"],
        [None] * 4 + ["[2]"],
    ]
    assert "–" in page_of(frame).html
