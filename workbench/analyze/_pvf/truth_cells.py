"""The truth of an exhaustive campaign, summed up by tensor and bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._pvf.groups import NanPolicy, bit_role
from workbench.errors import InjectionError
from workbench.tables import CAMPAIGN, EXHAUSTIVE, PARAMETERS, ExhaustiveInjections

# No number type is wider, so tensor x 64 + bit is one code per cell.
BITS = 64


def inputs_of(truth: ExhaustiveInjections) -> int:
    """Return how many inputs every site was judged on; the tables are checked on the way."""
    CAMPAIGN.check(truth.campaign)
    PARAMETERS.check(truth.parameters)
    EXHAUSTIVE.check(truth.sites)
    counts = truth.campaign["input_count"]
    if len(counts) != 1 or counts.isna().any() or not int(counts.iloc[0]) > 0:
        msg = (
            f"an exhaustive campaign has one row with its input_count, here {counts.tolist()}; "
            "build it with the number of inputs that every site was judged on"
        )
        raise InjectionError(msg)
    return int(counts.iloc[0])


def wrong_counts(truth: ExhaustiveInjections, nan_policy: NanPolicy = "wrong") -> NDArray[Any]:
    """Count the wrong inputs of every site."""
    sdc = truth.sites["sdc_count"].to_numpy()
    if nan_policy != "wrong":
        return sdc
    due = truth.sites["due_count"].to_numpy()
    # Two counts of 16 bits may not fit into 16 bits.
    return sdc.astype(np.int32) + due if due.any() else sdc


def cell_codes(truth: ExhaustiveInjections) -> tuple[NDArray[np.int64], list[str]]:
    """Return a code per site, of its tensor x 64 + its bit, and the names of the tensors."""
    param = truth.sites["param"].cat
    code = param.codes.to_numpy().astype(np.int64)
    code *= BITS
    code += truth.sites["bit"].to_numpy()
    return code, [str(name) for name in param.categories]


def cells(truth: ExhaustiveInjections, nan_policy: NanPolicy = "wrong") -> pd.DataFrame:
    """Sum up the truth: one row per tensor and bit that has sites.

    Columns: those of ``parameters`` about the tensor, ``bit``, ``bit_role``, ``site_count``,
    ``sdc_count``, ``due_count``, ``wrong_count`` and ``square`` (of the wrong inputs of a
    site), ``event_site_count``.
    """
    inputs = inputs_of(truth)
    code, names = cell_codes(truth)
    size = len(names) * BITS
    sdc, due = (truth.sites[f"{name}_count"].to_numpy() for name in ("sdc", "due"))
    wrong = wrong_counts(truth, nan_policy)
    if len(wrong) and int(wrong.max()) > inputs:
        msg = f"a site has {int(wrong.max()):,} wrong outputs of {inputs:,} inputs"
        raise InjectionError(msg)
    count = np.bincount(code, minlength=size)
    sums: dict[str, Any] = {"site_count": count, "wrong_count": np.bincount(code, wrong, size)}
    # Most sites never go wrong, and zeros add nothing to the sums.
    hit = np.flatnonzero(wrong)
    wrong_of_hit, code_of_hit = wrong[hit].astype(float), code[hit]
    sums["square"] = np.bincount(code_of_hit, wrong_of_hit**2, size)
    sums["event_site_count"] = np.bincount(code_of_hit, minlength=size)
    sums["due_count"] = np.bincount(code, due, size) if due.any() else np.zeros(size)
    sums["sdc_count"] = np.bincount(code, sdc, size) if due.any() else sums["wrong_count"]
    present = np.flatnonzero(count)
    table = pd.DataFrame({name: values[present] for name, values in sums.items()})
    table.insert(0, "param", np.asarray(names, dtype=object)[present // BITS])
    table["bit"] = present % BITS
    return _with_parameters(table, truth.parameters)


def _with_parameters(table: pd.DataFrame, parameters: pd.DataFrame) -> pd.DataFrame:
    by_tensor = parameters.drop_duplicates("param").set_index("param")
    if strange := sorted(set(table["param"]) - set(by_tensor.index)):
        msg = f"the sites hit {strange[0]!r}, which is not among the parameters"
        raise InjectionError(msg)
    for name in ("component", "layer", "kind", "dtype"):
        table[name] = table["param"].map(by_tensor[name].astype(object))
    pairs = zip(table["dtype"], table["bit"], strict=True)
    table["bit_role"] = [bit_role(dtype, int(bit)) for dtype, bit in pairs]
    return table
