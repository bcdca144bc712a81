"""How many gradients a narrow type would lose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from workbench.errors import InjectionError
from workbench.simulate.injections._torch import torch
from workbench.tables import GRADIENT_UNDERFLOW

_TYPES = {
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8-e5m2": "float8_e5m2",
    "fp8-e4m3": "float8_e4m3fn",
}


def gradient_underflow(
    model: Any, inputs: tuple[Any, ...], labels: Any, *, scales: Sequence[float] = (1.0, 1e-4)
) -> pd.DataFrame:
    """Take the gradients of a classifier once, and count those that narrow types cannot hold.

    Parameters
    ----------
    model
        A ``torch.nn.Module`` in float32 that gives logits [inputs x classes]; it is not changed.
    inputs
        Its arguments.
    labels
        The right class of each input.
    scales
        Factors on the gradients: what loss scaling makes larger, or a small loss smaller.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.GRADIENT_UNDERFLOW`, one row per scale and type:
        ``dtype``, ``scale_ratio``, ``gradient_count``, ``lost_share`` and
        ``subnormal_share``.

    Raises
    ------
    InjectionError
        If no gradient differs from 0, or a scale is not positive.
    MissingExtraError
        If PyTorch is not installed.

    Notes
    -----
    Counted are gradients of parameters under the mean cross-entropy that are not 0 in float32:
    those that become 0, and those that stay but below the least normal number, where they
    lose digits.
    """
    if any(not scale > 0 for scale in scales):
        msg = f"scales={tuple(scales)}: every scale must be above 0"
        raise InjectionError(msg)
    gradients = _gradients(model, inputs, labels)
    if not len(gradients):
        msg = "no gradient of the model differs from 0; there is nothing to lose"
        raise InjectionError(msg)
    rows = []
    for scale in scales:
        for name, torch_name in _TYPES.items():
            narrow = getattr(torch(), torch_name)
            cast = (gradients * scale).to(narrow).float()
            least = torch().finfo(narrow).smallest_normal
            lost, faint = cast == 0, (cast != 0) & (cast.abs() < least)
            rows.append(
                {
                    "dtype": name,
                    "scale_ratio": float(scale),
                    "gradient_count": len(gradients),
                    "lost_share": float(lost.double().mean()),
                    "subnormal_share": float(faint.double().mean()),
                }
            )
    return GRADIENT_UNDERFLOW.check(pd.DataFrame(rows))


def _gradients(model: Any, inputs: tuple[Any, ...], labels: Any) -> Any:
    """Give all gradients that are not 0, without touching the model's own."""
    parameters = {
        name: each.detach().clone().requires_grad_(requires_grad=True)
        for name, each in model.named_parameters()
    }
    with torch().enable_grad():
        logits = torch().func.functional_call(model, parameters, inputs)
        loss = torch().nn.functional.cross_entropy(logits, labels)
        found = torch().autograd.grad(loss, list(parameters.values()), allow_unused=True)
    flat = torch().cat([each.flatten() for each in found if each is not None])
    return flat[flat != 0]
