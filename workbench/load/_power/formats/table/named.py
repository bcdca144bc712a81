"""Tables of power whose columns the caller names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from workbench.errors import LoadError
from workbench.load._power.formats.table.columns import PowerColumn, PowerLayout, shown
from workbench.load._power.formats.table.unnamed import Cell
from workbench.load._power.part import PowerGiven

# What the caller says, and the name that tells the same of a column.
_NAMES = {
    "time": "timestamp", "node": "node", "gpu": "gpu", "entity": "entity", "power_w": "power_w",
    "power_kw": "power_kw", "power": "power", "energy_j": "energy_j",
}  # fmt: skip
_POWERS = {"power_w", "power_kw", "power", "energy_j"}


def check_columns(given: PowerGiven) -> None:
    """Refuse names that mean nothing, before minutes of reading."""
    if (said := given.columns) is None:
        return
    if unknown := sorted(set(said) - set(_NAMES)):
        msg = f"columns= names {unknown}, which tables of power do not have; they have {[*_NAMES]}"
        raise ValueError(msg)
    if "time" not in said or not _POWERS & set(said):
        msg = f"columns= must name time and one of {sorted(_POWERS)}; it names {sorted(said)}"
        raise ValueError(msg)
    if "power" in said and given.unit is None:
        msg = "columns= names power; say in which unit with unit=, or name power_w"
        raise ValueError(msg)
    if len(set(said.values())) < len(said):
        msg = f"columns= names a column of the file twice: {sorted(said.values())}"
        raise ValueError(msg)


def named(
    layout: Callable[..., PowerLayout],
    names: Sequence[str],
    given: PowerGiven,
    label: str,
    *,
    cells: Mapping[str, Cell] | None,
) -> PowerLayout:
    """Say what the columns of a table are that the caller names; others are not read."""
    said = given.columns or {}
    if missing := [there for there in said.values() if there not in names]:
        msg = (
            f"{label}: no column {missing}; it has {shown(names)}. Say which is which with "
            "columns={...}"
        )
        raise LoadError(msg)
    usual = {there: _NAMES[name] for name, there in said.items()}
    own = {name: there for there, name in usual.items()}
    found = layout(
        list(own),
        replace(given, columns=None),
        label,
        cells={usual[name]: kind for name, kind in (cells or {}).items() if name in usual},
        with_counters=True,
    )

    def back(columns: Sequence[PowerColumn]) -> tuple[PowerColumn, ...]:
        return tuple(replace(column, name=own[column.name]) for column in columns)

    def named_there(name: str | None) -> str | None:
        return None if name is None else own[name]

    rest = tuple((name, "columns= does not name it") for name in names if name not in usual)
    return replace(
        found,
        time=own[found.time],
        powers=back(found.powers),
        counters=back(found.counters),
        entity=named_there(found.entity),
        node=named_there(found.node),
        device=named_there(found.device),
        left_out=(*((own[name], why) for name, why in found.left_out), *rest),
    )
