"""Contradictions and oddities in results of fault injection."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

from workbench._shared.numbers import NUMBER_TYPES
from workbench.errors import LoadError
from workbench.load._files.findings import Findings
from workbench.load._pvf.part import COUNTS, InjectionPart, filled
from workbench.tables import OUTCOME_NAMES, OUTCOMES

_KEY = ["campaign_id", "exp_id"]


def check_part(content: InjectionPart) -> None:
    """Refuse what cannot be true; note what is only odd in the findings of the part."""
    label = content.findings[0].source
    findings = Findings(label)
    _unique(content.campaign, ["campaign_id"], "campaign", label)
    _unique(content.outcomes, _KEY, "outcomes", label)
    _unique(content.faults, [*_KEY, "flip"], "faults", label)
    # What the reader numbered itself cannot be there twice.
    if not content.is_numbered_here:
        _unique(content.trials, [*_KEY, "input_id"], "trials", label)
    if not content.is_counted_here:
        _told_twice(content, label, findings)
    _known_campaigns(content, label)
    _adds_up(content.outcomes, label)
    _joins(content, findings)
    content.findings.append(findings)


def _unique(frame: pd.DataFrame, key: list[str], name: str, label: str) -> None:
    if not len(frame):
        return
    again = frame.duplicated(_coded(frame, key)).to_numpy()
    if again.any():
        row = int(np.flatnonzero(again)[0])
        shown = ", ".join(f"{column} {frame[column].iloc[row]}" for column in key)
        msg = (
            f"{label}: {name} has {int(again.sum()):,} rows whose key ({', '.join(key)}) is there "
            f"already, the first is row {row + 1:,} ({shown}); give every experiment one row"
        )
        raise LoadError(msg)


# Texts are slow to compare: one campaign needs no place in the key.
def _coded(frame: pd.DataFrame, key: list[str]) -> list[str]:
    if len(key) > 1 and key[0] == "campaign_id" and frame["campaign_id"].nunique() <= 1:
        return key[1:]
    return key


def _known_campaigns(content: InjectionPart, label: str) -> None:
    campaigns = set(content.campaign["campaign_id"])
    for name in ("faults", "outcomes", "trials", "parameters"):
        frame = getattr(content, name)
        if strange := sorted(set(frame["campaign_id"].unique()) - campaigns):
            msg = (
                f"{label}: {name} has results without a campaign header: the campaign table has "
                f"no campaign_id {strange[:3]}; it has {sorted(campaigns)[:3]}"
            )
            raise LoadError(msg)


def _adds_up(outcomes: pd.DataFrame, label: str) -> None:
    inputs = _numbers(outcomes["input_count"])
    counts = np.column_stack([_numbers(outcomes[name]) for name in COUNTS])
    is_counted = ~np.isnan(counts)
    total = np.where(is_counted, counts, 0).sum(axis=1)
    # Counts that the tool cannot tell are missing: then they may be below, never above the inputs.
    wrong = (total > inputs) | (is_counted.all(axis=1) & (total != inputs) & ~np.isnan(inputs))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        text = f"masked + benign + sdc + due is {total[row]:,.0f} of {inputs[row]:,.0f} inputs"
        _contradiction(label, outcomes, row, text)
    beneficial, sdc = _numbers(outcomes["beneficial_count"]), _numbers(outcomes["sdc_count"])
    if (wrong := beneficial > sdc).any():
        row = int(np.flatnonzero(wrong)[0])
        text = f"{beneficial[row]:,.0f} beneficial of {sdc[row]:,.0f} SDC; they are part of the SDC"
        _contradiction(label, outcomes, row, text)


def _contradiction(label: str, outcomes: pd.DataFrame, row: int, text: str) -> None:
    head = outcomes.iloc[row]
    msg = (
        f"{label}: outcomes, row {row + 1:,} (campaign {head['campaign_id']}, experiment "
        f"{head['exp_id']}): {text}; the counts contradict each other"
    )
    raise LoadError(msg)


def _told_twice(content: InjectionPart, label: str, findings: Findings) -> None:
    """Compare the counts of experiments with their trials, where these are all there."""
    if not len(content.trials) or content.trials["outcome"].isna().all():
        return
    trials = content.trials[_KEY].assign(outcome=content.trials["outcome"].cat.codes)
    counted = trials.assign(count=1).pivot_table(
        index=_KEY, columns="outcome", values="count", aggfunc="sum", fill_value=0
    )
    names = dict(enumerate(content.trials["outcome"].cat.categories))
    counted = counted.rename(columns=names).reindex(columns=[*OUTCOME_NAMES, -1], fill_value=0)
    stated = content.outcomes.set_index(_KEY)
    shared = stated.index.intersection(counted.index)
    stated, counted = stated.loc[shared], counted.loc[shared]
    is_counted = counted.sum(axis=1) == stated["input_count"]
    is_whole = (counted[-1] == 0) & is_counted.fillna(value=False)
    findings.add("noted", "experiments with trials of some inputs only", int((~is_whole).sum()))
    for name in OUTCOME_NAMES:
        differs = is_whole & (stated[f"{name}_count"] != counted[name]).fillna(value=False)
        if differs.any():
            at = differs[differs].index[0]
            msg = (
                f"{label}: campaign {at[0]}, experiment {at[1]} has {counted[name][at]:,} {name} "
                f"among its trials and {stated[f'{name}_count'][at]:,} among its outcomes"
            )
            raise LoadError(msg)


def _joins(content: InjectionPart, findings: Findings) -> None:
    """Count experiments that one table has and another lacks."""
    outcomes = _keys(content.outcomes)
    for name, finding, text, table in (
        ("faults", "noted", "experiments with faults and no outcome: never run", "outcomes"),
        ("trials", "suspicious", "experiments with trials and no outcome", "outcomes"),
    ):
        if len(frame := getattr(content, name)):
            missing = _keys(frame).difference(outcomes)
            _note(findings, finding, text, missing, f"not in {table}")
    if len(content.faults):
        missing = outcomes.difference(_keys(content.faults))
        _note(findings, "suspicious", "experiments with an outcome and no fault", missing, "")
    counts = content.outcomes[["campaign_id", "input_count"]].merge(
        content.campaign[["campaign_id", "input_count"]], on="campaign_id", suffixes=("", "_said")
    )
    differs = (counts["input_count"] != counts["input_count_said"]).fillna(value=False)
    text = "experiments judged on another number of inputs than the campaign says"
    findings.add("noted", text, int(differs.sum()))


def _note(findings: Findings, finding: str, text: str, missing: pd.MultiIndex, why: str) -> None:
    if len(missing):
        where = f"campaign {missing[0][0]}, experiment {missing[0][1]}" + (f", {why}" * bool(why))
        findings.add(finding, text, len(missing), where)


def _keys(frame: pd.DataFrame) -> pd.MultiIndex:
    return pd.MultiIndex.from_frame(frame[_KEY].drop_duplicates())


def _numbers(values: pd.Series) -> np.ndarray:
    return values.to_numpy(np.float64, na_value=np.nan)


MASKED, BENIGN, SDC, DUE = range(4)
UNKNOWN = -1


def counted(
    campaign_id: str,
    exp_ids: np.ndarray,
    codes: np.ndarray,
    *,
    outcomes: Collection[str] = OUTCOME_NAMES,
    beneficial: np.ndarray | None = None,
) -> pd.DataFrame:
    """Count outcomes per experiment as table OUTCOMES.

    Counts of others than ``outcomes`` are missing, not 0: the tool cannot tell them.
    """
    ids, position = _numbered(exp_ids)
    # One bincount over pairs of experiment and outcome; column 0 is the unknown outcome, -1.
    width = len(OUTCOME_NAMES) + 1
    flat = np.bincount(position * width + (codes.astype(np.int64) + 1), minlength=len(ids) * width)
    counts = flat.reshape(-1, width)
    columns: dict[str, Any] = {
        f"{name}_count": counts[:, number + 1]
        for number, name in enumerate(OUTCOME_NAMES)
        if name in outcomes
    }
    if beneficial is not None:
        columns["beneficial_count"] = np.bincount(position[beneficial], minlength=len(ids))
    columns |= {"campaign_id": campaign_id, "exp_id": ids, "input_count": counts.sum(axis=1)}
    return filled(OUTCOMES, columns, len(ids))


def _numbered(exp_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if not len(exp_ids) or exp_ids.min() < 0 or exp_ids.max() > 2 * len(exp_ids):
        return np.unique(exp_ids, return_inverse=True)
    # Numbers without large gaps need no sorting, which takes long for millions of rows.
    is_there = np.bincount(exp_ids) > 0
    return np.flatnonzero(is_there), (np.cumsum(is_there) - 1)[exp_ids]


def common(values: pd.Series) -> Any:
    """Return the one value that all rows share; None if there are several or none."""
    unique = values.dropna().unique()
    return unique[0] if len(unique) == 1 else None


def fp32_roles(bits: pd.Series) -> pd.Series:
    """Classify bits of a float32: sign, exponent or mantissa."""
    roles = NUMBER_TYPES["fp32"].roles(bits.fillna(0).to_numpy(np.int64))
    text = pd.Series(roles, index=bits.index, dtype=pd.Series([""]).dtype)
    return text.where(bits.notna()).astype("category")
