"""Ways to spread a model over GPUs, and the iteration time of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pandas as pd

from workbench._shared.numbers import whole_number
from workbench.analyze._perfmodel.layouts.iteration_model import IterationModel
from workbench.analyze._perfmodel.layouts.layout import Layout, configurations
from workbench.analyze._perfmodel.layouts.model_shape import GpuType, ModelShape, gpu_type
from workbench.errors import PerformanceModelError
from workbench.tables import PLAN

_MICRO_BATCHES = (1, 2, 4, 8, 16)
_MOST_ROWS = 20_000


def parallelism_plan(
    shape: ModelShape,
    gpu_count: int,
    *,
    model: IterationModel,
    like: Layout,
    gpu: str | GpuType = "H100",
    vary: Iterable[str] = (),
) -> pd.DataFrame:
    """Predict every way to spread a model over a number of GPUs.

    Tensor, pipeline and data parallelism and the micro-batch are tried in all sizes that
    multiply to the GPUs and divide heads and batch; TP stays within a node, no stage is empty.

    Parameters
    ----------
    shape
        The model to train.
    gpu_count
        GPUs to spread it over.
    model
        Model of iteration times, from :func:`assumed_model` or :func:`calibrated_to`.
    like
        Global batch, sequence, recomputation, sharding and the rest; its TP, PP, DP and
        micro-batch are replaced.
    gpu
        Kind of GPU, by name or as one.
    vary
        ``"context"`` and ``"expert"`` are tried in powers of two, too, if named; else they
        are as in ``like``.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PLAN`: fastest that fits first, those that do not fit
        at the end.

    Raises
    ------
    PerformanceModelError
        If nothing divides, or ``vary`` names something else.

    Notes
    -----
    Whether it fits is memory of the first, fullest stage without libraries, buffers of collectives
    and fragments, which take some gigabytes more.

    Per parameter 2 bytes of weights, 4 of gradients, 12 of main weights and moments; ``zero1``
    divides the last by the replicas, ``fsdp`` all of them but for one layer at a time,
    ``hsdp`` by the replicas of a node. Context-parallel ranks hold the same parameters and
    count as replicas; of an expert there are ``t c d / (e t_e)``, of which ``t_e`` share its
    matrices: t, or 1 where the data-parallel ranks do not divide by e. Activations per layer
    and micro-batch, in bytes: ``s b (10 h + (2 w + 4 k f)/t + 5 a s/t)`` with w columns of
    queries, keys, values and their product (4 h with as many heads of each), latents with them,
    feed-forward width f and k experts per token, shared ones counted; the 10 divided by t with
    sequence parallelism, the last term absent with selective recomputation or flash attention;
    ``2 s b h`` with full recomputation. The first stage holds min(m, p) micro-batches,
    1 + (p - 1)/(p v) times p if interleaved. Where only some layers have experts, the stage with
    most of them counts.

    References
    ----------
    arXiv:2205.05198, Table 2 and section 4.2.3; Megatron-LM, ``theoretical_memory_usage.py``.
    """
    count = whole_number("gpu_count", gpu_count, least=1)
    varied = set(vary)
    if unknown := sorted(varied - {"context", "expert"}):
        msg = f"vary names {unknown}; it can name 'context' and 'expert'"
        raise PerformanceModelError(msg)
    kind = gpu_type(gpu) if isinstance(gpu, str) else gpu
    layouts = _layouts(shape, count, like, kind, varied)
    if not layouts:
        msg = f"no TP x PP x DP of {count} GPUs divides {shape.heads} heads, {shape.layers} layers "
        msg += f"and a batch of {like.global_batch}; try a number of GPUs with more factors of "
        raise PerformanceModelError(msg + "two, or another batch")
    gpus: Mapping[str, GpuType] = {kind.name: kind}
    table = model.predict(configurations(shape, layouts, gpu=kind.name), gpus=gpus)
    # What does not fit comes last, however fast.
    table = table.assign(_not=~table["fits"]).sort_values(["_not", "dur_ns"], kind="stable")
    table = table.drop(columns="_not").reset_index(drop=True)
    table["is_best"] = (table.index == 0) & table["fits"]
    return PLAN.check(table)


def _layouts(
    shape: ModelShape, count: int, like: Layout, kind: GpuType, varied: set[str]
) -> list[Layout]:
    contexts = _powers(count) if "context" in varied else [like.context]
    layouts = []
    # Tensor parallelism beyond a node would send every layer over the network.
    for tensor in _divisors(count, most=kind.gpus_per_node):
        for context in contexts:
            if count % (tensor * context) or like.sequence % context:
                continue
            left = count // (tensor * context)
            for pipeline in _divisors(left, most=shape.layers):
                # Stages may be uneven, as the fullest one decides; but none may be empty.
                if -(-shape.layers // pipeline) * (pipeline - 1) < shape.layers:
                    base = (tensor, context, pipeline, left // pipeline)
                    layouts += _cut(shape, like, base, varied)
    if len(layouts) > _MOST_ROWS:
        msg = f"{len(layouts):,} layouts are too many to predict; vary less"
        raise PerformanceModelError(msg)
    return layouts


def _cut(
    shape: ModelShape, like: Layout, sizes: tuple[int, int, int, int], varied: set[str]
) -> list[Layout]:
    tensor, context, pipeline, data = sizes
    apart = tensor * context * data
    experts = _powers(apart) if "expert" in varied else [like.expert]
    # Interleaving needs layers that fill all chunks but for those of embedding, head and further
    # tokens; else plain 1F1B.
    spare = -shape.layers % (pipeline * like.chunks)
    chunks = like.chunks if pipeline > 1 and spare <= 2 + shape.next_tokens else 1
    candidates = [
        replace(
            like, tensor=tensor, context=context, pipeline=pipeline, data=data,
            expert=expert, chunks=chunks, micro_batch=size,
        )
        for expert in experts
        if data % expert == 0 or apart % expert == 0
        for size in _MICRO_BATCHES
        if like.global_batch % (data * size) == 0
    ]  # fmt: skip
    return [layout for layout in candidates if not layout.misfits(shape)]


def _divisors(number: int, *, most: int) -> list[int]:
    return [divisor for divisor in range(1, min(number, most) + 1) if number % divisor == 0]


def _powers(most: int) -> list[int]:
    return [1 << power for power in range(most.bit_length()) if 1 << power <= most]
