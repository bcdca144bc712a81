"""Series in the data frames of Grafana: *Inspect > JSON* of a panel, and answers of its API."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.stream import plain_name
from workbench.load._files.tables import text_documents
from workbench.load._files.text import tell_of_damage
from workbench.load._power.formats.prometheus_metrics import meaning_of

Floats = npt.NDArray[np.float64]
# Name, labels, times in ns, values and where each stands.
Framed = tuple[str, dict[str, str], npt.NDArray[np.int64], Floats, npt.NDArray[np.int64]]

_FRAME = re.compile(rb'"fields"\s*:\s*\[')
# Grafana's names of units, and how a legend ends that states one.
_UNITS = {"watt": 1.0, "kwatt": 1e3, "megwatt": 1e6, "Mwatt": 1e6, "mwatt": 1e-3}
_STATED = {"W": 1.0, "kW": 1e3, "MW": 1e6, "mW": 1e-3}
_UNIT = re.compile(r"[(\[]\s*(k|M|m)?W(?:atts?)?\s*[)\]]\s*$")
_GPU = re.compile(r"\bGPU[\s_-]?(\d{1,4})\b", re.IGNORECASE)
_GPU_LABELS = ("gpu", "gpu_id", "UUID", "uuid")
_HOSTS = ("Hostname", "hostname", "host", "node", "instance", "exported_instance", "nodename")
_METRIC = re.compile(r"[A-Za-z_:][\w:]*")
_NO_NAMES = ("", "Value", "value")
_LATEST_MS = 9e12
_NOT_TIMED = "samples without a time"


def looks_like_frames(head: bytes) -> bool:
    """Recognise data frames by the list of their fields."""
    return b'"resultType"' not in head and b'"time"' in head and bool(_FRAME.search(head))


def framed(source: Source, findings: Findings) -> Iterator[Framed]:
    """Yield the series of all frames of a file.

    References
    ----------
    Grafana: data frames, JSON of ``data.FrameToJSON`` (grafana-plugin-sdk-go).
    """
    with source.open() as stream:
        raw = stream.read()
        tell_of_damage(stream, findings)
    number = 0
    for _, document in text_documents(raw.decode("utf-8", "replace").lstrip("\ufeff"), findings):
        for fields, columns, name in _frames(document):
            times = next((at for at, field in enumerate(fields) if _is(field, "time")), None)
            for at, field in enumerate(fields):
                if not _is(field, "number"):
                    continue
                number += 1
                if times is None:
                    findings.add("dropped", "series of a frame without times", 1)
                    continue
                yield _series(field, name, (columns[times], columns[at]), (number, findings))


def _is(field: Mapping[str, Any], kind: str) -> bool:
    return field.get("type") == kind


def _frames(document: Any) -> Iterator[tuple[list[Any], list[Sequence[Any]], str]]:
    """Yield fields, columns and name of each frame, wherever it lies in the document."""
    left = [document]
    while left:
        node = left.pop()
        if isinstance(node, list):
            left += reversed(node)
        elif isinstance(node, dict):
            schema = node.get("schema")
            head = schema if isinstance(schema, dict) else node
            fields = head.get("fields")
            if isinstance(fields, list) and all(isinstance(field, dict) for field in fields):
                yield fields, _columns(fields, node.get("data")), str(head.get("name") or "")
            else:
                left += [child for child in node.values() if isinstance(child, list | dict)][::-1]


def _columns(fields: Sequence[Mapping[str, Any]], data: Any) -> list[Sequence[Any]]:
    data = data if isinstance(data, dict) else {}
    stored, entities = data.get("values"), data.get("entities")
    columns: list[Sequence[Any]] = []
    for at, field in enumerate(fields):
        values = stored[at] if isinstance(stored, list) and at < len(stored) else None
        values = values if isinstance(values, list) else field.get("values")
        values = list(values) if isinstance(values, list) else []
        # What JSON has no number for is listed beside the values.
        odd = entities[at] if isinstance(entities, list) and at < len(entities) else None
        for places in odd.values() if isinstance(odd, dict) else ():
            for place in places if isinstance(places, list) else ():
                if isinstance(place, int) and 0 <= place < len(values):
                    values[place] = None
        columns.append(values)
    return columns


def _series(
    field: Mapping[str, Any],
    frame: str,
    columns: tuple[Sequence[Any], Sequence[Any]],
    context: tuple[int, Findings],
) -> Framed:
    number, findings = context
    config = field["config"] if isinstance(field.get("config"), dict) else {}
    told = field["labels"] if isinstance(field.get("labels"), dict) else {}
    labels = {str(key): value for key, value in told.items() if isinstance(value, str)}
    count = min(map(len, columns))
    time_ms, values = (_numbers(column[:count]) for column in columns)
    is_timed = (time_ms > 0) & (time_ms < _LATEST_MS)
    findings.add("dropped", _NOT_TIMED, int((~is_timed).sum()), f"series {number:,}")
    time_ns = np.rint(time_ms[is_timed]).astype(np.int64) * 1_000_000
    legends = (config.get("displayName"), config.get("displayNameFromDS"), field.get("name"), frame)
    legend = next((text for text in legends if isinstance(text, str) and text not in _NO_NAMES), "")
    name, factor = labels.pop("__name__", "") or legend, 1.0
    # Legends are sentences, in which words like kW do not make a metric.
    if not _METRIC.fullmatch(name) or meaning_of(name) is None:
        stated = _UNIT.search(legend)
        unit = _UNITS.get(str(config.get("unit"))) or (
            _STATED[f"{stated[1] or ''}W"] if stated else None
        )
        if not labels and (gpu := _GPU.search(legend)):
            labels["gpu"] = gpu[1]
        is_gpu = any(labels.get(label) for label in _GPU_LABELS)
        name = "" if unit is None else "gpu_power_watts" if is_gpu else "power_watts"
        factor = unit or 1.0
        if not is_gpu:
            rest = ",".join(f"{k}={v}" for k, v in sorted(labels.items()) if k not in _HOSTS)
            labels["name"] = plain_name(rest or _UNIT.sub("", legend).strip() or f"series {number}")
    return name, labels, time_ns, values[is_timed] * factor, np.full(len(time_ns), number)


def _numbers(column: Sequence[Any]) -> Floats:
    return np.array(
        [float(value) if type(value) in (int, float) and abs(value) < 1e18 else np.nan
         for value in column], np.float64,
    )  # fmt: skip
