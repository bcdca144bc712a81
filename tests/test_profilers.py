"""Files of every format go through check, convert, report and diagnose, with the same count."""

import gzip
import json
import sqlite3

import pytest
from bs4 import BeautifulSoup
from typer.testing import CliRunner

from data import make
from tests.fuzz.corpus import seeds
from tests.load.traces.nsight import nsight_files
from tests.load.traces.perfetto import perfetto_files
from tests.load.traces.rocm import rocm_files
from tests.load.traces.xplane import xplane_files
from workbench import cli, load, share

K = nsight_files.K


def nsight_kernels(path):
    """Count kernels, and those of NCCL by the name that SQL joins."""
    names = f"SELECT value FROM {K}KERNEL JOIN StringIds ON id = coalesce(demangledName, shortName)"
    rows = [value for (value,) in sqlite3.connect(path).execute(names)]
    return len(rows), sum(name.startswith("nccl") for name in rows)


def xplane_kernels(path):
    """Count events of streams of GPUs that are not copies, and collectives, with plain protobuf."""
    space = xplane_files.space_class().FromString(path.read_bytes())
    names = [
        xplane_files.names_of(plane)[event.metadata_id]
        for plane in space.planes if plane.name.startswith("/device:GPU")
        for line in plane.lines if line.name.startswith("Stream #")
        for event in line.events
    ]  # fmt: skip
    kernels = [name for name in names if not name.startswith(("Memcpy", "MemCpy", "Memset"))]
    return len(kernels), sum(name.startswith(("nccl", "ncclDev")) for name in kernels)


def rocprofv3_kernels(path):
    """Count dispatches, and those of RCCL, with plain JSON."""
    packed = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    kernels = nccl = 0
    for process in json.loads(packed)["rocprofiler-sdk-tool"]:
        names = {
            one["kernel_id"]: one["formatted_kernel_name"] for one in process["kernel_symbols"]
        }
        for one in process["buffer_records"]["kernel_dispatch"]:
            kernels += 1
            nccl += names[one["dispatch_info"]["kernel_id"]].startswith("nccl")
    return kernels, nccl


REAL = {
    "nsight-systems/h100_2gpu_1s.sqlite": nsight_kernels,
    "nsight-systems/healthy_1pct.sqlite": nsight_kernels,
    "xplane/jax_conv_mi300_8gpu.xplane.pb": xplane_kernels,
    "rocprofv3/fsdp_908_results.json.gz": rocprofv3_kernels,
}


def made(folder):
    """Write a small file of each format without a real sample, or of another form of one."""
    yield nsight_files.write_parquet(folder / "a_pqtdir", nsight_files.tables())
    rows = rocm_files.rocpd_tables()
    yield rocm_files.write_rocpd(folder / "rows.db", rows)
    for name, content in (
        ("host.trace.json", json.dumps(xplane_files.as_json(xplane_files.gpu_space())).encode()),
        ("tpu.xplane.pb", xplane_files.tpu_space().SerializeToString()),
        ("a.pftrace", perfetto_files.rocm()),
    ):
        (folder / name).write_bytes(content)
        yield folder / name


@pytest.fixture
def run(monkeypatch):
    pages = []
    monkeypatch.setattr(share, "report", lambda notebooks, **said: pages.extend(notebooks))

    def run(*words):
        pages.clear()
        result = CliRunner().invoke(cli.app, [str(word) for word in words])
        assert result.exit_code in (0, 1), result.output
        return result.stdout, [page.name[:2] for page in pages]

    return run


def assert_every_command_takes(path, run, folder):
    """Check, convert, report and diagnose a file; give its events as they were converted."""
    checked = run("check", path)[0]
    assert str(path) in checked
    assert "\n  read " in checked
    run("convert", path, folder / "converted.parquet")
    _, pages = run("report", "--data", path, "--out", folder / "site")
    assert pages == ["00", "01", "05", "08", "10"]
    told = json.loads(run("diagnose", path, "--json")[0])
    assert told["files"][0]["kinds"] == "traces"
    return load.traces(folder / "converted.parquet", progress=False).events


@pytest.mark.long
@pytest.mark.oracle
@pytest.mark.parametrize("name", REAL)
def test_a_real_file_gives_its_own_count_in_every_command(real_data, run, tmp_path, name):
    data_set, file = name.split("/")
    path = real_data(data_set) / file
    events = assert_every_command_takes(path, run, tmp_path)
    kernels, nccl = REAL[name](path)
    rows = events[events["category"] == "kernel"]
    assert (len(rows), int((rows["kind"] == "communication").sum())) == (kernels, nccl)


@pytest.mark.long
def test_a_made_file_of_every_other_form_goes_through_every_command(run, tmp_path):
    for at, path in enumerate(made(tmp_path)):
        folder = tmp_path / str(at)
        folder.mkdir()
        assert len(assert_every_command_takes(path, run, folder))


def written(folder, name):
    """Write the made file of a format that no notebook shows by itself."""
    if name == "memory.pickle":
        return make.memory_snapshot(folder / name, seed=1, limit_bytes=400 << 20)
    (seed,) = (seed for seed in seeds() if seed.name == f"made/{name}")
    (folder / name).write_bytes(seed.data)
    return folder / name


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("memory.pickle", "Out of memory by fragmentation"),
        ("events.out.tfevents.1.gpu7", "of the run are in no step and no named span"),
        ("history.jsonl", "of the job's time trained the model"),
    ],
)
def test_report_makes_a_page_of_findings_where_no_notebook_shows_the_data(tmp_path, name, says):
    words = ("report", "--data", written(tmp_path, name), "--tz", "UTC", "--out", tmp_path / "site")
    result = CliRunner().invoke(cli.app, [*map(str, words)])
    assert result.exit_code == 0, result.output
    page = BeautifulSoup((tmp_path / "site/index.html").read_bytes(), "html.parser")
    assert says in " ".join(page.main.text.split())
    assert [path.name for path in (tmp_path / "site").glob("*.html")] == ["index.html"]


def test_report_writes_no_page_about_a_damaged_file_that_no_notebook_shows(tmp_path):
    path = written(tmp_path, "memory.pickle")
    path.write_bytes(path.read_bytes()[:-400])
    words = ("report", "--data", path, "--out", tmp_path / "site")
    result = CliRunner().invoke(cli.app, [*map(str, words)])
    assert result.exit_code == 2
    assert "memory.pickle" in result.stderr
    assert not (tmp_path / "site").exists()


@pytest.mark.slow
def test_report_really_makes_the_page_of_a_trace_that_no_torch_wrote(real_data, tmp_path):
    path = real_data("nsight-systems") / "healthy_1pct.sqlite"
    words = ("report", "01_traces.ipynb", "--data", path, "--out", tmp_path / "site")
    result = CliRunner().invoke(cli.app, [*map(str, words)])
    assert result.exit_code == 0, result.output
    page = BeautifulSoup((tmp_path / "site/01_traces.html").read_bytes(), "html.parser")
    # One GPU has no communication, no clocks to compare and no rank that is late: named at the foot.
    assert len(page.select(".wb-figure")) == 3
    assert "What did the late rank do before it came?" in page.text.partition("No data for: ")[2]
    assert f"{path.name}" in page.text
