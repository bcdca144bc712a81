"""Which metered things may be summed: those of which none holds another."""

from __future__ import annotations

import pandas as pd

from workbench.errors import WorkbenchError
from workbench.tables import POWER_ENTITIES

# Scopes that lie beside each other, so that their sum counts nothing twice.
_BESIDE = ({"gpu", "cpu", "memory"}, {"node_ac", "switch"}, {"node_dc", "switch"})


def refuse_double_counting(names: pd.Series | pd.Index, entities: pd.DataFrame | None) -> pd.Index:
    """Give the names to sum, or raise if one of them is known to hold another.

    Parameters
    ----------
    names
        Entities that have values.
    entities
        Rows of table :data:`workbench.tables.POWER_ENTITIES` to sum; None for all ``names``.

    Returns
    -------
    pandas.Index
        Names that are expected in the sum, each once.

    Raises
    ------
    TableError
        If ``entities`` is not that table.
    WorkbenchError
        If scopes that may hold each other are mixed, or a name is a part of another, as
        ``node001/gpu0`` is of ``node001``.
    """
    if entities is None:
        expected = pd.Index(pd.unique(pd.Series(names, dtype=object)))
    else:
        expected = pd.Index(pd.unique(_of_one_scope(entities).astype(object)))
    known = set(expected)
    for name in expected:
        if whole := next((each for each in _wholes(str(name)) if each in known), ""):
            msg = (
                f"{name!r} is a part of {whole!r}, and their sum would count twice; keep entities "
                'of one scope, e.g. entities=entities[entities["scope"] == "node_ac"]'
            )
            raise WorkbenchError(msg)
    return expected


def _of_one_scope(entities: pd.DataFrame) -> pd.Series:
    """Give the names, or raise if their scopes may hold each other."""
    POWER_ENTITIES.check(entities)
    scopes = set(entities["scope"])
    if len(scopes) > 1 and not any(scopes <= beside for beside in _BESIDE):
        msg = (
            f"entities of scopes {sorted(scopes)} may hold each other, and their sum would "
            'count twice; pass those of one scope, e.g. entities[entities["scope"] == '
            f"{min(scopes)!r}]"
        )
        raise WorkbenchError(msg)
    return entities["entity"]


def _wholes(name: str) -> list[str]:
    """Give what a name says it is a part of: a/b/c is of a/b and of a."""
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(len(parts) - 1, 0, -1)]
