"""Benchmarks generated from execution traces, and the times that they print."""

from __future__ import annotations

import base64
import json
import textwrap
import zlib
from pathlib import Path
from typing import Any

import pandas as pd

from workbench._writing import write_whole
from workbench.errors import LoadError
from workbench.load._files.paths import shown
from workbench.load._files.whole_file import whole_text
from workbench.load._traces.execution import operator_schemas as schemas
from workbench.tables import OPERATOR_CALLS, OPERATOR_REPLAY

_TEMPLATE = Path(__file__).with_name("_operator_script.txt")
_FORMAT, _VERSION = "workbench operator replay", 1
_COLUMN = 90


def write_operator_benchmark(calls: pd.DataFrame, path: str | Path) -> Path:
    """Write a script that replays the operators of a trace and times each.

    The script needs PyTorch and nothing else, makes its own data and runs on any machine:
    ``python SCRIPT --device cuda --iterations 10 --out replay.json``. ``--help`` lists
    warm-up, memory and time limits, a profile, and ``--unique``, which runs calls that are
    equal only once a round. :func:`operator_replay` reads what it prints.

    Parameters
    ----------
    calls
        Table :data:`workbench.tables.OPERATOR_CALLS`; calls that cannot be replayed are
        left out.
    path
        The script; it appears complete or not at all.

    Returns
    -------
    pathlib.Path
        The script.

    Raises
    ------
    TableError
        If the frame does not fit its table.
    LoadError
        If no call can be replayed.

    Notes
    -----
    Every call is replayed alone, in the order of the trace, with tensors of the recorded
    shapes, types and strides. Floats are uniform in (0.01, 0.99), integers 1, positions
    (``indices``, ``index``, ``target``) uniform below the size they point into. Making them
    is not timed. Since calls do not pass on results, memory that one leaves in a cache is
    colder, or warmer, than in the job.

    Names and values of the trace are in the script as compressed JSON, which is decoded when
    it runs and never executed. An operator is called only if it is PyTorch's own and its
    schema there is the recorded one.
    """
    OPERATOR_CALLS.check(calls)
    replayed = calls[calls["is_replayed"]]
    if replayed.empty:
        reasons = calls["reason"].value_counts()
        why = ", ".join(f"{name} ({count:,})" for name, count in reasons.head(5).items() if count)
        msg = f"none of {len(calls):,} calls can be replayed: {why or 'there are none'}"
        raise LoadError(msg)
    listed = [_described(row) for row in replayed.itertuples()]
    packed = zlib.compress(json.dumps({"calls": listed}, separators=(",", ":")).encode(), 9)
    lines = textwrap.wrap(base64.b64encode(packed).decode(), _COLUMN)
    data = "\n".join(f'    "{line}",' for line in lines)
    script = _TEMPLATE.read_text(encoding="utf-8").replace("@DATA@", data)
    write_whole(Path(path), lambda file: file.write(script.encode()))
    return Path(path)


def operator_replay(path: str | Path) -> pd.DataFrame:
    """Read the times that a generated benchmark printed.

    Parameters
    ----------
    path
        What the script of :func:`write_operator_benchmark` wrote with ``--out``.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.OPERATOR_REPLAY`, one row per call, with a reason
        where there is no time. ``attrs["run"]`` says where and how it ran.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If the file is something else, was cut, or states impossible times.
    """
    label = shown(path)
    try:
        document = json.loads(whole_text(path))
    except (ValueError, RecursionError) as error:
        msg = f"{label}: is no whole JSON ({error}); run the script with --out once more"
        raise LoadError(msg) from error
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        msg = f"{label}: is not what a script of write_operator_benchmark prints"
        raise LoadError(msg)
    if document.get("version") != _VERSION:
        msg = f"{label}: version {document.get('version')!r} is not {_VERSION}; update workbench"
        raise LoadError(msg)
    rows, device = document.get("calls"), document.get("device")
    if not isinstance(rows, list) or device not in ("cpu", "cuda"):
        msg = f"{label}: lacks its list of calls, or the device is neither cpu nor cuda"
        raise LoadError(msg)
    table = _table(rows, device, label)
    told = ("device_name", "torch", "threads", "iterations", "warmup", "unique")
    table.attrs["run"] = {"device": device} | {key: document.get(key) for key in told}
    return table


def _described(row: Any) -> dict[str, Any]:
    """Return what the script needs of a call."""
    schema = schemas.parse(row.op_schema)
    if schema is None:
        msg = f"rank {row.rank}, node {row.node}: is_replayed, but its schema cannot be read"
        raise LoadError(msg)
    if schema.namespace != "aten" or (why := schemas.unusable(schema)):
        what = "is no operator of PyTorch" if schema.namespace != "aten" else why
        msg = f"rank {row.rank}, node {row.node}: is_replayed, but {what}"
        raise LoadError(msg)
    return {
        "nodes": [[int(row.rank), int(row.node)]],
        "name": str(row.name),
        "operator": schema.name,
        "overload": schema.overload,
        "schema": [list(argument) for argument in schema.arguments],
        "arguments": json.loads(row.arguments),
    }


def _table(rows: list[Any], device: str, label: str) -> pd.DataFrame:
    names = ("rank", "node", "name", "run_count", "host_ns", "gpu_ns", "reason")
    for at, row in enumerate(rows):
        if not isinstance(row, dict) or not _is_sound(row):
            msg = f"{label}, call {at}: has no rank, node and name, or a time that is none"
            raise LoadError(msg)
    frame = pd.DataFrame([[row.get(name) for name in names] for row in rows], columns=names)
    frame.insert(3, "device", device)
    return OPERATOR_REPLAY.check(OPERATOR_REPLAY.cast(frame), label)


def _is_sound(row: dict[str, Any]) -> bool:
    counts = [row.get(name) for name in ("rank", "node", "run_count")]
    times = [row.get(name) for name in ("host_ns", "gpu_ns")]
    return (
        all(type(count) is int and 0 <= count < 1 << 31 for count in counts)
        and all(time is None or (type(time) in (int, float) and time >= 0) for time in times)
        and isinstance(row.get("name"), str)
        and isinstance(row.get("reason"), str | None)
    )
