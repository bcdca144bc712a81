"""Whatever a loader returns is stored as Parquet and read back as it was, or refused."""

import json
import shutil
from contextlib import suppress

import duckdb
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data import make
from workbench import datasets, load
from workbench.errors import LoadError, TableError
from workbench.load._files.stored import STORED
from workbench.load.kinds import kind_named, kinds_of
from workbench.tables import JOB_OPERATIONS


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """Give one recording of every kind that is stored as a folder of tables."""
    folder = tmp_path_factory.mktemp("recordings")
    fleet, hang = datasets.path("fleet-demo"), datasets.path("hang-demo")
    imbalance = datasets.path("imbalance-demo")
    snapshot = make.memory_snapshot(folder / "memory.pickle", seed=1)
    operations = load.by_kind(imbalance, "job operations")["job operations"]
    lengths = load.by_kind(imbalance, "document lengths")["document lengths"]
    return {
        "power logs": load.power(fleet, tz="UTC", progress=False),
        "failure logs": load.failures(fleet, tz="UTC", year=2026, progress=False),
        "job logs": load.job_log(fleet, tz="UTC", progress=False),
        "flight-recorder dumps": load.flight_recorder(hang, progress=False),
        "memory snapshots": load.memory(snapshot, progress=False),
        "job operations": load.job_operations(operations),
        "document lengths": load.document_lengths(lengths),
    }


@pytest.fixture(scope="module")
def stored(recordings, tmp_path_factory):
    """Give the folder of each."""
    folder = tmp_path_factory.mktemp("stored")
    return {kind: load.write(what, folder / kind) for kind, what in recordings.items()}


def frames(recording):
    return {"table": recording} if isinstance(recording, pd.DataFrame) else vars(recording)


def assert_same(before, after):
    assert type(before) is type(after)
    for name, frame in frames(before).items():
        pd.testing.assert_frame_equal(frame, frames(after)[name], check_exact=True)
        assert frame.attrs == frames(after)[name].attrs, name


def test_every_kind_comes_back_as_it_was(recordings, stored):
    assert set(recordings) == set(STORED)
    for kind, before in recordings.items():
        assert_same(before, kind_named(kind).door(stored[kind]))


def test_every_command_knows_what_a_stored_folder_holds(recordings, stored):
    for kind, folder in stored.items():
        assert kinds_of(folder) == {kind}
        quality = load.quality(folder)
        of_source = frames(recordings[kind]).get("quality")
        assert len(quality) >= (1 if of_source is None else len(of_source))


def test_sql_counts_the_same_rows(recordings, stored):
    log = recordings["power logs"]
    query = (
        f"select entity, sum(power_w) from '{stored['power logs']}/power.table.parquet' group by 1"
    )
    sums = dict(duckdb.sql(query).fetchall())
    expected = log.power.groupby("entity", observed=True)["power_w"].sum()
    assert sums == pytest.approx(expected.to_dict())


def test_a_bundle_reads_stored_tables_as_their_source(recordings, stored):
    whole = load.bundle(stored["power logs"], progress=False)
    assert_same(recordings["power logs"], whole.power)


def test_injections_and_traces_are_read_back_by_their_loaders(fleet_demo, tmp_path):
    whole = load.injections(datasets.path("pvf-demo") / "components" / "dlrm", progress=False)
    again = load.injections(load.write(whole, tmp_path / "injections"), progress=False)
    pd.testing.assert_frame_equal(whole.faults, again.faults)
    trace = load.traces(next((fleet_demo / "traces").glob("*rank_0*")), progress=False)
    assert len(load.traces(load.write(trace, tmp_path / "a.parquet")).events) == len(trace.events)
    with pytest.raises(LoadError, match="is a folder; a Trace becomes one file"):
        load.write(trace, tmp_path)


def test_a_second_run_replaces_the_first(recordings, tmp_path):
    log = recordings["failure logs"]
    folder = load.write(log, tmp_path / "log")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    load.write(log, folder)
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_stopped_run_is_never_read_as_a_whole_one(recordings, tmp_path, monkeypatch):
    log = recordings["power logs"]
    folder = load.write(log, tmp_path / "log")
    writes = []

    def stopping(*args, **options):
        writes.append(args)
        if len(writes) == 3:
            raise KeyboardInterrupt
        return written(*args, **options)

    written = pq.write_table
    monkeypatch.setattr(pq, "write_table", stopping)
    with pytest.raises(KeyboardInterrupt):
        load.write(log, folder)
    monkeypatch.undo()
    with pytest.raises(LoadError, match=r"lacks quality.table.parquet; run 'workbench convert'"):
        load.power(folder)
    load.write(log, folder)
    assert_same(log, load.power(folder))


def test_tables_in_the_folder_of_a_job_are_read_as_a_set_or_refused(stored, tmp_path):
    # Read one by one, the states of a GPU would be taken for its power.
    shutil.copytree(stored["power logs"], tmp_path / "job" / "power")
    whole = load.power(stored["power logs"])
    for read in (load.fleet, load.bundle):
        assert_same(whole, read(tmp_path / "job").power)
    for read in (load.power, load.job_log, load.traces):
        with pytest.raises(LoadError, match=r"'workbench convert' stored; pass the folder"):
            read(tmp_path / "job")
    (tmp_path / "job" / "power" / "more.csv").write_text("time,power_w\n1,2\n")
    with pytest.raises(LoadError, match=r"stored tables and other files, e.g. more.csv; keep"):
        load.power(tmp_path / "job" / "power")


def test_a_loader_of_another_kind_refuses_them(stored):
    with pytest.raises(LoadError, match=r"'workbench convert' stored"):
        load.failures(stored["power logs"], tz="UTC")


def test_a_folder_with_other_files_is_not_written_to(recordings, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(LoadError, match=r"holds other files, e.g. notes.txt; name a new folder"):
        load.write(recordings["job logs"], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_file_is_no_place_for_tables(recordings, tmp_path):
    with pytest.raises(LoadError, match="stored as a folder of tables; name a folder"):
        load.write(recordings["job logs"], tmp_path / "log.parquet")


def test_what_no_loader_returns_is_refused(tmp_path):
    for thing in ({"a": 1}, pd.DataFrame({"a": [1]})):
        with pytest.raises(TypeError, match="cannot be stored; pass what a function of load"):
            load.write(thing, tmp_path / "x")


def test_a_table_under_the_name_of_another_is_refused(stored, tmp_path):
    folder = shutil.copytree(stored["job logs"], tmp_path / "log")
    shutil.copyfile(folder / "steps.table.parquet", folder / "spans.table.parquet")
    with pytest.raises(LoadError, match="holds another table than its name says"):
        load.job_log(folder)


def test_a_header_of_other_types_is_damage(stored, tmp_path):
    folder = shutil.copytree(stored["job operations"], tmp_path / "job")
    path = folder / "job_operations.table.parquet"
    table = pq.read_table(path)
    (key,) = table.schema.metadata
    header = json.loads(table.schema.metadata[key])
    for name, value in (("attrs", "ab"), ("categories", {"operation": 3}), ("categories", None)):
        damaged = json.dumps(header | {name: value}).encode()
        pq.write_table(table.replace_schema_metadata({key: damaged}), path)
        with pytest.raises(LoadError, match=r"job_operations.table.parquet: is damaged \("):
            load.job_operations(folder)


def test_tables_of_another_version_or_tool_are_refused(stored, tmp_path):
    folder = shutil.copytree(stored["job logs"], tmp_path / "log")
    for path in folder.iterdir():
        table = pq.read_table(path)
        old = {key: value.replace(b'"version": 1', b'"version": 0')
               for key, value in table.schema.metadata.items()}  # fmt: skip
        pq.write_table(table.replace_schema_metadata(old), path)
    with pytest.raises(LoadError, match="stored by another version of the workbench"):
        load.job_log(folder)
    for path in folder.iterdir():
        pq.write_table(pq.read_table(path).replace_schema_metadata({}), path)
    with pytest.raises(LoadError, match="is damaged, or no table that the workbench stored"):
        load.job_log(folder)


@given(at=st.floats(0, 1), size=st.integers(1, 64), seed=st.integers(0, 2**32 - 1))
def test_damage_is_an_error_that_names_the_file(stored, tmp_path_factory, at, size, seed):
    folder = shutil.copytree(stored["failure logs"], tmp_path_factory.mktemp("damaged") / "log")
    path = folder / "failures.table.parquet"
    content = bytearray(path.read_bytes())
    start = int(at * (len(content) - 1))
    content[start : start + size] = np.random.default_rng(seed).bytes(size)
    path.write_bytes(content[: len(content) - seed % 2])
    # Damage to a byte that means nothing, e.g. the name of the writer, changes nothing.
    with suppress(LoadError, TableError):
        assert_same(load.failures(stored["failure logs"]), load.failures(folder))


@given(
    values=st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**31 - 1)), max_size=20),
    text=st.text(max_size=8),
)
def test_any_valid_table_comes_back(tmp_path_factory, values, text):
    operations = JOB_OPERATIONS.of(
        pd.DataFrame({
            "step": [0 for _ in values], "dp_rank": 1, "stage": 0, "operation": text, "sequence": 2,
            "micro_batch": [None if rank % 2 else rank for _, rank in values], "chunk": None,
            "start_ns": [start for start, _ in values], "dur_ns": [rank for _, rank in values],
        })
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("any")
    assert_same(operations, load.job_operations(load.write(operations, folder / "a")))
