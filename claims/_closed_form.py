"""FLOPs, utilization and memory of configurations, by the closed form of an iteration."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from claims._tables import MEMORY_FOOTPRINT, MODEL_FLOPS, UTILIZATION
from workbench.analyze._perfmodel.layouts.closed_form import activations, columns, flops, states
from workbench.analyze._perfmodel.layouts.model_shape import GpuType
from workbench.errors import PerformanceModelError
from workbench.tables import ITERATIONS


def in_words(configurations: pd.DataFrame) -> list[str]:
    shown = {"TP": "tensor", "CP": "context", "PP": "pipeline", "DP": "data", "EP": "expert"}
    words = []
    for row in configurations.to_dict("records"):
        name = row["model"] if isinstance(row["model"], str) else f"{row['hidden']} wide"
        sizes = {short: row[f"{long}_parallel"] for short, long in shown.items()}
        ranks = " ".join(f"{k}{v}" for k, v in sizes.items() if v > 1 or k in {"TP", "PP", "DP"})
        words.append(
            f"{name}, {ranks}, batch {row['global_batch_count']}/{row['micro_batch_count']}"
        )
    return words


_PARTS = ("parameters", "gradients", "optimizer", "activations")


def memory_footprint(
    configurations: pd.DataFrame, *, gpus: Mapping[str, GpuType] | None = None
) -> pd.DataFrame:
    """Work out what a GPU of the first, fullest stage must hold.

    Parameters
    ----------
    configurations
        Table :data:`workbench.tables.CONFIGURATIONS`.
    gpus
        Kinds of GPUs by name that the package does not know, or knows otherwise.

    Returns
    -------
    pandas.DataFrame
        Table :data:`claims._tables.MEMORY_FOOTPRINT`. Libraries, buffers of collectives and
        fragments come on top: some gigabytes.

    Raises
    ------
    TableError
        If ``configurations`` does not fit its table.

    Notes
    -----
    As the memory of :func:`workbench.analyze.parallelism_plan`, by what holds it.
    """
    c = columns(configurations, gpus)
    held = dict(zip(_PARTS, (*states(c), activations(c)), strict=True))
    total = np.sum(list(held.values()), axis=0)
    table = configurations.assign(
        **{f"{name}_bytes": np.rint(values).astype(np.int64) for name, values in held.items()},
        capacity_bytes=np.rint(c.capacity).astype(np.int64),
        fits=total <= c.capacity,
    )
    table["total_bytes"] = table[[f"{name}_bytes" for name in _PARTS]].sum(axis=1)
    return MEMORY_FOOTPRINT.check(table.reset_index(drop=True))


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
        Table :data:`claims._tables.MODEL_FLOPS`.

    Raises
    ------
    TableError
        If ``configurations`` does not fit its table.

    Notes
    -----
    With B sequences of s tokens, P elements of the matrices of all L layers that a token meets,
    keys and values of k and v columns, and V tokens in the vocabulary: ``6 B s (P + h V)`` for the
    matrices and ``6 B s e (k + v) L`` for scores and values, halved if ``causal``. e is s, or in
    layers with a window twice the mean number of tokens it leaves under the causal mask. A layer
    for a further token counts with its head. Recomputing everything
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
    met = c.linear_parameters + (1 + c.ahead) * c.h * c.vocabulary
    table = configurations.assign(
        model_flops_count=model, hardware_flops_count=hardware, six_n_d_flops_count=6 * met * tokens
    )
    return MODEL_FLOPS.check(table.reset_index(drop=True))


def utilization(
    iterations: pd.DataFrame, *, causal: bool = False, gpus: Mapping[str, GpuType] | None = None
) -> pd.DataFrame:
    """Compute the share of the GPUs' peak that measured iterations reach.

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
        Table :data:`claims._tables.UTILIZATION`: the rows with ``mfu_share`` and ``hfu_share``.

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
    # The peak of the precision trained in: MFU of FP8 jobs is of the FP8 peak.
    budget = c.n * c.peak * iterations["dur_ns"].to_numpy(dtype=np.float64) / 1e9
    model, hardware = flops(c, causal=causal)
    if len(c.n) and (hardware > budget).any():
        row = int(np.argmax(hardware / budget))
        msg = f"row {row} ({iterations['source'].iloc[row]}) would run at "
        msg += f"{hardware[row] / budget[row]:.0%} of the peak of {c.n[row]:g} "
        msg += f"{iterations['gpu'].iloc[row]}; check its time, GPUs, batch and peak"
        raise PerformanceModelError(msg)
    table = iterations.assign(mfu_share=model / budget, hfu_share=hardware / budget)
    return UTILIZATION.check(table.reset_index(drop=True))
