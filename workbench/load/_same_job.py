"""Whether the logs that lie together can be of one job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.load._findings import Finding


def same_job(path: str | Path, read: Mapping[str, Any]) -> list[Finding]:  # noqa: ARG001
    """Give findings on logs that do not go together."""
    return []
