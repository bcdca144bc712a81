"""Power of Intel's Gaudi as ``hl-smi -Q ... -f csv`` prints it, with and without a header."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.errors import LoadError
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
from workbench.load._power_stamps import Stamps
from workbench.load._power_table import Numbers, Row, cells_of, rows_of
from workbench.load._xid_codes import pci_address
from workbench.load.archive import Source

NAME = "hl-smi CSV"

_ASK = "log with 'hl-smi -Q timestamp,index,power.draw -f csv -l 1'"
_ROLES = {
    "power.draw": "power", "timestamp": "time", "index": "index", "module_id": "module",
    "uuid": "uuid", "serial": "uuid", "bus_id": "bus", "name": "model", "power.max": "limit",
    "power.limit": "limit", "temperature.aip": "temperature", "utilization.aip": "busy",
    "clocks.current.soc": "clock",
}  # fmt: skip
_UNIT = re.compile(r"\[([^\]]*)\]")
_MODEL = re.compile(r"HL-\d{3}\w*")
# Without a header the cells tell what they are.
_FORMS = (
    ("model", _MODEL),
    ("uuid", re.compile(r"\d\dP\d-[\w-]+")),
    ("bus", re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.\d", re.IGNORECASE)),
    ("power", re.compile(r"\d+(?:\.\d+)? *W")),
    ("temperature", re.compile(r"\d+ *C")),
    ("busy", re.compile(r"\d+ *%")),
    ("time", re.compile(r".*\d\d:\d\d:\d\d.*")),
    ("index", re.compile(r"\d{1,3}")),
)
_HEADER = re.compile(rb"^(?=[^\n]*\bpower\.draw)(?=[^\n]*\.aip\b)", re.MULTILINE)
_NAMED = re.compile(rb"^(?=[^\n]*\bHL-\d{3})(?=[^\n]*,)", re.MULTILINE)
_POWER_NAMED = re.compile(rb"power\.draw|\b\d+(?:\.\d+)? W\b")
_HEAD_BYTES = 1 << 16
_BY_FORM = "columns told by their cells, as the file has no header; the first in W is the power"


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - content decides
    """Recognise fields of a Gaudi (``temperature.aip``) or its products, and power."""
    return bool(_HEADER.search(head) or (_NAMED.search(head) and _POWER_NAMED.search(head)))


def read_power(source: Source, given: PowerGiven) -> PowerPart:
    """Read the rows of ``hl-smi``: one for each accelerator and turn.

    A file that was written without a header is read if its cells carry their units, by which
    columns are told. How long ``power.draw`` averages, the manual does not say.

    Raises
    ------
    LoadError
        If no column tells the accelerator or the power, if a stamp is local and ``given.tz`` is
        not set, or rows without a time follow each other and ``given.period_s`` is not set.

    References
    ----------
    Intel Gaudi: System Management Interface Tool (hl-smi).
    """
    findings = Findings(source.label)
    stamps = Stamps(source.label, given, findings)
    rows = Rows("power_w"), Rows(*STATE_COLUMNS)
    entities: dict[str, dict[str, Any]] = {}
    usual = _by_cells(source, findings)
    numbers = Numbers(findings)
    for row in rows_of(source, _header, stamps, findings, usual=usual):
        device = _device(row, source.label)
        name = f"hpu{device}" if device.isdecimal() else device
        name = f"{given.node}/{name}" if given.node else name
        time = row.cell("time")
        time_ns = row.page.time_ns(name) if time is None else stamps.ns(time, row.line)
        limit = _number(row, "limit", numbers)
        _add(name, row, time_ns, rows, numbers)
        known = entities.setdefault(name, _entity(device, row, given))
        known["limit_w"] = known.get("limit_w") if limit is None else limit
    frames, clock = settled([rows[0].frame(), states_frame(rows[1])], findings, _ASK, given)
    frames.insert(1, frames[0].iloc[:0])
    return part_of(frames, described(entities, clock, stamps.assumed), findings)


def _entity(device: str, row: Row, given: PowerGiven) -> dict[str, Any]:
    model = row.cell("model")
    found = {"scope": "gpu", "method": "unknown", "node": given.node, "device": device}
    return found | {"model": plain_name(model) if model else None, "unit": "W", "assumed": ""}


def _add(
    name: str, row: Row, time_ns: int | None, rows: tuple[Rows, Rows], numbers: Numbers
) -> None:
    rows[0].add(name, time_ns, row.line, _number(row, "power", numbers))
    limit, clock, busy, temperature = (
        _number(row, role, numbers) for role in ("limit", "clock", "busy", "temperature")
    )
    busy = busy if busy is not None and 0 <= busy <= 1 else None
    states = [limit, clock, busy, temperature]
    if any(value is not None for value in states):
        rows[1].add(name, time_ns, row.line, *states, None, None)


def _number(row: Row, role: str, numbers: Numbers) -> float | None:
    text = row.cell(role)
    if text is None:
        return None
    return numbers.read(text, row.line, "%" if role == "busy" else "")


def _device(row: Row, label: str) -> str:
    for role in ("index", "module"):
        if (text := row.cell(role)) and text.isdecimal():
            return str(int(text))
    if text := row.cell("uuid"):
        return plain_name(text)
    if text := row.cell("bus"):
        return pci_address(text)
    msg = f"{label}, line {row.line:,}: no column tells which accelerator this is; {_ASK}"
    raise LoadError(msg)


def _header(cells: Sequence[str]) -> Mapping[str, int] | None:
    """Return the roles of columns if these are their names."""
    names = [_UNIT.sub("", cell).strip().lower() for cell in cells]
    roles = {_ROLES[name]: at for at, name in reversed([*enumerate(names)]) if name in _ROLES}
    return roles if "power" in roles and not any(cell[:1].isdecimal() for cell in cells) else None


def _by_cells(source: Source, findings: Findings) -> tuple[Mapping[str, int], int] | None:
    """Tell the columns of a file without a header by the cells of its first row."""
    head = source.head(_HEAD_BYTES)
    if b"power.draw" in head:
        return None
    for line in head.decode("utf-8", "replace").splitlines():
        cells = cells_of(line)
        named = [next((r for r, form in _FORMS if form.fullmatch(each)), "") for each in cells]
        roles = {role: at for at, role in reversed([*enumerate(named)]) if role}
        if "power" in roles and len(cells) > 1:
            watts = [at for at, role in enumerate(named) if role == "power"]
            roles |= {"limit": watts[1]} if len(watts) > 1 else {}
            findings.add("assumed", _BY_FORM, 1, line[:80])
            return roles, len(cells)
    return None
