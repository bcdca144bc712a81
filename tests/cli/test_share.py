"""``workbench share`` on a report of the bundled job: whose names are known."""

import json
import re

import pytest
from typer.testing import CliRunner

from workbench import datasets, load
from workbench.cli import app
from workbench.cli._overview import first_page
from workbench.cli._share import names_in

OPTIONS = {
    "tz": "UTC",
    "year": None,
    "boot_time": None,
    "node": re.compile(r"node\d+"),
    "unit": None,
}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "_report"
    folder.mkdir()
    made = first_page(datasets.path("fleet-demo"), OPTIONS, [], folder)
    (folder / ".workbench-report").write_text("")
    (folder / "index.html").write_text(f"<title>{made.title}</title>{made.html}", encoding="utf-8")
    return folder


def run(*args):
    return CliRunner().invoke(app, ["share", *map(str, args)])


@pytest.mark.long
def test_the_hosts_of_the_data_go_and_the_list_says_what_went(report, tmp_path):
    before = (report / "index.html").read_text(encoding="utf-8")
    assert "node001" in before
    result = run(report, "--anonymise", "--out", tmp_path / "a.html", "--json")
    assert result.exit_code == 0, result.output
    replaced = json.loads(result.stdout)["replaced"]
    hosts = {row["name"]: row["pseudonym"] for row in replaced if row["kind"] == "host"}
    assert {"node001", "node002", "node003"} <= hosts.keys()
    assert len(set(hosts.values())) == len(hosts)


def test_names_are_those_of_tables_and_of_the_path_and_no_common_word(tmp_path):
    folder = tmp_path / "home" / "alice" / "secret-run"
    folder.mkdir(parents=True)
    bundle = load.bundle(
        datasets.path("fleet-demo") / "power", tz="UTC", node=re.compile(r"node\d+"), progress=False
    )
    names = names_in(bundle, folder)
    assert {"node001", "secret-run"} <= names.keys()
    assert "alice" not in names  # pages name no folder above the data
    assert names["node001"] == "host"
    assert not {"home", "power", "data", "traces"} & names.keys()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["no_such"], "is not a report"),
        (["{report}", "--name", "gpu"], "is not KIND=NAME"),
        (["{report}", "--name", "rack=gpu"], "must be one of host"),
        (["{report}", "--out", "a.zip"], "must end in .html"),
    ],
)
def test_mistakes_are_errors_of_one_line(args, said, report):
    result = run(*[arg.format(report=report) for arg in args])
    assert result.exit_code == 2
    assert re.search(said, result.stderr)
