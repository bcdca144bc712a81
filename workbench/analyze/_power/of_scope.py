"""The readings of one scope: what may be summed to the power of a job."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from workbench.analyze._lib.power_scopes import BESIDE, refuse_metered_twice, tracks_of
from workbench.analyze._lib.power_signal import signal
from workbench.errors import WorkbenchError
from workbench.tables import POWER, POWER_ENTITIES

# Where a job's power is best metered: whole nodes first, then what lies inside or around them.
_IN_HOSTS = ("node_ac", "node_dc", "unknown", "module", "gpu")
_ORDER = (*_IN_HOSTS, "rack", "pdu", "row", "facility")


def power_of_scope(
    power: pd.DataFrame, entities: pd.DataFrame, *, scope: str | Sequence[str] | None = None
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
        Several that lie beside each other are kept together: ``("cpu", "gpu", "memory")`` are
        parts of a node that add up.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER`: ``time_ns``, ``entity``, ``power_w``.
        A meter that never reads is expected, and has a row without power.
        ``attrs["scope"]`` names the scope, ``attrs["left_out"]`` counts the entities of others.
        Without any entity the table is empty.

    Raises
    ------
    WorkbenchError
        If there are entities, but none of that scope has readings on wall time (estimates and
        meters with a clock of their own cannot be laid beside a job log), several scopes may
        hold each other, or two meters of that scope read one host, e.g. AC and DC.

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
    wanted = _several(scope) or [*(most or ordered)][:1]
    if not wanted or not set(wanted) <= set(scopes):
        found = entities["scope"].value_counts(sort=False).to_dict()
        words = ", ".join(f"{count} {name}" for name, count in found.items()) or "none at all"
        what = "no power readings" if scope is None else f"no power readings of scope {scope!r}"
        msg = f"{what} on wall time; found {words}"
        raise WorkbenchError(msg)
    is_silent = (entities["reading_count"] == 0) & (entities["clock"] == "epoch")
    expected = entities[(entities["entity"].isin(timed["entity"]) | is_silent)]
    names = expected.loc[expected["scope"].isin(wanted), "entity"]
    kept = _with_silent(power[power["entity"].isin(names)], names)
    refuse_metered_twice(tracks_of(signal(kept, longest_gap_periods=3.0)))
    others = entities.loc[~entities["entity"].isin(names), "scope"].value_counts(sort=False)
    kept.attrs = {
        "scope": " + ".join(wanted),
        "left_out": {str(k): int(v) for k, v in others.items()},
    }
    return POWER.check(kept)


def _several(scope: str | Sequence[str] | None) -> list[str]:
    """Give the scopes that were asked for; refuse those of which one may hold another."""
    if scope is None:
        return []
    wanted = [scope] if isinstance(scope, str) else list(dict.fromkeys(scope))
    if len(wanted) > 1 and not any(set(wanted) <= beside for beside in BESIDE):
        sets = " or ".join(str(tuple(sorted(beside))) for beside in BESIDE)
        msg = f"scopes {wanted} may hold each other, and do not add up; these do: {sets}"
        raise WorkbenchError(msg)
    return wanted


def _with_silent(power: pd.DataFrame, names: pd.Series) -> pd.DataFrame:
    """Give a meter without any row one without power, so that it is expected in every sum."""
    power = power.assign(entity=power["entity"].cat.set_categories(names))
    silent = names[~names.isin(power["entity"].unique())]
    if power.empty or silent.empty:
        return power.reset_index(drop=True)
    rows = pd.DataFrame({"time_ns": power["time_ns"].min(), "entity": silent, "power_w": np.nan})
    rows = rows.astype({"entity": power["entity"].dtype})
    return pd.concat([power, rows], ignore_index=True)


def _host_count(entities: pd.DataFrame) -> int:
    """Count the hosts that are metered; of parts of hosts that name none, their files."""
    is_part = entities["scope"].isin(["gpu", "module"])
    unnamed = entities["source"].where(is_part, entities["entity"])
    return entities["node"].fillna(unnamed).nunique()
