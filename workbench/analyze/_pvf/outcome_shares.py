"""What becomes of faults: the share of every outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from workbench.analyze._pvf.groups import groups, refuse_half_weighted, weights, with_columns
from workbench.analyze._pvf.injection_rows import campaigns, experiments, together
from workbench.analyze._pvf.parts import with_parts
from workbench.analyze._pvf.rules import Rules, refuse_mixed
from workbench.errors import InjectionError
from workbench.tables import OUTCOME_SHARES, Injections

_CLOSE = 1e-9
_OUTCOMES = ("masked", "benign", "masked or benign", "sdc", "beneficial", "due")


def outcome_shares(
    injections: Injections | Sequence[Injections], *, by: str | Sequence[str] = ("component",)
) -> pd.DataFrame:
    """Divide the trials by outcome.

    Parameters
    ----------
    injections
        As for :func:`pvf`.
    by
        Columns that tell groups apart, as for :func:`pvf`.

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
    Where any experiment of a group does not tell masked from benign, or only counts as masked
    what provably changed nothing, both are one outcome, which holds outputs that are not finite,
    too, if the tool cannot tell these. ``sdc`` leaves out ``beneficial`` where that is known.
    Trials are weighted by the design, so that their sum stays
    the number of trials.
    """
    columns = (by,) if isinstance(by, str) else tuple(by)
    rules = Rules("bits", columns)
    campaign = campaigns(injections)
    table = with_columns(experiments(injections), campaign, columns)
    found = groups(table, columns, together(injections, "parameters"))
    refuse_mixed(found.code, found.labels, table["campaign_id"], campaign, rules)
    refuse_half_weighted(table, found.code, found.labels)
    found = with_parts(injections, table, found, campaign, rules)
    weight, _ = weights(table, found.code, rules)
    proven = campaign.loc[campaign["masked_rule"] == "proven", "campaign_id"]
    is_split = ~table["campaign_id"].isin(proven).to_numpy(dtype=bool)
    inputs = table["input_count"].to_numpy(dtype=float)
    rows = []
    for position, label in enumerate(found.labels):
        part = found.code == position
        weighed = (weight[part] * inputs[part]).sum()
        if not weighed > 0:
            msg = f"all experiments of group {label!r} have the weight 0; they stand for nothing"
            raise InjectionError(msg)
        scale = inputs[part].sum() / weighed
        counts = _counts(table[part], weight[part] * scale, is_split=bool(is_split[part].all()))
        rows += [{"group": label, "outcome": name, "trial_count": n} for name, n in counts.items()]
    result = pd.DataFrame(rows, columns=["group", "outcome", "trial_count"])
    total = result.groupby("group")["trial_count"].transform("sum")
    result["outcome_share"] = (result["trial_count"] / total).clip(0, 1)
    return OUTCOME_SHARES.check(OUTCOME_SHARES.cast(result))


def _counts(table: pd.DataFrame, weight: Any, *, is_split: bool) -> dict[str, float]:
    """Add up the outcomes of one group; only those that the tool tells."""

    def total(name: str) -> float | None:
        column = table[f"{name}_count"]
        return None if column.isna().any() else float((column.to_numpy(dtype=float) * weight).sum())

    known = {name: total(name) for name in ("masked", "benign", "sdc", "beneficial", "due")}
    inputs = float((table["input_count"].to_numpy(dtype=float) * weight).sum())
    due = table["due_count"]
    if known["due"] is None and due.sum() > 0:
        # Those of the other experiments are among the rest.
        known["due"] = float((due.to_numpy(dtype=float, na_value=0) * weight).sum())
    told = sum(known[name] or 0.0 for name in ("masked", "benign", "sdc", "due"))
    is_whole = told >= inputs * (1 - _CLOSE)
    if not (is_split and is_whole) or known["masked"] is None or known["benign"] is None:
        wrong = (known["sdc"] or 0.0) + (known["due"] or 0.0)
        known["masked or benign"] = max(inputs - wrong, 0.0)
        known["masked"] = known["benign"] = None
    if known["beneficial"] is not None and known["sdc"] is not None:
        known["sdc"] -= known["beneficial"]
    return {name: value for name in _OUTCOMES if (value := known.get(name)) is not None}
