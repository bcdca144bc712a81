"""What a page folds or names at its foot: published cases, and sections without data."""

import json

import nbformat
import plotly.graph_objects as go
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from workbench import load
from workbench.plot._style.style import nothing
from workbench.share._prose import ABSENT_MIME
from workbench.share.bundle import EXPLORER_MIME, PLOTLY_MIME
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


def figure(drawn, **more):
    data = {PLOTLY_MIME: json.loads(drawn.to_json()), **more}
    return new_code_cell("plot", outputs=[new_output("display_data", data=data)])


def states_of(figures):
    return f'<script type="application/json">{json.dumps({"figures": figures})}</script>'


def foot_of(page):
    (line,) = [p.text for p in page.select("p") if p.text.startswith("No data for: ")]
    return line


def test_sections_without_data_are_one_line_at_the_foot_with_the_files_they_need():
    cost = [text("## What does a step cost?\n\nEnergy from start to end."), absent(), absent()]
    inside = [text("## What happens inside a step?"), absent()]
    last = text("## What to take away")
    page, _ = page_of(
        text("## First\n\n[cost](#What-does-a-step-cost?)"), said(), *cost, *inside, last
    )
    line = f"No data for: What does a step cost?; What happens inside a step? ({LINE})"
    assert foot_of(page) == line
    assert page.main.text.strip().endswith(line)
    assert [heading.text for heading in page.select("h2")] == ["First", "What to take away"]
    assert "Energy from start to end." not in page.text
    # A link to what is not there would lead nowhere.
    assert [link for link in page.select("main a[href^='#']") if link.text] == []


def test_a_part_without_data_goes_alone_and_a_section_of_such_parts_as_a_whole():
    parts = [text("### Replicas?"), absent(), text("### At another size?"), absent()]
    page, _ = page_of(text("## What would help?"), said(), *parts)
    assert foot_of(page) == f"No data for: Replicas?; At another size? ({LINE})"
    assert [heading.text for heading in page.select("h2")] == ["What would help?"]
    page, _ = page_of(text("## What would help?"), *parts)
    assert foot_of(page) == f"No data for: What would help? ({LINE})"


@pytest.mark.long
def test_an_empty_figure_is_no_section_and_no_title_but_an_answer_is_both():
    empty = figure(nothing("The job has no steps.", claim="No energy to show"))
    clean = figure(nothing("Power never fell.", claim="No dips of power", is_answer=True))
    states = [json.loads(made.to_json()) for made in (nothing("-", claim="No links"), go.Figure())]
    explored, barren = (
        figure(nothing("No links here.", claim="No links"), **{EXPLORER_MIME: states_of(shown)})
        for shown in (states, states[:1])
    )
    cells = [text("## Energy?"), empty, text("## Dips?"), clean]
    cells += [text("## Estimate?"), explored, text("## Links?"), barren]
    page, facts = page_of(*cells)
    assert foot_of(page) == "No data for: Energy? (The job has no steps.); Links? (No links here.)"
    assert [heading.text for heading in page.select("h2")] == ["Dips?", "Estimate?"]
    assert facts["findings"] == ["No dips of power"]


@pytest.mark.parametrize("first", [nothing("No rails here.", claim="No rails"), go.Figure()])
def test_of_an_explorer_without_a_picture_the_states_tell_whether_it_has_data(first):
    states = [json.loads(first.to_json()), {"message": "rail 9 is none of 8"}]
    data = {EXPLORER_MIME: states_of(states), "text/plain": "Snapshot at rail = 1."}
    explored = new_code_cell("explore", outputs=[new_output("display_data", data=data)])
    page, _ = page_of(text("## First"), said(), text("## Rails?"), explored)
    is_absent = "No data for: Rails? (No rails here.)" in page.text
    assert is_absent is bool(first.layout.meta)
    assert is_absent is ("Rails?" not in [heading.text for heading in page.select("h2")])


def test_a_figure_of_data_is_never_taken_for_an_empty_one():
    page, _ = page_of(text("## A?"), said(), absent(), text("## B?"), figure(go.Figure()))
    assert "No data for" not in page.text


def test_findings_link_the_section_of_a_figure_in_a_fold():
    case = text("## Published cases, not your data", "published-case")
    _, facts = page_of(text("## First"), said("plot.first()"), case, said("plot.second()"))
    assert facts["sections"] == {"first": "First", "second": "Published-cases,-not-your-data"}


def test_the_line_is_the_one_that_a_notebook_shows():
    assert repr(load.missing("mine", "job logs")) == LINE
