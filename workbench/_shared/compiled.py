"""Functions compiled by numba, wherever the package may lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba as nb


def compiled(**options: Any) -> Callable[[Any], Any]:
    """Compile a function and keep the code; without a folder to write to, once per process."""

    def compile_it(function: Any) -> Any:
        try:
            return nb.njit(cache=True, **options)(function)
        except RuntimeError:  # an installation and a home that are read-only, as on many nodes
            return nb.njit(**options)(function)

    return compile_it
