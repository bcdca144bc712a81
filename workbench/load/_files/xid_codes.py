"""Codes of NVIDIA's drivers: a table next to this file, and how GPUs are named."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path

_XID_CODES = Path(__file__).with_name("xid_codes.csv")
_SXID_CODES = Path(__file__).with_name("sxid_codes.csv")
_ADDRESS = re.compile(r"(?:pci:)?(?:([0-9a-f]+):)?([0-9a-f]{1,4}):([0-9a-f]{1,2})(?:\.([0-7]))?")


def xid_meaning(code: str) -> dict[str, str]:
    """Return cause, category, severity and action of an Xid, as columns of table FAILURES.

    Examples
    --------
    >>> xid_meaning("79")["cause"]
    'GPU has fallen off the bus'
    >>> xid_meaning("9999")["cause"]
    'Xid 9999 (not in the catalogue)'
    """
    meaning = _codes(_XID_CODES).get(code)
    return dict(meaning) if meaning else {"cause": f"Xid {code} (not in the catalogue)"}


def sxid_meaning(code: str) -> dict[str, str]:
    """Return cause, category, severity and action of an error of an NVSwitch.

    Examples
    --------
    >>> sxid_meaning("20034")["cause"]
    'NVSwitch: LTSSM fault up'
    """
    meaning = _codes(_SXID_CODES).get(code)
    return dict(meaning) if meaning else {"cause": f"SXid {code} (not in the catalogue)"}


def pci_address(text: str) -> str:
    """Write a PCI address in the one way the tables use.

    Examples
    --------
    >>> pci_address("PCI:0000:9B:00"), pci_address("00000000:86:00.0"), pci_address("0008:00")
    ('0000:9b:00', '0000:86:00', '0000:08:00')
    """
    match = _ADDRESS.fullmatch(text.strip().lower())
    if match is None:
        return text.strip().lower()
    domain, bus, slot, function = match.groups()
    # Drivers and tools write domains of 4 digits, of 8 or none, in upper or lower case.
    address = f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{int(slot, 16):02x}"
    return address if function in (None, "0") else f"{address}.{function}"


@cache
def _codes(path: Path) -> dict[str, dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return {
            row["code"]: {"cause": row["name"]}
            | {name: row[name] for name in ("category", "severity", "action")}
            for row in csv.DictReader(file)
        }
