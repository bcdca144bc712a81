"""Loading exports of Nsight Systems and XPlane against plain reading of the same content.

    python benchmarks/exports.py [--size-mb 120]

Real files are repeated until they have the wished size. Every run is a fresh process; CPU time is
compared, imports are not counted. The table goes to the screen and to
``benchmarks/results/exports.md`` and ``.json``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks._measure import machine
from benchmarks._table import RESULTS, Row, publish
from workbench import datasets

_CUPTI = "CUPTI_ACTIVITY_KIND_"
_GPU = 'start, "end", deviceId, streamId, correlationId, globalPid'
_CALL = 'start, "end", globalTid, correlationId, nameId'
_READ = {
    f"{_CUPTI}KERNEL": f"{_GPU}, demangledName, shortName",
    f"{_CUPTI}MEMCPY": f"{_GPU}, copyKind, bytes",
    f"{_CUPTI}MEMSET": f"{_GPU}, bytes",
    f"{_CUPTI}SYNCHRONIZATION": f"{_GPU}, syncType, eventSyncId",
    f"{_CUPTI}RUNTIME": _CALL,
    f"{_CUPTI}OVERHEAD": _CALL,
    "NVTX_EVENTS": 'start, "end", globalTid, eventType, textId, text',
}
_CHILD = """
import json, sqlite3, sys, time
how, path, queries = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
if how == "workbench":
    from workbench import load
    load.traces(sys.argv[4], progress=False)
    act = lambda: load.traces(path, progress=False)
elif how == "sqlite3":
    database = sqlite3.connect(path)
    act = lambda: [database.execute(query).fetchall() for query in queries]
else:
    from tests.load.traces.xplane.xplane_files import space_class
    def act():
        space = space_class().FromString(open(path, "rb").read())
        for line in (line for plane in space.planes for line in plane.lines):
            for event in line.events:
                event.metadata_id, event.offset_ps, event.duration_ps
                [(stat.metadata_id, stat.int64_value) for stat in event.stats]
    space_class()
began = time.process_time()
act()
print(time.process_time() - began)
"""
_ROUNDS = 3
_TARGETS = {"sqlite3": 1.5, "protobuf": 2.0}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table; return 0 even if targets are missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--size-mb", type=float, default=120.0, help="size of the database")
    parser.add_argument("--scratch", type=Path, help="where files are made")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    export = datasets.path("nsight-systems") / "h100_2gpu_1s.sqlite"
    profile = datasets.path("xplane") / "jax_conv_mi300_8gpu.xplane.pb"
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.scratch) as scratch:
        large = _repeated_export(export, Path(scratch), options.size_mb)
        many = _repeated_profile(profile, Path(scratch))
        rows = [
            _compared("Nsight Systems, SQLite", "sqlite3", large, export),
            _compared("XPlane", "protobuf", many, profile),
        ]
    remarks = [
        "CPU time, median of three fresh processes each. sqlite3 fetches the columns that the "
        "workbench reads into Python objects; protobuf decodes and visits every event and "
        "statistic. The workbench makes its tables, too: launches joined, kinds, order of time."
    ]
    publish("exports", rows, machine(), remarks, options.out)
    return 0


def _repeated_export(source: Path, scratch: Path, size_mb: float) -> Path:
    path = Path(shutil.copyfile(source, scratch / "large.sqlite"))
    path.chmod(0o644)
    copies = max(2, round(size_mb * 1e6 / source.stat().st_size))
    database = sqlite3.connect(path)
    for table in _READ:
        columns = [f'"{row[1]}"' for row in database.execute(f"PRAGMA table_info({table})")]
        later = {'"start"': 10**9, '"end"': 10**9, '"correlationId"': 10**6}
        moved = [f"{name} + n * {later[name]}" if name in later else name for name in columns]
        database.execute(
            f"WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {copies}) "
            f"INSERT INTO {table} SELECT {', '.join(moved)} FROM (SELECT * FROM {table}), c"
        )
    database.commit()
    database.close()
    return path


# Joining encoded messages repeats what is repeated in them: planes, with all their lines.
def _repeated_profile(source: Path, scratch: Path, copies: int = 60) -> Path:
    path = scratch / "many.xplane.pb"
    path.write_bytes(source.read_bytes() * copies)
    return path


def _compared(what: str, peer: str, path: Path, warm: Path) -> Row:
    ours, theirs = (_median(how, path, warm) for how in ("workbench", peer))
    size = f"{path.stat().st_size / 1e6:,.0f} MB"
    return Row(
        f"{what}, {size}", f"{ours:.2f} CPU s", f"{peer}: {theirs:.2f} CPU s", ours / theirs,
        _TARGETS[peer], smaller_is_better=True,
    )  # fmt: skip


def _median(how: str, path: Path, warm: Path) -> float:
    queries = json.dumps([f"SELECT {names} FROM {table}" for table, names in _READ.items()])
    command = [sys.executable, "-c", _CHILD, how, str(path), queries, str(warm)]
    root = Path(__file__).resolve().parents[1]
    runs = [
        subprocess.run(command, capture_output=True, text=True, check=True, cwd=root).stdout
        for _ in range(_ROUNDS)
    ]
    return statistics.median(float(run) for run in runs)


if __name__ == "__main__":
    sys.exit(main())
