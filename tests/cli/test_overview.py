"""The first page of a report on real files: links that lead somewhere, a cut that can be opened."""

import gzip
import shutil
from functools import partial

import pandas as pd
import pytest
from bs4 import BeautifulSoup

from workbench import analyze, datasets, load, share
from workbench.cli._overview import first_page
from workbench.share import PageFacts

UTC = {"tz": "UTC", "year": None, "boot_time": None, "node": None, "unit": None}
PAGES = [PageFacts("01_traces", "01_traces.html", "Traces", "Where?", ("Rank 6 is late",), "")]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    return folder, first_page(datasets.path("fleet-demo"), UTC, PAGES, folder)


def test_it_names_the_data_and_says_that_they_are_made(made):
    _, overview = made
    assert overview.title == "Findings: fleet-demo"
    assert overview.is_synthetic
    assert "Synthetic data." in overview.html


@pytest.mark.long
@pytest.mark.parametrize("name", ["imbalance-demo", "pvf-demo"])
def test_made_data_are_labelled_though_their_files_cannot_say_so(tmp_path, name):
    overview = first_page(datasets.path(name), UTC, [], tmp_path)
    assert overview.is_synthetic
    assert "Synthetic data." in overview.html


@pytest.mark.long
def test_every_file_that_it_offers_is_there_and_whole(made):
    folder, overview = made
    links = BeautifulSoup(overview.html, "html.parser").select("a[download]")
    assert len(links) >= 4
    assert all((folder / link["href"]).is_file() for link in links)
    found = analyze.findings(load.bundle(datasets.path("fleet-demo"), tz="UTC", progress=False))
    written = pd.read_csv(folder / "csv" / "findings.csv")
    assert list(written["finding"]) == list(found.findings["finding"])
    assert written["cost"].to_numpy() == pytest.approx(
        found.findings["cost"].astype("float64").to_numpy(), nan_ok=True, rel=1e-15
    )


def test_the_cut_traces_hold_the_longest_wait_and_little_else(made):
    folder, _ = made
    events = load.traces(datasets.path("fleet-demo") / "traces", progress=False).events
    waits = analyze.collective_waits(events)
    worst = waits.groupby("collective")["wait_ns"].sum().idxmax()
    rows = waits[waits["collective"] == worst].set_index("rank")
    files = sorted((folder / "perfetto").glob("rank_*.json.gz"))
    assert len(files) == 2
    for file in files:
        cut = load.traces(file, progress=False)
        assert cut.is_synthetic
        (rank,) = cut.events["rank"].unique()
        begin, end = cut.events["start_ns"], cut.events["start_ns"] + cut.events["dur_ns"]
        wait = rows.loc[rank]
        finish = wait["start_ns"] + wait["wait_ns"] + wait["transfer_ns"]
        assert ((begin <= wait["start_ns"]) & (end >= finish)).any()
        whole = events[events["rank"] == rank]
        assert len(cut.events) < len(whole) / 2


def test_data_without_rules_get_their_pages_and_the_reason(tmp_path):
    lives = tmp_path / "<b>lives.csv"
    lives.write_text("node,lifetime_h,is_failure\na,12.5,true\nb,40,false\n")
    overview = first_page(lives, UTC, PAGES, tmp_path)
    page = BeautifulSoup(overview.html, "html.parser")
    assert page.select_one("a")["href"] == "01_traces.html"
    assert "No findings:" in page.select_one(".wb-notice").text
    assert page.select("b") == []


@pytest.mark.long
def test_real_data_are_never_called_made(tmp_path, real_data):
    overview = first_page(real_data("kineto-dlrm-8rank"), UTC, PAGES, tmp_path)
    assert not overview.is_synthetic
    assert "ynthetic" not in overview.html


@pytest.mark.long
@pytest.mark.parametrize("part", ["monday", "monday/synthetic_rank_0.pt.trace.json.gz"])
def test_files_of_a_report_name_no_folder_around_the_data(tmp_path, part):
    mine = tmp_path / "of_anna" / "secret project"
    shutil.copytree(datasets.path("fleet-demo") / "traces", mine / "monday")
    data = mine / part
    share.report([], out=tmp_path / "site", data=data, overview=partial(first_page, data, UTC))
    files = [file for file in (tmp_path / "site").rglob("*") if file.is_file()]
    contents = [
        gzip.decompress(f.read_bytes()) if f.suffix == ".gz" else f.read_bytes() for f in files
    ]
    assert b"synthetic_rank_0.pt.trace.json.gz" in b"".join(contents)
    for name in (b"of_anna", b"secret project", *[b"monday/"] * data.is_file()):
        assert not [file.name for file, held in zip(files, contents, strict=True) if name in held]
