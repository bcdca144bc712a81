"""Notebooks as they are written: the answer first, short cells, one finding each."""

import ast
import itertools
import re
import statistics
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))
BEGIN_WITH_FINDINGS = (
    "01_traces", "02_workload_imbalance", "03_goodput_under_failures", "04_pvf_fault_injection",
    "05_performance_model", "06_power", "07_fleet_timeline", "08_communication",
)  # fmt: skip
MOST_CELLS = 30
FORBIDDEN = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Lambda,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.Try,
)


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def code_of(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_there_are_notebooks_and_they_are_numbered():
    names = [path.name for path in NOTEBOOKS]
    assert {"00_start_here.ipynb", "01_traces.ipynb"} <= set(names)
    assert all(re.fullmatch(r"\d\d(_[a-z]+)+\.ipynb", name) for name in names)


def test_the_opening_asks_a_question_and_says_of_which_data(notebook):
    opening = notebook.cells[0]
    assert opening.cell_type == "markdown"
    assert re.match(r"# .+\?(<br>|\n)", opening.source.replace(",<br>", ", "))
    places = [opening.source.find(f"**{word}") for word in ("Question.", "Data.", "Runs")]
    assert -1 not in places
    assert places == sorted(places)


# The answers are computed: findings of the available data, before anything else is drawn.
@pytest.mark.parametrize("stem", BEGIN_WITH_FINDINGS)
def test_the_first_thing_shown_are_findings_of_the_data_at_hand(stem):
    (path,) = [path for path in NOTEBOOKS if path.stem == stem]
    cells = nbformat.read(path, as_version=4).cells
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    drawing = next(source for source in code if "plot." in source)
    assert "analyze.findings(" in drawing
    assert "plot.findings(" in drawing.splitlines()[-1]
    assert len(cells) <= MOST_CELLS
    published = [
        at for at, cell in enumerate(cells) if "published-case" in cell.metadata.get("tags", [])
    ]
    headings = [
        at for at, cell in enumerate(cells)
        if cell.cell_type == "markdown" and cell.source.startswith("## ")
    ]  # fmt: skip
    # Numbers of papers come last, in one section, before what to take away.
    assert published in ([], [headings[-2]])
    assert not published or cells[published[0]].source.startswith(
        "## Published cases, not your data"
    )


def test_there_is_one_title(notebook):
    markdown = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    titles = [line for source in markdown for line in source.splitlines() if line.startswith("# ")]
    assert len(titles) == 1


def test_the_data_can_be_chosen_and_the_first_cell_after_says_which(notebook):
    first, second = code_of(notebook)[:2]
    assert first.metadata.get("tags") == ["parameters"]
    # Names of the user's own data, and of what their files do not say.
    given = [line.partition("#")[0].strip() for line in first.source.splitlines()]
    assert given[0] == "data = None"
    names = ("tz", "year", "boot_time", "node", "unit", "window", "sweeps")
    said = {f"{name} = None" for name in names}
    assert set(given[1:]) <= said
    assert ast.unparse(ast.parse(second.source).body[-1]) == "chosen"


def nodes_of(cell, kinds):
    return [node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, kinds)]


def test_all_imports_are_in_one_cell(notebook):
    importing = [cell for cell in code_of(notebook) if nodes_of(cell, (ast.Import, ast.ImportFrom))]
    assert importing == [code_of(notebook)[1]]


def test_cells_are_short_and_define_nothing(notebook):
    for cell in code_of(notebook):
        assert nodes_of(cell, FORBIDDEN) == [], cell.source
    lengths = [len(cell.source.splitlines()) for cell in code_of(notebook)]
    assert max(lengths) <= 15
    assert statistics.median(lengths) <= 3


def test_a_static_figure_comes_before_every_control(notebook):
    calls = re.findall(r"\b(plot|explore)\.\w+\(", "\n".join(c.source for c in code_of(notebook)))
    assert "explore" in calls
    assert calls[0] == "plot"


def test_every_code_cell_is_introduced_by_words(notebook):
    kinds = [cell.cell_type for cell in notebook.cells]
    assert ("code", "code") not in itertools.pairwise(kinds)


def test_the_closing_says_what_is_not_covered(notebook):
    closing = notebook.cells[-1]
    assert closing.cell_type == "markdown"
    assert closing.source.startswith("## What to take away")
    assert "**Not covered" in closing.source


def test_links_between_notebooks_lead_somewhere(notebook):
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    linked = {name.partition("#")[0] for name in re.findall(r"\]\(([^):]+\.ipynb[^)]*)\)", text)}
    assert linked <= {path.name for path in NOTEBOOKS}
