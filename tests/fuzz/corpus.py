"""Every bundled and shared file, or its beginning, and the public function that loads it."""

import gzip
import io
import json
import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from claims import _kernel_times
from claims._fast_algorithms import fast_algorithms, tensor_contractions
from claims._iterations import iterations
from claims._kernel_times import gemm_times
from data import make
from tests.fuzz.structures import zipped
from tests.load.fleet.test_job_scalars import T0, VERSION, records, run
from tests.load.traces.ascend_files import trace_view
from tests.load.traces.nsight.nsight_files import tables, two_processes, write, write_parquet
from tests.load.traces.perfetto import perfetto_files
from tests.load.traces.rocm import rocm_files
from tests.load.traces.test_trace_profile import overlapped
from tests.load.traces.xplane.xplane_files import as_json, gpu_space, tpu_space
from workbench import datasets, load
from workbench.tables import HARMLESS

LARGEST_BYTES = 32 << 10
LARGEST_BINARY_BYTES = 300 << 10
_EVENT = re.compile(rb"\},\s*\{")


class Door(NamedTuple):
    """A public loader, and what its result adds up to."""

    load: Callable[[Path], Any]
    totals: Callable[[Any], dict[str, float]]


class Seed(NamedTuple):
    """A whole file to damage."""

    name: str
    data: bytes
    door: str


def _sums(frame: pd.DataFrame) -> dict[str, float]:
    numbers = frame.select_dtypes("number").sum(min_count=0).astype("float64")
    return {"rows": float(len(frame)), **{str(name): float(v) for name, v in numbers.items()}}


def _of(names: tuple[str, ...]) -> Callable[[Any], dict[str, float]]:
    """Add up columns of tables, given as ``table.column``; ``table.`` counts rows."""

    def totals(bundle: Any) -> dict[str, float]:
        found = {}
        for name in names:
            table, _, column = name.partition(".")
            frame = getattr(bundle, table)
            value = float(frame[column].astype("float64").sum()) if column else float(len(frame))
            found[name] = value
        return found

    return totals


def _export_folder(path: Path) -> Any:
    """Load the folder that an archive holds: exports of several files are read on disk only."""
    with TemporaryDirectory() as place, zipfile.ZipFile(path) as archive:
        archive.extractall(place)
        return load.traces(place, progress=False)


def _metrics(path: Path) -> Any:
    """Load lines as a metric in a store of MLflow, which its place tells."""
    with TemporaryDirectory() as place:
        folder = Path(place) / "mlruns/0/0123abc/metrics"
        folder.mkdir(parents=True)
        shutil.copyfile(path, folder / "loss")
        return load.job_log(place, progress=False)


_TRACE = _of(("events.", "events.dur_ns", "nodes.", "dependencies."))
_POWER = _of(("power.", "power.power_w", "counters."))
_FAILURES = _of(("failures.line_count", "timeline."))
_INJECTIONS = _of(("outcomes.", "outcomes.sdc_count", "faults.", "trials."))
DOORS = {
    "traces": Door(lambda path: load.traces(path, progress=False), _TRACE),
    "power": Door(
        lambda path: load.power(
            path, tz="UTC", unit="W", scope="gpu", period_s=1.0, node="n1", progress=False
        ),
        _POWER,
    ),
    "failures": Door(
        lambda path: load.failures(
            path, tz="UTC", year=2025, boot_time="2025-01-01T00:00Z", node="n1", progress=False
        ),
        _FAILURES,
    ),
    "job_log": Door(
        lambda path: load.job_log(path, tz="UTC", progress=False), _of(("steps.", "spans."))
    ),
    "export_folder": Door(_export_folder, _TRACE),
    "metrics": Door(_metrics, _of(("steps.", "spans."))),
    "flight_recorder": Door(
        lambda path: load.flight_recorder(path, rank=0, progress=False),
        _of(("entries.", "groups.", "status.")),
    ),
    "memory": Door(
        lambda path: load.memory(path, rank=0, progress=False),
        _of(("memory.", "memory.size_bytes", "blocks.size_bytes")),
    ),
    "injections": Door(lambda path: load.injections(path, progress=False), _INJECTIONS),
    "exhaustive": Door(load.exhaustive_injections, _of(("sites.", "sites.sdc_count"))),
    # Tables of one's own, which note what they dropped beside the table.
    "lengths": Door(load.document_lengths, _sums),
    "job": Door(load.job_operations, _sums),
    "sweeps": Door(load.power_sweeps, _sums),
    "iterations": Door(iterations, _sums),
    "collectives": Door(lambda path: _kernel_times.collective_times(path, gpus=["H100"]), _sums),
    "reuse": Door(load.reuse_histogram, _sums),
    "causes": Door(load.cause_counts, _sums),
    "embeddings": Door(load.embedding_tables, _sums),
    "outputs": Door(load.embedding_outputs, lambda read: {"tables": float(len(read.arrays))}),
    "regions": Door(load.regions, lambda read: {}),
    "losses": Door(load.local_training_losses, _sums),
    "gemms": Door(lambda path: gemm_times(path, gpus=["X"], dtypes=None), _sums),
    "algorithms": Door(fast_algorithms, _sums),
    "contractions": Door(tensor_contractions, lambda frame: {"rows": float(len(frame))}),
    "failure_table": Door(lambda path: load.failure_table(path, tz="UTC"), _FAILURES),
    "records": Door(load.injection_records, _INJECTIONS),
    "profile": Door(load.trace_profile, lambda profile: {}),
    "rollup": Door(lambda path: load.power_rollup(path, tz="UTC"), _of(("rollup.",))),
    "fleet": Door(lambda path: load.fleet(path, tz="UTC", progress=False), lambda fleet: {}),
    "bundle": Door(lambda path: load.bundle(path, tz="UTC", progress=False), lambda bundle: {}),
    "quality": Door(lambda path: load.quality(path, tz="UTC", progress=False), lambda frame: {}),
    "rank_files": Door(lambda path: list(load.rank_files(path).each()), lambda read: {}),
}

# The first pattern that fits a file says who loads it; files of none are no input.
_DOORS = (
    ("fleet-demo/traces/*", "traces"), ("fleet-demo/power/*", "power"),
    ("fleet-demo/failures/*", "failures"), ("fleet-demo/steps.jsonl", "job_log"),
    ("failures-demo/synthetic_*", "failures"),
    ("hang-demo/synthetic_*", "flight_recorder"), ("imbalance-demo/*lengths*", "lengths"),
    ("imbalance-demo/*job.parquet", "job"), ("pvf-truth/*.parquet", "exhaustive"),
    ("published/*incidents*", "causes"), ("failures-kmsg/*", "failures"),
    ("failures-slurm/*", "failures"),
    ("flight-recorder/*", "flight_recorder"), ("iterations-vtrain/*", "iterations"),
    ("kineto-*", "traces"), ("chakra-et/*", "traces"), ("rocprofv3/*", "traces"),
    ("nsight-systems/*", "traces"), ("xplane/*", "traces"),
    ("astra-sim-inputs/*.et", "traces"), ("lengths-*", "lengths"), ("power-zeus-sweeps/*", "sweeps"),
    ("power-*", "power"), ("profiles-*", "collectives"),
    ("dlrm-locality/*", "reuse"), ("stragglers-bytedance/*", "job"),
)  # fmt: skip


def seeds() -> list[Seed]:
    """List what every file at hand begins with, where its loader takes it."""
    found = []
    for name in datasets.describe().query("place != 'not available'")["dataset"]:
        folder = datasets.path(name)
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            label = f"{name}/{file.relative_to(folder)}"
            door = next((door for pattern, door in _DOORS if fnmatch(label, pattern)), None)
            if door and file.suffix != ".md" and "LICENSE" not in file.name:
                parts = _beginnings(file)
                found += [Seed(f"{label}{'#' * at}", data, door) for at, data in enumerate(parts)]
    return [*found, *made_files()]


def made_files() -> list[Seed]:
    """Make a small file of each format that profilers and trackers write."""
    return [*_made(), *_of_rocm(), *_tables()]


def _tables() -> list[Seed]:
    """Make a small file of each table of one's own, and of what other loaders are given."""
    numbers = range(24)
    tables = {
        "embeddings": ("table,row_count,dim_count,pooling_ratio,element_bytes", "t{n},1{n}0,64,2.5,4"),
        "gemms": ("gpu,dtype,m,n,k,latency", "X,bfloat16,1{n},{n}2,3,0.5{n}"),
        "collectives": ("collective,rank_count,size_bytes,dur_ns,gpu", "AllReduce,8,64{n},5{n},H100"),
        "failure_table": ("time,node,cause,rank", "2025-01-01T00:{n:02d}:00Z,n{n},gpu,{n}"),
        "records": ("exp_id,bit,layer,outcome", "{n},{n},conv{odd},sdc"),
        "records/counts": ("exp_id,bit,inputs_count,sdc_count,due_count", "{n},{n},100,{n},1"),
        "quality": ("timestamp,gpu,power_w", "2025-01-01T00:00:{n:02d}Z,{odd},3{n:02d}.5"),
        "bundle": ("timestamp,gpu,power_w", "2025-01-01T00:00:{n:02d}Z,{odd},3{n:02d}.5"),
        "fleet": ("timestamp,gpu,power_w", "2025-01-01T00:00:{n:02d}Z,{odd},3{n:02d}.5"),
        "lengths": ("length_tokens", "{n}17"),
        "job": (
            "step,dp_rank,stage,optype,mb_id,start_ts,duration,gmc,mc,seq_id,rank",
            "{half},0,0,forward-compute,{odd},{n}.5,0.25,0,0,{odd},0",
        ),
    }  # fmt: skip
    made = [
        Seed(f"tables/{name}.csv", "\n".join([head, *(row.format(n=n, half=n // 2, odd=n % 2)
             for n in numbers), ""]).encode(), name.partition("/")[0])
        for name, (head, row) in tables.items()
    ]  # fmt: skip
    losses = datasets.path("local-training")
    outputs, flat = io.BytesIO(), io.BytesIO()
    rows = np.arange(48, dtype=np.float32).reshape(4, 12)
    np.savez(outputs, users=rows, items=rows)
    np.save(flat, rows.reshape(4, 3, 4))
    with TemporaryDirectory() as place:
        profile = load.write_trace_profile(overlapped(), Path(place) / "p.json").read_bytes()
    trace = json.dumps({"traceEvents": [
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 10 * n, "dur": 5, "pid": 0, "tid": 7,
         "args": {"device": 0, "stream": 7, "correlation": n}} for n in numbers]}).encode()  # fmt: skip
    matrices = "# A\n1 0\n0 1\n1 1\n0 1\n# B\n1 0\n0 1\n1 1\n0 1\n# C\n1 0\n0 1\n1 1\n0 1\n"
    return [
        *made,
        Seed("tables/regions.csv", (losses / "regions.csv").read_bytes(), "regions"),
        Seed("tables/losses.parquet", (losses / "losses.parquet").read_bytes(), "losses"),
        Seed("tables/outputs.npz", outputs.getvalue(), "outputs"),
        Seed("tables/outputs.npy", flat.getvalue(), "outputs"),
        Seed("tables/profile.json", profile, "profile"),
        Seed("tables/rank0.json", trace, "rank_files"),
        Seed("tables/strassen", matrices.encode(), "algorithms"),
        Seed("tables/tcb.txt", b"abij abef efij & a:128;b:128;e:128;f:128;i:128;j:128;\n" * 9,
             "contractions"),
    ]  # fmt: skip


def _of_rocm() -> list[Seed]:
    """Make a small file of each format of ROCm's profilers."""
    made = {"rocm.json": json.dumps({"rocprofiler-sdk-tool": [rocm_files.process()]}).encode()}
    made["rocm.pftrace"] = perfetto_files.rocm()
    with TemporaryDirectory() as place:
        for name, has_tracks in (("rows.db", False), ("tracks.db", True)):
            tables = rocm_files.rocpd_tables(has_tracks=has_tracks)
            made[name] = rocm_files.write_rocpd(Path(place) / name, tables).read_bytes()
    return [Seed(f"made/{name}", data, "traces") for name, data in made.items()]


def _made() -> list[Seed]:
    """Make small files of formats whose real samples are large, or of one version only."""
    with TemporaryDirectory() as place:
        export = write(Path(place) / "a.sqlite", two_processes()).read_bytes()
        path = make.memory_snapshot(Path(place) / "rank0.pickle", seed=1, steps=2, layers=3)
        snapshot = path.read_bytes()
        folder = write_parquet(Path(place) / "export", tables())
        export_folder = zipped({file.name: file.read_bytes() for file in folder.iterdir()})
    history = [
        {"_step": n, "_timestamp": T0 + 2 * n, "loss": 9 / (n + 1), "note": "x"} for n in range(40)
    ]
    metric = "".join(f"{1000 * (T0 + 2 * n)} {9 / (n + 1)} {n}\n" for n in range(40))
    named = json.dumps(as_json(gpu_space())).encode()
    profiles = {"gpu": gpu_space(), "tpu": tpu_space()}
    return [
        Seed("made/nsight.sqlite", export, "traces"),
        Seed("made/parquetdir.zip", export_folder, "export_folder"),
        Seed("made/history.jsonl", b"".join(map(_line, history)), "job_log"),
        Seed("made/mlflow.metric", metric.encode(), "metrics"),
        Seed("made/xla.trace.json", named, "traces"),
        Seed("made/grafana.json", json.dumps(_panel()).encode(), "power"),
        Seed("made/ascend.json", json.dumps(trace_view()).encode(), "traces"),
        Seed("made/rank0.pickle", snapshot, "memory"),
        Seed("made/events.out.tfevents.1.gpu7", records(VERSION, *run(40)), "job_log"),
        *(
            Seed(f"made/{name}.xplane.pb", space.SerializeToString(), "traces")
            for name, space in profiles.items()
        ),
    ]


def _panel() -> list[dict[str, Any]]:
    values = [[(T0 + 10 * n) * 1000 for n in range(30)], [300.0 + n for n in range(30)]]
    field = {"name": "Value", "type": "number", "config": {"unit": "watt"}}
    return [
        {"schema": {"name": "power", "fields": [{"name": "Time", "type": "time"},
                                                field | {"labels": {"gpu": str(gpu), "host": "n1"}}]},
         "data": {"values": values}}
        for gpu in range(4)
    ]  # fmt: skip


def _line(row: dict[str, Any]) -> bytes:
    return json.dumps(row).encode() + b"\n"


def _beginnings(file: Path) -> list[bytes]:
    """Give the content, unpacked and of large text the beginning."""
    raw = file.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        with gzip.open(file) as stream:
            raw = stream.read(1 << 20)
    if raw[257:262] == b"ustar":
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(file.read_bytes()))) as archive:
            members = [member for member in archive if member.isfile()][:2]
            return [_sliced(archive.extractfile(each).read()) for each in members]  # type: ignore[union-attr]
    is_text = b"\0" not in raw[:4096] and not raw.startswith((b"PAR1", b"\x80"))
    if is_text:
        return [_sliced(raw)]
    return [raw] if 0 < len(raw) <= LARGEST_BINARY_BYTES else []


def _sliced(raw: bytes) -> bytes:
    """Keep whole lines of a text, or whole events of a document."""
    if len(raw) <= LARGEST_BYTES:
        return raw
    head = raw[:LARGEST_BYTES]
    if raw.lstrip()[:1] == b"{" and b"traceEvents" in head:
        ends = [match.start() + 1 for match in _EVENT.finditer(head)]
        return head[: ends[-1]] + b"]}" if ends else head
    end = head.rfind(b"\n") + 1
    return head[:end] if end else head


def flagged(result: Any) -> dict[tuple[str, str], int]:
    """Count the findings that need a look, and what a table without findings dropped."""
    table = getattr(result, "sites", result)
    left_out = getattr(table, "attrs", {}).get("left_out", {})
    told = {("dropped", str(what)): int(count) for what, count in left_out.items()}
    quality = getattr(result, "quality", None)
    if quality is None:
        quality = pd.DataFrame(getattr(table, "attrs", {}).get("quality", []))
    if len(quality):
        quality = quality[~quality["finding"].isin(HARMLESS)]
        keys = zip(quality["finding"].astype(str), quality["what"].astype(str), strict=True)
        told |= dict(zip(keys, quality["count"].astype(int), strict=True))
    return told
