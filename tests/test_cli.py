"""The command is a thin skin: what it prints, what it exits with, and nothing else."""

import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from workbench import __version__, cli, datasets, load
from workbench.cli import _notebooks
from workbench.errors import PublishError
from workbench.tables import HARMLESS

EVENTS = [
    {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10, "dur": 5,
     "args": {"device": 0, "stream": 7, "correlation": 1}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
     "ts": 1, "dur": 2, "args": {"correlation": 1}},
]  # fmt: skip


@pytest.fixture
def run():
    """Run the command; give what it printed and its exit code."""
    runner = CliRunner()
    return lambda *words: runner.invoke(cli.app, [str(word) for word in words])


@pytest.fixture
def clean_trace(tmp_path):
    path = tmp_path / "rank0.pt.trace.json"
    about = {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1}}
    path.write_text(json.dumps({**about, "baseTimeNanoseconds": 0, "traceEvents": EVENTS}))
    return path


@pytest.fixture
def truncated_trace(clean_trace, tmp_path):
    path = tmp_path / "cut" / "rank1.pt.trace.json"
    path.parent.mkdir()
    text = clean_trace.read_text().replace('"rank": 0', '"rank": 1')
    path.write_text(text[: text.rindex('"ts"')])
    return path


@pytest.fixture
def no_trace(tmp_path):
    path = tmp_path / "notes.json"
    path.write_text("this is not a trace")
    return path


def commands(group, path=()):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands(get_command(cli.app)))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(run, path):
    result = run(*path, "--help")
    assert result.exit_code == 0
    assert f"workbench {' '.join(path)}" in result.stdout.split("Examples:")[1]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_examples_in_the_help_are_valid_calls(path):
    command = COMMANDS[path]
    for example in re.findall(r"^ +workbench (.*)$", command.help, re.MULTILINE):
        words = example.split(" > ")[0].split(" -- ")[0].split()[len(path) :]
        options = {name for each in command.params for name in each.opts}
        assert {word for word in words if word.startswith("--")} <= options


def test_help_lists_every_command_in_its_group_and_the_exit_codes(run):
    text = run("--help").stdout
    panels = dict(re.findall(r"^(\w+):\n((?:  .*\n)+)", text, re.MULTILINE))
    listed = {title: re.findall(r"^  (\w+) ", rows, re.MULTILINE) for title, rows in panels.items()}
    assert {title: names for title, names in listed.items() if title != "Options"} == {
        "Look": ["diagnose", "watch", "check", "lab"],
        "Compare": ["compare"],
        "Share": ["report", "share", "obfuscate"],
        "Data": ["convert", "record", "datasets"],
        "Develop": ["publish"],
    }
    assert "Exit codes: 0 all is well; 1" in text


@pytest.mark.parametrize("path", [(), *COMMANDS], ids=" ".join)
def test_help_fits_one_screen_and_cuts_no_description(run, path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = run(*path, "--help").stdout
    assert len(text.splitlines()) <= 40
    assert not re.search(r"\w\.\.\.$", text, re.MULTILINE)
    if not path:
        described = [
            COMMANDS[name,].help.splitlines()[0] for (name,) in (p for p in COMMANDS if len(p) == 1)
        ]
        assert [line for line in described if line not in text] == []


def test_version_is_the_one_of_the_package(run):
    result = run("--version")
    assert (result.exit_code, result.stdout.strip()) == (0, __version__)


@pytest.mark.parametrize("words", [["nonsense"], ["check"], ["lab", "--prot", "1"]])
def test_wrong_usage_exits_with_2(run, words):
    assert run(*words).exit_code == 2


def test_the_installed_command_starts():
    done = subprocess.run(
        [sys.executable, "-m", "workbench.cli", "--version"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == __version__


# --- check ------------------------------------------------------------------


def test_check_exits_with_0_for_a_clean_file(run, clean_trace):
    result = run("check", clean_trace)
    assert result.exit_code == 0, result.output
    path, *findings = result.stdout.splitlines()
    assert path == f"{clean_trace}: traces"
    assert [line[:6] for line in findings].count("  read") == 1


def test_check_exits_with_1_for_findings(run, truncated_trace):
    result = run("check", truncated_trace)
    assert result.exit_code == 1
    assert "\n! truncated " in result.stdout


def test_check_names_the_file_of_every_finding(run, clean_trace, truncated_trace):
    result = run("check", clean_trace.parent)
    heads = [line for line in result.stdout.splitlines() if line[0] not in " !"]
    assert heads == [f"{clean_trace}: traces", f"{truncated_trace}: traces"]


def test_check_exits_with_2_for_what_cannot_be_read_but_reads_the_rest(run, clean_trace, no_trace):
    result = run("check", no_trace, clean_trace)
    assert result.exit_code == 2
    assert str(no_trace) in result.stderr
    assert "Traceback" not in result.output
    assert str(clean_trace) in result.stdout


def test_check_exits_with_2_for_a_missing_file(run, tmp_path):
    result = run("check", tmp_path / "absent.json")
    assert result.exit_code == 2
    assert "absent.json" in result.stderr


@pytest.fixture
def power_log(tmp_path):
    path = tmp_path / "gpu.csv"
    rows = [f"2025/01/31 08:00:0{n}.000, 0, 7{n}.00 W" for n in range(3)]
    path.write_text("\n".join(["timestamp, index, power.draw [W]", *rows, ""]))
    return path


def test_check_reads_power_logs_in_the_zone_that_is_given(run, power_log):
    result = run("check", "--tz", "UTC", power_log)
    assert result.exit_code == 0, result.output
    assert "3  readings (nvidia-smi --query-gpu CSV)" in result.stdout


def test_check_asks_for_the_zone_of_logs_without_one(run, power_log):
    result = run("check", power_log)
    assert result.exit_code == 2
    assert "gpu.csv, line 2: '2025/01/31 08:00:00.000' has no time zone" in result.stderr
    assert "pass --tz UTC, or the zone in which the host wrote it" in result.stderr


def test_check_refuses_a_zone_that_is_none(run, power_log):
    result = run("check", "--tz", "Mars", power_log)
    assert result.exit_code == 2
    assert "tz must be a time zone" in result.stderr


def test_check_takes_the_unit_of_columns_that_name_none(run, tmp_path):
    path = tmp_path / "servers.csv"
    path.write_text("Time,10.0.0.1,10.0.0.2\n2023-05-15T00:00:00Z,1200,1300\n")
    asked = run("check", path)
    assert asked.exit_code == 2
    assert "pass --unit ('W', 'kW', 'MW' or 'mW')" in asked.stderr
    result = run("check", "--unit", "W", path)
    assert result.exit_code == 0, result.output
    assert "2  readings (table of power)" in result.stdout
    refused = run("check", "--unit", "horses", path)
    assert refused.exit_code == 2
    assert "'horses' is not one of 'W'" in refused.stderr


def test_check_reads_failure_logs_too(run):
    folder = datasets.path("fleet-demo") / "failures"
    result = run("check", "--tz", "UTC", folder)
    assert result.exit_code == 1
    assert "lines that report a failure" in result.stdout


def test_check_gives_json_with_the_findings_of_every_file(run, clean_trace, truncated_trace):
    result = run("check", "--json", clean_trace, truncated_trace)
    clean, cut = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (clean["path"], clean["error"]) == (str(clean_trace), None)
    assert {row["finding"] for row in clean["findings"]} <= set(HARMLESS)
    assert "truncated" in {row["finding"] for row in cut["findings"]}
    quality = load.quality(truncated_trace)
    assert [row["count"] for row in cut["findings"]] == quality["count"].tolist()


# --- convert ----------------------------------------------------------------


def test_convert_writes_a_file_that_loads_to_the_same_events(run, clean_trace, tmp_path):
    target = tmp_path / "trace.parquet"
    result = run("convert", clean_trace, target)
    assert result.exit_code == 0, result.output
    assert result.stdout.strip() == str(target)
    before, after = load.traces(clean_trace).events, load.traces(target).events
    assert after.astype(str).equals(before.astype(str))
    assert len(after) == len(EVENTS)


def test_convert_into_a_folder_writes_one_file_per_rank(run, clean_trace, tmp_path):
    for _ in range(2):
        result = run("convert", clean_trace, tmp_path / "ranks")
        assert result.exit_code == 0, result.output
        assert "1 ranks" in result.stderr
    assert sorted(path.name for path in (tmp_path / "ranks").iterdir()) == [
        "quality.csv", "rank00000.parquet",
    ]  # fmt: skip
    before, after = (load.traces(path).events for path in (clean_trace, tmp_path / "ranks"))
    assert after.astype(str).equals(before.astype(str))


def test_convert_refuses_a_target_that_is_no_parquet(run, clean_trace, tmp_path):
    result = run("convert", clean_trace, tmp_path / "trace.csv")
    assert result.exit_code == 2
    assert "must end in .parquet" in result.stderr


def test_convert_leaves_nothing_behind_for_a_file_it_cannot_read(run, no_trace, tmp_path):
    result = run("convert", no_trace, tmp_path / "trace.parquet")
    assert result.exit_code == 2
    assert not (tmp_path / "trace.parquet").exists()


# --- datasets ---------------------------------------------------------------


def test_datasets_list_names_every_set(run):
    text, listed = run("datasets", "list"), run("datasets", "list", "--json")
    rows = json.loads(listed.stdout)
    assert [row["dataset"] for row in rows] == datasets.names()
    assert all(row["licence"] and row["origin"] for row in rows)
    assert all(name in text.stdout for name in datasets.names())


def test_datasets_fetch_prints_the_folder(run):
    result = run("datasets", "fetch", "fleet-demo")
    assert result.stdout.strip() == str(datasets.path("fleet-demo"))
    named = json.loads(run("datasets", "fetch", "fleet-demo", "--json").stdout)
    assert named == {"fleet-demo": result.stdout.strip()}


def test_datasets_fetch_suggests_the_nearest_name(run):
    result = run("datasets", "fetch", "fleet-dem")
    assert result.exit_code == 2
    assert result.stderr.startswith("workbench: no data set is called 'fleet-dem'; did you mean")
    assert result.stdout == ""


def test_datasets_verify_exits_with_0_when_every_file_is_as_it_should_be(run):
    result = run("datasets", "verify", "fleet-demo", "--json")
    assert result.exit_code == 0
    assert {row["verdict"] for row in json.loads(result.stdout)} == {"ok"}


def test_datasets_verify_exits_with_1_for_a_changed_file(run, real_data, tmp_path, monkeypatch):
    folder = tmp_path / "kineto-dlrm-8rank"
    folder.mkdir()
    for path in real_data("kineto-dlrm-8rank").glob("*.tar.gz"):
        (folder / path.name).write_bytes(path.read_bytes())
    damaged = folder / "dlrm_kineto.tar.gz"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    monkeypatch.setenv(datasets.MIRROR_ENV, str(tmp_path))
    result = run("datasets", "verify", "kineto-dlrm-8rank")
    assert result.exit_code == 1
    assert re.search(r"dlrm_kineto.tar.gz .* changed", result.stdout)


# --- notebooks --------------------------------------------------------------


@pytest.fixture
def shared(monkeypatch):
    """Record what is asked of the share room instead of running notebooks."""
    from workbench import share

    calls = []
    monkeypatch.setattr(share, "report", lambda *a, **k: calls.append((a, k)) or k["out"])
    monkeypatch.setattr(share, "publish", lambda *a, **k: calls.append((a, k)) or "")
    return calls


def test_report_is_about_the_bundled_job_by_default(run, shared, tmp_path):
    result = run("report", "--out", tmp_path / "site")
    ((notebooks,), options) = shared[0]
    assert result.exit_code == 0
    assert result.stdout.strip() == str(tmp_path / "site")
    assert [path.name[:2] for path in notebooks] == ["00", "01", "03", "05", "06", "07", "08", "10"]
    assert (options["data"].name, options["parameters"]["tz"]) == ("fleet-demo", "UTC")


def test_report_runs_named_notebooks_as_they_are_published(run, shared, tmp_path):
    run("report", "01_traces.ipynb", "--out", tmp_path / "site")
    ((notebooks,), options) = shared[0]
    assert [path.name for path in notebooks] == ["01_traces.ipynb"]
    assert (options["data"], options["overview"]) == (None, None)


def test_report_passes_ones_own_data_on(run, shared, clean_trace, tmp_path):
    notebook = tmp_path / "mine.ipynb"
    run("report", notebook, "--data", clean_trace, "--out", tmp_path)
    ((notebooks,), options) = shared[0]
    assert (notebooks, options["data"]) == ([notebook], clean_trace)


@pytest.mark.parametrize(
    ("own", "pages"),
    [
        ("fleet-demo", ["00", "01", "03", "05", "06", "07", "08", "10"]),
        ("fleet-demo/power", ["06", "07"]),
        ("fleet-demo/traces", ["00", "01", "05", "08", "10"]),
        ("fleet-demo/failures", ["03"]),
        ("imbalance-demo/synthetic_job.parquet", ["02"]),
    ],
)
def test_report_takes_the_notebooks_that_fit_ones_own_data(run, shared, tmp_path, own, pages):
    path = datasets.choose(None, own).path
    run("report", "--data", path, "--out", tmp_path)
    ((notebooks,), _) = shared[0]
    assert [notebook.name[:2] for notebook in notebooks] == pages


def test_the_examples_of_report_work_as_they_are_printed(run, shared, tmp_path, monkeypatch):
    examples = re.findall(r"^ +workbench (report.*)$", run("report", "--help").stdout, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    copies = {
        "runs/monday": "fleet-demo/traces",
        "job.parquet": "imbalance-demo/synthetic_job.parquet",
        "var/log/kern.log": "fleet-demo/failures",
        "servers.csv": "fleet-demo/power",
    }
    for name, own in copies.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).symlink_to(datasets.choose(None, own).path.absolute())
    assert len(examples) >= 5
    for example in examples:
        result = run(*example.split())
        assert result.exit_code == 0, (example, result.output)
    pages = [page for (pages,), _ in shared for page in pages]
    assert {page.is_file() for page in pages} == {True}
    assert "01_traces.ipynb" in {page.name for (pages,), _ in shared for page in pages}


def test_report_refuses_data_that_does_not_exist(run, shared, tmp_path):
    result = run("report", "--data", tmp_path / "absent")
    assert result.exit_code == 2
    assert shared == []


def test_publish_exits_with_1_for_a_refused_notebook_and_does_the_rest(run, monkeypatch, tmp_path):
    from workbench import share

    def publish(notebook, *, check):
        if notebook.name == "bad.ipynb":
            msg = f"{notebook}, cell 3: NameError"
            raise PublishError(msg)
        return "-old\n+new" if notebook.name == "old.ipynb" else ""

    monkeypatch.setattr(share, "publish", publish)
    names = [tmp_path / name for name in ("bad.ipynb", "good.ipynb", "old.ipynb")]
    result = run("publish", "--check", *names)
    assert result.exit_code == 1
    assert "bad.ipynb, cell 3: NameError" in result.stderr
    assert "good.ipynb: up to date" in result.stdout
    assert "-old\n+new\n" in result.stdout
    assert "old.ipynb: out of date; publish it again" in result.stdout
    assert run("publish", "--check", names[1]).exit_code == 0
    assert run("publish", "--check", names[2]).exit_code == 1
    assert run("publish", names[2]).exit_code == 0


def test_publish_without_its_data_set_compares_and_changes_nothing(
    run, shared, tmp_path, monkeypatch
):
    monkeypatch.delenv(datasets.MIRROR_ENV, raising=False)
    monkeypatch.setenv(datasets.CACHE_ENV, str(tmp_path))
    words = ("publish", "--data-set", "kineto-dlrm-8rank", tmp_path / "mine.ipynb")
    compared, published = run(*words, "--check"), run(*words)
    assert compared.exit_code == 0
    assert compared.stdout.startswith(
        "nothing compared: kineto-dlrm-8rank is not downloaded; get it"
    )
    assert published.exit_code == 2
    assert published.stderr.startswith("workbench: nothing published: kineto-dlrm-8rank is not")
    assert shared == []


def test_publish_with_its_data_set_at_hand_goes_on(run, shared, tmp_path):
    assert run("publish", "--data-set", "fleet-demo", tmp_path / "mine.ipynb").exit_code == 0
    assert len(shared) == 1
    assert run("publish", "--data-set", "fleet-dem", tmp_path / "mine.ipynb").exit_code == 2


@pytest.fixture
def started(monkeypatch):
    """Record how JupyterLab would be started."""
    calls = []

    monkeypatch.setattr(_notebooks.os, "execve", lambda _, command, env: calls.append(command))
    return calls


def test_lab_opens_copies_so_that_running_one_changes_no_committed_file(
    run, started, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    result = run("lab", "--no-browser", "--port", 9000)
    ((program, *words),) = started
    assert result.exit_code == 0
    assert Path(words[2]).resolve() == tmp_path / "workbench-notebooks"
    assert [program, *words[:2]] == [sys.executable, "-m", "jupyterlab"]
    assert list(Path(words[2]).glob("01_*.ipynb"))
    assert {"--no-browser", "--port=9000"} <= set(words)


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Pretend that the package was installed with two notebooks."""
    folder = tmp_path / "site-packages" / "_notebooks"
    folder.mkdir(parents=True)
    for name in ("01_traces.ipynb", "02_other.ipynb"):
        tagged = nbformat.v4.new_code_cell(
            ["data = None  # yours\n", "n = 1"], metadata={"tags": ["parameters"]}
        )
        cells = [tagged, nbformat.v4.new_code_cell(["data = 1"])]
        (folder / name).write_text(json.dumps(nbformat.v4.new_notebook(cells=cells)))
    monkeypatch.chdir(tmp_path)
    # Signatures of these go to no user's folder.
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setattr(_notebooks, "notebooks_folder", lambda: folder)
    return folder


def test_lab_copies_the_notebooks_of_an_installed_package(run, started, installed, tmp_path):
    kept = tmp_path / "workbench-notebooks" / "01_traces.ipynb"
    kept.parent.mkdir()
    kept.write_text("mine")
    result = run("lab")
    assert kept.read_text() == "mine"
    assert "Copies kept in workbench-notebooks: 1; remove that folder" in result.stderr
    copy = kept.with_name("02_other.ipynb")
    assert copy.read_bytes() == (installed / "02_other.ipynb").read_bytes()
    assert "workbench-notebooks" in started[0]


@pytest.mark.usefixtures("started")
def test_links_of_copies_lead_to_files_within_the_folder_that_jupyterlab_opens(
    run, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    run("lab")
    folder = tmp_path / "workbench-notebooks"
    broken, count = [], 0
    for file in [*folder.glob("*.ipynb"), *folder.glob("docs/*.md")]:
        for link in re.findall(r"\]\((?![a-z]+:|#)([^)#]+)(?:#[^)]*)?\)", file.read_text()):
            count += 1
            target = (file.parent / link).resolve()
            if not (target.is_file() and target.is_relative_to(folder.resolve())):
                broken.append(f"{file.name}: {link}")
    assert broken == []
    assert count > 40


def test_lab_points_copies_at_ones_own_data(run, started, installed, clean_trace, tmp_path):
    before = {path: path.read_bytes() for path in installed.iterdir()}
    run("lab", "--data", clean_trace)
    copy = json.loads((tmp_path / "workbench-notebooks" / "01_traces.ipynb").read_text())
    parameters, other = ("".join(cell["source"]) for cell in copy["cells"])
    assert parameters == f"data = {str(clean_trace)!r}\nn = 1"
    assert other == "data = 1"
    assert "workbench-notebooks" in started[0]
    assert {path: path.read_bytes() for path in installed.iterdir()} == before


@pytest.mark.usefixtures("started")
def test_a_copy_pointed_at_ones_own_data_shows_no_other_until_it_ran_on_them(
    run, installed, clean_trace, tmp_path
):
    published = json.loads((installed / "01_traces.ipynb").read_text())
    published["cells"][1]["outputs"] = [
        nbformat.v4.new_output("stream", name="stdout", text="of rank 7")
    ]
    (installed / "01_traces.ipynb").write_text(json.dumps(published))
    copy = tmp_path / "workbench-notebooks" / "01_traces.ipynb"
    run("lab", "--data", clean_trace)
    assert "ank 7" not in copy.read_text()
    copy.write_text(copy.read_text().replace('"outputs": []', '"outputs": ["mine"]'))
    run("lab", "--data", clean_trace)
    assert "mine" in copy.read_text()
