"""Readers of power telemetry, chosen by content."""

from __future__ import annotations

from workbench.load._files import signatures
from workbench.load._power.part import PowerFormat


def power_format_of(head: bytes, label: str) -> PowerFormat | None:
    """Return the reader for a file that begins like this; None if nobody knows it."""
    form = signatures.fitting(signatures.POWER_FORMATS, head, label)
    return None if form is None else form.reader
