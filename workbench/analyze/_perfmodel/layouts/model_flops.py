"""Floating-point operations of an iteration, and the share of the peak that they reach."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from workbench.analyze._perfmodel.layouts.columns import Array, Columns, columns
from workbench.analyze._perfmodel.layouts.gpu_type import GpuType
from workbench.errors import PerformanceModelError
from workbench.tables import ITERATIONS, MODEL_FLOPS, UTILIZATION


def model_flops(configurations: pd.DataFrame, *, causal: bool = False) -> pd.DataFrame:
    """Count the floating-point operations of one iteration.

    Parameters
    ----------
    configurations
        Table :data:`workbench.tables.CONFIGURATIONS`.
    causal
        Count only the half of the scores that a causal mask leaves. Publications until
        about 2024 count all of them, as does Megatron-LM of that time: the default.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.MODEL_FLOPS`.

    Raises
    ------
    TableError
        If ``configurations`` does not fit its table.

    Notes
    -----
    With B sequences of s tokens, L layers whose matrices have P elements that a token meets,
    queries of width q, and V tokens in the vocabulary: ``6 B s (L P + h V)`` for the matrices
    and ``12 B s^2 q L`` for scores and values, halved if ``causal``. Recomputing everything
    adds a third of both but for the head, recomputing attention a third of the second. The
    common ``6 N D`` has no second term.

    References
    ----------
    Megatron-LM, ``num_floating_point_operations``; arXiv:2104.04473, appendix.

    Examples
    --------
    >>> from workbench.analyze import Layout, configurations, model_shape
    >>> jobs = configurations(model_shape("GPT-3 175B"), Layout(global_batch=1))
    >>> f"{model_flops(jobs)['model_flops_count'].iloc[0]:.3g}"
    '2.2e+15'
    """
    c = columns(configurations, with_hardware=False)
    model, hardware = flops(c, causal=causal)
    tokens = c.gb * c.s
    met = c.layers * c.linear_parameters + c.h * c.vocabulary
    table = configurations.assign(
        model_flops_count=model, hardware_flops_count=hardware, six_n_d_flops_count=6 * met * tokens
    )
    return MODEL_FLOPS.check(table.reset_index(drop=True))


def flops(c: Columns, *, causal: bool) -> tuple[Array, Array]:
    """Give model and hardware FLOPs of one iteration, all GPUs."""
    tokens = c.gb * c.s
    linear = 6 * tokens * c.layers * c.linear_parameters
    attention = 12 * tokens * c.s * c.heads * c.layers * (0.5 if causal else 1.0)
    head = 6 * tokens * c.h * c.vocabulary
    again = np.where(c.full > 0, (linear + attention) / 3, c.selective * attention / 3)
    return linear + attention + head, linear + attention + head + again


def utilization(
    iterations: pd.DataFrame, *, causal: bool = False, gpus: Mapping[str, GpuType] | None = None
) -> pd.DataFrame:
    """Say which share of the GPUs' peak measured iterations reach.

    Parameters
    ----------
    iterations
        Table :data:`workbench.tables.ITERATIONS`.
    causal
        As in :func:`model_flops`.
    gpus
        Kinds of GPUs by name that the package does not know, or knows otherwise.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.UTILIZATION`: the rows with ``mfu_share`` and
        ``hfu_share``.

    Raises
    ------
    PerformanceModelError
        If a row computes faster than the peak: time, GPUs or peak are wrong.

    Notes
    -----
    MFU = model FLOPs / (time x peak x GPUs); HFU counts what is recomputed.

    References
    ----------
    arXiv:2205.05198, section 6.3.
    """
    ITERATIONS.check(iterations)
    c = columns(iterations, gpus)
    budget = c.n * c.peak * iterations["dur_ns"].to_numpy(dtype=np.float64) / 1e9
    model, hardware = flops(c, causal=causal)
    if len(c.n) and (hardware > budget).any():
        row = int(np.argmax(hardware / budget))
        msg = (
            f"row {row} ({iterations['source'].iloc[row]}) would run at "
            f"{hardware[row] / budget[row]:.0%} of the peak of {c.n[row]:g} "
            f"{iterations['gpu'].iloc[row]}; check its time, GPUs, batch and peak"
        )
        raise PerformanceModelError(msg)
    table = iterations.assign(mfu_share=model / budget, hfu_share=hardware / budget)
    return UTILIZATION.check(table.reset_index(drop=True))
