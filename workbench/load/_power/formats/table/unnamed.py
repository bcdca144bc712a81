"""Columns of powers whose names do not say it: by their cells, or as the caller says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from workbench.load._power.formats.table.columns import (
    NEVER,
    PowerColumn,
    PowerLayout,
    shown,
    wide_name,
)
from workbench.load._power.formats.table.names import names_a_limit, words_of
from workbench.load._power.part import NoPowerError, PowerGiven

# Cells of names, of numbers with a unit of power such as "627.40 W", and nothing or 0 so far.
Cell = Literal["text", "unit", "blank"]
# Columns of whatever a row measures.
VALUES = {"value", "_value", "val", "reading", "measurement", "metric_value"}
SHARES = ("measured_power_util", "production_power_util")
_LIMITS = {"limit", "limits", "cap", "budget", "nameplate", "tdp", "rated", "target", "setpoint"}
_LIMITS |= {"max", "min", "maximum", "minimum", "capacity", "headroom", "allocated", "available"}
_LIMITS |= {"reserved", "remaining"}
NO_UNIT = "it names no unit, as others do; pass unit= if it holds powers"
BARE = "its cells name no unit, as those of others do; pass unit= if they are powers"


def stated_columns(kinds: Mapping[str, Cell]) -> list[str]:
    """Give the columns whose cells name a unit, and those that were empty or 0 so far."""
    stated = [name for name, kind in kinds.items() if kind == "unit"]
    return [name for name, kind in kinds.items() if kind in ("unit", "blank")] if stated else []


def in_their_cells(
    powers: Sequence[PowerColumn], kinds: Mapping[str, Cell], given: PowerGiven
) -> list[PowerColumn]:
    """Let cells name the unit; one that names none is of the unit given, or of none."""
    stated = set(stated_columns(kinds))
    return [
        replace(power, factor=1.0, needs_unit=True)
        if power.name in stated and power.factor is None and given.unit is None
        else power
        for power in powers
    ]


def is_limit(name: str) -> bool:
    """Say whether a name is that of a limit, not of what is drawn."""
    words = {word.lower() for word in words_of(name)}
    return bool(words & _LIMITS) or names_a_limit(words)


def all_others(
    names: Sequence[str],
    found: PowerLayout,
    given: PowerGiven,
    label: str,
    kinds: Mapping[str, Cell],
) -> tuple[list[PowerColumn], list[str]]:
    """Take every column as a thing of its own, if the caller or the cells say the unit.

    The second are those that neither says the unit of, beside others whose cells do.
    """
    lowered = {name.lower() for name in names}
    if lowered & set(SHARES):
        msg = (
            f"{label}: holds powers as shares of a capacity ({', '.join(SHARES)}), not watts; "
            "multiply by the capacity in watts and save as power_w"
        )
        raise NoPowerError(msg)
    others = [n for n in names if n != found.time and not NEVER.fullmatch(n.strip())]
    stated = [n for n in stated_columns(kinds) if n in others]
    values = [n for n in others if n.strip().lower() in VALUES]
    if values:
        _refuse_quantities(kinds, found, label)
    if found.identity:
        others = values or [n for n in stated if kinds[n] == "unit"]
    if not others or (found.identity and len(others) != 1):
        msg = (
            f"{label}: no column of powers among {shown(names)}; name it power_w, power_kw or "
            "power [W]"
        )
        raise NoPowerError(msg)
    if given.unit is None and not stated:
        msg = (
            f"{label}: columns {shown(others)} name no unit; if they are powers, pass unit= "
            "('W', 'kW', 'MW' or 'mW') and scope= ('gpu', 'node_ac', 'rack', ...)"
        )
        # Losses and users are numbers over time, too; power beside them is loaded without them.
        raise NoPowerError(msg)
    scope = given.scope or "unknown"
    if found.identity:
        scope = found.scope if found.scope != "unknown" else scope
        return [PowerColumn(others[0], scope=scope)], []
    wanted = others if given.unit else stated
    columns = [PowerColumn(n, wide_name(n.strip()), scope, is_entity=True) for n in wanted]
    return columns, [name for name in others if name not in wanted]


def _refuse_quantities(kinds: Mapping[str, Cell], found: PowerLayout, label: str) -> None:
    """Refuse values of which another column may say that they are several quantities."""
    texts = [name for name, kind in kinds.items() if kind == "text"]
    more = [name for name in texts if name not in (found.time, *found.identity)]
    if more:
        msg = (
            f"{label}: columns {shown(more)} may say what each value is; keep the rows of power, "
            "leave those columns out, and save the values as power_w"
        )
        raise NoPowerError(msg)
