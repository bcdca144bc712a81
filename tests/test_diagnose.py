"""workbench diagnose: its answers, its forms of output, its exit codes, and hostile names."""

import json
import shutil
import sys

import pandas as pd
import pytest
from typer.testing import CliRunner

from workbench.cli import app


def run(*arguments, code):
    result = CliRunner().invoke(app, ["diagnose", *map(str, arguments)], env={"COLUMNS": "100"})
    assert result.exit_code == code, result.output
    return result


def test_the_bundled_job_gets_its_injected_faults_told(fleet_demo):
    shown = run(fleet_demo, "--tz", "UTC", code=1).stdout
    assert "SYNTHETIC DATA" in shown
    for sentence in (
        "GPU has fallen off the bus: the job stood still for 57 s and repeated 19 steps",
        "Rank 6 holds up the other 7: its compute kernels take longer",
        "Rank 3 holds up the other 7: it waits for its data loader",
        "are capped by their power limit",
    ):
        assert sentence in shown
    assert max(map(len, shown.splitlines())) <= 110
    assert shown.index("GPU has fallen off the bus") < shown.index("Rank 6"), "ranked by cost"
    assert "the root cause of a hang" in shown, "a missing kind of data would add it"


def test_scripts_get_the_same_findings_as_json(fleet_demo):
    answer = json.loads(run(fleet_demo / "traces", "--json", code=1).stdout)
    assert {row["rule"] for row in answer["findings"]} >= {"straggler", "exposed_communication"}
    assert {row["state"] for row in answer["rules"]} >= {"found", "nothing", "no data"}
    assert len(answer["files"]) == 8


def test_small_costs_are_left_out_when_told_so(fleet_demo):
    answer = json.loads(run(fleet_demo / "traces", "--json", "--min-cost", "10", code=1).stdout)
    shares = [row["time_share"] for row in answer["findings"]]
    assert min(share for share in shares if share is not None) >= 0.10


def test_every_table_behind_the_findings_is_written(fleet_demo, tmp_path):
    run(fleet_demo / "traces", "--csv", tmp_path / "tables", code=1)
    names = {file.stem for file in (tmp_path / "tables").iterdir()}
    assert {"findings", "rules", "traces.late", "traces.idle"} <= names
    late = pd.read_csv(tmp_path / "tables" / "traces.late.csv")
    assert late["wait_ns"].sum() > 0


def test_a_job_without_trouble_ends_with_0(tmp_path):
    file = tmp_path / "lengths.txt"
    file.write_text("\n".join(["512"] * 60_000))
    assert "Nothing found" in run(file, code=0).stdout


def test_nothing_to_read_is_an_error(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    assert "unrecognized" in run(tmp_path, code=2).stderr.replace("\n", " ")


def test_a_kind_that_needs_an_option_does_not_stop_the_others(fleet_demo, tmp_path):
    shutil.copytree(fleet_demo / "traces", tmp_path / "traces")
    (tmp_path / "gpu.csv").write_text(
        "timestamp, index, power.draw [W]\n2026/01/12 08:00:00.000, 0, 500.00 W\n"
        "2026/01/12 08:00:01.000, 0, 500.00 W\n"
    )
    result = run(tmp_path, code=1)
    assert "Rank 6" in result.stdout
    assert "not read: " in result.stderr
    assert "--tz" in result.stderr


@pytest.mark.parametrize("form", ["--markdown", "--json", "--top=10"])
def test_hostile_names_are_escaped(form, tmp_path):
    name = "\x1b[31mnode|<script>`"
    rows = [
        {"node": name, "time": f"2026-01-{day:02}T00:00:00Z", "cause": f"bad {name}"}
        for day in range(1, 20)
    ]
    file = tmp_path / "failures.csv"
    pd.DataFrame(rows).to_csv(file, index=False)
    shown = run(file, form, code=1).stdout
    assert "\x1b" not in shown
    if form == "--markdown":
        assert "<script>" not in shown.replace("\\<script\\>", "")


def test_a_workbook_without_its_package_names_the_package(fleet_demo, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    result = run(fleet_demo / "traces", "--xlsx", tmp_path / "all.xlsx", code=2)
    assert "pip install openpyxl" in result.stderr


def test_two_runs_are_compared(fleet_demo, tmp_path):
    traces = fleet_demo / "traces"
    arguments = ["compare", str(traces), str(traces), "--csv", str(tmp_path / "all.csv")]
    same = CliRunner().invoke(app, arguments)
    assert same.exit_code == 0, same.output
    assert same.stdout.startswith("0 of ")
    assert set(pd.read_csv(tmp_path / "all.csv")["verdict"]) == {"not resolvable"}


@pytest.mark.oracle
def test_two_real_runs_that_are_not_alike_say_so(real_data):
    folder = real_data("kineto-hta") / "trace_diff"
    names = [str(folder / name) for name in ("control", "test")]
    answer = CliRunner().invoke(app, ["compare", *names, "--json"])
    assert answer.exit_code == 1, answer.output
    table = json.loads(answer.stdout)
    assert any("A100" in text and "V100" in text for text in table["warnings"])
    changed = {row["name"] for row in table["rows"] if row["verdict"] == "changed"}
    assert {"compute", "Memcpy DtoD"} <= changed
    assert any("kernels that A does not call" in text for text in table["warnings"])
    # Its copies are long in two of five steps: too few to tell from chance.
    assert "exposed copies" not in changed
