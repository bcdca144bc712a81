"""Everything under a path: one bad file or a second job keeps nothing else from being read."""

import shutil

import pytest

from data import make
from data.make._imbalance.demo import _NAMES
from workbench import analyze, datasets, load
from workbench.errors import LoadError
from workbench.tables import SAYS_SYNTHETIC


def write_job(path, *, steps, seed=1):
    """Write the operations of a pipelined job as the published files have them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = make.pipeline_job(seed=seed, shape=(4, 2, 4, steps)).operations
    table = table.assign(start_ns=table["start_ns"] / 1e9, dur_ns=table["dur_ns"] / 1e9)
    table = table.astype({"micro_batch": "float64", "chunk": "float64"}).rename(columns=_NAMES)
    table.fillna({"mb_id": -1, "gmc": -1}).to_parquet(path, index=False)


def dropped(bundle):
    rows = bundle.quality[bundle.quality["finding"] == "dropped"]
    return dict(zip(rows["source"], rows["what"], strict=True))


def test_of_two_jobs_the_larger_is_read_and_the_other_is_named(tmp_path):
    write_job(tmp_path / "a.parquet", steps=2)
    write_job(tmp_path / "b.parquet", steps=6)
    bundle = load.bundle(tmp_path, progress=False)
    assert bundle.operations["step"].nunique() == 6
    (source, text), = dropped(bundle).items()  # fmt: skip
    assert source.endswith("a.parquet")
    assert "b.parquet, the largest here; pass this path alone to read it" in text


def test_a_damaged_job_leaves_the_smaller_one(tmp_path):
    write_job(tmp_path / "a.parquet", steps=2)
    write_job(tmp_path / "b.parquet", steps=6)
    content = bytearray((tmp_path / "b.parquet").read_bytes())
    content[200:2_000] = bytes(1_800)
    (tmp_path / "b.parquet").write_bytes(content)
    bundle = load.bundle(tmp_path, progress=False)
    assert bundle.operations["step"].nunique() == 2
    assert any("b.parquet" in text and "damaged" in text for text in dropped(bundle).values())


def test_dumps_of_two_hangs_are_not_mixed(hang_demo, tmp_path):
    """Both have a rank 0; the folder with more dumps is read, not the first one."""
    for name in ("first", "second"):
        shutil.copytree(hang_demo, tmp_path / name)
    for rank in range(8):
        (tmp_path / "first" / f"synthetic_nccl_trace_rank_{rank}.json").unlink()
    bundle = load.bundle(tmp_path, progress=False)
    assert len(bundle.flight.ranks) == 16
    assert all("second" in source for source in bundle.flight.ranks["source"])
    assert "second, the largest here" in dropped(bundle)[str(tmp_path / "first")]


def test_traces_of_two_jobs_are_not_mixed(fleet_demo, tmp_path):
    for name in ("monday", "tuesday"):
        shutil.copytree(fleet_demo / "traces", tmp_path / name)
    next((tmp_path / "monday").iterdir()).unlink()
    bundle = load.bundle(tmp_path, progress=False)
    assert len(bundle.trace.ranks) == 8
    assert [source for source in dropped(bundle) if "monday" in source] == [
        str(tmp_path / "monday")
    ]


def test_what_needs_an_argument_is_still_asked_for(tmp_path, fleet_demo):
    files = [file for file in (fleet_demo / "power").iterdir() if "nvidia_smi" in file.name]
    assert len(files) >= 2
    for file in files:
        shutil.copy(file, tmp_path)
    with pytest.raises(LoadError, match='pass tz="UTC"'):
        load.bundle(tmp_path, progress=False)


XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


def kernel_logs(folder):
    """Write two logs that state their zone and one that does not."""
    folder.mkdir(exist_ok=True)
    for name, stamp in (("a", "2026-03-01T10:00:00Z node1"), ("b", "2026-03-01T10:01:00Z node2"),
                        ("c", "Mar  1 10:02:00 node3")):  # fmt: skip
        (folder / f"{name}.log").write_text(f"{stamp} kernel: {XID}\n")


def power_csvs(folder):
    """Write two power logs whose stamps state their zone and one whose stamps do not."""
    folder.mkdir(exist_ok=True)
    for name, zone in (("a", "Z"), ("b", "+01:00"), ("c", "")):
        rows = [f"2026-03-01T10:00:{second:02}{zone},gpu{name},{300 + second}"
                for second in range(20)]  # fmt: skip
        (folder / f"{name}.csv").write_text("\n".join(["time,gpu,power_w", *rows]) + "\n")


@pytest.mark.long
@pytest.mark.parametrize("write", [kernel_logs, power_csvs])
def test_a_file_without_a_zone_does_not_stop_the_two_beside_it(write, tmp_path):
    write(tmp_path)
    bundle = load.bundle(tmp_path, progress=False)
    (lacking,) = {name for name in dropped(bundle) if "c." in name}
    assert "tz=" in dropped(bundle)[lacking]
    read = bundle.failures.failures if write is kernel_logs else bundle.power.entities
    assert read["source"].nunique() == 2
    checked = load.quality(tmp_path, progress=False)
    rows = checked[checked["finding"] == "dropped"]
    assert rows["source"].tolist() == [lacking], "check says the same as diagnose"


BAD = {
    "no bytes": b"",
    "binary": bytes(range(256)) * 8,
    "half a trace": b'{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": ',
    "no pickle": b"\x80\x04broken",
    "text": b"nothing of interest\n" * 10,
}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Give a folder of good files and what is found in them."""
    folder = tmp_path_factory.mktemp("good")
    for set_name in ("fleet-demo", "hang-demo"):
        shutil.copytree(datasets.path(set_name), folder / set_name)
    shutil.rmtree(folder / "fleet-demo" / "power")
    bundle = load.bundle(folder, tz="UTC", progress=False)
    return folder, analyze.findings(bundle).findings["finding"].tolist()


@pytest.mark.long
@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_among_good_ones_is_named_and_changes_nothing(name, good):
    folder, expected = good
    for bad in ("rank9.pt.trace.json", "nccl_trace_rank_99.json", "kern.log"):
        (folder / bad).write_bytes(BAD[name])
    bundle = load.bundle(folder, tz="UTC", progress=False)
    assert analyze.findings(bundle).findings["finding"].tolist() == expected
    told = " ".join(
        bundle.quality.loc[~bundle.quality["finding"].isin(["read", "noted"]), "source"]
    )
    assert "rank9.pt.trace.json" in told
    assert "nccl_trace_rank_99.json" in told


# --- what was simulated says so ---


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    ["fleet-demo", "hang-demo", "failures-demo", "imbalance-demo", "memory-demo", "pvf-demo"],
)
def test_data_that_were_simulated_say_so_wherever_they_lie(name, tmp_path):
    copy = tmp_path / "data"
    shutil.copytree(datasets.path(name), copy)
    bundle = load.bundle(copy, tz="UTC", year=2026, progress=False)
    assert bundle.is_synthetic


def test_every_bundled_demonstration_is_known_by_where_it_lies():
    # The campaign itself does not say so: its digits are real.
    bundle = load.bundle(datasets.path("pvf-demo") / "lenet-weights", progress=False)
    assert bundle.is_synthetic
    assert SAYS_SYNTHETIC in set(bundle.quality["what"])


def test_data_that_do_not_say_so_are_not_called_synthetic(tmp_path):
    write_job(tmp_path / "job.parquet", steps=2)
    (tmp_path / "lengths.txt").write_text("# tokens per document\n100\n200\n300\n")
    bundle = load.bundle(tmp_path, progress=False)
    assert not bundle.is_synthetic
    assert bundle.document_lengths["length_tokens"].tolist() == [100, 200, 300]


def test_a_report_on_files_says_it_of_plain_tables(imbalance_demo):
    table = load.quality(imbalance_demo, progress=False)
    assert (table["what"] == SAYS_SYNTHETIC).sum() == 2


def test_kinds_that_no_rule_reads_say_how_to_see_them():
    with pytest.raises(LoadError, match=r"which no rule uses; .*explore\.pvf_by_bit"):
        load.bundle(datasets.path("pvf-truth"), progress=False)
