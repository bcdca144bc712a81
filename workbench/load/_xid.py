"""What an Xid means, by the catalogue beside this file, and how GPUs are named."""

from __future__ import annotations

import csv
import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

_CATALOGUE = Path(__file__).with_name("xid_codes.csv")
_PCI = re.compile(r"(?:PCI:)?([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.\d)?")


class XidMeaning(NamedTuple):
    """One line of the catalogue."""

    cause: str
    category: str = "unknown"
    severity: str = "unknown"
    action: str | None = None


def xid_cause(code: int | str) -> XidMeaning:
    """Return what a code means; only its number where the catalogue has none."""
    return _catalogue().get(str(code), XidMeaning(f"Xid {code}", "gpu"))


def pci_address(text: str) -> str | None:
    """Return ``00000000:9B:00.0`` as ``0000:9b:00``; None if it is no PCI address."""
    match = _PCI.fullmatch(text.strip())
    if match is None:
        return None
    domain = match[1].lower().lstrip("0").zfill(4)
    return f"{domain}:{match[2].lower()}:{match[3].lower()}"


@lru_cache(maxsize=1)
def _catalogue() -> dict[str, XidMeaning]:
    if not _CATALOGUE.exists():
        return {}
    with _CATALOGUE.open(encoding="utf-8", newline="") as file:
        return {
            row["code"]: XidMeaning(
                row["name"], row["category"], row["severity"], row["action"] or None
            )
            for row in csv.DictReader(line for line in file if not line.startswith("#"))
        }
