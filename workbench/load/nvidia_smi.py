"""Logs of ``nvidia-smi --query-gpu=... --format=csv``, however they were asked and kept."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load._findings import Findings
from workbench.load._nvidia_columns import Columns, columns_of
from workbench.load._nvidia_csv import Reader, Table, blocks_of
from workbench.load._nvidia_devices import Device, Devices, devices_of
from workbench.load._nvidia_methods import method_of
from workbench.load._nvidia_stamps import utc_ns
from workbench.load._power_part import NoPowerError, PowerGiven, PowerPart
from workbench.load._text_lines import tell_of_damage
from workbench.load._zones import no_zone, zone_of
from workbench.load.archive import Source

NAME = "nvidia-smi --query-gpu CSV"
_HEADER = re.compile(
    rb'^[^\n]*\bpower\.draw[\w.]*\s*(?:\[\w*\])?\s*"?\s*(?:[,;\t\r\n]|\Z)', re.MULTILINE
)
_ASK = "log with --query-gpu=timestamp,index,power.draw,enforced.power.limit --format=csv"
_OTHERS = "columns with another reading of power that are not taken (reading= chooses)"


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - the name says nothing
    """Recognise a header that names ``power.draw`` among other columns."""
    match = _HEADER.search(head)
    return bool(match) and not match[0].lstrip().startswith((b"#", b"{"))


def read_power(source: Source, given: PowerGiven) -> PowerPart:
    """Read the log of one host; a header inside the file starts a table anew.

    ``method`` is told by the column (``power.draw.instant``, ``power.draw.average``); of plain
    ``power.draw`` only the name of the product tells it: the mean of the last second from
    Ampere on, the instant before.

    Raises
    ------
    LoadError
        If stamps need a zone and none is given, or the zone cannot have had them.
    """
    findings = Findings(source.label)
    reader: Reader | None = None
    with source.open() as stream:
        for number, block in blocks_of(stream, findings):
            if reader is None:
                reader = Reader(_first_header(block, source.label, given), given, findings)
                reader.read(number, block, is_header_known=False)
            else:
                reader.read(number, block, is_header_known=True)
        tell_of_damage(stream, findings)
    if reader is None:
        msg = f"{source.label}: holds no header of nvidia-smi; {_ASK}"
        raise NoPowerError(msg)
    return part_of(reader.table, given, findings)


def _first_header(block: bytes, label: str, given: PowerGiven) -> Columns:
    match = _HEADER.search(block)
    start = block.rfind(b"\n", 0, match.start() + 1) + 1 if match else 0
    line = block[start : block.find(b"\n", start) if b"\n" in block[start:] else None]
    columns = columns_of(line.decode(errors="replace"), given)
    if columns is None:
        msg = f"{label}: holds no header of nvidia-smi that names power.draw; {_ASK}"
        raise NoPowerError(msg)
    if "power" not in columns.at:
        found = ", ".join(columns.other_powers)
        kind = "module " if given.scope == "module" else ""
        msg = f"{label}: has no {kind}column for reading={given.reading!r}; it has {found}"
        raise NoPowerError(msg)
    if "time" not in columns.at:
        msg = f"{label}: has no column 'timestamp', only {', '.join(columns.names[:8])}; {_ASK}"
        raise NoPowerError(msg)
    return columns


def part_of(table: Table, given: PowerGiven, findings: Findings) -> PowerPart:
    """Make a part of the rows of a file."""
    batches = table.batches
    if not batches:
        if table.first_bad_stamp:
            msg = (
                f"{findings.source}: {table.first_bad_stamp!r} is no stamp like "
                "2025/01/31 08:00:00.000, nor is any other in its column"
            )
            raise NoPowerError(msg)
        msg = f"{findings.source}: holds a header and no readings"
        raise NoPowerError(msg)
    lines = np.concatenate([batch.lines for batch in batches])
    local = np.concatenate([batch.local_ns for batch in batches])
    if given.tz is None:
        text = pd.Timestamp(int(local[0])).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
        raise no_zone(label=findings.source, line=int(lines[0]), text=text)
    times = utc_ns(local, lines, zone_of(given.tz), findings.source)
    keys = np.concatenate([batch.keys for batch in batches])
    found = devices_of(table.keys, keys, times, lines, given.node, findings)
    kept, times, lines = found.kept, times[found.kept], lines[found.kept]
    entity = _entity(found)
    readings = pd.DataFrame(
        {"time_ns": times, "entity": entity, "power_w": _column(table, "power")[kept],
         "line": lines}, copy=False,
    )  # fmt: skip
    counters = None
    if any("energy" in batch.numbers for batch in batches):
        energy = _column(table, "energy")[kept]
        counters = readings.drop(columns="power_w").assign(energy_j=energy)
    states = _states(table, kept, times, entity)
    _tell_of_columns(table, findings)
    return PowerPart(
        readings, _entities(table, found, states, given), findings, counters, states, NAME
    )


def _entity(found: Devices) -> pd.Categorical:
    names = [device.name for device in found.devices]
    categories = pd.Index(names, dtype=pd.Series([""]).dtype)
    return pd.Categorical.from_codes(found.codes, categories=categories)


def _column(table: Table, role: str) -> np.ndarray:
    """Give the numbers of a role of all rows; missing where a header has no such column."""
    return np.concatenate(
        [
            batch.numbers.get(role, np.broadcast_to(np.nan, len(batch.lines)))
            for batch in table.batches
        ]
    )


def _states(
    table: Table, kept: np.ndarray, times: np.ndarray, entity: pd.Categorical
) -> pd.DataFrame | None:
    names = {"limit": "limit_w", "clock": "clock_mhz", "busy": "busy_share"}
    names |= {"temperature": "temperature_c"}
    roles = {role for batch in table.batches for role in batch.numbers}
    columns: dict[str, Any] = {
        name: _column(table, role)[kept] for role, name in names.items() if role in roles
    }
    if "violation" in roles:
        held = _column(table, "violation")[kept]
        missing = ~np.isfinite(held) | (held < 0) | (held >= 2.0**63)
        whole = np.where(missing, 0, held).round().astype(np.int64)
        columns["power_violation_ns"] = pd.arrays.IntegerArray(whole, missing)
    if any(batch.reasons is not None for batch in table.batches):
        masks = np.concatenate(
            [
                np.full(len(batch.lines), -1) if batch.reasons is None else batch.reasons
                for batch in table.batches
            ]
        )[kept]
        columns["reasons"] = pd.arrays.IntegerArray(np.maximum(masks, 0), masks < 0)
    if not columns:
        return None
    for name in ("limit_w", "clock_mhz", "busy_share"):
        if name in columns:
            values, top = columns[name], 1.0 if name == "busy_share" else np.inf
            columns[name] = np.where((values >= 0) & (values <= top), values, np.nan)
    return pd.DataFrame({"time_ns": times, "entity": entity, **columns}, copy=False)


def _entities(
    table: Table, found: Devices, states: pd.DataFrame | None, given: PowerGiven
) -> dict[str, dict[str, Any]]:
    limits: dict[Any, float] = {}
    if states is not None and "limit_w" in states:
        limits = states.groupby("entity", observed=True)["limit_w"].last().dropna().to_dict()
    assumed = [f"tz={given.tz}"]
    if given.unit and not table.is_stated:
        assumed.append(f"unit={given.unit}")
    name = table.headers[0].name("power")
    facts: dict[str, Any] = {
        "scope": "module" if name.startswith("module.") else "gpu",
        "assumed": ", ".join(assumed),
        "unit": "W" if table.is_stated else None,
    }
    return {
        each.name: facts | _known(each, name) | {"limit_w": limits.get(each.name)}
        for each in found.devices
    }


def _known(device: Device, column: str) -> dict[str, Any]:
    return {
        "method": method_of(column, device.model),
        "node": device.node,
        "device": device.device,
        "model": device.model,
    }


def _tell_of_columns(table: Table, findings: Findings) -> None:
    """Note powers that were not taken, and a limit that is not the one in force."""
    first = table.headers[0]
    if first.other_powers:
        listed = ", ".join(first.other_powers)
        findings.add(
            "noted",
            _OTHERS,
            len(first.other_powers),
            f"taken: {first.name('power')}; not: {listed}",
        )
    if first.name("limit") in ("power.limit", "gpu.power.requested_limit", "module.power.limit"):
        findings.add("noted", "limits are those requested, which may not be those in force")
    if len(table.headers) > 1:
        findings.add("noted", "headers with other columns inside the file", len(table.headers) - 1)
