"""Power of AMD's GPUs as amd-smi and rocm-smi print it, as CSV or JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.load._findings import Findings
from workbench.load._power_part import PowerGiven, PowerPart
from workbench.load._power_samples import (
    STATE_COLUMNS,
    Rows,
    described,
    part_of,
    plain_name,
    settled,
    states_frame,
)
from workbench.load._power_stamps import Stamps, paged_documents
from workbench.load._power_table import Numbers, rows_of
from workbench.load._prometheus_metrics import PREFERRED
from workbench.load.archive import Source

NAME = "amd-smi or rocm-smi"

_HOW = (
    "Log with 'amd-smi metric --power --energy --watch 1 --csv --file power.csv', which writes "
    "the time, or put the output of 'date -u +%FT%TZ' before every snapshot"
)
# Where amd-smi and rocm-smi keep what: path of JSON or column of CSV, in lower case.
_ROLES = {
    "power": r"(?:power/)?(?:socket_power|current_socket_power|power_usage)"
    r"|current socket graphics package power \(w\)",
    "average": r"(?:power/|gpu_metrics/)?average_socket_power"
    r"|average graphics package power \(w\)",
    "energy": r"(?:energy/)?total_energy_consumption",
    "micro": r"accumulated energy \(uj\)",
    "counts": r"(?:energy/)?energy_accumulator",
    "resolution": r"(?:energy/)?counter_resolution",
    "limit": r"limit/socket_power(?:_limit)?|(?:power/)?power_cap"
    r"|max graphics package power \(w\)",
    "clock": r"clock/gfx_0/clk|gfx_clk|gfx_clock|gfx_0_clk",
    "busy": r"(?:usage/)?gfx_activity|gfx|gfx_util|gpu use \(%\)",
    "temperature": r"(?:temperature/)?hotspot|hotspot_temperature"
    r"|temperature \(sensor junction\) \(c\)",
    "time": r"timestamp|time|date",
    "gpu": r"gpu|device|gpu_id|gpu_index|card",
    "slice": r"xcp|partition_id",
    "model": r"card series|market_name|(?:asic|board)/(?:market_name|product_name)",
}
_ROLE_OF = re.compile("|".join(f"(?P<{role}>{form})" for role, form in _ROLES.items()))
_UNITS = {"busy": "%", "micro": "uj", "resolution": "uj"}
_JOULES_PER_COUNT = 15.3e-6
_NUMBERS = frozenset(_ROLES) - {"time", "gpu", "slice", "model"}
_POWERS = frozenset({"power", "average", "energy", "micro", "counts"})
_KNOWN = re.compile(
    rb"socket_power|package power \(w\)|\bgpu,(?:xcp,)?power_usage|accumulated energy \(uj\)"
    rb'|"power_usage"|(?-i:\btotal_energy_consumption\b)',
    re.IGNORECASE,
)
_TABLE = re.compile(rb"^(?:timestamp|device|gpu) *,", re.MULTILINE | re.IGNORECASE)
_JSON = re.compile(rb"^[ \t]*[\[{]", re.MULTILINE)
_HEAD_BYTES = 1 << 16
_SECONDARY = "secondary die"
_SECOND = "dies whose power the other die of their module reports (N/A by design)"
_SLICE = "partitions of a GPU, which repeat its power; taken once"
_NO_POWER = "rows of tables without power"
_OTHER = "JSON objects without a GPU"
_CARD = re.compile(r"(?:card|gpu)?(\d{1,4})", re.IGNORECASE)
_DEEPEST = 6


@dataclass
class _Reading:
    """What one snapshot says of one GPU."""

    line: int
    gpu: str
    time_ns: int | None
    model: str | None = None
    values: dict[str, float | None] = field(default_factory=dict)


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - content decides
    """Recognise the names of AMD's power readings in a table or in JSON."""
    return bool(_KNOWN.search(head) and (_TABLE.search(head) or _JSON.search(head)))


def read_power(source: Source, given: PowerGiven) -> PowerPart:
    """Read snapshots of ``amd-smi metric``, ``amd-smi monitor`` and ``rocm-smi``.

    The package of an MI250 has two dies, and the first reports the power of both; the second
    says ``N/A (Secondary die)``, so its readings are not lost. Of partitions the first is
    taken. Energy is in J; a raw counter counts 15.3 uJ, unless the file says another
    resolution.

    Raises
    ------
    LoadError
        If a stamp is local and ``given.tz`` is not set, or snapshots without a time follow each
        other and ``given.period_s`` is not set.

    References
    ----------
    ROCm: amd-smi CLI, amdsmi_get_energy_count; rocm_smi.py.
    """
    findings = Findings(source.label)
    stamps = Stamps(source.label, given, findings)
    is_table = _TABLE.search(source.head(_HEAD_BYTES))
    readings = (_of_table if is_table else _of_json)(source, stamps, findings)
    rows = Rows("power_w"), Rows("energy_j"), Rows(*STATE_COLUMNS)
    entities: dict[str, dict[str, Any]] = {}
    for each in readings:
        name = f"gpu{each.gpu}" if each.gpu.isdecimal() else each.gpu
        name = f"{given.node}/{name}" if given.node else name
        kind = _add(name, each, rows, given)
        known = entities.get(name) or _entity(each, kind, given)
        entities[name] = known
        known["model"] = known["model"] or each.model
        if each.values.get("limit") is not None:
            known["limit_w"] = each.values["limit"]
    frames = [rows[0].frame(), rows[1].frame(), states_frame(rows[2])]
    frames, clock = settled(frames, findings, _HOW, given)
    return part_of(frames, described(entities, clock, stamps.assumed), findings)


def _entity(each: _Reading, kind: str, given: PowerGiven) -> dict[str, Any]:
    method = {"average": "average", "power": "instant"}.get(kind, "unknown")
    found = {"scope": "gpu", "method": method, "node": given.node, "device": each.gpu}
    return found | {"model": each.model, "unit": "W", "assumed": ""}


def _add(name: str, each: _Reading, rows: tuple[Rows, Rows, Rows], given: PowerGiven) -> str:
    """Add a reading to the rows of the tables; return which kind of power was taken."""
    kind = next((kind for kind in PREFERRED[given.reading] if kind in each.values), "")
    if kind:
        rows[0].add(name, each.time_ns, each.line, each.values[kind])
    if {"energy", "micro", "counts"} & set(each.values):
        rows[1].add(name, each.time_ns, each.line, _joules(each.values))
    limit, clock, busy = (each.values.get(role) for role in ("limit", "clock", "busy"))
    limit, clock = (None if v is not None and v < 0 else v for v in (limit, clock))
    busy = busy if busy is not None and 0 <= busy <= 1 else None
    states = [limit, clock, busy, each.values.get("temperature")]
    if any(value is not None for value in states):
        rows[2].add(name, each.time_ns, each.line, *states, None, None)
    return kind


def _joules(values: Mapping[str, float | None]) -> float | None:
    for role in ("energy", "micro"):
        if role in values:
            return values[role]
    counts = values["counts"]
    return None if counts is None else counts * (values.get("resolution") or _JOULES_PER_COUNT)


def _of_table(source: Source, stamps: Stamps, findings: Findings) -> Iterator[_Reading]:
    numbers = Numbers(findings)
    for row in rows_of(source, _header, stamps, findings):
        if not _POWERS & set(row.roles):
            findings.add("set aside", _NO_POWER, 1, f"line {row.line:,}")
            continue
        values = {role: row.cells[at] for role, at in row.roles.items()}
        gpu = _gpu(values.get("gpu"))
        if gpu is None:
            findings.add("left out", _OTHER, 1, f"line {row.line:,}")
            continue
        time = values.get("time")
        time_ns = row.page.time_ns(gpu) if time is None else stamps.ns(time, row.line)
        if each := _reading(values, (row.line, gpu, time_ns), numbers):
            yield each


def _header(cells: Sequence[str]) -> Mapping[str, int] | None:
    """Return what the columns are, if these are the names of columns."""
    named = [(role, at) for at, cell in enumerate(cells) if (role := _role(cell))]
    roles = dict(reversed(named))
    is_header = "gpu" in roles and not any(cell.replace(".", "").isdecimal() for cell in cells)
    return roles if is_header and len(cells) > 1 else None


def _role(name: str) -> str | None:
    match = _ROLE_OF.fullmatch(name.strip().lower())
    return match.lastgroup if match else None


def _of_json(source: Source, stamps: Stamps, findings: Findings) -> Iterator[_Reading]:
    numbers = Numbers(findings)
    for line, document, page in paged_documents(source, stamps, findings):
        found = False
        for gpu, each, outer in _gpus(document):
            flat = dict(_flat(each))
            time = flat.get("time", outer)
            time_ns = page.time_ns(gpu) if time is None else stamps.ns(time, line)
            if reading := _reading(flat, (line, gpu, time_ns), numbers):
                found = True
                yield reading
        findings.add("set aside", _OTHER, int(not found), f"line {line:,}")


def _gpus(document: Any) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Give number and object of every GPU of a document, and a time that is that of all."""
    outer = document.get("timestamp") if isinstance(document, dict) else None
    if isinstance(document, dict) and isinstance(document.get("gpu_data"), list):
        document = document["gpu_data"]
    if isinstance(document, dict) and "gpu" not in document:
        for name, each in document.items():
            if isinstance(each, dict) and (match := _CARD.fullmatch(str(name))):
                yield str(int(match[1])), each, outer
        return
    for each in document if isinstance(document, list) else [document]:
        gpu = _gpu(each.get("gpu")) if isinstance(each, dict) else None
        if gpu is not None:
            yield gpu, each, outer


def _flat(each: Mapping[str, Any], path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Give role and value of what an object holds; a value may carry its unit."""
    for key, value in each.items():
        inner = f"{path}{str(key).strip().lower()}"
        role = _role(inner)
        if isinstance(value, dict) and "value" not in value and depth < _DEEPEST:
            yield from _flat(value, f"{inner}/", depth + 1)
        elif role and isinstance(value, dict):
            unit = value.get("unit")
            is_plain = isinstance(value["value"], int | float) and isinstance(unit, str)
            yield role, f"{value['value']} {unit}" if is_plain else value["value"]
        elif role:
            yield role, value


def _reading(
    values: Mapping[str, Any], where: tuple[int, str, int | None], numbers: Numbers
) -> _Reading | None:
    """Return the numbers of one GPU in the units of the tables."""
    line, gpu, time_ns = where
    findings = numbers.findings
    if any(_SECONDARY in str(values.get(role, "")).lower() for role in ("power", "average")):
        findings.add("noted", _SECOND, 1, f"line {line:,}: {gpu}")
        return None
    if str(values.get("slice", "0")).strip().lower() not in ("0", "n/a", ""):
        findings.add("noted", _SLICE, 1, f"line {line:,}")
        return None
    if not _POWERS & set(values):
        return None
    read = {
        role: numbers.read(value, line, _UNITS.get(role, ""))
        for role, value in values.items()
        if role in _NUMBERS
    }
    model = values.get("model")
    model = plain_name(model) if isinstance(model, str) else None
    return _Reading(line, gpu, time_ns, model, read)


def _gpu(value: object) -> str | None:
    match = _CARD.fullmatch(str(value).strip()) if isinstance(value, str | int) else None
    return str(int(match[1])) if match else None
