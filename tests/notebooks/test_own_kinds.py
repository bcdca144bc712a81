"""Pages take their own kinds of data, and one's own folder whatever its name, by what they are."""

import ast
from pathlib import Path

import nbformat
import pandas as pd
import pytest

from tests.analyze.imbalance.jobs import test_traced

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


def code_of(stem):
    cells = nbformat.read(NOTEBOOKS / f"{stem}.ipynb", as_version=4).cells
    return [cell.source for cell in cells if cell.cell_type == "code"]


@pytest.mark.slow
def test_a_table_of_failures_fills_the_same_page_as_a_log_of_them(tmp_path):
    rows = [f"2026-03-0{day} 10:00,gpu-{day % 3},link flap,network\n" for day in range(1, 8)]
    (tmp_path / "own.csv").write_text("time,node,cause,category\n" + "".join(rows))
    parameters, first, *others = code_of("03_goodput_under_failures")
    names = {}
    for source in (parameters, f"data, tz = {str(tmp_path)!r}, 'UTC'", first):
        exec(source, names)
    assert names["chosen"].is_own
    origins = []
    for source in others:
        *before, last = ast.parse(source).body
        if not names.keys() & {"log", "SAID"} and "SAID = " not in source:
            continue  # of no data; the logs come after it
        exec(compile(ast.Module(before, []), "cell", "exec"), names)
        if "flight_" in source or "DUMPS" in source or "fidelity" in source:
            continue
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        figure = value.figure() if hasattr(value, "controls") else value
        if hasattr(figure, "to_plotly_json"):
            origins.append(figure.to_plotly_json()["layout"]["meta"]["origin"])
    assert len(names["log"].failures) == 7
    assert origins == ["own"] * 5


@pytest.mark.slow
def test_the_page_of_jobs_takes_traces_of_a_pipeline(tmp_path):
    test_traced.traced(test_traced.job({"slow worker": 1.8}), tmp_path)
    parameters, load_job, load_lengths, findings, slowdown, *_ = code_of("02_workload_imbalance")
    names = {}
    for source in (parameters, f"data = {str(tmp_path)!r}", load_job, load_lengths):
        exec(source, names)
    assert (names["chosen"].is_own, names["documents"].is_absent) == (True, True)
    *before, last = ast.parse(findings).body
    exec(compile(ast.Module(before, []), "cell", "exec"), names)
    shown = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    assert "slow workers" in repr(shown)
    exec(slowdown, names)
    assert names["slowdown"]["verdict"].tolist() == ["worker"]


@pytest.mark.parametrize(("stem", "name"), [("06_power", "log"), ("07_fleet_timeline", "fleet")])
def test_ones_own_folder_may_be_named_like_the_bundled_one(tmp_path, stem, name):
    folder = tmp_path / "fleet-demo"
    folder.mkdir()
    rows = [f"2026-03-01 08:00:0{second},777\n" for second in range(9)]
    (folder / "power.csv").write_text("time,power_w\n" + "".join(rows))
    parameters, *others = code_of(stem)
    names = {}
    exec(parameters, names)
    names |= {"data": str(folder), "tz": "America/New_York", "node": "gpu-a"}
    for source in others:
        if name not in names:
            exec(source, names)
    first = names[name].power.power["time_ns"].min()
    assert pd.Timestamp(first, tz="UTC") == pd.Timestamp("2026-03-01 08:00", tz="America/New_York")
