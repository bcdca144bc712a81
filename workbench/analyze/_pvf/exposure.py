"""Which part of the model the wrong outputs come from, if upsets strike any bit alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from workbench._numbers import not_negative
from workbench.analyze._pvf.estimates import pvf
from workbench.analyze._pvf.injection_rows import together
from workbench.analyze._pvf.rules import NanPolicy
from workbench.errors import InjectionError
from workbench.tables import PVF_EXPOSURE, ExhaustiveInjections, Injections

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
    struck, spoils of the inputs, summed over faults; until the parameters are loaded anew.
    """
    if upsets_per_gbit_h is not None:
        not_negative("upsets_per_gbit_h", upsets_per_gbit_h)
    table = pvf(injections, average="bits", by=by, nan_policy=nan_policy)
    unknown = table["bit_count"].isna() | table["pvf"].isna()
    if unknown.any():
        row = table[unknown].iloc[0]
        what = "bits" if pd.isna(row["bit_count"]) else "outputs"
        msg = (
            f"the {what} of group {row['group']!r} are not known; exposure needs the table of "
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
    return PVF_EXPOSURE.check(PVF_EXPOSURE.cast(result))


def _refuse_other_bits(
    injections: Injections | Sequence[Injections] | ExhaustiveInjections, table: pd.DataFrame
) -> None:
    """Refuse groups that are not the model, once: shares of them would be of something else."""
    if isinstance(injections, ExhaustiveInjections):
        people = injections.parameters
    else:
        people = together(injections, "parameters")
    whole = float(people.drop_duplicates("param")["bit_count"].sum())
    held = float(table["bit_count"].sum())
    if abs(held - whole) > _CLOSE * whole:
        why = (
            "they are no parts of one model; pass the campaigns one by one"
            if held > whole
            else "inject into the rest as well, or take what was not injected out of parameters"
        )
        msg = f"the groups hold {held:,.0f} bits, the model {whole:,.0f}: {why}"
        raise InjectionError(msg)
