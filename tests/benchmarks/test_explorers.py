"""The benchmark of explorers moves every control of every explorer of a notebook."""

import json

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from benchmarks import explorers

SHOWN = "from workbench import explore\nexplore.goodput()"


@pytest.mark.slow
def test_the_benchmark_runs_and_writes_its_table(tmp_path, capsys):
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = tmp_path / "one.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell(SHOWN)], metadata=kernel), notebook)
    assert explorers.main([str(notebook), "--moves", "2", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "explorers.md").read_text() in capsys.readouterr().out
    (row,) = json.loads((tmp_path / "explorers.json").read_text())["rows"]
    assert row["what"] == "one: goodput"
    assert row["ratio"] > 0
    # Two moves of each control.
    assert int(row["note"].split()[-2]) >= 10
