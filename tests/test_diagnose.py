"""workbench diagnose: its answers, its forms of output, its exit codes, and hostile names."""

import json
import re
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


@pytest.mark.long
def test_the_bundled_job_gets_its_injected_faults_told(fleet_demo):
    shown = run(fleet_demo, "--tz", "UTC", "--top", 20, code=1).stdout
    assert "SYNTHETIC DATA" in shown
    for sentence in (
        "1 GPU fell off the bus: the job stood still for 57 s and repeated 19 steps",
        "Rank 6 delays the other 7: its compute kernels take longer",
        "Rank 3 delays the other 7: it waits for its data loader",
        "1 of 12 GPUs is capped by its power limit",
    ):
        assert sentence in shown
    assert max(map(len, shown.splitlines())) <= 110
    assert shown.index("1 GPU fell off the bus") < shown.index("Rank 6"), "ranked by cost"
    assert "the root cause of a hang" in shown, "a missing kind of data would add it"


@pytest.mark.parametrize(
    ("form", "words"),
    [("--top=1", "SYNTHETIC DATA"), ("--markdown", "**SYNTHETIC DATA"), ("--json", '"is_synthetic": true')],
)  # fmt: skip
def test_tables_that_were_simulated_are_called_so_in_every_form(
    form, words, imbalance_demo, tmp_path
):
    copy = shutil.copytree(imbalance_demo, tmp_path / "mine")
    assert words in run(copy, form, code=1).stdout


def test_data_that_no_rule_reads_are_no_clean_bill(tmp_path):
    """An execution trace is read, but has no GPU work: that is not a job without findings."""
    node = {"id": 2, "name": "aten::mm", "ctrl_deps": 1, "inputs": {}, "outputs": {}, "attrs": []}
    file = tmp_path / "rank0.json"
    file.write_text(json.dumps({"schema": "1.0.3-chakra.0.0.4", "pid": 1, "time": "", "start_ts": 1,
                                "nodes": [node]}))  # fmt: skip
    result = CliRunner().invoke(app, ["diagnose", str(file)])
    assert result.exit_code == 2, result.output
    assert "Nothing found" not in result.output


def test_traces_without_gpu_work_are_told_why_no_rule_ran(tmp_path):
    host = {"ph": "X", "pid": 1, "tid": 1, "ts": 1, "dur": 5}
    gloo = host | {"name": "gloo:all_reduce", "cat": "user_annotation"}
    for rank, rows in enumerate([[host | {"name": "aten::mm", "cat": "cpu_op"}, gloo], []]):
        (tmp_path / f"rank{rank}.json").write_text(json.dumps({"traceEvents": rows}))
    shown = " ".join(run(tmp_path, code=2).stdout.split())
    assert "no GPU work, events of the host only; record the trace with GPU activities" in shown
    assert "collectives on the CPU (gloo, MPI or UCC), whose waits are not computed" in shown
    assert "no event with a duration: the profiler was not recording" in shown


@pytest.mark.long
def test_scripts_get_the_same_findings_as_json(fleet_demo):
    answer = json.loads(run(fleet_demo / "traces", "--json", code=1).stdout)
    assert {row["rule"] for row in answer["findings"]} >= {"straggler", "exposed_communication"}
    assert {row["state"] for row in answer["rules"]} >= {"found", "nothing", "no data"}
    assert len(answer["files"]) == 8


@pytest.mark.long
def test_small_costs_are_left_out_when_told_so(fleet_demo):
    answer = json.loads(run(fleet_demo / "traces", "--json", "--min-cost", "10", code=1).stdout)
    shares = [row["time_share"] for row in answer["findings"]]
    assert min(share for share in shares if share is not None) >= 0.10


@pytest.mark.long
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


@pytest.mark.long
def test_a_kind_that_needs_an_option_does_not_stop_the_others(fleet_demo, tmp_path):
    shutil.copytree(fleet_demo / "traces", tmp_path / "traces")
    (tmp_path / "gpu.csv").write_text(
        "timestamp, index, power.draw [W]\n2026/01/12 08:00:00.000, 0, 500.00 W\n"
        "2026/01/12 08:00:01.000, 0, 500.00 W\n"
    )
    result = run(tmp_path, code=2)
    assert "Rank 6" in result.stdout
    assert "error: no file could be read of the power logs" in result.stderr
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
    assert same.stdout.startswith("equal in all 29 quantities: step 286 -> 286 ms")
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


def compare(*arguments, code):
    result = CliRunner().invoke(app, ["compare", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def job_of(folder, durations_s, *, day=12):
    """Write a job log with one line per finished step."""
    folder.mkdir(parents=True)
    end = pd.Timestamp(f"2026-01-{day:02}T00:00:00Z")
    lines = []
    for step, length in enumerate(durations_s):
        end += pd.Timedelta(seconds=length)
        lines.append({"time": end.isoformat(), "event": "step", "step": step,
                      "step_time_ms": 1000 * length})  # fmt: skip
    (folder / "steps.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    return folder


@pytest.mark.long
def test_two_halves_of_a_run_make_a_page_without_network(fleet_demo, tmp_path):
    page = tmp_path / "compare.html"
    compare(fleet_demo, "--tz", "UTC", "--halves", "--html", page, code=2)
    text = page.read_text()
    assert "Synthetic data." in text
    assert "second half" in text
    assert "<script" not in text
    assert not re.findall(r"(?:src|href)=", text)


@pytest.mark.long
def test_a_folder_of_runs_names_the_first_slow_one(tmp_path):
    for night in range(8):
        length = 1.0 if night < 6 else 1.1
        steps = [length + 0.001 * ((7 * n + night) % 5) for n in range(20)]
        job_of(tmp_path / "runs" / f"night{night}", steps, day=night + 1)
    page = tmp_path / "trend.html"
    answer = json.loads(compare(tmp_path / "runs", "--json", "--html", page, code=1).stdout)
    row = answer["changes"][0]
    assert (row["first_run"], row["verdict"]) == ("night6", "changed")
    assert row["difference"] == pytest.approx(100, abs=2)
    assert [row["run"] for row in answer["runs"]] == [f"night{n}" for n in range(8)]
    assert "Slower from night6 on by 9.98 %: step 1,002 -&gt; 1,102 ms" in page.read_text()
    shown = compare(tmp_path / "runs", code=1).stdout
    assert "step time from night6 on" in shown


def test_one_run_alone_says_how_to_compare(fleet_demo, tmp_path):
    folder = job_of(tmp_path / "run", [1.0] * 5)
    assert "--halves" in compare(folder, code=2).stderr
    assert "not 2 runs" in compare(folder, folder, "--halves", code=2).stderr


def test_hostile_names_of_runs_and_kernels_are_escaped_on_the_page(tmp_path):
    runs = [job_of(tmp_path / f"<img src=x>{n}", [1.0, 1.01] * 10, day=n + 1) for n in (0, 1)]
    page = tmp_path / "compare.html"
    compare(*runs, "--html", page, code=0)
    assert "<img" not in page.read_text()
