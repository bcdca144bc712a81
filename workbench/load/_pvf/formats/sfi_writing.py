"""Writing the files of SFIadvancedmodels, so that it can inject what was drawn here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from workbench._writing import write_whole
from workbench.errors import InjectionError
from workbench.load._pvf.formats.sfi_advanced_models import LIST
from workbench.load._pvf.formats.sfi_runs import param_of
from workbench.tables import FAULTS, OUTCOMES, Injections


def write_sfi_fault_list(
    injections: Injections,
    path: str | Path,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Path:
    """Write the faults of a campaign as a fault list that SFIadvancedmodels injects.

    Parameters
    ----------
    injections
        One campaign of single flips in weights.
    path
        The CSV file, with ``Injection,Layer,TensorIndex,Bit``.
    shapes
        Shape of each tensor by its full name, for faults that have ``elem`` and no ``index``.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    InjectionError
        If the list cannot tell what was injected: several campaigns, several flips per
        experiment, biases, or places that are not known.
    """
    return _write(_listed(injections, shapes or {}), path, "\r\n")


def write_sfi_summary(
    injections: Injections,
    path: str | Path,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    due: Literal["critical"] | None = None,
) -> Path:
    """Write faults and counts of a campaign as a summary of SFIadvancedmodels.

    Parameters
    ----------
    injections
        One campaign of single flips in weights.
    path
        The CSV file; faults that were never run have counts of 0.
    shapes
        As for :func:`write_sfi_fault_list`.
    due
        The format has no place for outputs that are not finite: ``"critical"`` counts them
        as such. By default they are refused.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    InjectionError
        As for :func:`write_sfi_fault_list`, or if there are DUE, or counts are missing.
    """
    listed = _listed(injections, shapes or {})
    outcomes = OUTCOMES.check(injections.outcomes)
    is_of_it = outcomes["campaign_id"].isin(injections.faults["campaign_id"])
    outcomes = outcomes[is_of_it].set_index("exp_id")
    dues = outcomes["due_count"].fillna(0)
    if due is None and (dues > 0).any():
        msg = (
            f"{int(dues.sum()):,} outputs are not finite (DUE), for which a summary of "
            "SFIadvancedmodels has no column; due='critical' counts them as critical"
        )
        raise InjectionError(msg)
    counts = pd.DataFrame(
        {
            "masked": outcomes["masked_count"],
            "non_critical": outcomes["benign_count"],
            "critical": outcomes["sdc_count"] + dues,
        }
    )
    if counts.isna().any(axis=None):
        msg = (
            f"{int(counts.isna().any(axis=1).sum()):,} experiments lack a count of masked, benign "
            "or SDC; a summary of SFIadvancedmodels needs all three"
        )
        raise InjectionError(msg)
    most = int(counts.sum(axis=1).max()) if len(counts) else 0
    counts = counts.reindex(listed["Injection"]).fillna(0).astype("int64").reset_index(drop=True)
    counts.insert(0, "n_injections", most)
    return _write(pd.concat([listed, counts], axis=1), path, "\n")


def _listed(injections: Injections, shapes: Mapping[str, Sequence[int]]) -> pd.DataFrame:
    faults = FAULTS.check(injections.faults)
    if (number := faults["campaign_id"].nunique()) != 1:
        msg = f"a fault list of SFIadvancedmodels holds one campaign, not {number}; take one"
        raise InjectionError(msg)
    _refuse(faults, faults["exp_id"].duplicated(), "several flips in one experiment")
    params = faults["param"].astype(object)
    layers = pd.Series([str(p).removesuffix(".weight") for p in params], index=faults.index)
    is_weight = pd.Series([isinstance(p, str) for p in params], index=faults.index)
    is_weight &= layers.map(param_of) == params.astype(str)
    is_weight &= ~layers.str.endswith("bias")
    _refuse(faults, ~is_weight, "a tensor that is no weight (the tool appends '.weight')")
    _refuse(faults, faults["bit"].isna(), "no bit")
    _refuse(faults, ~faults["dtype"].astype(object).isin(["fp32"]), "a type other than fp32")
    places = faults["index"].astype(object).where(faults["index"].notna(), None)
    for param, rows in faults[places.isna() & faults["elem"].notna()].groupby(
        "param", observed=True
    ):
        if (shape := shapes.get(str(param))) is not None:
            places = places.mask(places.index.isin(rows.index), _unravelled(rows, shape))
    _refuse(faults, places.isna(), "no index; pass shapes={param: shape} to find it by elem")
    columns = [faults["exp_id"], layers, places, faults["bit"].astype("int64")]
    listed = pd.DataFrame(dict(zip(LIST, columns, strict=True)))
    return listed.sort_values("Injection", kind="stable", ignore_index=True)


def _unravelled(rows: pd.DataFrame, shape: Sequence[int]) -> pd.Series:
    size = int(np.prod(shape))
    _refuse(rows, rows["elem"] >= size, f"an element outside of shape {tuple(shape)}")
    places = np.unravel_index(rows["elem"].to_numpy(np.int64), tuple(shape))
    texts = [str(tuple(int(each) for each in place)) for place in zip(*places, strict=True)]
    return pd.Series(texts, index=rows.index, dtype=object)


def _refuse(faults: pd.DataFrame, bad: pd.Series, what: str) -> None:
    if bad.any():
        first = faults[bad.to_numpy()].iloc[0]
        msg = (
            f"experiment {first['exp_id']} ({first['param']}) has {what}, which a fault list of "
            f"SFIadvancedmodels cannot tell; {int(bad.sum()):,} faults are so"
        )
        raise InjectionError(msg)


def _write(frame: pd.DataFrame, path: str | Path, line_end: str) -> Path:
    text = frame.to_csv(index=False, lineterminator=line_end)
    write_whole(Path(path), lambda file: file.write(text.encode()))
    return Path(path)
