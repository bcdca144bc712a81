"""Memory that a GPU of the fullest pipeline stage needs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from workbench.analyze._perfmodel.layouts.columns import Array, Columns, columns
from workbench.analyze._perfmodel.layouts.gpu_type import GpuType
from workbench.tables import MEMORY_NEED

_PARTS = ("parameters", "gradients", "optimizer", "activations")


def memory_need(
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
        Table :data:`workbench.tables.MEMORY_NEED`. Libraries, buffers of collectives and
        fragments come on top: some gigabytes.

    Raises
    ------
    TableError
        If ``configurations`` does not fit its table.

    Notes
    -----
    Per parameter 2 bytes of weights, 4 of gradients, 12 of main weights and moments; ``zero1``
    divides the last by the replicas, ``fsdp`` all of them but for one layer at a time,
    ``hsdp`` by the replicas of a node. Context-parallel ranks hold the same parameters and
    count as replicas; of an expert there are ``t c d / (e t_e)``, of which ``t_e`` share its
    matrices: t, or 1 where the data-parallel ranks do not divide by e. Activations per layer
    and micro-batch, in bytes: ``s b h (10 + (8 + 4 k f/h)/t + 5 a s/(h t))`` with feed-forward
    width f and k experts per token, the 10 divided by t with sequence parallelism, the last
    term absent with selective
    recomputation or flash attention; ``2 s b h`` with full recomputation. The first stage
    holds min(m, p) micro-batches, 1 + (p - 1)/(p v) times p if interleaved.

    References
    ----------
    arXiv:2205.05198, Table 2 and section 4.2.3; Megatron-LM, ``theoretical_memory_usage.py``.
    """
    c = columns(configurations, gpus)
    parts = dict(zip(_PARTS, (*_states(c), _activations(c)), strict=True))
    total = np.sum(list(parts.values()), axis=0)
    table = configurations.assign(
        **{f"{name}_bytes": np.rint(each).astype(np.int64) for name, each in parts.items()},
        capacity_bytes=np.rint(c.capacity).astype(np.int64),
        fits=total <= c.capacity,
    )
    table["total_bytes"] = table[[f"{name}_bytes" for name in _PARTS]].sum(axis=1)
    return MEMORY_NEED.check(table.reset_index(drop=True))


def total_bytes(c: Columns) -> Array:
    """Give the memory of a GPU of the fullest stage."""
    return np.asarray(np.sum([*_states(c), _activations(c)], axis=0), dtype=np.float64)


def _states(c: Columns) -> tuple[Array, Array, Array]:
    embedding = c.vocabulary * c.h * np.where((c.p == 1) & (c.tied == 0), 2, 1)
    shared = _held_states(c, c.shared_layer_parameters, embedding / c.t, c.shards(c.replicas, c.t))
    # Of an expert there are fewer replicas, so fewer ranks to share its states.
    of_experts = c.shards(c.expert_replicas, c.expert_span)
    experts = _held_states(c, c.expert_layer_parameters, 0.0, of_experts)
    weights, gradients, optimizer = (a + b for a, b in zip(shared, experts, strict=True))
    return weights, gradients, optimizer


def _held_states(
    c: Columns, layer: Array, besides: Array | float, shards: Array
) -> tuple[Array, Array, Array]:
    """Give bytes of weights, gradients and optimizer of parameters shared by so many ranks."""
    held = c.stage_layers * layer + besides
    whole = np.where(c.sharding == "zero1", 1, shards)
    gathered = np.where(whole > 1, 2 * layer, 0)
    return 2 * held / whole + gathered, 4 * held / whole, 12 * held / shards


def _activations(c: Columns) -> Array:
    tokens = c.tokens * c.h
    outside = 10 / np.where(c.sequence_parallel > 0, c.t, 1)
    scores = np.where((c.selective > 0) | (c.flash > 0), 0, 5 * c.a * c.s / (c.h * c.t))
    layer = tokens * (outside + (8 + 4 * c.routed * c.ffn / c.h) / c.t + scores)
    # Of what is computed again only the input stays, and one layer is whole at a time.
    stage = np.where(c.full > 0, 2 * tokens * c.stage_layers + layer / c.p, layer * c.stage_layers)
    in_flight = np.where(c.v > 1, c.p * (1 + (c.p - 1) / (c.p * c.v)), np.minimum(c.rounds, c.p))
    embedding = np.where(c.sequence_parallel > 0, 1 / c.t, 1) * (8 * c.tokens + tokens)
    head = np.where(c.p == 1, 4 * (tokens + c.tokens * c.vocabulary) / c.t, 0)
    return np.asarray((stage + embedding) * in_flight + head, dtype=np.float64)
