"""Components of pages: escaped, readable without colour, with a style that holds only its parts."""

from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st

from workbench.plot._style import html
from workbench.plot._style.html import Column

HOSTILE = "<img src=x>\u202e\x1b"


def soup(*components):
    return BeautifulSoup(html.page(*components), "html.parser")


def test_a_page_carries_only_the_style_of_what_it_shows():
    table = html.table([Column("rank")], [["0"]], caption="ranks")
    assert ".finding" not in soup(table).style.text
    assert "thead th" in soup(table).style.text
    assert "thead th" not in soup(html.note("made")).style.text
    # A notebook holds many of them.
    assert all(len(soup(part).style.text) < 2200 for part in (table, html.note("made")))


def test_a_table_has_titles_with_units_and_named_rows():
    columns = [Column("Rank"), Column("Wait", "ms"), Column("Why", is_text=True, is_optional=True)]
    page = soup(html.table(columns, [["0", "5.59", "late"]], caption=HOSTILE))
    assert [cell.get_text(" ") for cell in page.select("th[scope=col]")] == [
        "Rank",
        "Wait  ms",
        "Why",
    ]
    assert page.select_one("tbody th[scope=row]").text == "0"
    assert page.select("img") == []
    assert page.select_one("td.l.opt").text == "late"


def test_waiting_is_hatched_and_pale_fills_have_an_outline():
    wait, idle = soup(html.bar([("wait", 0.5)])), soup(html.bar([("idle", 0.5)]))
    assert [rect["fill"] for rect in wait.select("rect")][1] == "url(#wb-hatch)"
    assert wait.select_one("pattern#wb-hatch") is not None
    assert idle.select_one("rect")["stroke"]


@given(st.lists(st.floats(min_value=0, max_value=1), min_size=1, max_size=6))
def test_parts_of_a_bar_lie_end_to_end(shares):
    rects = soup(html.bar([("compute", share) for share in shares])).select("rect")
    at = 0.0
    for rect, share in zip(rects, shares, strict=True):
        assert abs(float(rect["x"].rstrip("%")) - at) < 0.011
        assert abs(float(rect["width"].rstrip("%")) - 100 * share) < 0.006
        at += 100 * share


def test_a_bar_beside_its_number_is_silent_and_one_alone_is_told():
    assert soup(html.bar([("neutral", 1)])).select("svg")[-1]["aria-hidden"] == "true"
    alone = soup(html.bar([("neutral", 1)], label="GPU time by state")).select("svg")[-1]
    assert (alone["role"], alone["aria-label"]) == ("img", "GPU time by state")
