"""Pictures of figures: the same bytes always, and a clear word where there can be none."""

import copy
import hashlib
import json
import subprocess
import sys
import textwrap

import numpy as np
import plotly.graph_objects as go
import pytest

from workbench.share import svg, svg_of

PROGRAM = """
import hashlib, json, sys
from workbench.share import svg_of
for figure in json.load(sys.stdin):
    print(hashlib.sha256(svg_of(figure).encode()).hexdigest())
"""


@pytest.fixture
def figures():
    """Kinds whose pictures hold random names of different sorts."""
    numbers = np.arange(12.0).reshape(3, 4)
    made = [
        go.Figure([go.Scatter(y=[1, 3, 2], name="a"), go.Scatter(y=[2, 1, 2], fill="tozeroy")]),
        go.Figure([go.Bar(y=[1, 2], marker_pattern_shape="/"), go.Bar(y=[2, 1])]),
        go.Figure(go.Heatmap(z=numbers), layout={"title": {"text": "heat"}, "height": 300}),
    ]
    return [json.loads(figure.to_json()) for figure in made]


@pytest.fixture
def fresh_start(monkeypatch):
    """Forget the running browser, so that the next picture looks for one again."""
    running = svg._browser
    monkeypatch.setattr(svg, "_browser", svg.functools.cache(running.__wrapped__))


@pytest.mark.browser
@pytest.mark.usefixtures("chromium")
def test_pictures_are_the_same_bytes_in_another_process(figures):
    here = [hashlib.sha256(svg_of(figure).encode()).hexdigest() for figure in figures]
    there = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        input=json.dumps(figures),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert there.stdout.split() == here
    assert there.stderr == ""


@pytest.mark.browser
@pytest.mark.usefixtures("chromium")
def test_a_picture_shows_the_figure_at_the_size_it_asks_for(figures):
    heat = svg_of(figures[2])
    assert heat.startswith("<svg")
    assert 'height="300"' in heat
    assert ">heat</text>" in heat


@pytest.mark.browser
@pytest.mark.usefixtures("chromium")
def test_drawing_leaves_the_figure_as_it_was(figures):
    before = copy.deepcopy(figures[0])
    svg_of(figures[0])
    assert figures[0] == before


@pytest.mark.usefixtures("fresh_start")
def test_without_a_browser_there_is_one_warning_that_says_what_to_install(monkeypatch, figures):
    monkeypatch.delenv("BROWSER_PATH", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(svg, "_PLACES", ())
    with pytest.warns(UserWarning, match="no Chrome or Chromium was found; install one"):
        assert svg_of(figures[0]) is None
    assert svg_of(figures[1]) is None  # a second warning would be an error here


@pytest.mark.usefixtures("fresh_start")
def test_a_wrong_browser_path_is_named(monkeypatch, figures, tmp_path):
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "nothing"))
    with pytest.warns(UserWarning, match="BROWSER_PATH names .*nothing, which is not a program"):
        assert svg_of(figures[0]) is None


@pytest.mark.long
@pytest.mark.usefixtures("fresh_start")
def test_a_browser_that_does_not_start_is_named(monkeypatch, figures, tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("BROWSER_PATH", str(broken))
    with pytest.warns(UserWarning, match="figures get no pictures: broken does not start"):
        assert svg_of(figures[0]) is None


@pytest.mark.usefixtures("fresh_start")
def test_without_kaleido_the_extra_is_named(monkeypatch, figures):
    monkeypatch.setitem(sys.modules, "kaleido", None)
    with pytest.warns(UserWarning, match=r"pip install 'ai-infra-workbench\[snapshot\]'"):
        assert svg_of(figures[0]) is None
