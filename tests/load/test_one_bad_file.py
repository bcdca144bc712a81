"""One damaged file of a folder, list or archive is dropped and told; alone it is an error."""

import dataclasses
import gzip
import io
import json
import shutil
import struct
import tarfile
import zipfile

import pandas as pd
import pytest
from typer.testing import CliRunner

from data import make
from workbench import datasets, load
from workbench.cli import app
from workbench.errors import LoadError
from workbench.load._files import stream as _stream
from workbench.load.kinds import NAMES
from workbench.tables import HARMLESS

SMI = "timestamp, index, power.draw [W]\n" + "".join(
    f"2025/01/01 00:00:{second:02}.000, {gpu}, 70.00 W\n" for second in range(20) for gpu in (0, 1)
)
KERNEL = (
    "2025-01-01T00:00:00.000000+00:00 {} kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has "
    "fallen off the bus.\n"
)
STEPS = "".join(
    json.dumps({"time": 1735689600 + 5 * step, "step": step, "step_time_s": 5}) + "\n"
    for step in range(9)
)


def trace(rank):
    rows = [{"ph": "X", "name": "op", "cat": "cpu_op", "ts": 1, "dur": 2, "pid": 1, "tid": 1}] * 9
    return json.dumps({"traceEvents": rows, "distributedInfo": {"rank": rank, "world_size": 2}})


def dump(rank):
    entries = [{"profiling_name": "nccl:all_reduce", "process_group": ["0", "d"], "pg_id": 0}]
    return json.dumps({"version": "2.4", "rank": rank, "entries": entries, "pg_status": {},
                       "pg_config": {"0": {"name": "0", "desc": "d", "ranks": "[0, 1]"}}})  # fmt: skip


DOORS = {
    "traces": (
        {f"rank{rank}.pt.trace.json": trace(rank) for rank in (0, 1)},
        lambda path: load.traces(path, progress=False),
        lambda bundle: len(bundle.events),
    ),
    "power": (
        {f"node{number}_smi.csv": SMI for number in (1, 2)},
        lambda path: load.power(path, tz="UTC", node=r"node\d", progress=False),
        lambda bundle: len(bundle.power),
    ),
    "failures": (
        {f"node{number}.log": KERNEL.format(f"node{number}") for number in (1, 2)},
        lambda path: load.failures(path, progress=False),
        lambda bundle: len(bundle.failures),
    ),
    "job_log": (
        {"a.jsonl": STEPS, "b.jsonl": STEPS.replace("17356", "17366")},
        lambda path: load.job_log(path, tz="UTC", progress=False),
        lambda bundle: len(bundle.steps),
    ),
    "flight_recorder": (
        {f"nccl_trace_rank_{rank}": dump(rank) for rank in (0, 1)},
        lambda path: load.flight_recorder(path, progress=False),
        lambda bundle: len(bundle.entries),
    ),
}
BAD = {
    "a cut packing": gzip.compress(b"x" * 5000)[:14],
    "a bomb": gzip.compress(b"[" + b" " * (20 << 20)),
    "a packing that is noise": b"\x1f\x8b\x08" + bytes(range(97)),
}


def written(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def packed(folder, files, kind):
    path = folder / f"all.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return path
    with tarfile.open(path, "w:gz" if kind == "tar.gz" else "w") as archive:
        for name, content in files.items():
            raw = content if isinstance(content, bytes) else content.encode()
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))
    return path


def left_out(bundle, name):
    quality = bundle.quality
    return quality[quality["source"].str.endswith(name) & ~quality["finding"].isin(HARMLESS)]


def set_aside(bundle, name):
    quality = bundle.quality
    return quality[
        quality["source"].str.endswith(name) & (quality["finding"] == "skipped by design")
    ]


@pytest.fixture(autouse=True)
def small_bombs(monkeypatch):
    monkeypatch.setattr(_stream, "_ALWAYS_ALLOWED_BYTES", 1 << 20)


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("packing", ["folder", "list", "tar", "tar.gz", "zip"])
@pytest.mark.parametrize("door", DOORS)
def test_the_good_files_are_kept_and_the_bad_one_is_told(door, packing, bad, tmp_path):
    good, read, count = DOORS[door]
    whole = count(read(written(tmp_path / "good", good)))
    first, *_ = good
    name = f"bad_{first}".replace("0", "7").replace("1", "7")
    files = {name: BAD[bad], **good}
    path = written(tmp_path / "all", files)
    if packing == "list":
        path = [path / each for each in files]
    elif packing != "folder":
        path = packed(tmp_path, files, packing)
    bundle = read(path)
    assert count(bundle) == whole
    if (door, bad) == ("job_log", "a bomb"):  # begins like no log, so nobody read on
        assert len(set_aside(bundle, name)) == 1
        return
    assert len(left_out(bundle, name)) == 1
    assert left_out(bundle, name)["what"].iloc[0].strip()


# Kinds of which a bundle holds one table of one file, or which no rule uses.
ALONE = {"exhaustive injections", "injection records", "failure tables"}


def sample(kind, folder):
    """Return files of one kind that lie together."""
    demo = {"job operations": "imbalance-demo", "document lengths": "imbalance-demo"}
    if kind in demo:
        path = load.by_kind(datasets.path(demo[kind]), kind)[kind]
        return {f"good_{path.name}": path.read_bytes()}
    if kind == "injections":
        campaign = datasets.path("pvf-demo") / "mitigations" / "none"
        return {f"none/{path.name}": path.read_bytes() for path in campaign.iterdir()}
    if kind == "memory snapshots":
        path = make.memory_snapshot(folder / "rank0.pickle", seed=1)
        return {"rank0.pickle": path.read_bytes()}
    doors = {"power logs": "power", "failure logs": "failures", "job logs": "job_log",
             "traces": "traces", "flight-recorder dumps": "flight_recorder"}  # fmt: skip
    return DOORS[doors[kind]][0]


def sizes(bundle):
    parts = {field.name: getattr(bundle, field.name) for field in dataclasses.fields(bundle)}
    tables = {name: part if isinstance(part, pd.DataFrame) else vars(part)
              for name, part in parts.items() if part is not None and name != "quality"}  # fmt: skip
    return {
        (name, column): len(table)
        for name, part in tables.items() if name != "files"
        for column, table in (part.items() if isinstance(part, dict) else [("", part)])
        if isinstance(table, pd.DataFrame) and column != "quality"
    }  # fmt: skip


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("kind", [name for name in NAMES if name not in ALONE])
def test_a_folder_of_any_kind_keeps_its_good_files(kind, bad, tmp_path):
    good = sample(kind, tmp_path)
    options = {"tz": "UTC", "year": 2026, "progress": False}
    whole = sizes(load.bundle(written(tmp_path / "good", good), **options))
    first, *_ = good
    name = first.rpartition("/")[2]
    beside = f"other/bad_{name}" if "/" in first else f"bad_{name}"
    both = load.bundle(written(tmp_path / "all", good | {beside: BAD[bad]}), **options)
    assert whole
    assert sizes(both) == whole
    told = both.quality[both.quality["source"].str.endswith(f"bad_{name}")]
    assert (~told["finding"].isin(HARMLESS)).any() or bad == "a bomb"
    assert len(told)


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("door", DOORS)
def test_alone_the_bad_file_is_an_error_that_names_it(door, bad, tmp_path):
    good, read, _ = DOORS[door]
    first, *_ = good
    folder = written(tmp_path / "one", {first: BAD[bad]})
    with pytest.raises(LoadError, match=first):
        read(folder / first)
    with pytest.raises(LoadError, match=first):
        read(folder)


def test_a_file_that_needs_an_argument_is_not_left_out(tmp_path):
    files = {"node1.csv": SMI, "node2.csv": SMI.replace("00:00:", "00:01:")}
    with pytest.raises(LoadError, match="tz="):
        load.power(written(tmp_path / "all", files), progress=False)


def test_two_files_of_one_rank_are_still_refused(tmp_path):
    files = {"a.json": trace(0), "b.json": trace(0), "c.json.gz": BAD["a cut packing"]}
    with pytest.raises(LoadError, match="rank"):
        load.traces(written(tmp_path / "all", files), progress=False)


def test_a_damaged_campaign_beside_others_is_left_out_and_told(tmp_path):
    demo = datasets.path("pvf-demo") / "mitigations"
    for name in ("none", "weight_clamp"):
        shutil.copytree(demo / name, tmp_path / name)
    good = load.injections(tmp_path / "none", progress=False)
    bad = tmp_path / "weight_clamp"
    for file in bad.glob("*.parquet"):
        file.write_bytes(file.read_bytes()[:-20])
    both = load.injections(tmp_path, progress=False)
    assert len(both.outcomes) == len(good.outcomes)
    assert len(left_out(both, "weight_clamp/outcomes.parquet")) == 1
    with pytest.raises(LoadError, match="weight_clamp"):
        load.injections(bad, progress=False)


def test_a_list_of_files_is_one_job(tmp_path):
    folder = written(tmp_path / "all", {"steps.jsonl": STEPS, "node1.log": KERNEL.format("node1")})
    found = load.fleet([folder / "steps.jsonl", folder / "node1.log"], tz="UTC", progress=False)
    assert (len(found.job.steps), len(found.failures.failures)) == (9, 1)


def test_check_exits_with_1_if_a_file_was_left_out(tmp_path):
    files = {"rank0.json": trace(0), "rank1.json.gz": BAD["a cut packing"]}
    result = CliRunner().invoke(app, ["check", str(written(tmp_path / "all", files))])
    assert result.exit_code == 1
    assert "! dropped" in result.output
    assert "rank1.json.gz" in result.output


def test_names_of_files_cannot_write_to_the_terminal(tmp_path):
    name = "rank0\n! dropped 9  all is lost\x1b[2J\u202e.json"
    path = written(tmp_path / "all", {name: trace(0), f"b{name}": b"[{}" * 3})
    for given in (path, path / name, tmp_path / f"absent{name}"):
        output = CliRunner().invoke(app, ["check", str(given)]).output
        assert "\x1b" not in output
        assert "\u202e" not in output
        assert not any(line.startswith("! dropped 9") for line in output.splitlines())


def huge_tar(size):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("rank0.json"))
    made = bytearray(file.getvalue())
    made[124:136] = struct.pack(">I", 0x80000000) + size.to_bytes(8, "big")
    made[148:156] = b" " * 8
    made[148:156] = f"{sum(made[:512]):06o}\0 ".encode()
    return bytes(made)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("door", DOORS)
def test_an_archive_that_claims_an_exabyte_is_our_error(door, pack, tmp_path):
    path = tmp_path / "all.tar"
    path.write_bytes(pack(huge_tar(1 << 60)))
    with pytest.raises(LoadError, match=r"all\.tar"):
        DOORS[door][1](path)


@pytest.mark.parametrize("door", ["traces", "failures", "job_log", "power"])
def test_marks_in_front_are_passed_over_however_many(door, tmp_path):
    good, read, count = DOORS[door]
    marked = {name: b"\xef\xbb\xbf" * 3 + content.encode() for name, content in good.items()}
    assert count(read(written(tmp_path / "all", marked))) == count(
        read(written(tmp_path / "good", good))
    )


def test_a_trace_in_utf_16_is_told_how_to_convert(tmp_path):
    (tmp_path / "rank0.json").write_bytes(trace(0).encode("utf-16"))
    with pytest.raises(LoadError, match="is UTF-16, no trace is; convert it: iconv"):
        load.traces(tmp_path / "rank0.json")


def test_half_characters_in_names_cost_no_row(tmp_path):
    rows = "".join(
        f'{{"time": {1735689600 + at}, "host": "n\\ud800", "power_w": 5}}\n' for at in range(9)
    )
    (tmp_path / "power.jsonl").write_text(rows)
    log = load.power(tmp_path / "power.jsonl", tz="UTC", progress=False)
    assert len(log.power) == 9
    assert log.entities["entity"].tolist() == [r"n\ud800"]


@pytest.mark.parametrize("value", ["9" * 400, "1e400", "-" + "9" * 30])
def test_lengths_of_400_digits_are_our_error(value, tmp_path):
    for name, text in (("a.csv", f"length\n5\n{value}\n"), ("a.json", f"[5, {value}]")):
        (tmp_path / name).write_text(text)
        with pytest.raises(LoadError, match=rf"{name}"):
            load.document_lengths(tmp_path / name)


def test_nothing_that_a_library_raises_for_content_passes_the_guard():
    from workbench.load._files.findings import guarded

    for error in (
        UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no"), OverflowError("big"), RecursionError(),
        struct.error("x"), MemoryError(), EOFError(), pd.errors.ParserError("p"), KeyError("k"),
    ):  # fmt: skip
        words = r"^a/b\.json: cannot be read .*get the file again"
        with pytest.raises(LoadError, match=words), guarded("a/b.json"):
            raise error
    with pytest.raises(PermissionError), guarded("a"):
        raise PermissionError(13, "no right")
