"""Power of Intel's Gaudi as ``hl-smi -Q ... -f csv`` prints it, with and without a header."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.xid_codes import pci_address
from workbench.load._power.formats.repeated_tables import (
    Chunk,
    Numbers,
    Objects,
    cells_of,
    chunks_of,
)
from workbench.load._power.part import PowerOptions, PowerPart, plain_name
from workbench.load._power.stamps import Gathered

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


def read_power(source: Source, options: PowerOptions) -> PowerPart:
    """Read the rows of ``hl-smi``: one for each accelerator and turn.

    A file that was written without a header is read if its cells carry their units, by which
    columns are told. How long ``power.draw`` averages, the manual does not say.

    References
    ----------
    Intel Gaudi: System Management Interface Tool (hl-smi).
    """
    gathered = Gathered(source, options)
    usual = _by_cells(source, gathered.findings)
    for chunk in chunks_of(source, _header, gathered.stamps, gathered.findings, usual=usual):
        _add(chunk, gathered)
    return gathered.part(_ASK)


def _add(chunk: Chunk, gathered: Gathered) -> None:
    numbers, options = Numbers(gathered.findings), gathered.options
    devices = _devices(chunk, gathered.stamps.label)
    codes, unique = pd.factorize(devices)
    first = np.unique(codes, return_index=True)[1]
    names = [f"hpu{device}" if device.isdecimal() else device for device in unique]
    names = [f"{options.node}/{name}" if options.node else name for name in names]
    where = (names, codes, chunk.times(gathered.stamps, devices), chunk.lines)
    gathered.readings.add_table(*where, [chunk.numbers("power", numbers)])
    states = chunk.states(numbers)
    limits = pd.Series(states[0]).groupby(codes).last()
    if {"limit", "clock", "busy", "temperature"} & set(chunk.cells):
        gathered.states.add_table(*where, states)
    models = chunk.cells.get("model")
    for code, (name, at) in enumerate(zip(names, first, strict=True)):
        model = None if models is None else plain_name(str(models[at])) or None
        facts = gathered.entities.setdefault(name, {"limit_w": None})
        facts |= {"scope": "gpu", "method": "unknown", "node": options.node, "unit": "W"}
        facts |= {"device": str(unique[code]), "model": model}
        facts["limit_w"] = float(limits[code]) if limits[code] >= 0 else facts["limit_w"]


def _devices(chunk: Chunk, label: str) -> Objects:
    # The first of these that every row states.
    for role in ("index", "module", "uuid", "bus"):
        texts = chunk.cells.get(role)
        if texts is not None and all(text.strip() for text in pd.unique(texts)):
            plain = pci_address if role == "bus" else plain_name
            result: Objects = pd.Series(texts, dtype=object).map(plain).to_numpy(dtype=object)
            return result
    msg = f"{label}, line {chunk.lines[0]:,}: no column tells which accelerator this is; {_ASK}"
    raise LoadError(msg)


def _header(cells: Sequence[str]) -> Mapping[str, int] | None:
    names = [_UNIT.sub("", cell).strip().lower() for cell in cells]
    # Reversed, so that of two columns of one role the first stays.
    roles = {_ROLES[name]: at for at, name in reversed([*enumerate(names)]) if name in _ROLES}
    return roles if "power" in roles and not any(cell[:1].isdecimal() for cell in cells) else None


def _by_cells(source: Source, findings: Findings) -> tuple[Mapping[str, int], int] | None:
    head = source.head(_HEAD_BYTES)
    if b"power.draw" in head:
        return None
    for line in head.decode("utf-8", "replace").splitlines():
        cells = cells_of(line)
        by_name = [next((r for r, form in _FORMS if form.fullmatch(cell)), "") for cell in cells]
        roles = {role: at for at, role in reversed([*enumerate(by_name)]) if role}
        if "power" in roles and len(cells) > 1:
            # Nothing but the order tells the draw from the limit.
            watts = [at for at, role in enumerate(by_name) if role == "power"]
            roles |= {"limit": watts[1]} if len(watts) > 1 else {}
            findings.add("assumed", _BY_FORM, 1, line[:80])
            return roles, len(cells)
    return None
