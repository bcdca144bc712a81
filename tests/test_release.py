"""What an installation without extras does, and what a wheel leaves out."""

import hashlib
import http.server
import importlib.util
import io
import json
import re
import subprocess
import sys
import tarfile
import threading
import tomllib
from pathlib import Path

import pytest
import yaml

from workbench import __version__, datasets
from workbench._shared.extras import need
from workbench.datasets import _catalogue, _fetch
from workbench.errors import DatasetError, MissingExtraError

ROOT = Path(__file__).resolve().parents[1]
PREFIX = f"ai_infra_workbench-{__version__}"
SET = "pvf-truth"
FILES = {name: (ROOT / "data" / SET / name).read_bytes() for name in ("README.md", "dlrm.parquet")}

# Everything that only extras bring, refused as if it were not installed.
WITHOUT_EXTRAS = """
import sys
from importlib.machinery import PathFinder
EXTRAS = {"typer", "pooch", "plotly", "holoviews", "ipywidgets", "anywidget", "IPython", "nbformat",
          "jupyterlab", "nbclient", "nbconvert", "kaleido", "torch", "dask", "traitlets",
          "requests", "jinja2", "sklearn"}
find = PathFinder.find_spec
PathFinder.find_spec = classmethod(
    lambda cls, name, *rest: None if name.split(".")[0] in EXTRAS else find(name, *rest))
"""


def run_bare(code):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS + code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )


@pytest.mark.long
def test_findings_need_no_extra():
    ran = run_bare(
        "from workbench import analyze, datasets, load, record, simulate, tables\n"
        "bundle = load.bundle(datasets.path('fleet-demo'), tz='UTC', progress=False)\n"
        "print(len(analyze.findings(bundle).findings), EXTRAS & set(sys.modules))"
    )
    count, _, rest = ran.stdout.partition(" ")
    assert (int(count) > 0, rest.strip()) == (True, "set()"), ran.stderr


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("import workbench.plot", "plot"),
        ("import workbench.explore", "plot"),
        ("from workbench import share; share.publish('notebooks/01_traces.ipynb')", "lab"),
        ("from workbench import datasets; datasets.fetch('kineto-dlrm-8rank')", "cli"),
        ("from workbench.__main__ import main; main()", "cli"),
    ],
)
def test_what_is_missing_is_named_with_its_extra(code, extra, monkeypatch, tmp_path):
    monkeypatch.setenv(datasets.CACHE_ENV, str(tmp_path))
    monkeypatch.delenv(datasets.MIRROR_ENV, raising=False)
    ran = run_bare(code)
    assert ran.returncode != 0
    named = re.findall(r"pip install 'ai-infra-workbench\[(\w+)\]'", ran.stderr)
    assert named[-1:] in ([extra], ["lab"]), ran.stderr


def test_a_package_that_is_there_is_not_missed():
    need("numpy", extra="plot", purpose="figures")
    with pytest.raises(MissingExtraError, match=r"figures needs no_such, .*\[plot\]"):
        need("no_such", extra="plot", purpose="figures")


def builder():
    spec = importlib.util.spec_from_file_location("hatch_build_of_tests", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError:  # hatchling, which only a build installs
        assert module.FLAGS
    return module


def test_what_wheels_leave_out_is_a_bundled_set_that_no_notebook_opens_first():
    left_out = builder().NOT_IN_WHEELS
    assert SET in left_out
    assert all(_catalogue.is_bundled(name) for name in left_out)
    first = (ROOT / "notebooks" / "00_start_here.ipynb").read_text()
    assert not [name for name in left_out if name in first]


def test_a_compiler_that_fails_without_a_word_is_no_success(tmp_path, monkeypatch):
    silent = tmp_path / "cc"
    silent.write_text("#!/bin/sh\nexit 1\n")
    silent.chmod(0o755)
    monkeypatch.setenv("CC", str(silent))
    monkeypatch.setenv("PATH", str(tmp_path))
    built = builder()
    for source in built.SOURCES:
        assert "exits with 1" in built.build(source, tmp_path / "module.so")


def test_what_is_cited_is_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert [author["name"] for author in cited["authors"]] == [
        author["name"] for author in project["authors"]
    ]


@pytest.mark.parametrize("form", ["bug", "format"])
def test_issue_forms_ask_something_and_have_no_field_twice(form):
    asked = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / f"{form}.yml").read_text())
    fields = [field for field in asked["body"] if field["type"] != "markdown"]
    names = [field["id"] for field in fields]
    assert len(names) == len(set(names)) > 1
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_containers_name_their_base_and_run_as_no_root():
    lines = (ROOT / "packaging" / "Dockerfile").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert all(re.fullmatch(r"python:3\.\d+-slim-\w+", base) for base in bases)
    users = [line for line in lines if line.startswith("USER ")]
    assert users == ["USER reader"]
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert re.search(r"^\.venv/ready-to-test:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert container["postCreateCommand"] == "make .venv/ready-to-test"


def test_binder_installs_the_notebooks_and_what_they_need_from_the_copy_that_it_opens():
    lines = (ROOT / "binder" / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["--editable .[lab]"]
    python = (ROOT / "binder" / "runtime.txt").read_text().strip()
    conda = (ROOT / "environment.yml").read_text()
    assert f"python={python.removeprefix('python-')} " in conda


def test_a_release_keeps_no_secret_and_signs_only_what_it_built():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    assert "secrets." not in str(workflow)
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    assert workflow["jobs"]["publish"]["needs"] == "build"


# --- sets that wheels leave out ------------------------------------------------------------


def archive(files):
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as tar:
        for name, content in {"pyproject.toml": b"", **files}.items():
            member = tarfile.TarInfo(f"{PREFIX}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return written.getvalue()


@pytest.fixture
def wheel_like(tmp_path, monkeypatch):
    """The catalogue of a wheel: it lists the set and does not hold it."""
    folder = tmp_path / "_bundled"
    folder.mkdir()
    for name in ("SETS.csv", "SOURCES.csv", "PUBLIC.csv"):
        (folder / name).write_bytes((ROOT / "data" / name).read_bytes())
    for module in (_catalogue, _fetch):
        monkeypatch.setattr(module, "data_folder", lambda: folder)
    monkeypatch.setenv(datasets.CACHE_ENV, str(tmp_path / "cache"))
    monkeypatch.delenv(datasets.MIRROR_ENV, raising=False)
    return tmp_path


@pytest.fixture
def serve():
    running = []

    def start(content):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                is_known = self.path == f"/{PREFIX}.tar.gz" and content
                self.send_response(200 if is_known else 404)
                self.end_headers()
                self.wfile.write(content if is_known else b"")

            def log_message(self, *_args):
                """Keep the output clean."""

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        running.append((server, thread))
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server, thread in running:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_set_that_the_wheel_left_out_comes_from_the_source_archive(wheel_like, serve):
    assert _catalogue.place(SET) is None
    url = serve(archive({f"data/{SET}/{name}": content for name, content in FILES.items()}))
    folder = datasets.fetch(SET, base_url=url, progress=False)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FILES
    assert _catalogue.place(SET) == "cache"
    assert datasets.path(SET) == folder  # not asked of the network again
    assert set(datasets.verify(SET)["verdict"]) == {"ok"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (archive({f"data/{SET}/README.md": b"another"}), "checksum"),
        (archive({f"data/{SET}/README.md": FILES["README.md"]}), "lacks .*dlrm.parquet"),
        (archive({f"data/{SET}/../../{SET}/dlrm.parquet": b"x"}), "lacks"),
        (archive({})[:40], "WORKBENCH_DATA_MIRROR"),
        (b"no archive", "WORKBENCH_DATA_MIRROR"),
        (b"", "WORKBENCH_DATA_MIRROR"),
    ],
    # Of the bytes, which hold the time, no two workers of a test run would make the same name.
    ids=["other bytes", "a file lacks", "a path outside", "cut", "no archive", "empty"],
)
def test_an_archive_that_is_not_the_release_is_refused(content, reason, wheel_like, serve):
    with pytest.raises(DatasetError, match=reason):
        datasets.fetch(SET, base_url=serve(content), progress=False)
    assert not (wheel_like / "cache" / SET / "dlrm.parquet").exists()


def test_the_mirror_holds_what_the_wheel_left_out_as_well(wheel_like, monkeypatch):
    monkeypatch.setenv(datasets.MIRROR_ENV, str(ROOT / "data"))
    assert datasets.path(SET) == ROOT / "data" / SET
    assert hashlib.sha256(FILES["dlrm.parquet"]).hexdigest() in set(datasets.verify(SET)["sha256"])
