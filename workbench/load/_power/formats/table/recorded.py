"""Recordings of ``workbench record``: Parquet parts that state how they were sampled."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.json_events import to_integer
from workbench.load._power.part import (
    STATE_COLUMNS,
    WHOLE_STATES,
    BesidePowerError,
    NoPowerError,
    PowerOptions,
    PowerPart,
)

NAME = "recording of the workbench"
KEY = b"workbench.recording"
_VERSION = 1
_READINGS = {"average": ("average_w", "average"), "instant": ("instant_w", "instant")}
_LONGEST_JSON = 1 << 20


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - the name says nothing
    """Recognise the file beside the parts; the parts are recognised by their end."""
    return head.lstrip().startswith(b'{\n  "workbench_recording"')


def read_power(source: Source, options: PowerOptions) -> PowerPart:  # noqa: ARG001 - as all readers
    """Report what the recorder could not sample; the readings are in the other parts."""
    with source.open() as stream:
        text = stream.read(_LONGEST_JSON)
    about: Any = None
    try:
        about = json.loads(text)
        missing, error = about.get("missing", []), about.get("error", "")
    except (ValueError, RecursionError, AttributeError):
        missing, error = [], "this file is damaged, so it does not say how the recording ended"
    if error:
        lost = to_integer(about.get("lost_count")) if isinstance(about, dict) else None
        also = f"; {lost:,} readings are lost" if lost else ""
        msg = f"{source.label}: the recording ended early: {str(error)[:300]}{also}"
        raise NoPowerError(msg)
    reasons = [str(reason)[:200] for reason in missing] if isinstance(missing, list) else []
    not_sampled = "; ".join(reasons) or "nothing"
    msg = f"{source.label}: about the recording beside it; not sampled: {not_sampled}"
    raise BesidePowerError(msg)


def sensors_of(metadata: dict[bytes, bytes] | None, label: str) -> list[dict[str, Any]] | None:
    """Return what a Parquet file says of its sensors; None if the recorder did not write it."""
    if not metadata or KEY not in metadata:
        return None
    try:
        note = json.loads(metadata[KEY])
        version, sensors = note["version"], note["sensors"]
        described = [{"entity": str(sensor["entity"]), **sensor} for sensor in sensors]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        msg = f"{label}: says that `workbench record` wrote it, but not what was sampled"
        raise LoadError(msg) from None
    if version != _VERSION:
        msg = f"{label}: is a recording of version {version!r}; this workbench reads {_VERSION}"
        raise LoadError(msg)
    return described


def recorded(
    file: pq.ParquetFile, sensors: list[dict[str, Any]], source: Source, options: PowerOptions
) -> PowerPart:
    findings = Findings(source.label)
    try:
        frame = file.read().to_pandas()
        frame["line"] = pd.RangeIndex(1, len(frame) + 1).astype("int64")
        base = frame[["time_ns", "entity", "line"]].astype({"time_ns": "int64"})
        column, method = _READINGS.get(options.reading or "", ("power_w", None))
        readings = base.assign(power_w=frame[column].astype("float64"))
        counters = base.assign(energy_j=frame["energy_j"].astype("float64"))
        states = base.copy()
        for name in STATE_COLUMNS:
            states[name] = frame[name].astype("Int64" if name in WHOLE_STATES else "float64")
    except (KeyError, ValueError, TypeError, OSError, pa.ArrowException) as error:
        msg = f"{source.label}: is not a whole part of a recording ({str(error)[:200]})"
        raise LoadError(msg) from None
    findings.add("read", "moments of sensors", len(frame))
    # A counter alone has no power to be missing.
    metered = readings.groupby("entity", observed=True)["power_w"].transform("count") > 0
    labels = states[list(STATE_COLUMNS)].notna().any(axis=1)
    counters = counters[counters["energy_j"].notna()].reset_index(drop=True)
    entities = {sensor["entity"]: _facts(sensor, method) for sensor in sensors}
    readings, states = (frame[kept].reset_index(drop=True)
                        for frame, kept in ((readings, metered), (states, labels)))  # fmt: skip
    return PowerPart(readings, entities, findings, counters, states)


def _facts(sensor: dict[str, Any], method: str | None) -> dict[str, Any]:
    texts = {name: sensor.get(name) for name in ("scope", "method", "device", "model")}
    words = {name: str(value) for name, value in texts.items() if value is not None}
    node = str(sensor["entity"]).partition("/")[0]
    facts = {"scope": "unknown", "method": "unknown"} | words | {"node": node, "unit": "W"}
    return facts | ({"method": method} if method else {})
