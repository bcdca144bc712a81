"""From rows of ``nvidia-smi`` to what a reader of power gives."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.findings import Findings
from workbench.load._files.time import no_zone, zone_of
from workbench.load._power.formats.nvidia.rows import (
    Batch,
    Columns,
    Key,
    Numbers,
    Table,
    is_missing,
)
from workbench.load._power.formats.nvidia.stamps import EXAMPLE, NOT_A_TIME, free_ns, utc_ns
from workbench.load._power.part import NoPowerError, PowerGiven, PowerPart
from workbench.load._power.rows import SECOND

# Ampere and newer give the mean of the last second as power.draw. GA100 is dropped: the
# manual of nvidia-smi counts it among them, that of NVML does not.
_AVERAGED = re.compile(
    r"\b(?:A(?:2|10|10G|16|40)|L(?:2|4|20|40|40S|40G)|H(?:20|100|200|800)|GH200|GB?(?:10|100|200|300)"
    r"|B(?:100|200|300)|RTX (?:30|40|50)\d\d|RTX A\d{4}|RTX \d{4} Ada|RTX PRO)\b"
)
_INSTANT = re.compile(r"\b(?:V100S?|P100|P40|P4|T4|K80|M40|M60|TITAN|GTX|RTX 20\d\d|Quadro)\b")


def method_of(column: str, model: str | None) -> str:
    """Say what a reading of a column means on a product.

    Examples
    --------
    >>> method_of("power.draw", "NVIDIA H100 80GB HBM3"), method_of("power.draw", None)
    ('avg_1s', 'unknown')
    """
    if column.endswith("instant"):
        return "instant"
    if column.endswith("average"):
        return "avg_1s"
    name = (model or "").replace("-", " ")
    if _AVERAGED.search(name):
        return "avg_1s"
    return "instant" if _INSTANT.search(name) else "unknown"


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


# Which GPU each row of ``nvidia-smi`` is of, with and without a column that tells.

_NODE, _INDEX, _UUID, _BUS, _SERIAL, _MODEL, _MIG = range(7)
# Rows of one poll follow each other in 2 to 5 ms.
_BURST_NS = SECOND * 3 // 100
# Share of the polls from which their size is no accident.
_OFTEN_SHARE = 0.05
_UNKNOWN_DEVICE = "rows that do not tell their GPU"
_MIG_ROWS = "rows of MIG instances, which repeat the power of the whole board"
_ONLY_MIG = "rows of MIG instances without their board; the power of the first is taken for it"
_ODD_BURSTS = "rows of polls in which a GPU is missing or double; nothing tells which"
_BY_ORDER = "GPUs that are told apart by their order in each poll, for no column names them"
_ONE = "GPUs that no column names; taken for one, the only GPU that was asked"
_SHARED = (
    "indices that several GPUs have: several hosts in one file? Told apart, as far as they can"
)
_LOST = "readings that GPUs lack which others of their host have: lost, damaged or cut"
_BY_UUID = "indices that several GPUs have (several hosts in one file?); told apart by UUID"


@dataclass(frozen=True)
class Device:
    """One GPU: its name in the load, and what is known of it."""

    name: str
    node: str | None
    device: str | None
    model: str | None


@dataclass
class Devices:
    """The GPUs of a file, the rows that are kept, and the GPU of each of them."""

    devices: list[Device]
    kept: np.ndarray
    codes: np.ndarray


def devices_of(
    keys: Sequence[Key],
    key_of: np.ndarray,
    times: np.ndarray,
    lines: np.ndarray,
    node: str | None,
    findings: Findings,
) -> Devices:
    """Say of which GPU each row is."""
    clean = [tuple("" if is_missing(cell) else cell for cell in key) for key in keys]
    role = _identity(clean, findings)
    if role is None:
        return _by_order(clean, times, lines, node, findings)
    found: dict[tuple[str, str], int] = {}
    devices: list[Device] = []
    code_of_key = np.full(len(clean), -1, dtype=np.int64)
    for number, key in enumerate(clean):
        if not key[role]:
            continue
        host = key[_NODE] or node or ""
        if (host, key[role]) not in found:
            found[host, key[role]] = len(devices)
            devices.append(_device(key, role, host))
        code_of_key[number] = found[host, key[role]]
    codes = code_of_key[key_of]
    kept = codes >= 0
    if not kept.all():
        row = int(kept.argmin())
        findings.add("dropped", _UNKNOWN_DEVICE, int((~kept).sum()), f"line {lines[row]:,}")
    kept &= _boards(clean, key_of, codes, lines, findings)
    _tell_of_lost(devices, codes[kept], findings)
    return Devices(devices, kept, codes[kept].astype(np.int32))


def _tell_of_lost(devices: Sequence[Device], codes: np.ndarray, findings: Findings) -> None:
    """Count the readings that GPUs have fewer than the others of their host."""
    counts = np.bincount(codes, minlength=len(devices))
    most: dict[str | None, int] = {}
    for device, count in zip(devices, counts, strict=True):
        most[device.node] = max(most.get(device.node, 0), int(count))
    lacking = [
        (most[device.node] - int(count), device.name)
        for device, count in zip(devices, counts, strict=True)
        if 0 < count < most[device.node]
    ]
    if lacking:
        total = sum(count for count, _ in lacking)
        findings.add("suspicious", _LOST, total, f"{max(lacking)[1]}: {max(lacking)[0]:,}")


def _identity(keys: Sequence[Key], findings: Findings) -> int | None:
    usable = [r for r in (_INDEX, _BUS, _UUID, _SERIAL) if any(key[r] for key in keys)]
    if _INDEX in usable and _UUID in usable:
        pairs = {(k[_NODE], k[_INDEX], k[_UUID]) for k in keys if k[_INDEX] and not _is_mig(k)}
        count = len(pairs) - len({pair[:2] for pair in pairs})
        if count:
            findings.add("noted", _BY_UUID, count)
            return _UUID
    if role := _shared_index(keys, usable, findings):
        return role
    if _BUS not in usable and any(_is_mig(key) for key in keys) and _INDEX not in usable:
        return _UUID if _UUID in usable else None
    return usable[0] if usable else None


def _shared_index(keys: Sequence[Key], usable: Sequence[int], findings: Findings) -> int | None:
    """Choose another column where one index is several GPUs; refuse if none tells them apart."""
    if _INDEX not in usable:
        return None
    boards = [key for key in keys if key[_INDEX] and not _is_mig(key)]
    for role in (_SERIAL, _BUS):
        pairs = {(key[_NODE], key[_INDEX], key[role]) for key in boards if key[role]}
        if len(pairs) > len({pair[:2] for pair in pairs}):
            findings.add("suspicious", _SHARED, len(pairs) - len({pair[:2] for pair in pairs}))
            return role
    models: dict[tuple[str, str], set[str]] = {}
    for key in boards:
        models.setdefault((key[_NODE], key[_INDEX]), set()).update({key[_MODEL]} - {""})
    several = next((item for item in models.items() if len(item[1]) > 1), None)
    if several is not None:
        (_, index), names = several
        msg = (
            f"{findings.source}: GPU {index} is {' and '.join(sorted(names)[:3])}; it looks like "
            "the logs of several hosts in one file. Give each host a file of its own"
        )
        raise LoadError(msg)
    return None


def _device(key: Key, role: int, host: str) -> Device:
    short = f"gpu{key[role]}" if role == _INDEX else key[role]
    if role in (_BUS, _SERIAL):
        short = f"gpu {key[role]}"
    name = f"{host}/{short}" if host else short
    device = key[_INDEX] or key[_UUID] or key[_BUS] or key[role]
    return Device(name, host or None, device, key[_MODEL] or None)


def _is_mig(key: Key) -> bool:
    return key[_UUID].startswith("MIG-") or " MIG " in f"{key[_MODEL]} "


def _boards(
    keys: Sequence[Key], key_of: np.ndarray, codes: np.ndarray, lines: np.ndarray,
    findings: Findings,
) -> np.ndarray:  # fmt: skip
    """Say which rows to keep so that the power of a board split by MIG is counted once."""
    kept = np.ones(len(codes), dtype=bool)
    if not any(map(_is_mig, keys)):
        return kept
    is_mig = np.array([_is_mig(key) for key in keys])[key_of]
    row = int(is_mig.argmax())
    whole = np.unique(codes[~is_mig])
    extra = is_mig & np.isin(codes, whole)
    findings.add("skipped by design", _MIG_ROWS, int(extra.sum()), f"line {lines[row]:,}")
    kept &= ~extra
    for code in np.setdiff1d(np.unique(codes[is_mig]), whole):
        some = codes == code
        first = key_of[int(some.argmax())]
        kept &= ~(some & (key_of != first))
        findings.add("suspicious", _ONLY_MIG, int(some.sum()), f"line {lines[row]:,}")
    return kept


def _poll_size(sizes: np.ndarray) -> int:
    """Say how many GPUs there are: as in the fullest polls, for one may have been lost since.

    Polls that ran into each other hold at least twice as many rows as most do; rare ones are odd.
    """
    counts = np.bincount(sizes)
    most = int(counts.argmax())
    often = np.flatnonzero(counts >= _OFTEN_SHARE * len(sizes))
    return int(often[often < 2 * most].max(initial=most))


def _by_order(
    keys: Sequence[Key], times: np.ndarray, lines: np.ndarray, node: str | None, findings: Findings,
) -> Devices:  # fmt: skip
    """Tell GPUs apart by their place in each poll, whose rows follow each other at once."""
    order = np.argsort(times, kind="stable")
    is_first = np.ones(len(times), dtype=bool)
    is_first[1:] = np.diff(times[order]) > _BURST_NS
    burst = np.cumsum(is_first) - 1
    sizes = np.bincount(burst) if len(times) else np.zeros(1, np.int64)
    size = _poll_size(sizes)
    if len(sizes) == 1 and len(times) > 64:
        msg = (
            f"{findings.source}, line {lines[0]:,}: no column tells the GPU, and the polls follow "
            "each other too fast; log with --query-gpu=timestamp,index,power.draw"
        )
        raise LoadError(msg)
    start = np.flatnonzero(is_first)
    place = np.arange(len(times)) - start[burst] if len(times) else np.zeros(0, np.int64)
    is_odd = sizes[burst] != size
    codes, kept = np.empty(len(times), dtype=np.int32), np.empty(len(times), dtype=bool)
    codes[order], kept[order] = place, ~is_odd
    if is_odd.any():
        findings.add("dropped", _ODD_BURSTS, int(is_odd.sum()), f"line {lines[~kept][0]:,}")
    findings.add("assumed", _ONE if size == 1 else _BY_ORDER, size)
    host = next((key[_NODE] for key in keys if key[_NODE]), node or "")
    models = {key[_MODEL] for key in keys}
    model = models.pop() if len(models) == 1 else ""
    devices = [
        Device(f"{host}/gpu{n}" if host else f"gpu{n}", host or None, str(n), model or None)
        for n in range(size)
    ]
    return Devices(devices, kept, codes[kept])


_STAMP = re.compile(r"\w{3} (\w{3}) +(\d{1,2}) (\d\d:\d\d:\d\d) (\d{4})")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def stamp_ns(text: str) -> int:
    """Read ``Tue Jul 14 09:00:27 2026`` as ns since 1970 of the host's calendar."""
    match = _STAMP.fullmatch(text.strip())
    if match is None or match[1] not in _MONTHS:
        return NOT_A_TIME
    month = _MONTHS.index(match[1]) + 1
    return free_ns(f"{match[4]}-{month:02}-{int(match[2]):02} {match[3]}")


def table_of(rows: list[dict[str, Any]], column: str) -> Table:
    """Make a table as of ``--query-gpu`` of boards; ``column`` is the name of the power there."""
    numbers = {}
    is_stated = False
    for role in ("power", "limit", "clock", "busy", "temperature", "violation"):
        reader = Numbers(role, "", None)
        numbers[role] = reader.read_texts([row.get(role, "") for row in rows])
        is_stated |= role == "power" and reader.is_stated
    keys = [_key_of_board(row) for row in rows]
    unique = list(dict.fromkeys(keys))
    code_of = {key: code for code, key in enumerate(unique)}
    batch = Batch(
        np.array([row["line"] for row in rows], dtype=np.int64),
        np.array([row["time"] for row in rows], dtype=np.int64),
        np.array([code_of[key] for key in keys], dtype=np.int64),
        numbers,
        np.array([row["reasons"] for row in rows], dtype=np.int64),
    )
    columns = Columns(",", is_quoted=False, names=(column,), units=("",), at={"power": 0})
    return Table([columns], [batch], unique, is_stated)


def _key_of_board(row: dict[str, Any]) -> Key:
    found = [row.get(name, "") for name in ("index", "uuid", "bus", "serial", "model")]
    return ("", *("" if is_missing(text) else text for text in found), "")
