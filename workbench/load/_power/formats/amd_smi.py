"""Power of AMD's GPUs as amd-smi and rocm-smi print it, as CSV or JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._power.formats.prometheus_metrics import PREFERRED
from workbench.load._power.formats.repeated_tables import (
    Chunk,
    Numbers,
    Objects,
    chunks_of,
    is_absent,
)
from workbench.load._power.part import NO_TIME, PowerOptions, PowerPart, plain_name
from workbench.load._power.stamps import Gathered, paged_documents

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
_UNITS = {"micro": "uj"}
# amdsmi_get_energy_count: one count of the accumulator, unless the file states its resolution.
_JOULES_PER_COUNT = 15.3e-6
_POWERS = frozenset({"power", "average", "energy", "micro", "counts"})
_ENERGIES = ("energy", "micro", "counts")
_STATES = frozenset({"limit", "clock", "busy", "temperature"})
_METHODS = {"average": "average", "power": "instant"}
_KNOWN = re.compile(
    rb"socket_power|package power \(w\)|\bgpu,(?:xcp,)?power_usage|accumulated energy \(uj\)"
    rb'|"power_usage"|"total_energy_consumption"|\bgpu,total_energy_consumption',
    re.IGNORECASE,
)
_TABLE = re.compile(rb"^(?:timestamp|device|gpu) *,", re.MULTILINE | re.IGNORECASE)
_JSON = re.compile(rb"^[ \t]*[\[{]", re.MULTILINE)
_HEAD_BYTES = 1 << 16
_SECOND = "dies whose power the other die of their module reports (N/A by design)"
_SLICE = "partitions of a GPU, which repeat its power; taken once"
_NO_POWER = "rows of tables without power"
_OTHER = "JSON objects without a GPU"
_CARD = re.compile(r"(?:card|gpu)?(\d{1,4})", re.IGNORECASE)
# Input is hostile: JSON may be nested without end.
_DEEPEST = 6


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - content decides
    """Recognise the names of AMD's power readings in a table or in JSON."""
    return bool(_KNOWN.search(head) and (_TABLE.search(head) or _JSON.search(head)))


def read_power(source: Source, options: PowerOptions) -> PowerPart:
    """Read snapshots of ``amd-smi metric``, ``amd-smi monitor`` and ``rocm-smi``.

    The package of an MI250 has two dies, and the first reports the power of both; the second
    says ``N/A (Secondary die)``, so its readings are not lost. Of partitions the first is
    taken. Energy is in J; a raw counter counts 15.3 uJ, unless the file says another
    resolution.

    References
    ----------
    ROCm: amd-smi CLI, amdsmi_get_energy_count; rocm_smi.py.
    """
    gathered = Gathered(source, options)
    is_table = _TABLE.search(source.head(_HEAD_BYTES))
    (_read_table if is_table else _read_json)(source, gathered)
    return gathered.part(_HOW)


def _read_table(source: Source, gathered: Gathered) -> None:
    findings = gathered.findings
    for chunk in chunks_of(source, _header, gathered.stamps, findings):
        where = f"line {chunk.lines[0]:,}"
        if not _POWERS & set(chunk.cells):
            findings.add("skipped by design", _NO_POWER, len(chunk.lines), where)
            continue
        gpus = _mapped(_gpu, chunk.cells["gpu"])
        is_gpu = gpus != None  # noqa: E711 - of each row
        findings.add("dropped", _OTHER, int((~is_gpu).sum()), where)
        kept = is_gpu & ~_is_repeated(chunk, findings)
        _add_chunk(chunk.take(kept), gpus[kept], gathered)


def _is_repeated(chunk: Chunk, findings: Findings) -> npt.NDArray[np.bool_]:
    """Return which rows are of a second die, or of a partition of a GPU."""
    is_die = np.zeros(len(chunk.lines), dtype=bool)
    for role in ("power", "average"):
        if role in chunk.cells:
            is_die |= _mapped(_is_second, chunk.cells[role]).astype(bool)
    is_slice = np.zeros(len(chunk.lines), dtype=bool)
    if "slice" in chunk.cells:
        is_slice = _mapped(_is_slice, chunk.cells["slice"]).astype(bool)
    findings.add("noted", _SECOND, int(is_die.sum()), f"line {chunk.lines[0]:,}")
    findings.add("noted", _SLICE, int(is_slice.sum()), f"line {chunk.lines[0]:,}")
    return is_die | is_slice


def _add_chunk(chunk: Chunk, gpus: Objects, gathered: Gathered) -> None:
    numbers = Numbers(gathered.findings)
    order = PREFERRED[gathered.options.reading]
    powers = {kind: chunk.numbers(kind, numbers) for kind in order if kind in chunk.cells}
    codes, unique = pd.factorize(gpus)
    # Of two columns of powers a product fills one; the other says N/A.
    has_power = {kind: np.bincount(codes[~np.isnan(watts)], minlength=len(unique)) > 0
                 for kind, watts in powers.items()}  # fmt: skip
    kinds = [
        next((kind for kind in powers if has_power[kind][code]), next(iter(powers), ""))
        for code in range(len(unique))
    ]
    models = chunk.cells.get("model")
    first = np.unique(codes, return_index=True)[1]
    names = [
        _known(gathered, gpu, kind, None if models is None else models[at])
        for gpu, kind, at in zip(unique, kinds, first, strict=True)
    ]
    where = (names, codes, chunk.times(gathered.stamps, gpus), chunk.lines)
    if powers:
        taken = np.array(kinds, dtype=object)[codes]
        watts = np.select([taken == kind for kind in powers], list(powers.values()), np.nan)
        gathered.readings.add_table(*where, [watts])
    if role := next((role for role in _ENERGIES if role in chunk.cells), ""):
        counted = chunk.numbers(role, numbers, _UNITS.get(role, ""))
        if role == "counts":
            resolution = chunk.numbers("resolution", numbers, "uj")
            counted = counted * np.where(np.isnan(resolution), _JOULES_PER_COUNT, resolution)
        gathered.counters.add_table(*where, [counted])
    if _STATES & set(chunk.cells):
        states = chunk.states(numbers)
        is_known = ~np.isnan(states).all(axis=0)
        columns = [column[is_known] for column in states]
        _, _, time_ns, lines = where
        rows = (codes[is_known], time_ns[is_known], lines[is_known])
        gathered.states.add_table(names, *rows, columns)
        limits = pd.Series(states[0]).groupby(np.array(names, dtype=object)[codes]).last().dropna()
        for name, limit in limits.items():
            gathered.entities[str(name)]["limit_w"] = float(limit)


def _known(gathered: Gathered, gpu: str, kind: str, model: object) -> str:
    node = gathered.options.node
    name = f"{node}/gpu{gpu}" if node else f"gpu{gpu}"
    facts = gathered.entities.setdefault(name, {
        "scope": "gpu", "method": _METHODS.get(kind, "unknown"), "unit": "W", "node": node,
        "device": gpu, "model": None,
    })  # fmt: skip
    if isinstance(model, str) and facts["model"] is None:
        facts["model"] = plain_name(model)
    return name


def _mapped(function: Callable[[str], object], texts: Objects) -> Objects:
    codes, unique = pd.factorize(texts, use_na_sentinel=False)
    result = np.empty(len(unique), dtype=object)
    result[:] = [function(text) for text in unique]
    return result[codes]


def _header(cells: Sequence[str]) -> Mapping[str, int] | None:
    by_name = [(role, at) for at, cell in enumerate(cells) if (role := _role(cell))]
    # Reversed, so that of two columns of one role the first stays.
    roles = dict(reversed(by_name))
    is_header = "gpu" in roles and not any(cell.replace(".", "").isdecimal() for cell in cells)
    return roles if is_header and len(cells) > 1 else None


def _role(name: str) -> str | None:
    match = _ROLE_OF.fullmatch(name.strip().lower())
    return match.lastgroup if match else None


def _read_json(source: Source, gathered: Gathered) -> None:
    stamps, findings = gathered.stamps, gathered.findings
    # Objects with the same fields are rows of one table.
    rows: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
    for line, document, page in paged_documents(source, stamps, findings):
        result = False
        for gpu, metrics, outer in _gpus(document):
            flat: dict[str, Any] = {}
            for role, value in _flat(metrics):
                # Releases name one power in two ways, and fill one of them.
                if role not in flat or not is_absent(value):
                    flat[role] = value
            if _POWERS & set(flat):
                result = True
                time = flat.pop("time", outer)
                time_ns = page.time_ns(gpu) if time is None else stamps.ns(time, line)
                time_ns = NO_TIME if time_ns is None else time_ns
                row = (line, gpu, time_ns, *map(_plain, flat.values()))
                rows.setdefault(tuple(flat), []).append(row)
        findings.add("skipped by design", _OTHER, int(not result), f"line {line:,}")
    for roles, subset in rows.items():
        arrays = (np.array(metrics, dtype=object) for metrics in zip(*subset, strict=True))
        lines, gpus, times, *columns = arrays
        total = (lines.astype(np.int64), np.arange(len(lines)), times.astype(np.int64))
        chunk = Chunk(total[0], dict(zip(roles, columns, strict=True)), *total[1:])
        kept = ~_is_repeated(chunk, findings)
        _add_chunk(chunk.take(kept), gpus[kept], gathered)


def _plain(value: Any) -> str:
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return "" if value is None else str(value) if is_plain else repr(value)[:40]


def _gpus(document: Any) -> Iterator[tuple[str, dict[str, Any], Any]]:
    outer = document.get("timestamp") if isinstance(document, dict) else None
    if isinstance(document, dict) and isinstance(document.get("gpu_data"), list):
        document = document["gpu_data"]
    if isinstance(document, dict) and "gpu" not in document:
        for name, metrics in document.items():
            if isinstance(metrics, dict) and (match := _CARD.fullmatch(str(name))):
                yield str(int(match[1])), metrics, outer
        return
    for metrics in document if isinstance(document, list) else [document]:
        gpu = _gpu(metrics.get("gpu")) if isinstance(metrics, dict) else None
        if gpu is not None:
            yield gpu, metrics, outer


def _flat(metrics: Mapping[str, Any], path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    for key, value in metrics.items():
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


def _is_second(text: str) -> bool:
    return "secondary die" in text.lower()


def _is_slice(text: str) -> bool:
    return text.strip().lower() not in ("0", "n/a", "")


def _gpu(value: object) -> str | None:
    match = _CARD.fullmatch(str(value).strip()) if isinstance(value, str | int) else None
    return str(int(match[1])) if match else None
