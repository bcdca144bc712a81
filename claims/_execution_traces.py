"""Execution traces that nobody recorded: one training step of a model under a layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from workbench.analyze._lib.pipelines import FORWARD, order
from workbench.analyze._perfmodel.layouts.closed_form import Constants, columns, share_of_peak
from workbench.analyze._perfmodel.layouts.layout import Layout, configurations
from workbench.analyze._perfmodel.layouts.model_shape import GpuType, ModelShape, gpu_type
from workbench.errors import PerformanceModelError
from workbench.tables import (
    DEPENDENCIES,
    NODES,
    PROCESS_GROUPS,
    QUALITY,
    RANKS,
    SAYS_SYNTHETIC,
    Table,
    Trace,
)

_MOST_NODES = 3_000_000
_VALUE_BYTES = 2  # activations, gradients and weights in 16 bits
_FORWARD = ("norm", "qkv", "attention", "projection", "all-reduce", "norm", "mlp", "all-reduce")
_BACKWARD = ("mlp", "all-reduce", "norm", "projection", "attention", "qkv", "all-reduce", "norm")
_COLLECTIVE, _SEND, _RECEIVE = "COMM_COLL_NODE", "COMM_SEND_NODE", "COMM_RECV_NODE"


def execution_traces(shape: ModelShape, layout: Layout, *, gpu: str | GpuType = "H100") -> Trace:
    """Make the execution traces of one training step from a model and a layout.

    Each rank has a graph of compute, collectives and messages, as simulators play it;
    ``load.write_chakra`` writes them as Chakra files with their communicator groups.

    Parameters
    ----------
    shape
        The model, without experts, latent attention and layers for further tokens.
    layout
        Tensor, pipeline and data parallelism, one chunk per stage; gradients all-reduced, or with
        ``sharding="zero1"`` scattered and weights gathered.
    gpu
        Name of the kind of GPU, or its data, for the times of compute.

    Returns
    -------
    Trace
        ``nodes`` (:data:`workbench.tables.NODES`), ``dependencies``, ``process_groups`` and
        ``ranks``; it says that it is synthetic. Communication has sizes and no times.

    Raises
    ------
    PerformanceModelError
        If the layout does not fit the model, has what is not laid out here, or would make more
        than 3,000,000 nodes; the message lists every reason.

    Notes
    -----
    With t tensor-parallel ranks, p stages, d replicas, m micro-batches of b sequences of s
    tokens, width h and P parameters:

    * a layer and micro-batch has 6 compute nodes forward and 6 backward, and 2 + 2 all-reduces
      of 2 b s h bytes if t > 1; full recomputation adds a forward pass, selective one attention;
    * stages run 1F1B and send 2 b s h bytes: 2 (p - 1) m messages per column of stages;
    * gradients and weights have 2 bytes: all ranks of a replica together reduce 2 P bytes.

    Times are those of the closed form of :func:`workbench.analyze.assumed_model`: the
    nodes of a stage add up to its ``compute`` and, but for the embedding that it counts on every
    stage, to its ``optimizer``. Left out, as there: embedding
    look-up and its collectives, the loss, clipping. Nothing overlaps but messages; a tied output
    embedding is counted on the first stage. Ranks are numbered with tensor parallelism fastest,
    then data, then pipeline.

    References
    ----------
    Chakra, arXiv 2305.14516; Megatron-LM, arXiv 2104.04473.

    Examples
    --------
    >>> layout = Layout(tensor=2, pipeline=2, global_batch=4)
    >>> trace = execution_traces(ModelShape(layers=4, hidden=64, heads=4), layout)
    >>> int((trace.nodes["type"] == "COMM_SEND_NODE").sum())  # 2 (p - 1) m, in 2 columns
    16
    """
    kind = gpu_type(gpu) if isinstance(gpu, str) else gpu
    table = configurations(shape, layout, gpu=kind.name)
    _refuse(shape, layout)
    job = _Job(shape, layout, _times(table, kind))
    groups = _process_groups(layout)
    named = groups.set_index(["rank", "description"])["group"].to_dict()
    nodes, edges = [], []
    for stage in range(layout.pipeline):
        template = _stage(job, stage)
        rows = pd.DataFrame(template.rows, columns=list(_Row._fields))
        pairs = np.array(template.edges, dtype=np.int64).reshape(-1, 2)
        for rank in _ranks_of(layout, stage):
            group = rows["group"].map(lambda use, rank=rank: named.get((rank, use)))
            nodes.append(rows.assign(rank=rank, group=group))
            edges.append(pd.DataFrame(pairs, columns=["node", "needs"]).assign(rank=rank))
    model = shape.name or "model"
    ranks = pd.DataFrame({"rank": range(layout.gpu_count)}).assign(
        rank_source="argument", world_size=layout.gpu_count, source=model, format="chakra",
        clock="own", event_count=0,
    )  # fmt: skip
    return Trace.of(
        ranks=_filled(RANKS, ranks),
        process_groups=groups, quality=QUALITY.of([(model, "noted", SAYS_SYNTHETIC, 1, None)]),
        nodes=_filled(NODES, pd.concat(nodes, ignore_index=True).assign(is_cpu=False)),
        dependencies=DEPENDENCIES.of(
            pd.concat(edges, ignore_index=True).assign(edge="data")[list(DEPENDENCIES.columns)]
        ),
    )  # fmt: skip


def _refuse(shape: ModelShape, layout: Layout) -> None:
    stage_nodes = layout.global_batch * shape.layers * len(_FORWARD + _BACKWARD) * layout.tensor
    node_count = stage_nodes // layout.micro_batch
    reasons = {
        "experts": shape.experts > 1,
        "latent attention": shape.latent_rank,
        "layers for further tokens": shape.next_tokens,
        "context parallelism": layout.context > 1,
        "several chunks per stage": layout.chunks > 1,
        "sequence parallelism": layout.sequence_parallel,
        f"sharding={layout.sharding!r}": layout.sharding in ("fsdp", "hsdp"),
        f"{node_count:,} nodes, of {_MOST_NODES:,} at most; take fewer micro-batches, or fewer "
        "layers": node_count > _MOST_NODES,
    }
    if wrong := [words for words, holds in reasons.items() if holds]:
        msg = f"no execution traces are made of {shape.name or 'this model'}: " + "; ".join(wrong)
        raise PerformanceModelError(msg)


class _Times(NamedTuple):
    """Seconds of the compute of a layer and of the head, forward and backward; of the optimizer."""

    forward: dict[str, float]
    backward: dict[str, float]
    head: float
    optimizer_per_parameter: float


@dataclass(frozen=True)
class _Job:
    shape: ModelShape
    layout: Layout
    times: _Times

    @property
    def tokens(self) -> int:
        return self.layout.micro_batch * self.layout.sequence

    @property
    def activation_bytes(self) -> int:
        return _VALUE_BYTES * self.tokens * self.shape.hidden

    def layers(self, stage: int) -> range:
        """Return the layers of a stage; the first stages hold one more where they do not divide."""
        per_stage, remainder = divmod(self.shape.layers, self.layout.pipeline)
        first = stage * per_stage + min(stage, remainder)
        return range(first, first + per_stage + (stage < remainder))

    def parameters(self, stage: int) -> int:
        """Return the parameters that a rank of a stage holds, rounded up."""
        embedding = self.shape.vocabulary * self.shape.hidden
        outside = (1 if self.shape.tied else 2) * embedding + self.shape.hidden
        per_layer = (self.shape.parameter_count - outside) // self.shape.layers
        held = per_layer * len(self.layers(stage)) + (embedding if stage == 0 else 0)
        if stage == self.layout.pipeline - 1:
            held += outside - embedding
        return -(-held // self.layout.tensor)


def _times(table: pd.DataFrame, kind: GpuType) -> _Times:
    """Split the closed form of a layer over its nodes; they add up to it."""
    c, k = columns(table, {kind.name: kind}), Constants()
    per_flop = 1 / (c.t * c.peak * share_of_peak(c, k))
    per_flop_16 = 1 / (c.t * c.peak_16 * share_of_peak(c, k))
    per_byte = 1 / (c.t * k.memory_share * c.memory)
    output = c.h * c.value
    scores = np.where(c.flash > 0, c.seen / 2, c.s) * (c.key + c.value)
    stored = np.where(c.flash > 0, 0, 5 * c.b * c.a * c.s * c.s)
    # Seconds of the products, and of writing or reading once what is element by element; two
    # norms stand for all of it outside of attention and MLP.
    nodes = {
        "norm": (0 * c.h, 9 * c.h * c.tokens * per_byte),
        "qkv": (2 * c.tokens * (c.attention_parameters - output) * per_flop, 0 * c.h),
        "attention": (2 * c.tokens * scores * per_flop_16, stored * per_byte),
        "projection": (2 * c.tokens * output * per_flop, 0 * c.h),
        "mlp": (
            2 * c.tokens * c.matrices * c.h * c.ffn * per_flop,
            4 * c.ffn * c.tokens * per_byte,
        ),
    }
    # Flash attention computes the scores again in its backward pass: half a pass more.
    again = {"attention": 0.5 * c.flash}
    forward = {name: (work + 2 * once).item() for name, (work, once) in nodes.items()}
    backward = {
        name: ((2 + again.get(name, 0 * c.h)) * work + 3 * once).item()
        for name, (work, once) in nodes.items()
    }
    head = 2 * c.tokens * c.h * c.vocabulary * per_flop_16
    return _Times(forward, backward, head.item(), 20 / (k.optimizer_share * c.memory.item()))


class _Row(NamedTuple):
    """A node as all ranks of its stage have it; ``group`` is the use of the process group."""

    node: int
    name: str
    type: str
    dur_ns: int | None = None
    collective: str | None = None
    group: str | None = None
    size_bytes: int | None = None


@dataclass
class _Template:
    """The nodes of a stage; each waits for the chain before it, and for what is received."""

    rows: list[_Row] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    last: int = 0
    received: int = 0

    def compute(self, name: str, seconds: float) -> None:
        self._add(name, "COMP_NODE", dur_ns=round(1e9 * seconds))

    def talk(self, name: str, kind: str, group: str, size_bytes: int) -> None:
        """Add a collective, or beside the chain a send or receive."""
        if kind in (_SEND, _RECEIVE):
            self._add(name, kind, group=group, size_bytes=size_bytes)
        else:
            self._add(name, _COLLECTIVE, collective=kind, group=group, size_bytes=size_bytes)

    def _add(self, name: str, kind: str, **more: Any) -> None:
        node = len(self.rows) + 1
        self.rows.append(_Row(node, name, kind, **more))
        waits_for = [self.last] if self.last else []
        if kind == _RECEIVE:
            self.received = node
        elif kind != _SEND:
            waits_for += [self.received] if self.received else []
            self.last, self.received = node, 0
        self.edges += [(node, needed) for needed in waits_for]


def _stage(job: _Job, stage: int) -> _Template:
    """Lay out one step of a stage: its passes in the order of 1F1B, gradients, optimizer."""
    layout, template = job.layout, _Template()
    rounds = layout.global_batch // (layout.data * layout.micro_batch)
    passes = order("1f1b", layout.pipeline, rounds, 1)
    own = passes.stage == stage
    for action, number in zip(passes.action[own], passes.micro_batch[own], strict=True):
        is_forward = action == FORWARD
        words = f"{'forward' if is_forward else 'backward'} {number}"
        before, after = (stage - 1, stage + 1) if is_forward else (stage + 1, stage - 1)
        for kind, other in ((_RECEIVE, before), ("", stage), (_SEND, after)):
            if not kind:
                _pass(template, job, stage, is_forward=is_forward, words=words)
            elif 0 <= other < layout.pipeline:
                name = f"{'receive' if kind == _RECEIVE else 'send'} {words}"
                group = f"pipeline {min(stage, other)}"
                template.talk(name, kind, group, job.activation_bytes)
    _gradients(template, job, stage)
    return template


def _pass(template: _Template, job: _Job, stage: int, *, is_forward: bool, words: str) -> None:
    is_last, times = stage == job.layout.pipeline - 1, job.times
    if is_last and not is_forward:
        template.compute(f"head {words}", 2 * times.head)
    layers: Sequence[int] = job.layers(stage)
    for layer in layers if is_forward else reversed(layers):
        if is_forward or job.layout.recompute == "full":
            again = "" if is_forward else "again "
            _layer(template, job, _FORWARD, f"layer {layer} {{}} {again}{words}")
        if not is_forward:
            _layer(template, job, _BACKWARD, f"layer {layer} {{}} {words}")
    if is_last and is_forward:
        template.compute(f"head {words}", times.head)


def _layer(template: _Template, job: _Job, nodes: Sequence[str], words: str) -> None:
    times = job.times.forward if nodes is _FORWARD else job.times.backward
    for node in nodes:
        if node != "all-reduce":
            if node == "attention" and nodes is _BACKWARD and job.layout.recompute == "selective":
                template.compute(words.format("attention again"), job.times.forward[node])
            template.compute(words.format(node), times[node])
        elif job.layout.tensor > 1:
            size_bytes = job.activation_bytes
            template.talk(words.format(node), "all_reduce", "tensor", size_bytes)


def _gradients(template: _Template, job: _Job, stage: int) -> None:
    held, replicas = job.parameters(stage), job.layout.data
    is_sharded = job.layout.sharding == "zero1" and replicas > 1
    if replicas > 1:
        kind = "reduce_scatter" if is_sharded else "all_reduce"
        template.talk("gradients", kind, "data", _VALUE_BYTES * held)
    share = -(-held // replicas) if is_sharded else held
    template.compute("optimizer", job.times.optimizer_per_parameter * share)
    if is_sharded:
        # What one rank puts in, as Chakra counts.
        template.talk("weights", "all_gather", "data", _VALUE_BYTES * share)


def _ranks_of(layout: Layout, stage: int) -> range:
    per_stage = layout.tensor * layout.data
    return range(stage * per_stage, (stage + 1) * per_stage)


def _process_groups(layout: Layout) -> pd.DataFrame:
    """List the groups of several ranks, with numbers from 1 as simulators want them."""
    numbers, rows = count(1), []
    for use, members in _members(layout):
        if len(members) > 1:
            name, listed = str(next(numbers)), ",".join(map(str, members))
            rows += [(rank, name, use, None, len(members), listed) for rank in members]
    return PROCESS_GROUPS.of(rows) if rows else PROCESS_GROUPS.empty()


def _members(layout: Layout) -> Iterator[tuple[str, Sequence[int]]]:
    per_stage = layout.tensor * layout.data
    for stage in range(layout.pipeline):
        ranks = _ranks_of(layout, stage)
        for replica in range(layout.data):
            yield "tensor", ranks[replica * layout.tensor : (replica + 1) * layout.tensor]
        for shard in range(layout.tensor):
            yield "data", ranks[shard :: layout.tensor]
        if stage + 1 < layout.pipeline:
            for rank in ranks:
                yield f"pipeline {stage}", (rank, rank + per_stage)


def _filled(table: Table, frame: pd.DataFrame) -> pd.DataFrame:
    """Make a table of the available columns; the others are missing."""
    return table.of(frame.reindex(columns=list(table.columns)))
