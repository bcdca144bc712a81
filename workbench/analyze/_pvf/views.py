"""Vulnerability factors as figures want them: by place in the word, and by number of flips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from workbench._shared.numbers import not_negative
from workbench.analyze._pvf import groups as grouping
from workbench.analyze._pvf.estimates import pvf
from workbench.analyze._pvf.groups import NanPolicy, Rules, groups
from workbench.analyze._pvf.injection_rows import Given, campaigns, experiments, parameters_of
from workbench.analyze._pvf.parts import with_parts
from workbench.errors import InjectionError
from workbench.tables import OUTCOME_SHARES, PVF, PVF_EXPOSURE, ExhaustiveInjections, Injections


def pvf_by_bit(
    injections: Injections | Sequence[Injections] | ExhaustiveInjections,
    *,
    rows: Literal["component", "layer", "param"] = "layer",
    nan_policy: NanPolicy = "wrong",
    confidence_level: float = 0.95,
) -> pd.DataFrame:
    """Return the factor of every bit place in every layer, those never injected included.

    Parameters
    ----------
    injections
        Campaigns of single flips, or every fault.
    rows
        What the rows are: ``"component"``, ``"layer"`` or ``"param"`` (tensor).
    nan_policy, confidence_level
        As for :func:`pvf`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PVF`, by ``rows`` and ``bit``. Where nothing was injected
        the factor is missing and ``site_count`` is 0; a factor of 0 was measured.

    Raises
    ------
    InjectionError
        If experiments have several flips; as :func:`pvf`.
    """
    if rows not in ("component", "layer", "param"):
        msg = f"rows={rows!r} is not one of 'component', 'layer', 'param'"
        raise InjectionError(msg)
    table = pvf(
        injections,
        average="bits",
        by=(rows, "bit"),
        nan_policy=nan_policy,
        confidence_level=confidence_level,
    )
    # A bit never injected must show as unknown; without its row it would look harmless.
    missing = _missing(table, parameters_of(injections), rows)
    if missing.empty:
        return table
    same = ["confidence_level", "average", "nan_policy", "criterion", "fault_model"]
    unknown = ("pvf", "low", "high", "independent_low", "independent_high", "design_effect_ratio")
    empty = missing.assign(
        **dict.fromkeys(("site_count", "trial_count", "event_site_count", "sdc_count"), 0),
        **dict.fromkeys(unknown, np.nan),
        **table[same].iloc[0],
        # Missing, not 0: nothing was injected there, so nothing was counted.
        due_count=pd.array([None] * len(missing), dtype="Int64"),
        interval="none",
        drawn_from="",
        is_sure=False,
        doubt="never injected",
    )
    empty = pd.concat([empty[[rows, "bit"]], PVF.cast(empty)], axis=1).astype(dict(table.dtypes))
    order = {name: i for i, name in enumerate(dict.fromkeys([*table[rows], *missing[rows]]))}
    complete = pd.concat([table, empty[list(table.columns)]], ignore_index=True)
    # No type has 1,000 bits: the key sorts by part of the model, then by bit.
    order_key = complete[rows].map(order).to_numpy() * 1000 + complete["bit"].to_numpy(
        dtype="int64"
    )
    return PVF.check(complete.iloc[np.argsort(order_key, kind="stable")].reset_index(drop=True))


def _missing(table: pd.DataFrame, parameters: pd.DataFrame, rows: str) -> pd.DataFrame:
    injected = set(zip(table[rows], table["bit"], strict=True))
    elements = parameters.groupby([rows, "dtype"], sort=False)["element_count"].sum()
    cells = [
        {rows: name, "bit": bit, "group": f"{name}, bit {bit}", "bit_count": float(count)}
        for name, dtype, count in elements.reset_index().itertuples(index=False)
        for bit in range(int(np.nan_to_num(grouping.bit_width(dtype))))
        if (name, bit) not in injected
    ]
    return pd.DataFrame(cells).drop_duplicates([rows, "bit"]) if cells else pd.DataFrame()


_BITS_PER_GBIT = 1e9
_CLOSE = 1e-9


def pvf_exposure(
    injections: Injections | Sequence[Injections] | ExhaustiveInjections,
    *,
    by: str | Sequence[str] = ("component",),
    nan_policy: NanPolicy = "wrong",
    upsets_per_gbit_h: float | None = None,
) -> pd.DataFrame:
    """Compare the share of the bits with the share of the wrong outputs.

    A large part of small vulnerability and a small part of large vulnerability are hard to
    compare by their factors; this is what reaches the user.

    Parameters
    ----------
    injections
        As for :func:`pvf`, of one model.
    by
        Columns that tell groups apart; they must cover the model between them.
    nan_policy
        As for :func:`pvf`.
    upsets_per_gbit_h
        Upsets per 1e9 bits and hour that reach the parameters uncorrected, if known.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PVF_EXPOSURE`.

    Raises
    ------
    InjectionError
        If the bits of a group are not known, the groups are not the model or no parts of it (e.g.
        types or mitigations), or no output is left to judge.
    WorkbenchError
        If the rate is negative or not finite.

    Notes
    -----
    An upset strikes any bit alike. ``wrong_per_upset`` = bit share x PVF: its sum is the PVF of
    the model. ``wrong_per_million_hours`` = 1e6 h x rate x bits x PVF: what one fault, once
    struck, spoils of the inputs, summed over faults; until the parameters are loaded again.
    """
    if upsets_per_gbit_h is not None:
        not_negative("upsets_per_gbit_h", upsets_per_gbit_h)
    table = pvf(injections, average="bits", by=by, nan_policy=nan_policy)
    unknown = table["bit_count"].isna() | table["pvf"].isna()
    if unknown.any():
        row = table[unknown].iloc[0]
        noun = "bits" if pd.isna(row["bit_count"]) else "outputs"
        msg = (
            f"the {noun} of group {row['group']!r} are not known; exposure needs the table of "
            "parameters, single components, and outputs to judge"
        )
        raise InjectionError(msg)
    _refuse_other_bits(injections, table)
    bits, factor = (table[name].to_numpy(dtype=float) for name in ("bit_count", "pvf"))
    share = bits / bits.sum()
    wrong = share * factor
    rate = np.nan if upsets_per_gbit_h is None else upsets_per_gbit_h / _BITS_PER_GBIT
    result = table[["group", "bit_count", "pvf"]].assign(
        bit_share=share,
        wrong_share=wrong / wrong.sum() if wrong.sum() > 0 else np.nan,
        wrong_per_upset=wrong,
        wrong_per_million_hours=1e6 * rate * bits * factor,
    )
    return PVF_EXPOSURE.of(result)


def _refuse_other_bits(injections: Given | ExhaustiveInjections, table: pd.DataFrame) -> None:
    """Refuse groups that are not the model, once: shares of them would be of something else."""
    model_bits = float(parameters_of(injections).drop_duplicates("param")["bit_count"].sum())
    held = float(table["bit_count"].sum())
    if abs(held - model_bits) > _CLOSE * model_bits:
        why = (
            "they are not parts of one model; pass the campaigns one by one"
            if held > model_bits
            else "inject into the rest as well, or take what was not injected out of parameters"
        )
        msg = f"the groups hold {held:,.0f} bits, the model {model_bits:,.0f}: {why}"
        raise InjectionError(msg)


_OUTCOMES = ("masked", "benign", "masked or benign", "sdc", "beneficial", "due")


def outcome_shares(
    injections: Injections | Sequence[Injections], *, by: str | Sequence[str] = ("component",)
) -> pd.DataFrame:
    """Divide the trials by outcome.

    Parameters
    ----------
    injections, by
        As for :func:`pvf`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.OUTCOME_SHARES`: ``group``, ``outcome``, ``trial_count``,
        ``outcome_share``. The outcomes of a group add up to 1.

    Raises
    ------
    InjectionError
        As :func:`pvf`.

    Notes
    -----
    Where any experiment of a group does not separate masked from benign, or only counts as masked
    what provably changed nothing, both are one outcome, which holds outputs that are not finite,
    too, if the tool cannot tell these. ``sdc`` drops ``beneficial`` where that is known.
    Trials are weighted by the design, so that their sum stays
    the number of trials.
    """
    columns = (by,) if isinstance(by, str) else tuple(by)
    rules = Rules("bits", columns)
    campaign = campaigns(injections)
    table = grouping.with_columns(experiments(injections), campaign, columns)
    grouped = groups(table, columns, parameters_of(injections))
    grouping.refuse_mixed(grouped.code, grouped.labels, table["campaign_id"], campaign, rules)
    grouping.refuse_half_weighted(table, grouped.code, grouped.labels)
    grouped = with_parts(injections, table, grouped, campaign, rules)
    weight, _ = grouping.weights(table, grouped.code, rules)
    proven = campaign.loc[campaign["masked_rule"] == "proven", "campaign_id"]
    is_split = ~table["campaign_id"].isin(proven).to_numpy(dtype=bool)
    inputs = table["input_count"].to_numpy(dtype=float)
    rows = []
    for position, label in enumerate(grouped.labels):
        inside = grouped.code == position
        weighed = (weight[inside] * inputs[inside]).sum()
        if not weighed > 0:
            msg = f"all experiments of group {label!r} have the weight 0; they stand for nothing"
            raise InjectionError(msg)
        # Weights are scaled so that the weighted trials add up to those that were run.
        scale = inputs[inside].sum() / weighed
        counts = _counts(
            table[inside], weight[inside] * scale, is_split=bool(is_split[inside].all())
        )
        rows += [{"group": label, "outcome": name, "trial_count": n} for name, n in counts.items()]
    result = pd.DataFrame(rows, columns=["group", "outcome", "trial_count"])
    total = result.groupby("group")["trial_count"].transform("sum")
    result["outcome_share"] = (result["trial_count"] / total).clip(0, 1)
    return OUTCOME_SHARES.of(result)


def _counts(table: pd.DataFrame, weight: Any, *, is_split: bool) -> dict[str, float]:
    def total(name: str) -> float | None:
        column = table[f"{name}_count"]
        return None if column.isna().any() else float((column.to_numpy(dtype=float) * weight).sum())

    totals = {name: total(name) for name in ("masked", "benign", "sdc", "beneficial", "due")}
    inputs = float((table["input_count"].to_numpy(dtype=float) * weight).sum())
    due = table["due_count"]
    if totals["due"] is None and due.sum() > 0:
        # Those of the other experiments are among the rest.
        totals["due"] = float((due.to_numpy(dtype=float, na_value=0) * weight).sum())
    explained = sum(totals[name] or 0.0 for name in ("masked", "benign", "sdc", "due"))
    is_whole = explained >= inputs * (1 - _CLOSE)
    if not (is_split and is_whole) or totals["masked"] is None or totals["benign"] is None:
        wrong = (totals["sdc"] or 0.0) + (totals["due"] or 0.0)
        totals["masked or benign"] = max(inputs - wrong, 0.0)
        totals["masked"] = totals["benign"] = None
    # Beneficial ones are a subset of SDC, and would count twice.
    if totals["beneficial"] is not None and totals["sdc"] is not None:
        totals["sdc"] -= totals["beneficial"]
    return {name: value for name in _OUTCOMES if (value := totals.get(name)) is not None}
