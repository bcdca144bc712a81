"""Data sets by name: the catalogue is right, the download is safe, errors say what to do."""

import hashlib
import http.server
import re
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pandas as pd
import pooch
import pytest

from workbench import datasets
from workbench.datasets import _catalogue
from workbench.datasets import _catalogue as _places
from workbench.datasets._fetch import record
from workbench.errors import DatasetError
from workbench.tables import DATASET_FILES, DATASETS

PUBLIC = [name for name in datasets.names() if not _catalogue.is_bundled(name)]
CONTENT = {"a.json": b'{"traceEvents": []}', "deep/er/b.csv": b"rank,step\n0,1\n" * 999}


# --- the catalogue ------------------------------------------------------------------------


@pytest.mark.oracle
@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_file_has_the_recorded_checksum(name, real_data):
    real_data(name)
    assert set(datasets.verify(name)["verdict"]) == {"ok"}


def test_every_public_address_is_pinned_to_a_commit():
    pinned = r"https://raw\.githubusercontent\.com/[\w.-]+/[\w.-]+/[0-9a-f]{40}/\S+"
    assert _catalogue.public_files()["url"].str.fullmatch(pinned).all()


def test_every_set_has_licence_citation_and_files():
    table = DATASETS.check(datasets.describe())
    assert (table[["licence", "citation", "origin", "about"]] != "").all(axis=None)
    assert (table["file_count"] > 0).all()
    assert table["dataset"].is_unique
    assert not _catalogue.public_files().duplicated(["dataset", "file"]).any()


def test_bundled_files_are_exactly_those_of_the_source_list():
    root = _catalogue.data_folder()
    listed = _catalogue.bundled_files()
    expected = {row.dataset + "/" + row.file: row for row in listed.itertuples()}
    files = (path for path in root.rglob("*") if path.is_file() and path.suffix != ".pyc")
    inside = {path.relative_to(root) for path in files}
    # The generators lie beside the sets.
    present = {path.as_posix() for path in inside if path.parts[0] != "make"}
    top_level = {name for name in present if "/" not in name}
    assert top_level == {".gitattributes", "PUBLIC.csv", "README.md", "SETS.csv", "SOURCES.csv"}
    remedy = "run: python -m workbench.datasets._fetch SET LICENCE ORIGIN"
    assert present - top_level == set(expected), remedy
    for name, row in expected.items():
        content = (root / name).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (row.bytes, row.sha256), (
            f"{name} changed; {remedy}"
        )
        assert row.licence, name
        assert row.origin, name


def test_listing_a_set_again_keeps_the_licence_of_each_file(tmp_path):
    folder = datasets.path("published")
    shutil.copytree(folder, tmp_path / "published")
    listed = (folder.parent / "SOURCES.csv").read_text(encoding="utf-8")
    (tmp_path / "SOURCES.csv").write_text(listed, encoding="utf-8")
    (tmp_path / "published" / "new.csv").write_text("a\n1\n", encoding="utf-8")
    record(tmp_path, "published", licence="BSD-3-Clause", origin="a table made here")
    again = (tmp_path / "SOURCES.csv").read_text(encoding="utf-8").splitlines()
    added = set(again) - set(listed.splitlines())
    assert set(listed.splitlines()) <= set(again)
    assert [row.split(",")[1::3] for row in added] == [["new.csv", "BSD-3-Clause"]]


def test_the_demo_is_small_and_says_that_it_is_synthetic():
    table = datasets.describe().set_index("dataset")
    assert table.loc["fleet-demo", "size_bytes"] <= 3_000_000
    assert table.loc["fleet-demo", "synthetic"]
    assert table.loc["failures-demo", "size_bytes"] <= 400_000
    synthetic = table.index[table["synthetic"]].tolist()
    assert synthetic == [
        *("fleet-demo", "failures-demo", "imbalance-demo", "hang-demo"),
        *("memory-demo", "pvf-models", "pvf-demo", "pvf-truth"),
    ]
    assert table.loc["pvf-models", "size_bytes"] <= 4_000_000
    assert table.loc["pvf-demo", "size_bytes"] <= 2_000_000
    assert table.loc["pvf-truth", "size_bytes"] <= 1_000_000


def test_works_from_an_installed_package(tmp_path):
    package = Path(datasets.__file__).parents[1]
    shutil.copytree(package, tmp_path / "workbench", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(tmp_path / "workbench" / "_bundled", ignore_errors=True)
    shutil.copytree(_catalogue.data_folder(), tmp_path / "workbench" / "_bundled")
    code = "from workbench import datasets; print(datasets.path('fleet-demo'))"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert Path(ran.stdout.strip()) == tmp_path / "workbench" / "_bundled" / "fleet-demo"


# --- the download -------------------------------------------------------------------------


class Server(http.server.ThreadingHTTPServer):
    """A web server on this machine whose answers a test can spoil."""

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.asked, self.promise = files, [], 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        body = self.server.files.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"") + self.server.promise))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_args):
        """Keep the test's output clean."""


@pytest.fixture
def serve():
    """Start servers; stop them when the test ends."""
    running = []

    def start(files):
        server = Server(files)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        running.append((server, thread))
        return server

    yield start
    for server, thread in running:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(datasets.CACHE_ENV, str(tmp_path / "cache"))
    monkeypatch.delenv(datasets.MIRROR_ENV, raising=False)
    return tmp_path / "cache"


def write_catalogue(folder, monkeypatch, files=CONTENT, prefix="https://example.org/o/r"):
    """Make a catalogue with one public set called ``tiny`` the only one."""
    folder.mkdir()
    sets = {"synthetic": "no", "licence": "MIT", "origin": "o", "citation": "c", "about": "a"}
    pd.DataFrame([{"dataset": "tiny", **sets}]).to_csv(folder / "SETS.csv", index=False)
    rows = [
        {
            "dataset": "tiny",
            "file": name,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "url": f"{prefix}/{name}",
        }
        for name, content in files.items()
    ]
    pd.DataFrame(rows).to_csv(folder / "PUBLIC.csv", index=False)
    (folder / "SOURCES.csv").write_text("dataset,file,bytes,sha256,licence,origin\n")
    for module in (_catalogue, _places):
        monkeypatch.setattr(module, "data_folder", lambda: folder)


@pytest.fixture
def tiny(tmp_path, monkeypatch, cache):
    write_catalogue(tmp_path / "data", monkeypatch)
    return cache / "tiny"


@pytest.fixture
def server(serve):
    return serve({f"/o/r/{name}": content for name, content in CONTENT.items()})


def left_behind(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_set_is_downloaded_once_and_checked(tiny, server, capfd):
    assert datasets.describe()["place"].tolist() == ["not available"]
    folder = datasets.fetch("tiny", base_url=server.url)
    assert folder == tiny
    assert {p.relative_to(tiny).as_posix(): p.read_bytes() for p in left_behind(tiny)} == CONTENT
    assert datasets.fetch("tiny", base_url=server.url) == datasets.path("tiny") == folder
    assert sorted(server.asked) == ["/o/r/a.json", "/o/r/deep/er/b.csv"]
    assert datasets.describe()["place"].tolist() == ["cache"]
    assert capfd.readouterr() == ("", "")


def test_a_damaged_file_in_the_cache_is_noticed_and_got_again(tiny, server):
    datasets.fetch("tiny", base_url=server.url)
    (tiny / "a.json").write_bytes(b'{"traceEvents": [}')
    verdicts = DATASET_FILES.check(datasets.verify("tiny")).set_index("file")["verdict"]
    assert verdicts.to_dict() == {"a.json": "changed", "deep/er/b.csv": "ok"}
    with pytest.raises(DatasetError, match=r"a\.json is not the file .* workbench datasets fetch"):
        datasets.best("tiny")
    datasets.fetch("tiny", base_url=server.url)
    assert server.asked[2:] == ["/o/r/a.json"]
    assert set(datasets.verify("tiny")["verdict"]) == {"ok"}


def test_a_missing_file_is_reported_as_missing(tiny, server):
    datasets.fetch("tiny", base_url=server.url)
    (tiny / "a.json").unlink()
    verdicts = datasets.verify("tiny").set_index("file")["verdict"]
    assert verdicts["a.json"] == "missing"


def test_wrong_bytes_are_refused_and_not_kept(tiny, server):
    server.files["/o/r/a.json"] = b"<html>login</html>"
    with pytest.raises(DatasetError, match="does not match its checksum"):
        datasets.fetch("tiny", base_url=server.url, retries=0)
    assert left_behind(tiny) == []


def test_a_server_that_sends_more_than_the_catalogue_says_is_cut_off(tiny, server):
    server.files["/o/r/a.json"] = b"x" * (50 << 20)
    with pytest.raises(DatasetError, match="sends more bytes than the catalogue"):
        datasets.fetch("tiny", base_url=server.url, retries=2)
    assert left_behind(tiny) == []
    assert server.asked.count("/o/r/a.json") == 1


def test_a_connection_that_breaks_off_leaves_nothing(tiny, server):
    server.promise = 1_000
    with pytest.raises(DatasetError, match="tiny: "):
        datasets.fetch("tiny", base_url=server.url, retries=0)
    assert left_behind(tiny) == []


def test_an_interrupt_leaves_nothing_half_written(tiny, monkeypatch):
    def interrupted(_url, output, _pooch):
        output.write(CONTENT["a.json"][:7])
        raise KeyboardInterrupt

    monkeypatch.setattr(pooch, "HTTPDownloader", lambda **_options: interrupted)
    with pytest.raises(KeyboardInterrupt):
        datasets.fetch("tiny")
    assert left_behind(tiny) == []


def test_without_network_the_error_says_what_to_do(tiny):
    with socket.create_server(("127.0.0.1", 0)) as briefly:
        nobody = f"http://127.0.0.1:{briefly.getsockname()[1]}"
    with pytest.raises(DatasetError, match=rf"set {datasets.MIRROR_ENV}=<folder>") as caught:
        datasets.fetch("tiny", base_url=nobody, retries=0)
    assert str(tiny) in str(caught.value)


@pytest.mark.usefixtures("tiny")
def test_a_file_the_server_does_not_have_is_one_clear_error(server):
    del server.files["/o/r/a.json"]
    with pytest.raises(DatasetError, match=r"cannot get .*/o/r/a\.json .*404"):
        datasets.fetch("tiny", base_url=server.url, retries=0)


def test_a_folder_that_cannot_be_written_is_one_clear_error(tiny, server):
    tiny.parent.mkdir()
    tiny.write_text("a file where the folder should be")
    with pytest.raises(DatasetError, match=f"set {datasets.CACHE_ENV} to a folder"):
        datasets.fetch("tiny", base_url=server.url)


def test_only_https_is_used(tmp_path, monkeypatch, cache):
    write_catalogue(tmp_path / "data", monkeypatch, prefix="http://example.org")
    with pytest.raises(DatasetError, match="is not https; refused"):
        datasets.fetch("tiny")
    assert not cache.exists()


def test_a_real_set_comes_down_the_wire_unchanged(real_data, serve, tmp_path, monkeypatch):
    source = real_data("kineto-dlrm-8rank")
    monkeypatch.setenv(datasets.CACHE_ENV, str(tmp_path))
    monkeypatch.delenv(datasets.MIRROR_ENV, raising=False)
    files = _catalogue.files_of("kineto-dlrm-8rank")
    server = serve(
        {
            "/" + row.url.split("/", 3)[3]: (source / row.file).read_bytes()
            for row in files.itertuples()
        }
    )
    folder = datasets.fetch("kineto-dlrm-8rank", base_url=server.url + "/")
    assert folder == tmp_path / "kineto-dlrm-8rank"
    assert set(datasets.verify("kineto-dlrm-8rank")["verdict"]) == {"ok"}


# --- the mirror ---------------------------------------------------------------------------


@pytest.fixture
def mirror(tmp_path, monkeypatch, cache):
    assert not cache.exists()
    write_catalogue(tmp_path / "data", monkeypatch)
    folder = tmp_path / "mirror"
    for name, content in CONTENT.items():
        (folder / "tiny" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "tiny" / name).write_bytes(content)
    monkeypatch.setenv(datasets.MIRROR_ENV, str(folder))
    return folder


def test_the_mirror_is_read_in_place(mirror):
    assert datasets.path("tiny") == datasets.fetch("tiny") == mirror / "tiny"
    assert datasets.best("tiny") == (mirror / "tiny", "tiny", False)
    assert datasets.describe()["place"].tolist() == ["mirror"]


def test_a_file_that_changes_in_the_mirror_is_noticed(mirror):
    datasets.path("tiny")
    (mirror / "tiny" / "a.json").write_bytes(b"tampered with")
    with pytest.raises(DatasetError, match=rf"unset {datasets.MIRROR_ENV} to download it"):
        datasets.path("tiny")


@pytest.mark.usefixtures("mirror")
def test_a_file_is_hashed_once_while_it_does_not_change(monkeypatch):
    datasets.path("tiny")
    monkeypatch.setattr(_places, "_hash", lambda path: pytest.fail(f"hashed {path} again"))
    datasets.path("tiny")


def test_an_incomplete_mirror_is_passed_over(mirror, server):
    (mirror / "tiny" / "a.json").unlink()
    with pytest.raises(DatasetError, match="workbench datasets fetch tiny"):
        datasets.best("tiny")
    assert datasets.fetch("tiny", base_url=server.url) != mirror / "tiny"


def test_a_mirror_that_does_not_exist_is_an_error(mirror, monkeypatch):
    monkeypatch.setenv(datasets.MIRROR_ENV, str(mirror / "nowhere"))
    with pytest.raises(DatasetError, match=r"nowhere, which is not a folder; correct it or unset"):
        datasets.path("tiny")


# --- names and hostile catalogues ---------------------------------------------------------


@pytest.mark.parametrize("ask", [datasets.path, datasets.fetch, datasets.verify, datasets.best])
def test_an_unknown_name_suggests_the_nearest(ask):
    with pytest.raises(DatasetError, match=r"'kineto-dlrm-8ranks'; did you mean 'kineto-dlrm-8ra"):
        ask("kineto-dlrm-8ranks")


def test_part_of_a_name_is_enough_for_a_suggestion():
    with pytest.raises(DatasetError, match="did you mean 'failures-slurm'"):
        datasets.path("Slurm")


def test_a_name_like_none_lists_them_all():
    with pytest.raises(DatasetError, match=r"known: fleet-demo, .*kineto-dlrm-8rank"):
        datasets.path("zzz")


@pytest.mark.usefixtures("cache")
def test_the_best_set_is_the_first_at_hand():
    folder, name, is_synthetic = datasets.best("kineto-hta", "fleet-demo", "kineto-h100")
    assert (folder.name, name, is_synthetic) == ("fleet-demo", "fleet-demo", True)


@pytest.mark.parametrize(
    "file", ["../x", "a/../../x", "/etc/passwd", "a\\..\\x", "C:x", "a//b", "./a", "a/.", ".."]
)
def test_a_catalogue_cannot_lead_out_of_its_folder(file, tmp_path, monkeypatch, cache):
    write_catalogue(tmp_path / "data", monkeypatch, files={file: b"x"})
    with pytest.raises(DatasetError, match=re.escape(f"{file!r} is not a plain relative")):
        datasets.path("tiny")
    assert not cache.exists()


def test_a_catalogue_cannot_name_a_set_like_a_path(tmp_path, monkeypatch):
    write_catalogue(tmp_path / "data", monkeypatch)
    text = (tmp_path / "data" / "SETS.csv").read_text()
    (tmp_path / "data" / "SETS.csv").write_text(text.replace("tiny", "../tiny"))
    with pytest.raises(DatasetError, match="is not a data set name"):
        datasets.names()


@pytest.mark.usefixtures("cache")
def test_a_catalogue_without_checksums_is_refused(tmp_path, monkeypatch):
    write_catalogue(tmp_path / "data", monkeypatch)
    path = tmp_path / "data" / "PUBLIC.csv"
    pd.read_csv(path).assign(sha256="none").to_csv(path, index=False)
    with pytest.raises(DatasetError, match="no sha256 of 64 hexadecimal digits"):
        datasets.path("tiny")


# --- real data in tests -------------------------------------------------------------------


@pytest.mark.usefixtures("cache")
def test_tests_on_absent_data_skip_and_say_how_to_get_them(real_data, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="get it with `workbench datasets fetch"):
        real_data("kineto-hta")


@pytest.mark.usefixtures("cache")
def test_tests_on_absent_data_fail_under_continuous_integration(real_data, monkeypatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="'kineto-hta' is not available"):
        real_data("kineto-hta")
