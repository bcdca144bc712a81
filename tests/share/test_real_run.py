"""A report of a notebook that really ran, with pictures of a real browser."""

import json

import pytest
from bs4 import BeautifulSoup

from workbench import share


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.usefixtures("chromium")
def test_a_real_run_hands_over_every_state_of_an_explorer(tmp_path, write_notebook, code):
    path = write_notebook(tmp_path / "01_real.ipynb", code.imports, code.figure, code.explorer)
    data = tmp_path / "abc"
    data.mkdir()
    index = share.report(path, out=tmp_path / "site", data=data, progress=False)
    page = BeautifulSoup((index.parent / "01_real.html").read_bytes(), "html.parser")
    states = json.loads(page.select_one(".wb-states script[type='application/json']").string)
    assert [len(numbers) for numbers in states["order"]] == [4, 2]
    still = page.select_one(".wb-still")
    assert still.img is None, "scripts draw the figure"
    assert still.p.text == "freq is 2, drawn as lines"
    assert "Snapshot at freq = 2, kind = lines." in still.text
    assert f"Rank {len(str(data))} comes last" in page.main.text


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.usefixtures("chromium")
def test_a_page_without_scripts_shows_pictures(tmp_path, write_notebook, code):
    path = write_notebook(tmp_path / "01_real.ipynb", code.imports, code.figure, code.explorer)
    index = share.report(path, out=tmp_path / "site", mode="static", progress=False)
    page = BeautifulSoup((index.parent / "01_real.html").read_bytes(), "html.parser")
    titles = [image["alt"] for image in page.main.select("img")]
    assert titles == ["Rank 7 comes last", "freq is 2, drawn as lines"]
    assert not page.select("script")
