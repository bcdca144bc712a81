"""Optional packages: what to install where one is needed and absent."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec

from workbench.errors import MissingExtraError


def need(module: str, *, extra: str, purpose: str) -> None:
    """Refuse to go on without an optional package, before an import fails without a remedy.

    Nothing is imported: faces ask when they are imported themselves.

    Raises
    ------
    MissingExtraError
        If the module cannot be found; the message names the extra that brings it.

    Examples
    --------
    >>> need("numpy", extra="plot", purpose="figures")
    >>> need("no_such_module", extra="plot", purpose="drawing figures")
    Traceback (most recent call last):
        ...
    workbench.errors.MissingExtraError: drawing figures needs no_such_module, \
which is not installed: pip install 'ai-infra-workbench[plot]'
    """
    if find_spec(module) is None:
        msg = (
            f"{purpose} needs {module}, which is not installed: "
            f"pip install 'ai-infra-workbench[{extra}]'"
        )
        raise MissingExtraError(msg)


def import_nbformat() -> None:
    """Import nbformat, if it is installed, without a grammar that nobody here reads with.

    nbformat imports jsonschema, which imports ``rfc3987_syntax`` for formats of international
    addresses; that builds a grammar, and takes ten times as long as all the rest. jsonschema goes
    without where the package is not installed, and for that time it looks as if it were not.
    """
    grammar = "rfc3987_syntax"
    if grammar in sys.modules or "jsonschema" in sys.modules:
        return
    sys.modules[grammar] = None  # type: ignore[assignment]
    try:
        with suppress(ImportError):
            import_module("nbformat")
    finally:
        del sys.modules[grammar]
