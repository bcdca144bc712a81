"""Scope of an analysis: one rank at a time, or the communication of all ranks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

import pandas as pd

Analysis: TypeAlias = Callable[..., pd.DataFrame]
Scope: TypeAlias = Literal["one rank", "all ranks"]

_SCOPES: dict[Analysis, Scope] = {}
Function = TypeVar("Function", bound=Analysis)


def per_rank(function: Function) -> Function:
    """Declare that an analysis of events gives the same rows rank by rank as of all ranks at once.

    Parameters
    ----------
    function
        Takes a table :data:`workbench.tables.EVENTS` and gives a table with a column ``rank``.

    Returns
    -------
    Callable
        The function itself, which :func:`by_rank` now takes.

    Examples
    --------
    >>> @per_rank
    ... def longest(events):
    ...     return events.nlargest(1, "dur_ns")[["rank", "name", "dur_ns"]]
    """
    _SCOPES[function] = "one rank"
    return function


def across_ranks(function: Function) -> Function:
    """Declare that an analysis needs all ranks, but of their events only communication.

    Parameters
    ----------
    function
        Takes a table :data:`workbench.tables.EVENTS` and, if it has the argument,
        ``process_groups``.

    Returns
    -------
    Callable
        The function itself, which :func:`by_rank` now takes.
    """
    _SCOPES[function] = "all ranks"
    return function


def scope_of(analysis: Analysis) -> Scope | None:
    return _SCOPES.get(_function(analysis))


def name_of(analysis: Analysis) -> str:
    return str(getattr(_function(analysis), "__name__", repr(analysis)))


def _function(analysis: Analysis) -> Any:
    return analysis.func if isinstance(analysis, partial) else analysis
