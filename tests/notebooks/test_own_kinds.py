"""Pages take their own kinds of data, and one's own folder whatever its name, by what they are."""

from pathlib import Path

import nbformat
import pandas as pd
import pytest

from tests.analyze.imbalance.jobs import test_traced
from tests.notebooks.shown import figure_of, text_of, values_on
from workbench import plot
from workbench.load.missing_data import Missing

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


def code_of(stem):
    cells = nbformat.read(NOTEBOOKS / f"{stem}.ipynb", as_version=4).cells
    return [cell.source for cell in cells if cell.cell_type == "code"]


@pytest.mark.slow
def test_a_table_of_failures_fills_the_same_page_as_a_log_of_them(tmp_path):
    rows = [f"2026-03-0{day} 10:00,gpu-{day % 3},link flap,network\n" for day in range(1, 8)]
    (tmp_path / "own.csv").write_text("time,node,cause,category\n" + "".join(rows))
    notebook = nbformat.read(NOTEBOOKS / "03_goodput_under_failures.ipynb", as_version=4)
    shown = list(values_on(notebook, tmp_path / "own.csv", {"tz": "UTC"}))
    figures = [figure for figure in map(figure_of, shown) if figure is not None]
    assert [figure["layout"]["meta"]["origin"] for figure in figures] == ["own"] * 6
    (inputs,) = [value for value in shown if isinstance(value, pd.DataFrame) and "basis" in value]
    assert inputs.set_index("quantity").loc["failure_interval_min", "sample_count"] == 7
    # The table names no recovery, and no dumps are beside it: one line each says so.
    lines = [text_of(value) for value in shown if isinstance(value, Missing)]
    assert [line.split(".")[0] for line in lines] == [
        "**No flight-recorder dumps in own", "**No job sizes in own",
    ]  # fmt: skip


@pytest.mark.slow
def test_the_page_of_jobs_takes_traces_of_a_pipeline(tmp_path):
    test_traced.traced(test_traced.job({"slow worker": 1.8}), tmp_path)
    notebook = nbformat.read(NOTEBOOKS / "02_workload_imbalance.ipynb", as_version=4)
    shown = list(values_on(notebook, tmp_path, {}))
    assert [text_of(value).split(" in ")[0] for value in shown if isinstance(value, Missing)] == [
        "**No document lengths"
    ]
    (cards,) = [value for value in shown if isinstance(value, plot.FindingCards)]
    assert "slow workers" in repr(cards)
    origins = {figure["layout"]["meta"]["origin"] for figure in map(figure_of, shown) if figure}
    assert origins == {"own"}


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
