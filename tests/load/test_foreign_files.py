"""What lies beside the files of a job changes nothing of what is read from them."""

import json
import shutil
from itertools import pairwise

import pandas as pd
import pytest
from typer.testing import CliRunner

from tests.test_kinds import DUMP, SAMPLES, TRACE, write
from workbench import load
from workbench.cli import app
from workbench.errors import LoadError

FIELDS = ("trace", "power", "job", "failures", "flight", "memory", "operations", "document_lengths")


def foreign(folder):
    """Write files that no loader can use, Parquet of several schemas among them."""
    users = pd.DataFrame({"user": ["a", "b"], "jobs": [1, 2]})
    users.to_parquet(folder / "0_users.parquet")
    stamps = pd.date_range("2026-01-01", periods=5, tz="UTC")
    pd.DataFrame({"day": stamps, "price": 1.5}).to_parquet(folder / "zz_prices.parquet")
    write(folder, "0_damaged.parquet", b"PAR1" + bytes(range(200)))
    users.to_csv(folder / "0_users.csv", index=False)
    write(folder, "0_notes.txt", "the rack was moved on Tuesday\n")
    write(folder, "0_plot.png", b"\x89PNG\r\n\x1a\n" + bytes(range(256)))


def options_of(words):
    names = {"--boot-time": "boot_time"}
    pairs = [pair for pair in pairwise(words) if pair[0].startswith("--")]
    return {names.get(name, name[2:]): int(value) if name == "--year" else value
            for name, value in pairs}  # fmt: skip


def tables_of(bundle):
    """Return every table of a bundle but those that say what was read."""
    held = {name: getattr(bundle, name) for name in FIELDS if getattr(bundle, name) is not None}
    return {
        f"{name}.{table}": frame
        for name, value in held.items()
        for table, frame in (
            {"": value} if isinstance(value, pd.DataFrame) else vars(value)
        ).items()
        if isinstance(frame, pd.DataFrame) and table != "quality"
    }


@pytest.mark.parametrize("sample", SAMPLES)
def test_foreign_files_change_nothing_of_any_kind(sample, tmp_path):
    name, content, words, kinds, _ = SAMPLES[sample]
    options = options_of(words)
    # A table that is power only because somebody names it is none that is met in a folder.
    if sample == "power without a unit":
        return
    path = write(tmp_path, name, content)
    try:
        alone = tables_of(load.bundle(tmp_path, **options, progress=False))
    except LoadError:
        alone = {}
    checked = load.quality(tmp_path, **options, progress=False)
    foreign(tmp_path)
    told = load.quality(tmp_path, **options, progress=False)
    own, before = (frame[frame["source"].eq(str(path))].to_dict("records")
                   for frame in (told, checked))  # fmt: skip
    assert own == before
    assert not told["what"].str.startswith("no file could be read").any(), kinds
    if alone:
        after = tables_of(load.bundle(tmp_path, **options, progress=False))
        assert after.keys() == alone.keys()
        for table, frame in alone.items():
            pd.testing.assert_frame_equal(after[table], frame)


@pytest.mark.parametrize("sample", ["operations", "lengths", "failure table"])
def test_of_files_that_are_read_one_by_one_the_bad_one_alone_is_lost(sample, tmp_path):
    name, content, words, _, _ = SAMPLES[sample]
    good = write(tmp_path, name, content)
    head = content.split("\n", 1)[0]
    bad = write(tmp_path, f"bad_{name}", f"{head}\n,,,x\n" if "," in head else "512\nmany\n")
    told = load.quality(tmp_path, **options_of(words), progress=False)
    assert "read" in told.loc[told["source"] == str(good), "finding"].tolist()
    assert told.loc[told["source"] == str(bad), "finding"].isin(["dropped"]).all()


def rank(number):
    return json.dumps(TRACE | {"distributedInfo": {"rank": number, "world_size": 2}})


@pytest.fixture
def recorded(tmp_path):
    """Give a folder as ``workbench record`` leaves it: traces, and power as Parquet above."""
    (tmp_path / "traces").mkdir()
    for number in (0, 1):
        write(tmp_path / "traces", f"rank{number}.pt.trace.json", rank(number))
    stamps = pd.date_range("2026-01-01", periods=30, freq="s", tz="UTC")
    power = pd.DataFrame({"timestamp": stamps, "node": "n1", "gpu": 0, "power_w": 300.0})
    power.to_parquet(tmp_path / "power_0001.parquet")
    return tmp_path


def test_power_as_parquet_beside_traces_is_read_with_them(recorded):
    bundle = load.bundle(recorded, progress=False)
    assert len(bundle.trace.ranks) == 2
    assert len(bundle.power.power) == 30
    assert len(load.traces(recorded, progress=False).ranks) == 2
    assert len(load.power(recorded, progress=False).power) == 30
    assert len(load.fleet(recorded, progress=False).ranks) == 2


@pytest.mark.parametrize("place", [".", "traces", "converted"])
def test_traces_that_were_converted_inside_the_job_are_there_once(recorded, place):
    target = recorded / place / "all.parquet"
    target.parent.mkdir(exist_ok=True)
    before = load.bundle(recorded, progress=False)
    load.write(load.traces(recorded / "traces", progress=False), target)
    after = load.bundle(recorded, progress=False)
    pd.testing.assert_frame_equal(after.trace.events, before.trace.events)
    assert after.job is None, "a stored trace is no log of steps"
    shutil.rmtree(recorded / "traces", ignore_errors=True)
    if target.exists():
        pd.testing.assert_frame_equal(load.traces(recorded).events, before.trace.events)


def test_tables_that_were_converted_inside_the_job_are_there_once(recorded):
    before = load.bundle(recorded, progress=False)
    tables = load.write(load.power(recorded, progress=False), recorded / "power_tables")
    beside = load.bundle(recorded, progress=False)
    assert len(beside.power.power) == 30
    told = beside.quality[beside.quality["source"] == str(tables)]
    assert told["what"].tolist() == [
        "holds power logs as stored tables, beside others that are read; pass this folder alone"
    ]
    (recorded / "power_0001.parquet").unlink()
    for read in (load.bundle, load.fleet):
        after = read(recorded, progress=False).power
        pd.testing.assert_frame_equal(after.power, before.power.power)
    assert load.by_kind(recorded, "power logs")["power logs"] == tables


def test_a_damaged_set_of_tables_costs_itself_alone(recorded):
    tables = load.write(load.power(recorded, progress=False), recorded / "power_tables")
    for file in tables.iterdir():
        file.write_bytes(b"PAR1 cut")
    bundle = load.bundle(recorded, progress=False)
    assert len(bundle.power.power) == 30
    assert bundle.quality["what"].str.contains("stored tables that are damaged").sum() == 1


def test_a_kind_of_which_nothing_could_be_read_is_an_error_of_every_command(tmp_path):
    write(tmp_path, "rank0.json", json.dumps(TRACE))
    write(tmp_path, "dump_0.json", json.dumps(DUMP | {"version": "99"}))
    write(tmp_path, "gpu.csv", SAMPLES["power"][1])
    for command in ("diagnose", "check"):
        result = CliRunner().invoke(app, [command, str(tmp_path)])
        assert result.exit_code == 2, result.output
        assert "no file could be read of the power logs" in result.stderr
        shown = CliRunner().invoke(app, [command, "--json", str(tmp_path)]).stdout
        answer = json.loads(shown)
        errors = answer["errors"] if command == "diagnose" else [answer[0]["error"]]
        assert "power logs" in errors[0]
        assert "--tz" in errors[0]


def test_parquet_of_any_schema_alone_is_refused_as_what_it_is(tmp_path):
    foreign(tmp_path)
    with pytest.raises(LoadError, match="no readable trace found"):
        load.traces(tmp_path, progress=False)
