"""Failures, interruptions and modes of a static site."""

import html
import json
import re
import shutil
import sys

import nbformat
import pytest
from nbconvert.exporters import get_exporter
from nbformat.v4 import new_output

from tests.share.conftest import draw_as
from tests.share.test_report import HOSTILE, STATES, failed, figure_of, shown, site_of, soup_of
from workbench import share
from workbench.errors import PublishError
from workbench.share import _snapshot
from workbench.share.bundle import EXPLORER_MIME, PLOTLY_MIME
from workbench.share.report import ReportExporter


def test_a_step_that_fails_is_told_and_the_others_are_shown(run, notebook, tmp_path):
    run["figure"] = [shown(figure_of("late"))]
    run["table"] = [failed("WorkbenchError", "one rank only: nobody waits")]
    run["other"] = [failed("NameError", "name 'waits' is not defined")]
    site = site_of(share.report(notebook, out=tmp_path / "site"))
    first, second = soup_of(site, "01_waits.html").select(".wb-problem")
    assert "could not be computed" in first.text
    assert "one rank only: nobody waits" in first.text
    assert "needs the result of an earlier one" in second.text
    assert "2 of its steps could not be computed" in soup_of(site, "index.html").text


def test_a_notebook_that_shows_nothing_for_its_failures_leaves_the_earlier_report(
    run, notebook, tmp_path
):
    run["figure"] = [shown(figure_of("late"))]
    index = share.report(notebook, out=tmp_path / "site")
    before = index.read_bytes()
    run["figure"] = [failed("LoadError", "\x1b[31mno trace\x1b[0m in this folder")]
    with pytest.raises(PublishError, match="cell 3: LoadError: no trace in this folder"):
        share.report(notebook, out=tmp_path / "site")
    assert index.read_bytes() == before


@pytest.mark.long
def test_ctrl_c_ends_a_report_of_several_notebooks_with_no_traceback_but_its_own(
    tmp_path, write_notebook, waiting, interrupted
):
    # The first kernel works, the second may still be starting, the third waits for its turn.
    paths = [str(write_notebook(tmp_path / f"{name}.ipynb", waiting)) for name in "abc"]
    site = str(tmp_path / "site")
    _, errors = interrupted(f"from workbench import share; share.report({paths!r}, out={site!r})")
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1
    assert "never awaited" not in errors
    assert "atexit" not in errors
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("at", ["running", "writing"])
def test_an_interrupted_report_leaves_no_half_of_a_site(run, notebook, tmp_path, monkeypatch, at):
    run["figure"] = [shown(figure_of("late"))]
    if at == "running":
        run["table"] = KeyboardInterrupt()
    else:

        def interrupt(*_arguments):
            raise KeyboardInterrupt

        monkeypatch.setattr("workbench.share._exporter.ReportExporter.write_assets", interrupt)
    with pytest.raises(KeyboardInterrupt):
        share.report(notebook, out=tmp_path / "deep" / "site")
    assert not (tmp_path / "deep" / "site").exists()
    assert not list((tmp_path / "deep").glob("*")) if (tmp_path / "deep").exists() else True


def test_a_report_replaces_a_report_and_nothing_else(run, notebook, tmp_path):
    run["figure"] = [shown(figure_of("late"))]
    index = share.report(notebook, out=tmp_path / "site")
    (index.parent / "old.html").write_text("old")
    share.report(notebook, out=tmp_path / "site")
    assert not (index.parent / "old.html").exists()
    shutil.rmtree(index.parent)
    index.parent.mkdir()
    (index.parent / "thesis.txt").write_text("ten years of work")
    with pytest.raises(PublishError, match="site exists and is not an earlier report"):
        share.report(notebook, out=tmp_path / "site")
    assert (index.parent / "thesis.txt").read_text() == "ten years of work"
    assert {entry.name for entry in tmp_path.iterdir()} == {"01_waits.ipynb", "site"}


def test_a_static_report_has_no_script_at_all(run, notebook, tmp_path):
    run["figure"] = [
        shown(figure_of("late")),
        new_output("display_data", data={EXPLORER_MIME: STATES, "text/html": "<figure></figure>"}),
    ]
    site = site_of(share.report(notebook, out=tmp_path / "site", mode="static"))
    assert not (site / "assets").exists()
    for name in ("index.html", "01_waits.html"):
        assert soup_of(site, name).select("script") == []
    assert soup_of(site, "01_waits.html").select("img[src^='data:image/svg+xml']")


def test_without_a_browser_pages_have_titles_instead_of_pictures(
    run, notebook, tmp_path, monkeypatch
):
    run["figure"] = [shown(figure_of("Rank 7 comes last"))]
    draw_as(monkeypatch, None)
    site = site_of(share.report(notebook, out=tmp_path / "site", mode="static"))
    figure = soup_of(site, "01_waits.html").select_one(".wb-figure")
    assert figure.img is None
    assert figure.p.text == "Rank 7 comes last"


def test_pages_with_scripts_draw_no_pictures_and_say_how_to_get_them(
    run, notebook, tmp_path, monkeypatch
):
    def refuse(_figure):
        raise AssertionError

    monkeypatch.setattr(sys.modules["workbench.share.report"], "svg_of", refuse)
    monkeypatch.setattr(sys.modules["workbench.share._exporter"], "svg_of", refuse)
    run["figure"] = [shown(figure_of("late"))]
    page = soup_of(site_of(share.report(notebook, out=tmp_path / "site")), "01_waits.html")
    assert page.select("img") == []
    assert "workbench report --mode static" in page.select_one(".wb-unscripted").text
    run["figure"] = []
    page = soup_of(site_of(share.report(notebook, out=tmp_path / "site")), "01_waits.html")
    assert page.select_one(".wb-unscripted") is None


def test_controls_without_states_give_way_to_their_figure_where_scripts_run(
    run, notebook, tmp_path
):
    figure = figure_of("as it stands")
    models = {
        "box": {"model_name": "VBoxModel", "state": {"children": ["IPY_MODEL_out"]}},
        "out": {
            "model_name": "OutputModel",
            "state": {"outputs": [shown(figure)]},
        },
    }
    node = nbformat.read(notebook, as_version=4)
    node.metadata["widgets"] = {_snapshot.STATE_MIME: {"state": models}}
    nbformat.write(node, notebook)
    view = {_snapshot.VIEW_MIME: {"model_id": "box"}, "text/plain": "VBox()"}
    run["figure"] = [new_output("display_data", data=view)]
    page = soup_of(site_of(share.report(notebook, out=tmp_path / "site")), "01_waits.html")
    block = page.select_one(".wb-figure script[type='application/json']")
    assert json.loads(block.string)["data"] == figure["data"]


@pytest.mark.parametrize(
    ("notebooks", "options", "message"),
    [
        ([], {}, "no notebooks given"),
        (["a/x.ipynb", "b/x.ipynb"], {}, r"more than one page would be called x\.html"),
        (["index.ipynb"], {}, r"more than one page would be called index\.html"),
        (["none.ipynb"], {}, "there is no such notebook"),
        (["01_waits.ipynb"], {"data": "nowhere"}, "nowhere: there is no such file or folder"),
        (["plain.ipynb"], {"data": "."}, r"none of plain\.ipynb has a cell tagged 'parameters'"),
    ],
)
@pytest.mark.usefixtures("run", "notebook")
def test_what_cannot_become_a_report_is_refused(
    tmp_path, write_notebook, monkeypatch, notebooks, options, message
):
    monkeypatch.chdir(tmp_path)
    write_notebook(tmp_path / "plain.ipynb", parameters="")
    with pytest.raises(PublishError, match=message):
        share.report(notebooks, out="site", **options)
    assert not (tmp_path / "site").exists()


def test_an_unknown_mode_is_refused(notebook, tmp_path):
    with pytest.raises(ValueError, match="mode is 'cdn', must be 'offline' or 'static'"):
        share.report(notebook, out=tmp_path / "site", mode="cdn")


@pytest.mark.usefixtures("run")
def test_nbconvert_knows_the_exporter_and_its_page_stands_alone(notebook):
    assert get_exporter("wbreport") is ReportExporter
    node = nbformat.read(notebook, as_version=4)
    node.cells[2].outputs = [nbformat.from_dict(shown(figure_of(HOSTILE)))]
    body, _ = ReportExporter().from_notebook_node(node)
    assert "plotly.js v" in body
    assert not re.search(r"<(script|link|img)[^>]*(src|href)=\"(?!data:)", body)
    assert html.escape(HOSTILE) in body
    assert "header nav" not in body
    assert node.cells[2].outputs[0].data.keys() == {PLOTLY_MIME}
