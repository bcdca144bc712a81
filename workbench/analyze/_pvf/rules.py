"""Rules of a vulnerability factor: what counts as wrong, what is averaged, what may be mixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._number_types import NUMBER_TYPES
from workbench._numbers import share_between
from workbench.errors import InjectionError
from workbench.tables import CAMPAIGN

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
    """What a factor is made by; checked when made."""

    average: Average
    by: tuple[str, ...] = ()
    nan_policy: NanPolicy = "wrong"
    beneficial: Beneficial = "wrong"
    level_share: float = 0.95

    def __post_init__(self) -> None:
        """Refuse rules that do not exist."""
        for name, kind in (("average", Average), ("nan_policy", NanPolicy)):
            _one_of(name, getattr(self, name), get_args(kind))
        _one_of("beneficial", self.beneficial, get_args(Beneficial))
        share_between("level_share", self.level_share)
        allowed = list(dict.fromkeys((*OF_FAULTS, *OF_CAMPAIGN)))
        if strange := [name for name in self.by if name not in allowed]:
            msg = f"by={strange[0]!r} is no column to group by; there are {', '.join(allowed)}"
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
    known = NUMBER_TYPES.get(str(dtype))
    return np.nan if known is None else known.bit_count


@cache
def bit_role(dtype: object, bit: int) -> str | None:
    """Say what a bit is for: sign, exp, mant or int; None where the type is not known."""
    known = NUMBER_TYPES.get(str(dtype))
    return None if known is None else str(known.roles(np.array([bit]))[0])


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
    found = [
        f"{name}: {', '.join('not told' if pd.isna(v) else str(v) for v in inside[name].unique())}"
        for name in SAME
        if mixed.loc[group, name]
    ]
    msg = (
        f"group {labels[int(group)]!r} mixes campaigns that cannot be averaged ({'; '.join(found)})"
        '; tell them apart with by=(..., "campaign_id") or pass one of them'
    )
    raise InjectionError(msg)


def rules_told(campaign: pd.Series) -> dict[str, str | None]:
    """Give the columns that say which factor is meant, of one campaign by the usual rules."""
    rules = Rules("bits")
    told = {
        name: None if pd.isna(campaign[name]) else str(campaign[name])
        for name in ("criterion", "fault_model")
    }
    return {"average": rules.average, "nan_policy": rules.nan_policy, **told}


def first_difference(one: pd.Series, two: pd.Series, names: Sequence[str]) -> str | None:
    """Name the first field in which two rows differ; missing in both is no difference."""
    for name in names:
        if not (one[name] == two[name] or (pd.isna(one[name]) and pd.isna(two[name]))):
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
    # A tool that does not tell them says nothing against the same weights and inputs.
    for name in ("model_sha", "inputs_sha"):
        known = table[name].dropna().unique()
        table[name] = table[name].fillna(known[0]) if len(known) == 1 else table[name]
    return table.where(table.notna(), None)
