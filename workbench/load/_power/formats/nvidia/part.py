"""From rows of ``nvidia-smi`` to what a reader of power gives."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.findings import Findings
from workbench.load._files.zones import no_zone, zone_of
from workbench.load._power.formats.nvidia.devices import Device, Devices, devices_of
from workbench.load._power.formats.nvidia.methods import method_of
from workbench.load._power.formats.nvidia.rows import Table
from workbench.load._power.formats.nvidia.stamps import EXAMPLE, utc_ns
from workbench.load._power.part import NoPowerError, PowerGiven, PowerPart
from workbench.load._power.rows import SECOND

_OTHERS = "columns with another reading of power that are not taken (reading= chooses)"
_NO_DAY = "times of day without a date; they count from the midnight before the first"
_DAY_NS = 86_400 * SECOND


def part_of(table: Table, given: PowerGiven, findings: Findings, suffix: str = "") -> PowerPart:
    """Make a part of the rows of a file; ``suffix`` is added to the names of its devices."""
    batches = table.batches
    if not batches:
        raise _empty(table, findings.source)
    lines = np.concatenate([batch.lines for batch in batches])
    local = np.concatenate([batch.local_ns for batch in batches])
    keys = np.concatenate([batch.keys for batch in batches])
    if table.clock == "local":
        local = _utc(local, lines, given, findings.source)
    elif table.clock == "day":
        local = _unwrapped(local)
        findings.add("noted", _NO_DAY, 1, f"line {int(lines[0]):,}")
    found = devices_of(table.keys, keys, local, lines, given.node, findings)
    kept, times, lines = found.kept, _some(local, found.kept), _some(lines, found.kept)
    if table.clock == "none":
        times = _counted(found, lines, given, findings.source)
    entity = _entity(found, suffix)
    readings = pd.DataFrame(
        {"time_ns": times, "entity": entity, "power_w": _column(table, "power", kept),
         "line": lines}, copy=False,
    )  # fmt: skip
    counters = None
    if any("energy" in batch.numbers for batch in batches):
        energy = _column(table, "energy", kept)
        counters = readings.drop(columns="power_w").assign(energy_j=energy)
    states = _states(table, kept, times, entity)
    _tell_of_columns(table, findings)
    entities = _entities(table, found, _limits(states), given)
    named = {f"{name}{suffix}": facts for name, facts in entities.items()}
    return PowerPart(readings, named, findings, counters, states)


def _empty(table: Table, label: str) -> NoPowerError:
    if table.first_bad_stamp:
        return NoPowerError(
            f"{label}: {table.first_bad_stamp!r} is no stamp like {EXAMPLE}, nor is any other "
            "in its column; load the file as the tool wrote it"
        )
    return NoPowerError(f"{label}: holds a header of nvidia-smi and no readings")


def _utc(local: np.ndarray, lines: np.ndarray, given: PowerGiven, label: str) -> np.ndarray:
    if given.tz is None:
        text = pd.Timestamp(int(local[0])).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
        raise no_zone(label=label, line=int(lines[0]), text=text)
    return utc_ns(local, lines, zone_of(given.tz), label)


def _unwrapped(times: np.ndarray) -> np.ndarray:
    """Count on over midnight: times of day that fall by more than half a day are of the next."""
    days = np.cumsum(np.diff(times, prepend=times[0]) < -_DAY_NS // 2)
    found: np.ndarray = times + days * _DAY_NS - times[0] // _DAY_NS * _DAY_NS
    return found


def _counted(found: Devices, lines: np.ndarray, given: PowerGiven, label: str) -> np.ndarray:
    """Make times of the order of the polls: each GPU is read once in each of them."""
    if given.period_s is None:
        msg = (
            f"{label}, line {int(lines[0]):,}: holds no time; pass period_s=, the seconds between "
            "two polls (-d of dmon, -l of --query-gpu), or log with times: dmon -o DT, "
            "--query-gpu=timestamp,..."
        )
        raise LoadError(msg)
    frame = pd.Series(found.codes)
    polls = frame.groupby(frame).cumcount().to_numpy()
    times: np.ndarray = np.round(polls * given.period_s * SECOND).astype(np.int64)
    return times


def _entity(found: Devices, suffix: str) -> pd.Categorical:
    names = [f"{device.name}{suffix}" for device in found.devices]
    categories = pd.Index(names, dtype=pd.Series([""]).dtype)
    return pd.Categorical.from_codes(found.codes, categories=categories)


def _column(table: Table, role: str, kept: np.ndarray) -> np.ndarray:
    """Give the numbers of a role, once; missing where a header has no such column."""
    pieces = [
        batch.numbers.pop(role, np.broadcast_to(np.nan, len(batch.lines)))
        for batch in table.batches
    ]
    return _some(np.concatenate(pieces), kept)


def _some(values: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Take the rows that are kept, without a copy where all of them are."""
    taken: np.ndarray = values if kept.all() else values[kept]
    return taken


def _states(
    table: Table, kept: np.ndarray, times: np.ndarray, entity: pd.Categorical
) -> pd.DataFrame | None:
    names = {"limit": "limit_w", "clock": "clock_mhz", "busy": "busy_share"}
    names |= {"temperature": "temperature_c"}
    roles = {role for batch in table.batches for role in batch.numbers}
    columns: dict[str, Any] = {
        name: _column(table, role, kept) for role, name in names.items() if role in roles
    }
    if "violation" in roles:
        held = _column(table, "violation", kept)
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


def _limits(states: pd.DataFrame | None) -> list[float | None]:
    """Give the last limit of each device."""
    if states is None or "limit_w" not in states:
        return []
    last = states.groupby("entity", observed=False)["limit_w"].last()
    return [None if pd.isna(limit) else float(limit) for limit in last]


def _entities(
    table: Table, found: Devices, limits: Sequence[float | None], given: PowerGiven
) -> dict[str, dict[str, Any]]:
    assumed = {"local": f"tz={given.tz}", "day": "", "none": f"period_s={given.period_s}"}
    told = [assumed[table.clock]]
    if given.unit and not table.is_stated:
        told.append(f"unit={given.unit}")
    name = table.headers[0].name("power")
    facts: dict[str, Any] = {
        "scope": "module" if name.startswith("module.") else "gpu",
        "clock": "epoch" if table.clock == "local" else "own",
        "assumed": ", ".join(filter(None, told)),
        "unit": "W" if table.is_stated else None,
    }
    return {
        each.name: facts | _known(each, name) | {"limit_w": limit}
        for each, limit in zip_longest(found.devices, limits)
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
