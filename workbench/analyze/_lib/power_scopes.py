"""Which metered things may be summed: those of which none holds another."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from workbench._metered_twice import Track, read_alike, sides_of_one
from workbench.analyze._lib.power_signal import Signal
from workbench.errors import WorkbenchError
from workbench.tables import POWER_ENTITIES

# Scopes that lie beside each other, so that their sum counts nothing twice.
BESIDE = ({"gpu", "cpu", "memory"}, {"node_ac", "switch"}, {"node_dc", "switch"})
_TOTALS = ("total", "sum", "all", "system")


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
        If scopes that may hold each other are mixed, a name is a part of another, as
        ``node001/gpu0`` is of ``node001`` and of ``node001/total``, or two are the AC and the DC
        side of one thing.
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
    if pair := sides_of_one(map(str, expected)):
        raise WorkbenchError(_twice(*pair))
    return expected


def tracks_of(readings: Signal) -> dict[str, Track]:
    """Give stamps and powers of each entity by its name."""
    bounds = zip(readings.first[:-1], readings.first[1:], strict=True)
    places = [slice(low, high) for low, high in bounds]
    powers = [(readings.time_ns[some], readings.power_w[some]) for some in places]
    return dict(zip(map(str, readings.names), powers, strict=True))


def refuse_metered_twice(tracks: Mapping[str, Track]) -> None:
    """Raise if two entities bear one name and read one feed: their sum would count it twice."""
    if pair := read_alike(tracks):
        raise WorkbenchError(_twice(*pair))


def _twice(one: str, other: str) -> str:
    return (
        f"{one!r} and {other!r} meter one thing, e.g. the AC and the DC side of a supply, and "
        "their sum would count it twice; keep the meters of one side, e.g. power[~power['entity']"
        f".isin([{other!r}, ...])], or load their files alone"
    )


def _of_one_scope(entities: pd.DataFrame) -> pd.Series:
    """Give the names, or raise if their scopes may hold each other."""
    POWER_ENTITIES.check(entities)
    scopes = set(entities["scope"])
    if len(scopes) > 1 and not any(scopes <= beside for beside in BESIDE):
        msg = (
            f"entities of scopes {sorted(scopes)} may hold each other, and their sum would "
            'count twice; pass those of one scope, e.g. entities[entities["scope"] == '
            f"{min(scopes)!r}]"
        )
        raise WorkbenchError(msg)
    return entities["entity"]


def _wholes(name: str) -> list[str]:
    """Give what a name says it is a part of: a/b/c is of a/b and of a, and of a/total."""
    parts = name.split("/")
    above = ["/".join(parts[:end]) for end in range(len(parts) - 1, 0, -1)]
    totals = [f"{above[0]}/{word}" for word in _TOTALS] if above else []
    return [*above, *(total for total in totals if total != name)]
