"""Which GPU each row of ``nvidia-smi`` is of, with and without a column that tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.errors import LoadError
from workbench.load._files.findings import Findings
from workbench.load._power.formats.nvidia.cells import is_missing
from workbench.load._power.formats.nvidia.rows import Key
from workbench.load._power.rows import SECOND

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
    """Say of which GPU each row is.

    Parameters
    ----------
    keys, key_of
        What rows tell of their GPU, and which of that each row tells.
    times, lines
        Time in ns and line of each row.
    node
        Host, if the caller named it.
    findings
        Takes what is left out or assumed.
    """
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
        findings.add("left out", _UNKNOWN_DEVICE, int((~kept).sum()), f"line {lines[row]:,}")
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
    """Choose the column that tells the GPUs apart."""
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
    findings.add("set aside", _MIG_ROWS, int(extra.sum()), f"line {lines[row]:,}")
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
        findings.add("left out", _ODD_BURSTS, int(is_odd.sum()), f"line {lines[~kept][0]:,}")
    findings.add("assumed", _ONE if size == 1 else _BY_ORDER, size)
    host = next((key[_NODE] for key in keys if key[_NODE]), node or "")
    models = {key[_MODEL] for key in keys}
    model = models.pop() if len(models) == 1 else ""
    devices = [
        Device(f"{host}/gpu{n}" if host else f"gpu{n}", host or None, str(n), model or None)
        for n in range(size)
    ]
    return Devices(devices, kept, codes[kept])
