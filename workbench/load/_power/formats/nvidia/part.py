"""From rows of ``nvidia-smi`` to what a reader of power gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.text import tell_of_damage
from workbench.load._files.time import no_zone, zone_of
from workbench.load._power.formats.nvidia.rows import (
    EXAMPLE,
    NOT_A_TIME,
    Batch,
    Columns,
    Key,
    Numbers,
    Table,
    blocks_of,
    free_ns,
    is_missing,
    utc_ns,
)
from workbench.load._power.part import NoPowerError, PowerOptions, PowerPart, possible, said
from workbench.load._power.rows import SECOND

# Ampere and newer give the mean of the last second as power.draw. GA100 is dropped: the
# manual of nvidia-smi counts it among them, that of NVML does not.
_AVERAGED = re.compile(
    r"\b(?:A(?:2|10|10G|16|40)|L(?:2|4|20|40|40S|40G)|H(?:20|100|200|800)|GH200|GB?(?:10|100|200|300)"
    r"|B(?:100|200|300)|RTX (?:30|40|50)\d\d|RTX A\d{4}|RTX \d{4} Ada|RTX PRO)\b"
)
_INSTANT = re.compile(r"\b(?:V100S?|P100|P40|P4|T4|K80|M40|M60|TITAN|GTX|RTX 20\d\d|Quadro)\b")


def method_of(column: str, model: str | None) -> str:
    """Describe what a reading of a column means on a product.

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
_STATES = {"limit": "limit_w", "clock": "clock_mhz", "busy": "busy_share",
           "temperature": "temperature_c"}  # fmt: skip


def part_of(table: Table, options: PowerOptions, findings: Findings, suffix: str = "") -> PowerPart:
    """Make a part of the rows of a file; ``suffix`` is added to the names of its devices."""
    batches = table.batches
    if not batches:
        raise _empty(table, findings.source)
    lines, local, keys = (
        np.concatenate([getattr(batch, name) for batch in batches])
        for name in ("lines", "local_ns", "keys")
    )
    if table.clock == "local":
        local = _utc(local, lines, options, findings.source)
    elif table.clock == "day":
        local = _unwrapped(local)
        findings.add("noted", _NO_DAY, 1, f"line {int(lines[0]):,}")
    devices = devices_of(table.keys, keys, local, lines, options.node, findings)
    # Columns are copied one by one, and only where rows are dropped: logs have millions of rows.
    rows = slice(None) if devices.kept.all() else devices.kept
    times, lines = local[rows], lines[rows]
    # dmon without -o, queries without timestamp and tables without a date have no time at all.
    if table.clock == "none":
        times = _counted(devices, lines, options, findings.source)
    names = [f"{device.name}{suffix}" for device in devices.devices]
    categories = pd.Index(names, dtype=pd.Series([""]).dtype)
    entity = pd.Categorical.from_codes(devices.codes, categories=categories)
    base = pd.DataFrame({"time_ns": times, "entity": entity, "line": lines}, copy=False)
    readings = base.assign(power_w=table.column("power")[rows])
    counters = None
    if any("energy" in batch.numbers for batch in batches):
        counters = base.assign(energy_j=table.column("energy")[rows])
    columns = _state_columns(table, rows)
    states = base.drop(columns="line").assign(**columns) if columns else None
    _tell_of_columns(table, findings)
    entities = dict(zip(names, _facts(table, devices, states, options), strict=True))
    return PowerPart(readings, entities, findings, counters, states)


def _empty(table: Table, label: str) -> NoPowerError:
    if table.first_bad_stamp:
        return NoPowerError(
            f"{label}: {table.first_bad_stamp!r} is not a stamp like {EXAMPLE}, nor is any other "
            "in its column; load the file as the tool wrote it"
        )
    return NoPowerError(f"{label}: holds a header of nvidia-smi and no readings")


def _utc(local: np.ndarray, lines: np.ndarray, options: PowerOptions, label: str) -> np.ndarray:
    if options.tz is None:
        text = pd.Timestamp(int(local[0])).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
        raise no_zone(label=label, line=int(lines[0]), text=text)
    return utc_ns(local, lines, zone_of(options.tz), label)


def _unwrapped(times: np.ndarray) -> np.ndarray:
    # A time of day that falls by more than half a day is of the next day.
    days = np.cumsum(np.diff(times, prepend=times[0]) < -_DAY_NS // 2)
    devices: np.ndarray = times + days * _DAY_NS - times[0] // _DAY_NS * _DAY_NS
    return devices


def _counted(devices: Devices, lines: np.ndarray, options: PowerOptions, label: str) -> np.ndarray:
    # Without times the order is all there is: each GPU is read once in each poll.
    if options.period_s is None:
        msg = (
            f"{label}, line {int(lines[0]):,}: holds no time; pass period_s=, the seconds between "
            "two polls (-d of dmon, -l of --query-gpu), or log with times: dmon -o DT, "
            "--query-gpu=timestamp,..."
        )
        raise LoadError(msg)
    frame = pd.Series(devices.codes)
    polls = frame.groupby(frame).cumcount().to_numpy()
    times: np.ndarray = np.round(polls * options.period_s * SECOND).astype(np.int64)
    return times


def _state_columns(table: Table, rows: np.ndarray | slice) -> dict[str, Any]:
    roles = {role for batch in table.batches for role in batch.numbers}
    columns: dict[str, Any] = {}
    for role, name in _STATES.items():
        if role in roles:
            values = table.column(role)[rows]
            most = 1.0 if role == "busy" else np.inf
            columns[name] = values if role == "temperature" else possible(values, most)
    if "violation" in roles:
        held = table.column("violation")[rows]
        missing = ~np.isfinite(held) | (held < 0) | (held >= 2.0**63)
        total = np.where(missing, 0, held).round().astype(np.int64)
        columns["power_violation_ns"] = pd.arrays.IntegerArray(total, missing)
    masks = [batch.reasons for batch in table.batches]
    if any(mask is not None for mask in masks):
        filled = np.concatenate([
            np.full(len(batch.lines), -1) if batch.reasons is None else batch.reasons
            for batch in table.batches
        ])[rows]  # fmt: skip
        columns["reasons"] = pd.arrays.IntegerArray(np.maximum(filled, 0), filled < 0)
    return columns


def _facts(
    table: Table, devices: Devices, states: pd.DataFrame | None, options: PowerOptions
) -> list[dict[str, Any]]:
    clock = {"local": f"tz={options.tz}", "day": "", "none": f"period_s={options.period_s}"}
    unit = f"unit={options.unit}" if options.unit and not table.is_stated else ""
    column = table.headers[0].name("power")
    limits: list[Any] = [None] * len(devices.devices)
    if states is not None and "limit_w" in states:
        last = states.groupby("entity", observed=False)["limit_w"].last()
        limits = last.astype(object).where(last.notna(), None).tolist()
    return [
        {
            "scope": "module" if column.startswith("module.") else "gpu",
            "method": method_of(column, device.model),
            "node": device.node, "device": device.device, "model": device.model,
            "clock": "epoch" if table.clock == "local" else "own",
            "assumed": said(clock[table.clock], unit),
            "unit": "W" if table.is_stated else None, "limit_w": limit,
        }
        for device, limit in zip(devices.devices, limits, strict=True)
    ]  # fmt: skip


def _tell_of_columns(table: Table, findings: Findings) -> None:
    """Note powers that were not taken, and a limit that is not the one in force."""
    first = table.headers[0]
    if first.other_powers:
        where = f"taken: {first.name('power')}; not: {', '.join(first.other_powers)}"
        findings.add("noted", _OTHERS, len(first.other_powers), where)
    # The requested limit is not the one in force where the board or a driver caps it lower.
    if first.name("limit") in ("power.limit", "gpu.power.requested_limit", "module.power.limit"):
        findings.add("noted", "limits are those requested, which may not be those in force")
    if len(table.headers) > 1:
        findings.add("noted", "headers with other columns inside the file", len(table.headers) - 1)


class Reader(Protocol):
    """Reads the lines of a log; the number of a block is that of its first line."""

    def read(self, number: int, block: bytes) -> None: ...
    def finished(self) -> Table: ...


def part_of_file(
    source: Source, options: PowerOptions, reader_of: Callable[[PowerOptions, Findings], Reader]
) -> PowerPart:
    findings = Findings(source.label)
    reader = reader_of(options, findings)
    with source.open() as stream:
        for number, block in blocks_of(stream, findings):
            reader.read(number, block)
        tell_of_damage(stream, findings)
    return part_of(reader.finished(), options, findings)


# Which GPU each row of ``nvidia-smi`` is of, with and without a column that tells.

_NODE, _INDEX, _UUID, _BUS, _SERIAL, _MODEL, _MIG = range(7)
# Rows of one poll follow each other in 2 to 5 ms.
_BURST_NS = SECOND * 3 // 100
# Share of the polls from which their size is not an accident.
_OFTEN_SHARE = 0.05
_UNKNOWN_DEVICE = "rows that do not state their GPU"
_MIG_ROWS = "rows of MIG instances, which repeat the power of the whole board"
_ONLY_MIG = "rows of MIG instances without their board; the power of the first is taken for it"
_ODD_BURSTS = "rows of polls in which a GPU is missing or double; unknown which"
_BY_ORDER = "GPUs that are told apart by their order in each poll, for no column names them"
_ONE = "GPUs that no column names; assumed to be one, the only GPU that was queried"
_SHARED = "indices of several GPUs: several hosts in one file? Told apart as far as possible"
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
    clean = [tuple("" if is_missing(cell) else cell for cell in key) for key in keys]
    role = _identity(clean, findings)
    if role is None:
        return _by_order(clean, times, lines, node, findings)
    devices: dict[tuple[str, str], Device] = {}
    names = [(key[_NODE] or node or "", key[role]) for key in clean]
    for key, (host, name) in zip(clean, names, strict=True):
        if name:
            devices.setdefault((host, name), _device(key, role, host))
    order = {identity: code for code, identity in enumerate(devices)}
    codes = np.array([order.get(name, -1) for name in names], dtype=np.int64)[key_of]
    kept = codes >= 0
    if not kept.all():
        row = int(kept.argmin())
        findings.add("dropped", _UNKNOWN_DEVICE, int((~kept).sum()), f"line {lines[row]:,}")
    kept &= _boards(clean, key_of, codes, lines, findings)
    _tell_of_lost([*devices.values()], codes[kept], findings)
    return Devices([*devices.values()], kept, codes[kept].astype(np.int32))


def _tell_of_lost(devices: Sequence[Device], codes: np.ndarray, findings: Findings) -> None:
    """Count the readings that GPUs have fewer than the others of their host."""
    names = [device.name for device in devices]
    counts = pd.Series(np.bincount(codes, minlength=len(devices)), index=names)
    most = counts.groupby([device.node or "" for device in devices]).transform("max")
    lacking = (most - counts)[(counts > 0) & (counts < most)]
    if len(lacking):
        worst, name = max((count, name) for name, count in lacking.items())
        findings.add("suspicious", _LOST, int(lacking.sum()), f"{name}: {worst:,}")


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
    # MIG instances repeat the power of the whole board, which must count once.
    kept = np.ones(len(codes), dtype=bool)
    if not any(map(_is_mig, keys)):
        return kept
    is_mig = np.array([_is_mig(key) for key in keys])[key_of]
    row = int(is_mig.argmax())
    total = np.unique(codes[~is_mig])
    extra = is_mig & np.isin(codes, total)
    findings.add("skipped by design", _MIG_ROWS, int(extra.sum()), f"line {lines[row]:,}")
    kept &= ~extra
    for code in np.setdiff1d(np.unique(codes[is_mig]), total):
        subset = codes == code
        first = key_of[int(subset.argmax())]
        kept &= ~(subset & (key_of != first))
        findings.add("suspicious", _ONLY_MIG, int(subset.sum()), f"line {lines[row]:,}")
    return kept


def _poll_size(sizes: np.ndarray) -> int:
    """Return how many GPUs there are: as in the fullest polls, for one may have been lost since.

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
    position = np.arange(len(times)) - start[burst] if len(times) else np.zeros(0, np.int64)
    is_odd = sizes[burst] != size
    codes, kept = np.empty(len(times), dtype=np.int32), np.empty(len(times), dtype=bool)
    codes[order], kept[order] = position, ~is_odd
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
    readers = {role: Numbers(role, "", None) for role in ("power", *_STATES, "violation")}
    numbers = {
        role: reader.read(pa.array([row.get(role, "") for row in rows], pa.string()))[0]
        for role, reader in readers.items()
    }
    codes, keys = pd.factorize(pd.Series([_key_of_board(row) for row in rows], dtype=object))
    lines, times, reasons = (
        np.array([row[name] for row in rows], dtype=np.int64)
        for name in ("line", "time", "reasons")
    )
    columns = Columns(",", is_quoted=False, names=(column,), units=("",), at={"power": 0})
    batch = Batch(lines, times, codes, numbers, reasons)
    return Table([columns], [batch], list(keys), readers["power"].is_stated)


def _key_of_board(row: dict[str, Any]) -> Key:
    devices = [row.get(name, "") for name in ("index", "uuid", "bus", "serial", "model")]
    return ("", *("" if is_missing(text) else text for text in devices), "")
