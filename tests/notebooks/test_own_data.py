"""On somebody's own data nothing of other data is shown as theirs: no text, no model, no figure."""

import ast
import copy
import re

import nbformat
import pytest

from tests.notebooks.conftest import NOTEBOOKS
from tests.notebooks.own_data import MAKERS
from tests.notebooks.shown import figure_of, sections, values_on
from workbench.load.kinds import KINDS
from workbench.share import _prose

_WORDS = (
    "two three four five six seven eight nine ten dozen hundred thousand million half halves third "
    "thirds quarter quarters fifths sixths tenth tenths twentieth twice thrice double doubled"
)
NUMBER = re.compile(rf"\d+(?:[.,]\d+)*|\b(?:{'|'.join(_WORDS.split())})\b", re.IGNORECASE)
# Numbers of a method, a setting or a format: they are the same whatever the data is.
METHOD = {
    "00_start_here": ("Four names are all you need", "times are int64"),
    "01_traces": (),
    "02_workload_imbalance": (
        "The job is replayed twice",
        "call for three different people",
        "An assumed job: sequences of 128K tokens, four micro-batches",
        "what 95 % of the batches stay below",
    ),
    "03_goodput_under_failures": ("per 1,000 node-days",),
    "04_pvf_fault_injection": ("on one half of the faults",),
    "05_performance_model": (
        "hence two measures",
        "below 90 % there is none",
    ),
    "06_power": ("half the rate of its readings",),
    "07_fleet_timeline": ("the time between two readings", "longer than two seconds"),
    "08_communication": (),
    "09_planning": (),
    "10_model": (),
}


def shown_text(notebook):
    """Give the text that stands over somebody's own data, without code and names of files."""
    fitted = copy.deepcopy(notebook)
    _prose.drop_answer(fitted)
    for cell, is_case in sections(fitted):
        if cell.cell_type == "markdown" and not is_case:
            text = re.sub(
                r"```.*?```|`[^`]*`|\[[^]]*\]\([^)]*\)", " ", cell.source, flags=re.DOTALL
            )
            yield re.sub(r"\*\*Data\.\*\*.*", "", text, flags=re.DOTALL)


def test_no_number_in_the_text_is_of_other_data(path, notebook):
    known = "|".join(map(re.escape, METHOD[path.stem])) or "(?!)"
    for text in shown_text(notebook):
        assert NUMBER.findall(re.sub(known, "", text)) == [], text


def test_the_list_of_numbers_that_are_the_method_holds_nothing_else(path, notebook):
    whole = "\n".join(shown_text(notebook))
    unused = [said for said in METHOD[path.stem] if said not in whole]
    assert unused == []


def names_in(tree, kind):
    return {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, kind)
    }


def test_no_model_or_number_of_a_published_case_reaches_ones_own_data(notebook):
    own, cases = {"data", "tz", "year", "unit"}, set()
    for cell, is_case in sections(notebook):
        if cell.cell_type != "code":
            continue
        for statement in ast.parse(cell.source).body:
            read, written = names_in(statement, ast.Load), names_in(statement, ast.Store)
            if is_case:
                assert not read & own, f"a published case reads one's own data: {read & own}"
                cases |= written
            else:
                assert not read & cases, f"own data meet a published case: {read & cases}"
                own |= written if read & own else set()


@pytest.fixture
def made(tmp_path):
    """Make small files of a kind that notebooks take."""

    def make(kind):
        folder = tmp_path / "own"
        folder.mkdir()
        return MAKERS[kind](folder)

    return make


def figures_on(notebook, place, options):
    """Run the cells on one's own data; give the figures they show."""
    shown = map(figure_of, values_on(notebook, place, options))
    return [figure for figure in shown if figure is not None]


ROUTES = [
    (path, name)
    for path in NOTEBOOKS
    for name in dict.fromkeys(kind.name for kind in KINDS if path.stem in kind.notebooks)
    if name in MAKERS
]


def test_every_notebook_that_takes_files_is_tried_with_some():
    taking = {name for kind in KINDS for name in kind.notebooks}
    assert {path.stem for path, _ in ROUTES} == taking


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "kind"), ROUTES, ids=[f"{path.stem[:2]} {kind}" for path, kind in ROUTES]
)
def test_a_figure_says_that_it_shows_ones_own_data_or_whose_it_shows(path, kind, made):
    place, options = made(kind)
    figures = figures_on(nbformat.read(path, as_version=4), place, options)
    metas = [figure["layout"]["meta"] for figure in figures]
    own = [meta for meta in metas if meta["origin"] == "own"]
    assert len(own) >= 2
    assert not any(meta["synthetic"] for meta in own)
    # Steps for which one has no files show the bundled or a public set, and name it.
    names = (
        "demo",
        "lengths-documents",
        "flight-recorder",
        "stragglers-bytedance",
        "local-training",
        "compressed-exchange",
        "closed form",
        "statistical twin",
        "generated loads",
        "simulated server",
    )
    for meta in metas:
        assert meta in own or any(name in meta["source"] for name in names), meta


@pytest.mark.slow
def test_the_step_that_is_shown_was_recorded_whole(made):
    (path,) = (path for path in NOTEBOOKS if path.stem.startswith("02"))
    shown = figures_on(nbformat.read(path, as_version=4), *made("job operations"))
    claims = [figure["layout"]["meta"]["claim"] for figure in shown]
    assert [claim for claim in claims if re.match("Step [14] of rank", claim)], claims
