"""The notebook of the fleet's timeline explains what a folder lacks, instead of failing."""

import shutil
from pathlib import Path

import nbformat
import pytest

from workbench import datasets
from workbench.share.bundle import title_of

NOTEBOOK = Path(__file__).resolve().parents[2] / "notebooks" / "07_fleet_timeline.ipynb"
DEMO = "fleet-demo"

pytestmark = pytest.mark.slow


@pytest.fixture
def run():
    """Run the cells on a folder; give their last values."""

    def cells(folder):
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
        first, *others = code
        names = {}
        exec(first, names)
        names |= {"data": str(folder), "tz": "UTC"}
        shown = []
        for source in others:
            *statements, last = source.split("\n")
            exec("\n".join(statements), names)
            shown.append(eval(last, names))
        return shown

    return cells


@pytest.fixture
def folder(tmp_path):
    """Copy some parts of the bundled job."""

    def copy(*parts):
        for part in parts:
            source = datasets.path(DEMO) / part
            copying = shutil.copytree if source.is_dir() else shutil.copy
            copying(source, tmp_path / part)
        return tmp_path

    return copy


def titles(shown):
    figures = [each for each in shown if hasattr(each, "to_plotly_json")]
    return [title_of(figure.to_plotly_json()) for figure in figures]


def test_all_there_is_gives_the_cost_of_the_incident(run, folder):
    said = titles(run(folder("power", "failures", "steps.jsonl")))
    assert said[-1].startswith("1 interruption cost 294 kJ")


def test_power_alone_shows_power_and_says_what_is_missing(run, folder):
    shown = run(folder("power"))
    assert "not there: job log, failures, traces" in repr(shown[1])
    said = titles(shown)
    assert "kW" in said[0]
    assert said[1].startswith("7 dips of power, 0 explained")
    assert said[2:] == [
        "No energy of steps to show",
        "No power within steps",
        "No energy to take apart",
        "No cost of incidents",
    ]


def test_without_power_the_time_of_incidents_is_still_told(run, folder):
    shown = run(folder("failures", "steps.jsonl"))
    assert "not there: power, traces" in repr(shown[1])
    assert titles(shown)[1:] == [
        "No dips of power",
        "No energy of steps to show",
        "No power within steps",
        "No energy to take apart",
        "No cost of incidents",
    ]
    assert "the job stood still for 57 s and repeated 19 steps" in repr(shown[2])


def test_without_failure_logs_the_cause_is_not_told(run, folder):
    folder("power")
    only_steps = datasets.path(DEMO) / "steps.jsonl"
    lines = [line for line in only_steps.read_text().splitlines() if '"step_time_ms"' in line]
    (folder() / "steps.csv").write_text(
        "step,attempt,end,duration_ms\n" + "\n".join(map(_as_row, lines)) + "\n"
    )
    shown = run(folder())
    assert "not there: failures, traces" in repr(shown[1])
    assert titles(shown)[-1].endswith("not told")


def _as_row(line):
    import json

    event = json.loads(line)
    return f"{event['step']},{event['attempt']},{event['time']},{event['step_time_ms']}"
