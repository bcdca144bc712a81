"""The smallest traces, made by hand, and tables of power."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workbench.load._files.archive import sources
from workbench.load._power.formats.table import reader as power_table
from workbench.load._power.part import PowerOptions


def event(name, ts, dur=1, *, cat="cpu_op", ph="X", pid=1, tid=1, **args):
    """Make one complete event; times in µs."""
    made = {"ph": ph, "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur}
    return {**made, "args": args} if args else made


def launched(correlation, ts, *, kernel="gemm", gap=10, dur=5, stream=7, call="cudaLaunchKernel"):
    """Make a launch call and the kernel it launches."""
    return [
        event(call, ts, 2, cat="cuda_runtime", correlation=correlation),
        event(
            kernel, ts + gap, dur, cat="kernel", pid=0, tid=stream,
            correlation=correlation, stream=stream, device=0,
        ),
    ]  # fmt: skip


@pytest.fixture
def trace_file(tmp_path):
    """Write a Kineto file of events (or of the raw text of the event list); return its path."""

    def write(events, *, name="trace.json", bare=False, **metadata):
        listed = events if isinstance(events, str) else json.dumps(events)
        before = json.dumps({"schemaVersion": 1, **metadata})[:-1]
        text = listed if bare else f'{before}, "traceEvents": {listed}, "traceName": "t.json"}}'
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = text.encode("utf-8", "surrogateescape")
        path.write_bytes(gzip.compress(raw, mtime=0) if name.endswith(".gz") else raw)
        return path

    return write


@pytest.fixture(params=["python", "compiled"])
def engine(request):
    """Both parsers, which must behave alike."""
    if request.param == "compiled":
        request.getfixturevalue("compiled_scanner")
    return request.param


@pytest.fixture(scope="session")
def compiled_scanner(compiled):
    return compiled("workbench.load._traces.kineto._scanner")


@pytest.fixture
def read_table(tmp_path):
    """Write a table of power and read it with the reader of plain tables alone."""

    def do(content, name="table.csv", **given):
        path = tmp_path / name
        if isinstance(content, pa.Table):
            pq.write_table(content, path)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content)
        source = sources(path)[0]
        assert power_table.looks_like(source.head(1 << 16), source.label)
        return power_table.read_power(source, PowerOptions(**given))

    return do
