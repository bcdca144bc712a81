"""The readings of one scope: what may be summed to the power of a job."""

from __future__ import annotations

import pandas as pd

from workbench.errors import WorkbenchError
from workbench.tables import POWER, POWER_ENTITIES

# Where a job's power is best metered: whole nodes first, then what lies inside or around them.
_IN_HOSTS = ("node_ac", "node_dc", "unknown", "module", "gpu")
_ORDER = (*_IN_HOSTS, "rack", "pdu", "row", "facility")


def power_of_scope(
    power: pd.DataFrame, entities: pd.DataFrame, *, scope: str | None = None
) -> pd.DataFrame:
    """Keep the readings of one scope, so that nothing is summed twice.

    A GPU is part of its node, and a node of its rack: the energy of a job is the sum over one of
    these levels. Whole nodes say most about what a job draws.

    Parameters
    ----------
    power
        Table :data:`workbench.tables.POWER`.
    entities
        Table :data:`workbench.tables.POWER_ENTITIES` of the same load.
    scope
        Scope to keep; if None, the first there is of whole nodes (AC, DC, not told), modules
        and GPUs, among those that meter the most hosts, or else of what feeds several nodes.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER`: ``time_ns``, ``entity``, ``power_w``.
        ``attrs["scope"]`` names the scope, ``attrs["left_out"]`` counts the entities of others.
        Without any entity the table is empty.

    Raises
    ------
    WorkbenchError
        If there are entities, but none of that scope has readings on wall time. Estimates and
        meters with a clock of their own cannot be laid beside a job log.

    Examples
    --------
    >>> power_of_scope(POWER.empty(), POWER_ENTITIES.empty()).empty
    True
    """
    POWER.check(power)
    POWER_ENTITIES.check(entities)
    if entities.empty and scope is None:
        return POWER.empty()
    timed = entities[(entities["clock"] == "epoch") & (entities["reading_count"] > 1)]
    scopes = timed["scope"].unique().tolist()
    ordered = [name for name in (*_ORDER, *sorted(scopes)) if name in scopes]
    hosts = {name: _host_count(timed[timed["scope"] == name]) for name in _IN_HOSTS}
    most = [name for name in ordered if hosts.get(name, 0) == max(hosts.values())]
    wanted = scope if scope is not None else next(iter(most or ordered), None)
    if wanted not in scopes:
        found = entities["scope"].value_counts(sort=False).to_dict()
        words = ", ".join(f"{count} {name}" for name, count in found.items()) or "none at all"
        what = "no power readings" if scope is None else f"no power readings of scope {scope!r}"
        msg = f"{what} on wall time; found {words}"
        raise WorkbenchError(msg)
    names = timed.loc[timed["scope"] == wanted, "entity"]
    kept = power[power["entity"].isin(names)].reset_index(drop=True)
    kept = kept.assign(entity=kept["entity"].cat.remove_unused_categories())
    others = entities.loc[~entities["entity"].isin(names), "scope"].value_counts(sort=False)
    kept.attrs = {"scope": wanted, "left_out": {str(k): int(v) for k, v in others.items()}}
    return POWER.check(kept)


def _host_count(entities: pd.DataFrame) -> int:
    """Count the hosts that are metered; of parts of hosts that name none, their files."""
    is_part = entities["scope"].isin(["gpu", "module"])
    unnamed = entities["source"].where(is_part, entities["entity"])
    return entities["node"].fillna(unnamed).nunique()
