"""The ``workbench`` command: a thin skin over the public functions.

Every command prints its result on standard output and everything else on standard error.
Exit codes are the same everywhere: 0 all is well, 1 there is something to look at, 2 it
could not be done.
"""

from workbench.cli import _datasets, _fidelity, _notebooks, _traces
from workbench.cli._app import app

__all__ = ["app"]

# Importing a module of commands registers them; in this order they are listed.
_COMMANDS = (_notebooks, _traces, _datasets, _fidelity)
