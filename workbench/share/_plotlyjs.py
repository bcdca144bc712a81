"""The plotly.js that plotly brings along, found without importing plotly."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from workbench.errors import WorkbenchError


def path() -> Path:
    """Return the file ``plotly.min.js`` of the installed plotly."""
    spec = find_spec("plotly")
    folders = list(spec.submodule_search_locations or []) if spec else []
    for folder in folders:
        candidate = Path(folder) / "package_data" / "plotly.min.js"
        if candidate.is_file():
            return candidate
    msg = f"plotly.min.js is not in {folders or 'this Python'}; run: pip install --upgrade plotly"
    raise WorkbenchError(msg)


def version() -> str:
    """Read the version of plotly.js from the first line of the file."""
    with path().open(encoding="utf-8") as file:
        head = file.read(400)
    banner = re.search(r"plotly\.js v(\d[\w.-]*)", head)
    if banner is None:
        msg = f"{path()} does not start with a 'plotly.js v...' banner; reinstall plotly"
        raise WorkbenchError(msg)
    return banner[1]
