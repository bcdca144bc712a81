"""Benchmarks generated from execution traces, and the times that they print."""

from __future__ import annotations

import base64
import json
import re
import textwrap
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from workbench._writing import write_whole
from workbench.errors import LoadError
from workbench.load._files.archive import shown
from workbench.load._files.whole_file import whole_text
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
        dropped.
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
    schema = parse(row.op_schema)
    if schema is None:
        msg = f"rank {row.rank}, node {row.node}: is_replayed, but its schema cannot be read"
        raise LoadError(msg)
    if schema.namespace != "aten" or (why := unusable(schema)):
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


# Operator schemas as PyTorch writes them, and which of them may be called.

_NAME = re.compile(r"([A-Za-z_]\w{0,99})::([A-Za-z_]\w{0,99})(?:\.([A-Za-z_]\w{0,99}))?")
_ARGUMENT = re.compile(r"(?P<type>\S.*?) (?P<name>[A-Za-z_]\w*)(?:=.*)?", re.DOTALL)
_MOST_CHARACTERS = 20_000
# Types of which values can be made from what a trace records.
_VALUES = {
    "Tensor", "Scalar", "int", "float", "bool", "ScalarType", "Layout", "Device", "MemoryFormat",
    "Generator",
}  # fmt: skip
# Texts steer an operator or name a file; only the former are let through.
_TEXTS = {"rounding_mode", "approximate", "reduce", "mode", "padding", "indexing", "side"}


class Argument(NamedTuple):
    """One argument of a schema: its type without aliases and lengths, and its name."""

    type: str
    name: str
    is_keyword: bool


class Schema(NamedTuple):
    """An operator: namespace, name, overload ('' for the default one), arguments."""

    namespace: str
    name: str
    overload: str
    arguments: tuple[Argument, ...]


def parse(text: str) -> Schema | None:
    """Read a schema; None if it is none.

    Examples
    --------
    >>> schema = parse("aten::add.Tensor(Tensor(a!) self, *, Scalar alpha=1) -> Tensor")
    >>> schema.name, schema.overload, schema.arguments[1]
    ('add', 'Tensor', Argument(type='Scalar', name='alpha', is_keyword=True))
    """
    named = _NAME.match(text) if len(text) <= _MOST_CHARACTERS else None
    if named is None or text[named.end() : named.end() + 1] != "(":
        return None
    parts = _split(text[named.end() + 1 :])
    if parts is None:
        return None
    arguments: list[Argument] = []
    is_keyword = False
    for part in parts:
        if part == "*":
            is_keyword = True
            continue
        fits = _ARGUMENT.fullmatch(part)
        if fits is None:
            return None
        arguments.append(Argument(plain_type(fits["type"]), fits["name"], is_keyword))
    namespace, name, overload = named.groups()
    return Schema(namespace, name, overload or "", tuple(arguments))


def plain_type(text: str) -> str:
    """Return a type without aliases, symbolic numbers and fixed lengths.

    Examples
    --------
    >>> plain_type("Tensor(a!)[]"), plain_type("SymInt[2]?")
    ('Tensor[]', 'int[]?')
    """
    bare = re.sub(r"\([^()]*\)", "", text).replace("SymInt", "int")
    return re.sub(r"\[\d+\]", "[]", bare).strip()


def unusable(schema: Schema) -> str | None:
    """Say why an operator must not or cannot be called with recorded values; None if it can."""
    for argument in schema.arguments:
        bare = argument.type.replace("?", "").replace("[]", "")
        if bare == "str" and argument.name in _TEXTS:
            continue
        if bare not in _VALUES:
            known = bare if re.fullmatch(r"\w{1,30}", bare) else "unknown type"
            return f"takes a {known}, which a trace does not hold"
    return None


def _split(text: str) -> list[str] | None:
    """Cut the arguments at their commas; None if the list does not end."""
    parts: list[str] = []
    depth = begin = 0
    quote = ""
    for at, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign in "([":
            depth += 1
        elif sign in ")]" and depth:
            depth -= 1
        elif sign in ",)" and depth == 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
            if sign == ")":
                return [part for part in parts if part]
    return None
