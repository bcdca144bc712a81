"""Vulnerability factors as figures want them: by place in the word, and by number of flips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd

from workbench.analyze._pvf.estimates import pvf
from workbench.analyze._pvf.injection_rows import together
from workbench.analyze._pvf.rules import Average, NanPolicy, bit_width
from workbench.errors import InjectionError
from workbench.tables import PVF, ExhaustiveInjections, Injections


def pvf_by_bit(
    injections: Injections | Sequence[Injections] | ExhaustiveInjections,
    *,
    rows: Literal["component", "layer", "param"] = "layer",
    nan_policy: NanPolicy = "wrong",
    level_share: float = 0.95,
) -> pd.DataFrame:
    """Give the factor of every bit place in every layer, those never injected included.

    Parameters
    ----------
    injections
        Campaigns of single flips, or every fault.
    rows
        What stands beside the bits: ``"component"``, ``"layer"`` or ``"param"`` (tensor).
    nan_policy
        As for :func:`pvf`.
    level_share
        Confidence of the intervals.

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
        injections, average="bits", by=(rows, "bit"), nan_policy=nan_policy, level_share=level_share
    )
    if isinstance(injections, ExhaustiveInjections):
        parameters = injections.parameters
    else:
        parameters = together(injections, "parameters")
    missing = _missing(table, parameters, rows)
    if missing.empty:
        return table
    shared = {name: table[name].iloc[0] for name in ("level_share", "average", "nan_policy")}
    shared |= {name: table[name].iloc[0] for name in ("criterion", "fault_model")}
    empty = missing.assign(
        **dict.fromkeys(("site_count", "trial_count", "event_site_count", "sdc_count"), 0),
        **dict.fromkeys(
            ("pvf", "low", "high", "independent_low", "independent_high", "design_effect_ratio"),
            np.nan,
        ),
        **shared,
        due_count=pd.array([None] * len(missing), dtype="Int64"),
        interval="none",
        drawn_from="",
        is_sure=False,
        doubt="never injected",
    )
    empty = pd.concat([empty[[rows, "bit"]], PVF.cast(empty)], axis=1).astype(dict(table.dtypes))
    order = {name: i for i, name in enumerate(dict.fromkeys([*table[rows], *missing[rows]]))}
    whole = pd.concat([table, empty[list(table.columns)]], ignore_index=True)
    place = whole[rows].map(order).to_numpy() * 1000 + whole["bit"].to_numpy(dtype="int64")
    return PVF.check(whole.iloc[np.argsort(place, kind="stable")].reset_index(drop=True))


def _missing(table: pd.DataFrame, parameters: pd.DataFrame, rows: str) -> pd.DataFrame:
    """List the bits of the model that are not in the table."""
    found = set(zip(table[rows], table["bit"], strict=True))
    elements = parameters.groupby([rows, "dtype"], sort=False)["element_count"].sum()
    cells = [
        {rows: name, "bit": bit, "group": f"{name}, bit {bit}", "bit_count": float(count)}
        for name, dtype, count in elements.reset_index().itertuples(index=False)
        for bit in range(int(np.nan_to_num(bit_width(dtype))))
        if (name, bit) not in found
    ]
    return pd.DataFrame(cells).drop_duplicates([rows, "bit"]) if cells else pd.DataFrame()


def pvf_by_flips(
    injections: Injections | Sequence[Injections],
    *,
    average: Average = "bits",
    nan_policy: NanPolicy = "wrong",
    level_share: float = 0.95,
) -> pd.DataFrame:
    """Give the factor by how many bits flip at once, for each type and component.

    Parameters
    ----------
    injections
        Campaigns of one model, each of its own flip count and type.
    average, nan_policy, level_share
        As for :func:`pvf`; flips of one experiment mostly hit several tensors, so only bits
        and parameters can be averaged.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PVF`, by ``dtype``, ``component`` and ``flip_count``.

    Raises
    ------
    InjectionError
        As :func:`pvf`.
    """
    return pvf(
        injections,
        average=average,
        by=("dtype", "component", "flip_count"),
        nan_policy=nan_policy,
        level_share=level_share,
    )
