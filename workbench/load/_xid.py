"""What an Xid means, by the catalogue beside this file, and how GPUs are named."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path

_CATALOGUE = Path(__file__).with_name("xid_codes.csv")
_PCI = re.compile(r"(?:pci:)?([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.0)?")


def xid_meaning(code: str) -> dict[str, str]:
    """Return cause, category, severity and action of an Xid, as columns of table FAILURES."""
    known = _codes().get(code)
    return dict(known) if known else {"cause": f"Xid {code} (not in the catalogue)"}


def pci_address(text: str) -> str:
    """Return ``00000000:9B:00.0`` as ``0000:9b:00``; what is no PCI address as it is."""
    plain = text.strip().lower()
    match = _PCI.fullmatch(plain)
    return f"{int(match[1], 16):04x}:{match[2]}:{match[3]}" if match else plain


@cache
def _codes() -> dict[str, dict[str, str]]:
    if not _CATALOGUE.exists():
        return {}
    names = {"cause": "name", "category": "category", "severity": "severity", "action": "action"}
    with _CATALOGUE.open(encoding="utf-8", newline="") as file:
        return {
            row["code"]: {column: row[name] for column, name in names.items()}
            for row in csv.DictReader(file)
        }
