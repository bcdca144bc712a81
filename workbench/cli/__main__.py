"""The same command as ``python -m workbench.cli``."""

from workbench.cli import app

app()
