"""Exports of Nsight Systems: equal to counts by SQL, whatever tables a version has."""

import gzip
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.load.traces.nsight.nsight_files import (
    GPU,
    KERNEL,
    K,
    pid,
    tables,
    two_processes,
    write,
    write_parquet,
)
from workbench import analyze, datasets, load
from workbench.errors import LoadError
from workbench.load.kinds import kinds_of
from workbench.tables import EVENTS

REAL = ("h100_2gpu_1s.sqlite", "healthy_1pct.sqlite")


@pytest.fixture(params=REAL)
def real(request):
    return datasets.path("nsight-systems") / request.param


def loaded(path, **options):
    return load.traces(path, progress=False, **options)


def told(trace, finding):
    rows = trace.quality[trace.quality["finding"] == finding]
    return dict(zip(rows["what"], rows["count"], strict=True))


def sql(path, query):
    database = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()


BY_CATEGORY = {
    "kernel": "KERNEL", "gpu_memcpy": "MEMCPY", "gpu_memset": "MEMSET",
    "cuda_sync": "SYNCHRONIZATION", "overhead": "OVERHEAD",
}  # fmt: skip
GPU_TABLES = [f"{K}{name}" for name in ("KERNEL", "MEMCPY", "MEMSET")]


def present(path, names):
    there = {name for (name,) in sql(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    return [name for name in names if name in there]


def test_rows_and_times_are_those_that_sql_counts(real):
    events = loaded(real).events
    for category, name in BY_CATEGORY.items():
        rows = events[events["category"] == category]
        if present(real, [K + name]):
            query = f'SELECT count(*), coalesce(sum("end" - start), 0) FROM {K}{name}'
            assert sql(real, query) == [(len(rows), rows["dur_ns"].sum())]
    calls = events["category"].isin(["cuda_runtime", "cuda_driver"])
    assert sql(real, f"SELECT count(*) FROM {K}RUNTIME") == [(calls.sum(),)]


# Busy time by a query: where no row runs before the start of a row, a segment begins.
BUSY = """
WITH work AS ({work}),
marked AS (
  SELECT device, start, "end", max("end") OVER (
    PARTITION BY device ORDER BY start, "end" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ) AS before FROM work
)
SELECT device, sum("end" - max(start, coalesce(before, start)))
FROM marked WHERE before IS NULL OR "end" > before GROUP BY device ORDER BY device
"""


def test_busy_time_of_each_device_is_that_of_a_query(real):
    work = " UNION ALL ".join(
        f'SELECT deviceId AS device, start, "end" FROM {table}'
        for table in present(real, GPU_TABLES)
    )
    by_query = [busy for _, busy in sql(real, BUSY.format(work=work))]
    table = analyze.time_breakdown(loaded(real).events)
    assert table["busy_ns"].tolist() == by_query


def test_launches_are_those_that_a_join_by_process_finds(real):
    events = loaded(real).events
    pairs = 0
    for table in present(real, GPU_TABLES):
        columns = {column for _, column, *_ in sql(real, f"PRAGMA table_info({table})")}
        of_process = "AND r.globalTid & ~0xFFFFFF = k.globalPid" if "globalPid" in columns else ""
        query = (
            f"SELECT count(*) FROM {table} k JOIN {K}RUNTIME r "
            f"ON r.correlationId = k.correlationId {of_process}"
        )
        # SQLite knows no hexadecimal complement of 64 bits as a literal of a mask.
        pairs += sql(real, query.replace("~0xFFFFFF", "-16777216"))[0][0]
    launched = events[events["launch"].notna()]
    assert len(launched) == pairs
    calls = events.loc[launched["launch"].astype("int64")]
    assert (calls["correlation"].to_numpy() == launched["correlation"].to_numpy()).all()
    assert (calls["rank"].to_numpy() == launched["rank"].to_numpy()).all()


def test_operators_of_pytorch_are_known_by_their_names(real):
    if not present(real, ["NVTX_EVENTS"]):
        return
    operators = loaded(real).events.query("category == 'cpu_op'")["name"]
    query = (
        "SELECT substr(text, 1, instr(text, ',') - 1) AS n, count(*) FROM NVTX_EVENTS GROUP BY n"
    )
    assert operators.value_counts()[lambda count: count > 0].to_dict() == dict(sql(real, query))


def test_a_made_export_says_what_was_written(tmp_path):
    trace = loaded(write(tmp_path / "a.sqlite", tables()))
    base = 1_779_630_014_975_716_426
    events = trace.events.assign(at=trace.events["start_ns"] - base).set_index("at")
    gemm, reduce = events.loc[100], events.loc[300]
    assert (gemm["name"], gemm["kind"], gemm["step"]) == (
        "void gemm_kernel<float>(float*)",
        "compute",
        8,
    )
    assert (reduce["kind"], reduce["stream"], reduce["dur_ns"]) == ("communication", 13, 100)
    assert trace.events.loc[int(reduce["launch"]), "name"] == "cuLaunchKernelEx"
    assert trace.events.loc[int(gemm["launch"]), "name"] == "cudaLaunchKernel"
    assert trace.events.loc[int(reduce["launch"]), "category"] == "cuda_driver"
    copy = events.loc[20]
    assert (copy["name"], copy["size_bytes"], copy["step"]) == ("Memcpy HtoD", 4096, 7)
    assert events.loc[88]["name"] == "aten::mm"
    assert (trace.steps["step"].tolist(), trace.steps["dur_ns"].tolist()) == ([7, 8], [75, 335])
    assert trace.ranks["clock"].tolist() == ["epoch"]
    device = trace.devices.iloc[0]
    assert (device["name"], device["capability"], device["processor_count"]) == (
        "NVIDIA H100 80GB HBM3", "9.0", 132,
    )  # fmt: skip
    assert told(trace, "dropped") == {"NVTX ranges that never ended": 1}
    assert told(trace, "skipped by design") == {"names of NVTX domains and categories": 1}


def frames(trace):
    return {
        name: getattr(trace, name).drop(columns="source", errors="ignore")
        for name in ("events", "ranks", "devices", "steps")
    }


@pytest.mark.parametrize("form", ["parquet", "gzip", "convert"])
def test_every_form_holds_the_same(tmp_path, form):
    file = write(tmp_path / "a.sqlite", tables())
    if form == "parquet":
        other = write_parquet(tmp_path / "a_pqtdir", tables())
    elif form == "gzip":
        other = tmp_path / "a.sqlite.gz"
        other.write_bytes(gzip.compress(file.read_bytes()))
    else:
        other = load.write(loaded(file), tmp_path / "a.parquet")
    for name, frame in frames(loaded(other)).items():
        pd.testing.assert_frame_equal(frame, frames(loaded(file))[name])
    assert kinds_of(other) == {"traces"}


def test_a_table_with_two_columns_of_one_name_is_left_out_and_told(tmp_path):
    folder = write_parquet(tmp_path / "a_pqtdir", tables())
    path = folder / f"{K}MEMSET.parquet"
    stored = pq.read_table(path)
    pq.write_table(stored.append_column("start", stored.column("end")), path)
    trace = loaded(folder)
    assert "gpu_memset" not in set(trace.events["category"])
    assert any("several columns of one name" in what for what in told(trace, "dropped"))


def test_each_process_is_a_rank_and_correlations_are_its_own(tmp_path):
    path = write(tmp_path / "node0.sqlite", two_processes(first=1, second=0))
    trace = loaded(path)
    # The naive join by correlation alone finds two calls for every kernel.
    assert trace.events["launch"].notna().sum() == 8
    launched = trace.events[trace.events["launch"].notna()]
    calls = trace.events.loc[launched["launch"].astype("int64"), "process"].astype(str)
    assert calls.tolist() == launched["rank"].map({0: "102", 1: "101"}).tolist()
    assert trace.ranks["rank_source"].tolist() == ["assumed", "assumed"]
    assert any("in order of their GPUs" in what for what in told(trace, "assumed"))
    assert any("used no GPU" in what for what in told(trace, "dropped"))
    files = load.rank_files(path)
    for file, alone in files.each():
        assert len(alone.events) == (trace.events["rank"] == file.rank).sum()


def test_ranks_that_mpi_states_go_before_the_order(tmp_path):
    content = two_processes()
    content["MPI_RANKS"] = ("globalPid rank", [(pid(101), 9), (pid(102), 8)])
    trace = loaded(write(tmp_path / "rank_3.sqlite", content))
    assert trace.ranks["rank"].tolist() == [8, 9]
    assert trace.ranks["rank_source"].tolist() == ["trace", "trace"]
    assert trace.events.query("rank == 9 and category == 'kernel'")["device"].eq(0).all()


def test_one_process_is_the_rank_of_its_environment_or_its_file(tmp_path):
    environment = "PATH=/bin;RANK=5;WORLD_SIZE=16"
    content = tables() | {
        "TARGET_INFO_SYSTEM_ENV": ("name value", [("DeviceEnvironment", environment)])
    }
    ranks = loaded(write(tmp_path / "rank_3.sqlite", content)).ranks
    assert ranks[["rank", "world_size"]].to_numpy().tolist() == [[5, 16]]
    ranks = loaded(write(tmp_path / "rank_3.sqlite", tables())).ranks
    assert (ranks["rank"].tolist(), ranks["rank_source"].tolist()) == ([3], ["file name"])


def test_an_old_export_without_processes_names_and_ranges_loads(tmp_path):
    content = {
        f"{K}KERNEL": ("start end deviceId streamId correlationId shortName", [(5, 9, 0, 7, 1, 4)]),
        f"{K}RUNTIME": ("start end globalTid correlationId nameId", [(1, 2, 1, 1, 77)]),
    }
    trace = loaded(write(tmp_path / "a.sqlite", content))
    assert trace.events["launch"].notna().sum() == 1
    assert trace.ranks["clock"].tolist() == ["own"]
    assert told(trace, "suspicious") == {"names missing from StringIds": 3}


def test_ranges_that_nothing_numbers_are_steps_in_order(tmp_path):
    content = tables()
    thread = pid(101) | 101
    content["NVTX_EVENTS"] = (
        "start end globalTid eventType text",
        [(200, 400, thread, 59, "train_step"), (0, 190, thread, 59, "train_step")],
    )
    trace = loaded(write(tmp_path / "a.sqlite", content))
    assert trace.steps[["step", "dur_ns"]].to_numpy().tolist() == [[0, 190], [1, 200]]
    assert any("numbered in order" in what for what in told(trace, "assumed"))
    assert analyze.step_times(trace.events)["step"].tolist() == [0, 1]


def test_whole_graphs_are_told_to_hide_their_kernels(tmp_path):
    key = pid(101)
    content = tables() | {
        f"{K}GRAPH_TRACE": (f"{GPU} graphId", [(410, 900, 0, 7, 2, key, 12)]),
    }
    trace = loaded(write(tmp_path / "a.sqlite", content))
    row = trace.events[trace.events["name"] == "CUDA graph 12"].iloc[0]
    assert (row["dur_ns"], row["kind"], pd.notna(row["launch"])) == (490, "compute", True)
    assert any("whole CUDA graphs" in what for what in told(trace, "suspicious"))


def test_a_wait_for_an_event_knows_the_call_that_recorded_it(tmp_path):
    key = pid(101)
    content = tables() | {
        f"{K}SYNCHRONIZATION": (f"{GPU} syncType eventSyncId", [(300, 301, 0, 7, 9, key, 2, 55)]),
        f"{K}CUDA_EVENT": (
            "eventSyncId globalPid correlationId streamId timestamp",
            [(55, pid(1), 3, 3, 0), (55, key, 21, 13, 0)],
        ),
    }
    row = loaded(write(tmp_path / "a.sqlite", content)).events.query("category == 'cuda_sync'")
    columns = ["name", "stream", "wait_stream", "wait_correlation"]
    assert row[columns].to_numpy().tolist() == [["Stream Wait Event", 7, 13, 21]]


def test_further_columns_are_kept_on_request(tmp_path):
    content = tables()
    columns, rows = content[f"{K}KERNEL"]
    content[f"{K}KERNEL"] = (f"{columns} gridX", [(*row, 128) for row in rows])
    events = loaded(write(tmp_path / "a.sqlite", content), args=("gridX",)).events
    assert events.loc[events["category"] == "kernel", "gridX"].tolist() == [128, 128]
    assert events["gridX"].notna().sum() == 2


def test_reports_are_refused_with_the_command_that_exports_them(tmp_path):
    for name in ("run.nsys-rep", "run.qdrep"):
        path = tmp_path / name
        path.write_bytes(b"\x00NVIDIA\x01\x02" * 40)
        with pytest.raises(LoadError, match="nsys export --type sqlite"):
            loaded(path)
    with pytest.raises(LoadError, match="nsys export --type sqlite"):
        loaded(tmp_path)
    write(tmp_path / "run.sqlite", tables())
    assert "which only nsys reads" in " ".join(told(loaded(tmp_path), "skipped by design"))


# Hostile databases.


def test_a_database_of_something_else_is_no_trace(tmp_path):
    path = write(tmp_path / "a.sqlite", {"photos": ("id start", [(1, 2)])})
    assert kinds_of(path) == set()
    with pytest.raises(LoadError, match=r"a\.sqlite"):
        loaded(path)


@pytest.mark.parametrize(
    ("kinds", "name"),
    [((1, 0, 2), "HtoD (Pageable -> Device)"), ((2, 2, 1), "DtoH (Device -> Pinned)"),
     ((1, None, 2), "HtoD"), ((99, 0, 2), "unknown (Pageable -> Device)"), ((1, 7, 2), "HtoD")],
)  # fmt: skip
def test_a_copy_says_between_which_memories(tmp_path, kinds, name):
    made = tables()
    words, (row,) = made["CUPTI_ACTIVITY_KIND_MEMCPY"]
    kind, *memories = kinds
    row = (*row[:6], kind, row[7], *memories)
    made["CUPTI_ACTIVITY_KIND_MEMCPY"] = (f"{words} srcKind dstKind", [row])
    trace = load.traces(write(tmp_path / "a.sqlite", made), progress=False)
    names = trace.events.loc[trace.events["kind"] == "memory", "name"].astype(str)
    assert f"Memcpy {name}" in set(names)


def test_views_triggers_and_generated_columns_do_not_run(tmp_path):
    path = write(tmp_path / "a.sqlite", tables())
    database = sqlite3.connect(path)
    endless = (
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS start FROM n"
    )
    database.execute(f"CREATE VIEW {K}GRAPH_TRACE AS {endless}")
    database.execute("CREATE VIEW OSRT_API AS SELECT load_extension('evil') AS start")
    database.execute(
        "ALTER TABLE TARGET_INFO_GPU ADD COLUMN cuDevice AS (hex(zeroblob(500000000))) VIRTUAL"
    )
    database.commit()
    database.close()
    assert len(loaded(path).events) == len(loaded(write(tmp_path / "b.sqlite", tables())).events)


ODD = [None, -5, 1 << 62, -(1 << 63), 2.5, 1e300, "text", b"\xff\x00", "9" * 5000]


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.sampled_from([0, 7, 40, *ODD])] * 8), max_size=6))
def test_values_of_any_type_are_rows_or_findings(tmp_path_factory, rows):
    content = tables()
    content[f"{K}KERNEL"] = (KERNEL, [*content[f"{K}KERNEL"][1], *rows])
    path = write(tmp_path_factory.mktemp("odd") / "a.sqlite", content)
    trace = loaded(path)
    EVENTS.check(trace.events)
    assert (trace.events["category"] == "kernel").sum() <= 2 + len(rows)
    assert (trace.events["dur_ns"] >= 0).all()


@pytest.mark.parametrize("share", [0.1, 0.4, 0.8, 0.99])
def test_a_truncated_database_is_refused_or_told(tmp_path, share):
    whole = (datasets.path("nsight-systems") / REAL[0]).read_bytes()
    path = tmp_path / "a.sqlite"
    path.write_bytes(whole[: int(len(whole) * share)])
    reason = ""
    try:
        reason = str(told(loaded(path), "truncated"))
    except LoadError as error:
        reason = str(error)
    assert "damaged" in reason


@pytest.mark.long
@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 300)), min_size=1, max_size=12))
def test_busy_time_is_that_of_the_nanoseconds_counted_one_by_one(tmp_path_factory, spans):
    key = pid(101)
    rows = [(start, start + dur, 0, 7, 1, key, 3, 3) for start, dur in spans]
    path = write(tmp_path_factory.mktemp("busy") / "a.sqlite", {f"{K}KERNEL": (KERNEL, rows)})
    table = analyze.time_breakdown(loaded(path).events)
    covered = np.zeros(1400, bool)
    for start, dur in spans:
        covered[start : start + dur] = True
    assert table["busy_ns"].sum() == covered.sum()


def changed(folder, mode, *, committed):
    """Copy an export and its logs while a writer that deleted a kernel has it open."""
    made, kept = write(folder / "made.sqlite", tables()), folder / "kept"
    kept.mkdir()
    with closing(sqlite3.connect(made)) as database:
        database.execute(f"PRAGMA journal_mode={mode}")
        # A cache of one page puts changes into the file before they are committed.
        for pragma in ("wal_autocheckpoint=0", "cache_size=1"):
            database.execute(f"PRAGMA {pragma}")
        database.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE start = 300")
        if not committed:
            database.execute("CREATE TABLE more (text)")
            database.executemany("INSERT INTO more VALUES (?)", [("x" * 4000,)] * 50)
        else:
            database.commit()
        for file in folder.glob("made.sqlite*"):
            shutil.copy(file, kept / file.name)
    return kept


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_changes_in_the_logs_of_a_database_count_once_they_are_committed(tmp_path, mode, committed):
    kept = changed(tmp_path, mode, committed=committed)
    before = {file.name: file.read_bytes() for file in kept.iterdir()}
    for path in (kept, kept / "made.sqlite"):
        trace = loaded(path)
        assert (trace.events["category"] == "kernel").sum() == (1 if committed else 2)
        is_told = any("logs of changes" in text for text in told(trace, "noted"))
        assert is_told == (len(before) > 1)
    assert {file.name: file.read_bytes() for file in kept.iterdir()} == before


def test_a_packed_database_in_write_ahead_mode_is_told(tmp_path):
    kept = changed(tmp_path, "wal", committed=True)
    packed = tmp_path / "made.sqlite.gz"
    packed.write_bytes(gzip.compress((kept / "made.sqlite").read_bytes()))
    trace = loaded(packed)
    assert any("-wal file" in text for text in told(trace, "assumed"))


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL", "calls that launch kernels"),
        (f"ALTER TABLE {K}KERNEL DROP COLUMN start", "KERNEL, which has no column 'start'"),
        (f"ALTER TABLE {K}KERNEL DROP COLUMN deviceId", "KERNEL lacks deviceId;"),
        (f"ALTER TABLE {K}KERNEL DROP COLUMN globalPid", "KERNEL lacks globalPid;"),
    ],
)
def test_tables_and_columns_that_are_gone_are_told(tmp_path, sql, words):
    path = write(tmp_path / "made.sqlite", tables())
    assert not any(words in text for text in loaded(path).quality["what"])
    with closing(sqlite3.connect(path)) as database:
        database.execute(sql)
        database.commit()
    trace = loaded(path)
    told_of = trace.quality[trace.quality["what"].str.contains(words, regex=False)]
    assert told_of["finding"].isin(["suspicious", "dropped"]).all()
    assert len(told_of) == 1


def test_a_journal_that_names_another_file_is_not_followed(tmp_path):
    # SQLite deletes the file that a journal of several databases names once none refers to it.
    kept = changed(tmp_path, "delete", committed=False)
    mine = tmp_path / "mine-mj012345678"
    mine.write_text("precious")
    name = str(mine).encode()
    record = [b"\x00\x00\x00\x01", name, len(name).to_bytes(4, "big"), sum(name).to_bytes(4, "big")]
    journal = kept / "made.sqlite-journal"
    end = bytes.fromhex("d9d505f920a163d7")
    journal.write_bytes(journal.read_bytes() + b"".join(record) + end)
    trace = loaded(kept / "made.sqlite")
    assert mine.read_text() == "precious"
    assert any("of several databases" in text for text in told(trace, "suspicious"))


def spread(content, devices):
    """Put the GPU work of the one process on several devices, later on each than on the last."""
    for name in GPU_TABLES:
        if name in content:
            columns, rows = content[name]
            content[name] = (
                columns,
                [
                    (row[0] + 150 * n, row[1] + 150 * n, n, *row[3:])
                    for n in range(devices) for row in rows
                ],
            )  # fmt: skip
    return content


@pytest.mark.parametrize("devices", [2, 3, 8])
def test_devices_of_one_process_are_a_rank_each_as_if_they_were_files(tmp_path, devices):
    """The union of all devices would be busy for longer than any of them."""
    path = write(tmp_path / "one.sqlite", spread(tables(), devices))
    trace = loaded(path)
    assert trace.ranks["rank"].tolist() == list(range(devices))
    busy = analyze.time_breakdown(trace.events)
    work = " UNION ALL ".join(
        f'SELECT deviceId AS device, start, "end" FROM {table}'
        for table in present(path, GPU_TABLES)
    )
    assert busy["busy_ns"].tolist() == [each for _, each in sql(path, BUSY.format(work=work))]
    for number in range(devices):
        alone = spread(tables(), devices)
        for name in GPU_TABLES:
            if name in alone:
                columns, rows = alone[name]
                alone[name] = (columns, [row for row in rows if row[2] == number])
        one = analyze.time_breakdown(loaded(write(tmp_path / "alone.sqlite", alone)).events)
        figures = [name for name in one if name.endswith("_ns") and name != "span_ns"]
        assert (
            one[figures].iloc[0].tolist()
            == busy.loc[busy["rank"] == number, figures].iloc[0].tolist()
        )
