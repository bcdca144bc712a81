"""Groups of a vulnerability factor: their names, and the population that they stand for."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._pvf.injection_rows import OF_ONE_FLIP, SEVERAL, several_hit
from workbench.analyze._pvf.rules import MEMBERS, Rules, bit_width
from workbench.errors import InjectionError

_NUMBERS = {"bit": "Int64", "flip_count": "Int64", "seed": "Int64", "input_count": "Int64"}
_NUMBERS |= {"tolerance": "float64", "bit_error_ratio": "float64", "golden_metric": "float64"}
_OF_POPULATION = ("component", "layer", "param", "kind", "dtype")
_SHOWN = 3


class Groups(NamedTuple):
    """The groups of a table's rows."""

    code: NDArray[np.int64]
    keys: pd.DataFrame
    """One row per group, the columns grouped by."""
    labels: list[str]

    def labels_of_rows(self) -> list[str]:
        """Give the label of every row of the table."""
        return [self.labels[code] for code in self.code]


def with_columns(table: pd.DataFrame, campaign: pd.DataFrame, by: tuple[str, ...]) -> pd.DataFrame:
    """Add the columns of the campaign that are grouped by; refuse bits of several flips."""
    one_flip = [name for name in by if name in OF_ONE_FLIP]
    flips = table["flip_count"].fillna(1) > 1
    if one_flip and flips.any():
        raise several_hit(table, flips, f"by={one_flip[0]!r} needs one flip per experiment")
    known = campaign.set_index("campaign_id")
    missing = [name for name in by if name not in table or name in ("metric_name", "input_count")]
    more = {name: table["campaign_id"].map(known[name]) for name in missing}
    return table.assign(**more)


def groups(table: pd.DataFrame, by: tuple[str, ...], order: pd.DataFrame) -> Groups:
    """Group rows by columns; texts in the order of the model's parameters, then of the alphabet."""
    if not by:
        keys = pd.DataFrame(index=range(1 if len(table) else 0))
        return Groups(np.zeros(len(table), dtype=np.int64), keys, ["all"] * len(keys))
    codes, values = [], []
    for name in by:
        code, found = pd.factorize(table[name].astype(object), use_na_sentinel=False)
        rank = _ranks(found, name, order)
        values.append(np.asarray(found, dtype=object)[np.argsort(rank)])
        codes.append(rank[code])
    joint = np.zeros(len(table), dtype=np.int64)
    for code, shown in zip(codes, values, strict=True):
        joint = joint * len(shown) + code
    present, code = np.unique(joint, return_inverse=True)
    columns, rest = {}, present
    for name, shown in reversed(list(zip(by, values, strict=True))):
        rest, position = np.divmod(rest, len(shown))
        columns[name] = _typed(shown[position], name)
    frame = pd.DataFrame({name: columns[name] for name in by})
    rows = frame.astype(object).itertuples(index=False, name=None)
    return Groups(code.astype(np.int64), frame, [_label(by, row) for row in rows])


def _ranks(found: Any, name: str, order: pd.DataFrame) -> NDArray[np.int64]:
    """Give the place of every value in the order in which they are shown."""
    known = list(dict.fromkeys(order[name].astype(object))) if name in order else []
    place = {value: number for number, value in enumerate(known)}
    last = len(place)

    def position(value: Any) -> tuple[Any, ...]:
        if pd.isna(value):
            return (2, 0, "")
        if isinstance(value, str):
            return (value == SEVERAL, place.get(value, last), value)
        return (0, float(value), "")

    ranked = sorted(range(len(found)), key=lambda i: position(found[i]))
    rank = np.empty(len(found), dtype=np.int64)
    rank[ranked] = np.arange(len(found))
    return rank


def _typed(values: Any, name: str) -> pd.Series:
    if name in _NUMBERS:
        dtypes: Any = _NUMBERS[name]
        return pd.Series(values, dtype=object).astype(dtypes)
    text = pd.Series([None if pd.isna(value) else str(value) for value in values], dtype=object)
    return text.astype(pd.Series([""]).dtype)


def _label(by: tuple[str, ...], row: tuple[Any, ...]) -> str:
    return ", ".join(_words(name, value) for name, value in zip(by, row, strict=True))


def _words(name: str, value: Any) -> str:
    if pd.isna(value):
        return "no mitigation" if name == "mitigation" else f"{name} not known"
    if name == "flip_count":
        return "1 flip" if value == 1 else f"{value} flips"
    if name in ("bit", "seed", "tolerance"):
        return f"{name} {value}"
    if name == "bit_error_ratio":
        return f"bit error ratio {value:.3g}"
    return f"{value} {name}" if value == SEVERAL else str(value)


def members(table: pd.DataFrame, group: Any, rules: Rules) -> NDArray[np.int64]:
    """Give the code of what weighs the same in its group; the group itself for bits."""
    if rules.average not in MEMBERS:
        return np.asarray(group, dtype=np.int64)
    column = MEMBERS[rules.average]
    what = f"average={rules.average!r} needs every experiment to hit one of the {rules.average}"
    if (several := table[column] == SEVERAL).any():
        raise several_hit(table, several, what)
    if table[column].isna().any():
        row = table[table[column].isna()].iloc[0]
        msg = (
            f"{what}, and the {column} of experiment {row['exp_id']} of campaign "
            f"{row['campaign_id']!r} is not known; ask for average='bits'"
        )
        raise InjectionError(msg)
    code, found = pd.factorize(table[column])
    return pd.factorize(np.asarray(group) * max(len(found), 1) + code)[0].astype(np.int64)


def weights(table: pd.DataFrame, group: Any, rules: Rules) -> tuple[Any, Any]:
    """Give what every row stands for, and say for which rows the design does not tell."""
    weight = table["weight"].to_numpy(dtype=float)
    unknown = np.isnan(weight)
    some = np.bincount(group, unknown, minlength=1)[group] > 0
    weight = np.where(some, 1.0, weight)
    if rules.average == "parameters":
        weight = weight / _widths(table)
    return weight, unknown


def refuse_half_weighted(table: pd.DataFrame, group: Any, labels: list[str]) -> None:
    """Refuse groups in which the design tells the weights of some experiments only."""
    unknown = table["weight"].isna().to_numpy()
    size = max(len(labels), 1)
    mixed = np.bincount(group, unknown, size) * np.bincount(group, ~unknown, size) > 0
    if mixed.any():
        label = labels[int(mixed.argmax())]
        msg = (
            f"group {label!r} mixes experiments whose inclusion_weight is known with "
            f"{int(unknown[group == mixed.argmax()].sum()):,} whose is not; they cannot be "
            "averaged: pass the campaigns one by one"
        )
        raise InjectionError(msg)


def _widths(table: pd.DataFrame) -> NDArray[np.float64]:
    code, found = pd.factorize(table["dtype"], use_na_sentinel=False)
    if len(found) < 2:
        return np.ones(len(table))
    width = np.array([bit_width(dtype) for dtype in found])
    if np.isnan(width).any():
        strange = found[int(np.isnan(width).argmax())]
        msg = (
            f"average='parameters' needs the bits of every element, and dtype {strange!r} is not "
            "known or shared by several; ask for average='bits'"
        )
        raise InjectionError(msg)
    return width[code]


def never_hit(names: set[str], hit: set[str], what: str) -> str:
    """Name the members that were never injected; empty if there are none."""
    missing = sorted(names - hit)
    if not missing:
        return ""
    shown = ", ".join(missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
    return f"{len(missing)} of {len(names)} {what} never injected ({shown})"
