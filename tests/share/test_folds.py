"""What a page folds: published cases, and sections for which there are no data."""

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from workbench import load
from workbench.share._prose import ABSENT_MIME
from workbench.share.report import ReportExporter

LINE = "No job logs in mine. To fill this section, add a log of the job's steps with their times."


def text(source, *tags):
    return new_markdown_cell(source, metadata={"tags": list(tags)})


def absent(source="no_steps"):
    output = new_output("display_data", data={ABSENT_MIME: LINE, "text/plain": LINE})
    return new_code_cell(source, outputs=[output])


def said(source="42"):
    return new_code_cell(source, outputs=[new_output("stream", text="42")])


def page_of(*cells):
    notebook = new_notebook(cells=[text("# Where does it go?"), *cells])
    before = nbformat.writes(notebook)
    body, resources = ReportExporter(mode="static").from_notebook_node(notebook)
    assert nbformat.writes(notebook) == before
    return BeautifulSoup(body, "html.parser"), resources["wb"]


@pytest.mark.parametrize(
    ("heading", "label"),
    [("Published cases, not your data", ""), ("From 44 to 80 %", "Published case, not your data")],
)
def test_a_published_case_is_folded_under_its_heading_and_says_whose_it_is_not(heading, label):
    case = [text(f"## {heading}\n\nThe paper counts otherwise.", "published-case"), said()]
    page, _ = page_of(text("## First"), said(), *case, text("## What to take away"))
    (fold,) = page.select("details.wb-published")
    assert not fold.has_attr("open")
    assert fold.summary.h2.text == heading
    assert fold.summary.text.removeprefix(heading).strip() == label
    assert fold.summary.select("a") == []
    assert "The paper counts otherwise." in fold.text
    assert "42" in fold.text
    assert "What to take away" not in fold.text


def test_a_section_without_data_is_one_line_that_names_the_files_it_needs():
    section = [text("## What does a step cost?\n\nEnergy from start to end."), absent(), absent()]
    page, _ = page_of(text("## First"), said(), *section, text("## What to take away"))
    (fold,) = page.select("details.wb-absent")
    assert fold.summary.h2["id"] == "What-does-a-step-cost?"
    assert fold.summary.text.strip() == f"What does a step cost?{LINE}"
    assert "Energy from start to end." in fold.text
    assert page.main.text.count(LINE) == 1


def test_a_part_without_data_is_folded_alone_and_a_section_of_such_parts_as_a_whole():
    parts = [text("### Replicas?"), absent(), text("### At another size?"), absent()]
    page, _ = page_of(text("## What would help?"), said(), *parts)
    assert [fold.summary.h3.text for fold in page.select("details.wb-absent")] == [
        "Replicas?", "At another size?",
    ]  # fmt: skip
    page, _ = page_of(text("## What would help?"), *parts)
    (fold,) = page.select("details.wb-absent")
    assert fold.summary.h2.text == "What would help?"


def test_sections_without_data_are_not_among_the_contents():
    shown = [cell for name in "abc" for cell in (text(f"## Shown {name}"), said())]
    page, _ = page_of(*shown, text("## Hidden"), absent())
    assert [item.text for item in page.select(".wb-contents li")] == [
        "Shown a", "Shown b", "Shown c",
    ]  # fmt: skip


def test_findings_link_the_section_of_a_figure_in_a_fold():
    case = text("## Published cases, not your data", "published-case")
    _, facts = page_of(text("## First"), said("plot.first()"), case, said("plot.second()"))
    assert facts["sections"] == {"first": "First", "second": "Published-cases,-not-your-data"}


def test_the_line_is_the_one_that_a_notebook_shows():
    assert repr(load.missing("mine", "job logs")) == LINE
