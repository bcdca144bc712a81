"""Paths as users give them, and as they can be shown."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from workbench.load._files.appearance import printable

Paths = str | Path | Iterable[str | Path]


def shown(path: str | Path) -> str:
    """Return a path as text that can be printed and stored: names may be any bytes.

    Line breaks and the commands of a terminal are written as code.
    """
    return printable(os.fsencode(path).decode(errors="replace"))


def shown_all(path: Paths) -> str:
    """Return what a caller gave as text, for messages."""
    return ", ".join(shown(entry) for entry in given_paths(path)) or "an empty list"


def given_paths(path: object) -> list[str | Path]:
    """Return ``path`` as a list of paths."""
    if isinstance(path, str | Path):
        return [path]
    if isinstance(path, bytes) or not isinstance(path, Iterable):
        msg = f"path must be a path, or a list of paths; got {path!r}"
        raise TypeError(msg)
    return [entry if isinstance(entry, str | Path) else given_paths(entry)[0] for entry in path]
