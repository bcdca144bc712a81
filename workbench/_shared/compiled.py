"""Modules that are compiled at installation where there is a C compiler."""

from __future__ import annotations

import hashlib
from pathlib import Path


def check_source(source: Path, digest: str) -> None:
    """Refuse a module that was built from another source, as after a checkout without a build."""
    if source.is_file() and hashlib.sha256(source.read_bytes()).hexdigest() != digest:
        msg = f"{source} has changed since it was compiled"
        raise ImportError(msg)
