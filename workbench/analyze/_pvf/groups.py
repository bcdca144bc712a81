"""Groups of a vulnerability factor: their names, and the population that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.numbers import NUMBER_TYPES, share_between
from workbench.analyze._pvf.injection_rows import OF_ONE_FLIP, SEVERAL, several_hit
from workbench.errors import InjectionError
from workbench.tables import CAMPAIGN

_NUMBERS = {"bit": "Int64", "flip_count": "Int64", "seed": "Int64", "input_count": "Int64"}
_NUMBERS |= {"tolerance": "float64", "bit_error_ratio": "float64", "golden_metric": "float64"}
_SHOWN = 3


class Groups(NamedTuple):
    """The groups of a table's rows."""

    code: NDArray[np.int64]
    keys: pd.DataFrame
    """One row per group, the columns grouped by."""
    labels: list[str]

    def labels_of_rows(self) -> list[str]:
        """Return the label of every row of the table."""
        return [self.labels[code] for code in self.code]


def with_columns(table: pd.DataFrame, campaign: pd.DataFrame, by: tuple[str, ...]) -> pd.DataFrame:
    """Add the columns of the campaign that are grouped by; refuse bits of several flips."""
    one_flip = [name for name in by if name in OF_ONE_FLIP]
    flips = table["flip_count"].fillna(1) > 1
    if one_flip and flips.any():
        raise several_hit(table, flips, f"by={one_flip[0]!r} needs one flip per experiment")
    campaigns = campaign.set_index("campaign_id")
    missing = [name for name in by if name not in table or name in ("metric_name", "input_count")]
    more = {name: table["campaign_id"].map(campaigns[name]) for name in missing}
    return table.assign(**more)


def groups(table: pd.DataFrame, by: tuple[str, ...], order: pd.DataFrame) -> Groups:
    """Group rows by columns; texts in the order of the model's parameters, then of the alphabet."""
    if not by:
        keys = pd.DataFrame(index=range(1 if len(table) else 0))
        return Groups(np.zeros(len(table), dtype=np.int64), keys, ["all"] * len(keys))
    codes, values = [], []
    for name in by:
        code, unique = pd.factorize(table[name].astype(object), use_na_sentinel=False)
        rank = _ranks(unique, name, order)
        values.append(np.asarray(unique, dtype=object)[np.argsort(rank)])
        codes.append(rank[code])
    joint = np.zeros(len(table), dtype=np.int64)
    for code, shown in zip(codes, values, strict=True):
        # Mixed radix: one number per combination, in the order of the first column.
        joint = joint * len(shown) + code
    present, code = np.unique(joint, return_inverse=True)
    columns, remaining = {}, present
    for name, shown in reversed(list(zip(by, values, strict=True))):
        remaining, position = np.divmod(remaining, len(shown))
        columns[name] = _typed(shown[position], name)
    frame = pd.DataFrame({name: columns[name] for name in by})
    rows = frame.astype(object).itertuples(index=False, name=None)
    labels = [", ".join(map(_words, by, row)) for row in rows]
    return Groups(code.astype(np.int64), frame, labels)


def _ranks(unique: Any, name: str, order: pd.DataFrame) -> NDArray[np.int64]:
    ordered = list(dict.fromkeys(order[name].astype(object))) if name in order else []
    order_of = {value: number for number, value in enumerate(ordered)}
    last = len(order_of)

    def position(value: Any) -> tuple[Any, ...]:
        if pd.isna(value):
            return (2, 0, "")
        if isinstance(value, str):
            # What hit several parts comes after all parts of the model.
            return (value == SEVERAL, order_of.get(value, last), value)
        return (0, float(value), "")

    ranked = sorted(range(len(unique)), key=lambda i: position(unique[i]))
    rank = np.empty(len(unique), dtype=np.int64)
    rank[ranked] = np.arange(len(unique))
    return rank


def _typed(values: Any, name: str) -> pd.Series:
    if name in _NUMBERS:
        dtypes: Any = _NUMBERS[name]
        return pd.Series(values, dtype=object).astype(dtypes)
    text = pd.Series([None if pd.isna(value) else str(value) for value in values], dtype=object)
    return text.astype(pd.Series([""]).dtype)


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
    """Return the code of what weighs the same in its group; the group itself for bits."""
    if rules.average not in MEMBERS:
        return np.asarray(group, dtype=np.int64)
    column = MEMBERS[rules.average]
    rule = f"average={rules.average!r} needs every experiment to hit one of the {rules.average}"
    if (several := table[column] == SEVERAL).any():
        raise several_hit(table, several, rule)
    if table[column].isna().any():
        row = table[table[column].isna()].iloc[0]
        msg = (
            f"{rule}, and the {column} of experiment {row['exp_id']} of campaign "
            f"{row['campaign_id']!r} is not known; ask for average='bits'"
        )
        raise InjectionError(msg)
    code, unique = pd.factorize(table[column])
    return pd.factorize(np.asarray(group) * max(len(unique), 1) + code)[0].astype(np.int64)


def weights(table: pd.DataFrame, group: Any, rules: Rules) -> tuple[Any, Any]:
    """Return the weight of every row, and the rows whose weight the design does not state."""
    weight = table["weight"].to_numpy(dtype=float)
    unknown = np.isnan(weight)
    # One missing weight makes the others of its group useless: all sites weigh the same then.
    is_unweighted = np.bincount(group, unknown, minlength=1)[group] > 0
    weight = np.where(is_unweighted, 1.0, weight)
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
    code, dtypes = pd.factorize(table["dtype"], use_na_sentinel=False)
    # One width for all cancels out of the mean.
    if len(dtypes) < 2:
        return np.ones(len(table))
    width = np.array([bit_width(dtype) for dtype in dtypes])
    if np.isnan(width).any():
        strange = dtypes[int(np.isnan(width).argmax())]
        msg = (
            f"average='parameters' needs the bits of every element, and dtype {strange!r} is not "
            "known or shared by several; ask for average='bits'"
        )
        raise InjectionError(msg)
    return width[code]


def never_hit(names: set[str], hit: set[str], noun: str) -> str:
    """Name the members that were never injected; empty if there are none."""
    missing = sorted(names - hit)
    if not missing:
        return ""
    shown = ", ".join(missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
    return f"{len(missing)} of {len(names)} {noun} never injected ({shown})"


Average: TypeAlias = Literal["bits", "parameters", "tensors", "layers"]
NanPolicy: TypeAlias = Literal["wrong", "due", "ignore"]
Beneficial: TypeAlias = Literal["wrong", "right"]

OF_FAULTS = (
    "component", "layer", "param", "kind", "bit", "bit_role", "dtype", "direction", "stratum",
    "flip_count",
)  # fmt: skip
# The result has a column of the name nan_policy: the rule followed here, not the tool's.
OF_CAMPAIGN = tuple(name for name in CAMPAIGN.columns if name not in ("nan_policy", "created"))
MEMBERS = {"tensors": "param", "layers": "layer"}
# What campaigns share that are averaged.
SAME = (
    "criterion", "tolerance", "nan_policy", "fault_model", "flip_count", "bit_error_ratio",
    "mitigation", "dtype", "model_name", "model_sha", "dataset", "inputs_sha",
)  # fmt: skip


@dataclass(frozen=True)
class Rules:
    """Settings of an estimate; checked on creation."""

    average: Average
    by: tuple[str, ...] = ()
    nan_policy: NanPolicy = "wrong"
    beneficial: Beneficial = "wrong"
    confidence_level: float = 0.95

    def __post_init__(self) -> None:
        for name, kind in (("average", Average), ("nan_policy", NanPolicy)):
            _one_of(name, getattr(self, name), get_args(kind))
        _one_of("beneficial", self.beneficial, get_args(Beneficial))
        share_between("confidence_level", self.confidence_level)
        allowed = list(dict.fromkeys((*OF_FAULTS, *OF_CAMPAIGN)))
        if strange := [name for name in self.by if name not in allowed]:
            msg = f"by={strange[0]!r} is not a column to group by; there are {', '.join(allowed)}"
            raise InjectionError(msg)
        if len(set(self.by)) < len(self.by):
            msg = f"by={self.by!r} names a column twice"
            raise InjectionError(msg)


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        msg = f"{name}={value!r} is not one of {', '.join(map(repr, allowed))}"
        raise InjectionError(msg)


def bit_width(dtype: object) -> float:
    """Return the bits of one element; missing for a type that is not known."""
    number_type = NUMBER_TYPES.get(str(dtype))
    return np.nan if number_type is None else number_type.bit_count


@cache
def bit_role(dtype: object, bit: int) -> str | None:
    """Describe what a bit is for: sign, exp, mant or int; None where the type is not known."""
    number_type = NUMBER_TYPES.get(str(dtype))
    return None if number_type is None else str(number_type.roles(np.array([bit]))[0])


def wrong_and_judged(
    table: pd.DataFrame, rules: Rules
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Count per row what is wrong and what it is a share of."""
    if rules.nan_policy != "wrong":
        _refuse_missing(
            table, "due_count", f"nan_policy={rules.nan_policy!r} needs outputs that are not "
            "finite counted apart, and the tool cannot tell them", "nan_policy='wrong'",
        )  # fmt: skip
    if rules.beneficial == "right":
        _refuse_missing(
            table, "beneficial_count", "beneficial='right' needs to know which faults made a "
            "wrong output right", "beneficial='wrong'",
        )  # fmt: skip
    sdc, due = (_numbers(table[name]) for name in ("sdc_count", "due_count"))
    wrong = sdc + due if rules.nan_policy == "wrong" else sdc
    if rules.beneficial == "right":
        wrong = wrong - _numbers(table["beneficial_count"])
    judged = _numbers(table["input_count"])
    return wrong, judged - due if rules.nan_policy == "ignore" else judged


def _numbers(column: pd.Series) -> NDArray[np.float64]:
    return column.to_numpy(dtype="float64", na_value=0)


def _refuse_missing(table: pd.DataFrame, column: str, reason: str, remedy: str) -> None:
    missing = table[column].isna()
    if missing.any():
        name = table.loc[missing, "campaign_id"].iloc[0]
        msg = f"{reason}: {column} is missing in campaign {name!r}. Ask for {remedy}"
        raise InjectionError(msg)


def refuse_mixed(
    groups: Any, labels: list[str], names: pd.Series, campaign: pd.DataFrame, rules: Rules
) -> None:
    """Refuse groups whose campaigns do not follow the same rules."""
    if len(campaign) < 2:
        return
    pairs = pd.DataFrame({"group": groups, "campaign_id": names.to_numpy()}).drop_duplicates()
    pairs = pairs.merge(comparable(campaign, rules), on="campaign_id")
    mixed = pairs.groupby("group")[list(SAME)].nunique(dropna=False) > 1
    if not mixed.to_numpy().any():
        return
    group = mixed.index[mixed.any(axis=1)][0]
    inside = pairs[pairs["group"] == group]
    differences = [
        f"{name}: {', '.join('not told' if pd.isna(v) else str(v) for v in inside[name].unique())}"
        for name in SAME
        if mixed.loc[group, name]
    ]
    msg = (
        f"group {labels[int(group)]!r} mixes campaigns that cannot be averaged "
        f"({'; '.join(differences)})"
        '; tell them apart with by=(..., "campaign_id") or pass one of them'
    )
    raise InjectionError(msg)


def rules_told(campaign: pd.Series) -> dict[str, str | None]:
    """Return the columns that say which factor is meant, of one campaign by the usual rules."""
    rules = Rules("bits")
    fields = {
        name: None if pd.isna(campaign[name]) else str(campaign[name])
        for name in ("criterion", "fault_model")
    }
    return {"average": rules.average, "nan_policy": rules.nan_policy, **fields}


def first_difference(first: pd.Series, second: pd.Series, names: Sequence[str]) -> str | None:
    """Name the first field in which two rows differ; missing in both is not a difference."""
    for name in names:
        if not (first[name] == second[name] or (pd.isna(first[name]) and pd.isna(second[name]))):
            return name
    return None


def comparable(campaign: pd.DataFrame, rules: Rules) -> pd.DataFrame:
    """Return what campaigns have to share, what comes to the same under the rules made equal."""
    table = campaign[["campaign_id", *SAME]].astype(object)
    if rules.nan_policy == "wrong":
        # Counted apart or as wrong: it comes to the same here.
        table["nan_policy"] = table["nan_policy"].replace("apart", "wrong")
    if "flip_count" in rules.by:
        table["flip_count"] = None
    # A tool that does not state them says nothing against the same weights and inputs.
    for name in ("model_sha", "inputs_sha"):
        unique = table[name].dropna().unique()
        table[name] = table[name].fillna(unique[0]) if len(unique) == 1 else table[name]
    return table.where(table.notna(), None)
