"""The ``workbench`` command, also as ``python -m workbench``."""

from __future__ import annotations

import sys

from workbench._shared.extras import need
from workbench.errors import MissingExtraError


def main() -> None:
    """Run the command; without the packages that it needs, say how to install them."""
    try:
        need("typer", extra="cli", purpose="the workbench command")
    except MissingExtraError as error:
        sys.exit(f"workbench: {error}")
    from workbench.cli import app

    app()


if __name__ == "__main__":
    main()
