"""How a training job is spread over GPUs, and the table of configurations that makes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import pandas as pd

from workbench.analyze._perfmodel.layouts.model_shape import SHAPE_COLUMNS, ModelShape, not_counts
from workbench.errors import PerformanceModelError
from workbench.tables import CONFIGURATIONS

Recompute = Literal["none", "selective", "full"]
Sharding = Literal["none", "zero1", "fsdp", "hsdp"]
COUNTS = (
    "tensor", "pipeline", "data", "context", "expert", "chunks", "micro_batch", "global_batch",
    "sequence",
)  # fmt: skip

# Arguments of a layout, and the columns of CONFIGURATIONS that hold them.
LAYOUT_COLUMNS = {
    "tensor": "tensor_parallel", "pipeline": "pipeline_parallel", "data": "data_parallel",
    "context": "context_parallel", "expert": "expert_parallel", "chunks": "chunk_count",
    "micro_batch": "micro_batch_count", "global_batch": "global_batch_count",
    "sequence": "sequence_tokens", "recompute": "recompute", "sharding": "sharding",
    "sequence_parallel": "has_sequence_parallel", "flash_attention": "has_flash_attention",
}  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """How a model is spread over GPUs and how its batch is cut.

    Parameters
    ----------
    tensor, pipeline, data, context
        Ranks that share matrices (TP), stages (PP), replicas (DP), ranks that share
        sequences (CP); their product is the number of GPUs.
    expert
        Ranks that share the experts (EP): out of the data-parallel ones, or, where these do
        not divide by them, out of all ranks of a stage; tensor-parallel ranks then hold
        whole experts (parallel folding, as in Megatron-LM with expert-tensor size 1).
    chunks
        Parts of the model per stage; above 1 the schedule is interleaved 1F1B.
    micro_batch, global_batch
        Sequences per micro-batch, and per iteration of the whole job.
    sequence
        Tokens per sequence.
    recompute
        Activations computed again in the backward pass: ``"none"``, the core of attention
        (``"selective"``) or everything (``"full"``).
    sharding
        What data-parallel ranks share: nothing, optimizer states (``"zero1"``), everything
        (``"fsdp"``), or everything within a node (``"hsdp"``).
    sequence_parallel
        Whether norms and dropouts are shared by tensor-parallel ranks, too.
    flash_attention
        Whether attention skips what the causal mask hides and stores no scores.

    Raises
    ------
    PerformanceModelError
        If no job can be spread so; the message lists every reason.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    context: int = 1
    expert: int = 1
    chunks: int = 1
    micro_batch: int = 1
    global_batch: int = 1
    sequence: int = 2048
    recompute: Recompute = "none"
    sharding: Sharding = "none"
    sequence_parallel: bool = False
    flash_attention: bool = False

    def __post_init__(self) -> None:
        wrong = not_counts(self, COUNTS)
        wrong += [
            f"{name} is {getattr(self, name)!r}, must be one of {list(get_args(choices))}"
            for name, choices in (("recompute", Recompute), ("sharding", Sharding))
            if getattr(self, name) not in get_args(choices)
        ]
        if wrong := wrong or self._contradictions():
            msg = "no job can be spread so: " + "; ".join(wrong)
            raise PerformanceModelError(msg)

    def _contradictions(self) -> list[str]:
        per_round = self.data * self.micro_batch
        apart = self.tensor * self.context * self.data
        rules = {
            f"a global batch of {self.global_batch} does not divide by {self.data} replicas x "
            f"{self.micro_batch} sequences": self.global_batch % per_round,
            f"neither {self.data} replicas nor the {apart} ranks of a stage divide by "
            f"{self.expert} expert-parallel ranks": self.data % self.expert and apart % self.expert,
            f"sequences of {self.sequence} tokens do not divide by "
            f"{self.context} ranks": self.sequence % self.context,
            "chunks need a pipeline": self.chunks > 1 and self.pipeline == 1,
        }
        return [words for words, broken in rules.items() if broken]

    @property
    def gpu_count(self) -> int:
        """GPUs of the job."""
        return self.tensor * self.pipeline * self.data * self.context

    def misfits(self, shape: ModelShape) -> list[str]:
        """List reasons why a model cannot use this layout; empty if it can."""
        # The first chunk may hold the embedding only, the last one the head.
        slots = shape.layers + 2 * (self.chunks > 1)
        rules = {
            f"{shape.heads} heads do not divide by {self.tensor} tensor-parallel ranks": shape.heads
            % self.tensor,
            f"{shape.layers} layers are fewer than {self.pipeline} stages x "
            f"{self.chunks} chunks": slots < self.pipeline * self.chunks,
            f"{shape.experts} experts do not divide by "
            f"{self.expert} expert-parallel ranks": shape.experts % self.expert,
        }
        return [words for words, broken in rules.items() if broken]


def configurations(
    shape: ModelShape, layouts: Layout | Iterable[Layout], *, gpu: str = "H100"
) -> pd.DataFrame:
    """Put a model and the ways to spread it into a table.

    Parameters
    ----------
    shape
        The model.
    layouts
        One or several layouts.
    gpu
        Name of the kind of GPU; see :func:`workbench.analyze.gpu_type`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.CONFIGURATIONS`, one row per layout, in their order.

    Raises
    ------
    PerformanceModelError
        If a layout does not fit the model.
    """
    all_layouts = [layouts] if isinstance(layouts, Layout) else list(layouts)
    for layout in all_layouts:
        if wrong := layout.misfits(shape):
            msg = f"{shape.name or 'the model'} cannot be spread so: " + "; ".join(wrong)
            raise PerformanceModelError(msg)
    if not all_layouts:
        return CONFIGURATIONS.empty()
    model = {column: getattr(shape, name) for name, column in SHAPE_COLUMNS.items()}
    rows = [
        {column: getattr(layout, name) for name, column in LAYOUT_COLUMNS.items()}
        | {"gpu_count": layout.gpu_count}
        for layout in all_layouts
    ]
    return CONFIGURATIONS.of(pd.DataFrame(rows).assign(**model, model=shape.name or None, gpu=gpu))
