"""Changes of a what-if analysis: GPU work, the CPU or a rank faster, slower or removed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.kernel_kinds import KINDS
from workbench.analyze._lib.rows import MISSING, Ints, codes, gpu_work, nest
from workbench.analyze._perfmodel.kernel_models.hardware import gpu_row, peak_of
from workbench.errors import PerformanceModelError
from workbench.tables import EDGE_KINDS, ExecutionGraph

Part: TypeAlias = Literal["GPU", "CPU"]
# Kernels that move little for what they compute; all other compute moves more.
_COMPUTE_BOUND = re.compile(
    r"gemm|cutlass|cublas|matmul|wgmma|Cijk_|nvjet|xmma|flash|fmha|attention|conv|wgrad|dgrad",
    re.IGNORECASE,
)
_HOST_COPY = re.compile(r"HtoD|DtoH|Host|Pageable|Pinned", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Change:
    """Ask a what-if question of a trace: something takes another time.

    What is given narrows the choice; all of it must hold. Nothing given means all of the part.

    Parameters
    ----------
    factor
        Time it takes, of the measured time: .5 is twice as fast, 0 is removed or perfectly
        hidden, 1.1 is ten per cent slower.
    part
        ``"GPU"``: kernels, copies, sets; ``"CPU"``: operators, calls and the gaps between them.
    name
        Regular expression for the name of the GPU work.
    kind
        compute, communication, memory or other; GPU work only.
    operator
        Regular expression for the name of the CPU operator that launched it.
    stream
        Stream it runs on.
    rank
        Rank it runs on.
    from_gpu
        GPU that the trace was recorded on, as ``published/hardware.csv`` calls it.
    to_gpu
        GPU to run the chosen work on; every kernel is scaled by the ratio of what binds it,
        which is inferred from its name.
    is_fused
        The chosen work of each run of neighbours on a stream becomes one: one launch, no gaps.

    Raises
    ------
    PerformanceModelError
        If the factor is negative or not finite, a pattern cannot be read, or a choice does not
        fit the part.

    Examples
    --------
    >>> Change(factor=0.5, kind="communication").question
    'communication x0.5'
    """

    factor: float = 1.0
    part: Part = "GPU"
    name: str | None = None
    kind: str | None = None
    operator: str | None = None
    stream: int | None = None
    rank: int | None = None
    from_gpu: str | None = None
    to_gpu: str | None = None
    is_fused: bool = False

    def __post_init__(self) -> None:
        for field in ("name", "operator"):
            pattern = getattr(self, field)
            try:
                re.compile(pattern or "")
            except re.error as error:
                msg = f"{field}={pattern!r} is not a regular expression: {error}"
                raise PerformanceModelError(msg) from error
        choices = (self.to_gpu, self.name, self.kind, self.operator, self.stream)
        narrows = self.is_fused or any(choice is not None for choice in choices)
        rules = {
            f"factor={self.factor!r}: give the share of the time that is left, 0 or more": (
                not 0 <= self.factor < np.inf
            ),
            f"part={self.part!r} must be one of {', '.join(get_args(Part))}": (
                self.part not in get_args(Part)
            ),
            f"kind={self.kind!r} must be one of {', '.join(KINDS)}": (
                self.kind not in {None, *KINDS}
            ),
            "from_gpu and to_gpu belong together: the GPU of the trace, and another one": (
                (self.from_gpu is None) != (self.to_gpu is None)
            ),
            "name, kind, operator, stream, GPUs and is_fused choose GPU work; a CPU has a rank "
            "only": self.part == "CPU" and narrows,
        }
        for msg, is_broken in rules.items():
            if is_broken:
                raise PerformanceModelError(msg)

    @property
    def question(self) -> str:
        """The change in words."""
        words = [
            self.kind or ("" if self.name or self.operator else self.part),
            self.name or "",
            f"of {self.operator}" if self.operator else "",
            f"on stream {self.stream}" if self.stream is not None else "",
            f"on rank {self.rank}" if self.rank is not None else "",
        ]
        how = ["fused"] * self.is_fused
        how += [f"on {self.to_gpu} instead of {self.from_gpu}"] if self.to_gpu else []
        if self.factor != 1 or not how:
            how.append("removed" if self.factor == 0 else f"x{self.factor:g}")
        return " ".join([*filter(None, words), *how])


def changed_weights(
    events: pd.DataFrame, graph: ExecutionGraph, changes: list[Change]
) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the weights of a graph with the changes made, and which edges they touch."""
    weight = graph.weight_ns.astype(float)
    touched = np.zeros(len(weight), dtype=bool)
    for change in changes:
        if change.part == "CPU":
            edges = _cpu_edges(graph, change)
        else:
            work = chosen_work(events, graph, change)
            edges = _work_edges(graph, work)
            if change.is_fused:
                _fuse(events, graph, work, weight)
        if not edges.any():
            msg = f"nothing in the trace is '{change.question}'; look at the names in its events"
            raise PerformanceModelError(msg)
        weight[edges] *= change.factor
        if change.from_gpu and change.to_gpu:
            weight[edges] *= _ratios(events, graph, change.from_gpu, change.to_gpu)[edges]
        touched |= edges
    return np.rint(weight).astype(np.int64), touched


def chosen_work(events: pd.DataFrame, graph: ExecutionGraph, change: Change) -> NDArray[np.bool_]:
    row = events.index.get_indexer(pd.Index(graph.event[graph.gpu_start]))
    chosen = np.ones(len(row), dtype=bool)
    if change.rank is not None:
        chosen &= graph.point_rank[graph.gpu_start] == change.rank
    if change.stream is not None:
        stream = events["stream"].array.take(row).to_numpy(dtype="int64", na_value=MISSING)
        chosen &= stream == change.stream
    if change.kind is not None:
        kinds = [str(kind) for kind in events["kind"].cat.categories]
        code = kinds.index(change.kind) if change.kind in kinds else -2
        chosen &= codes(events["kind"])[row] == code
    if change.name is not None:
        chosen &= _matches(events["name"], change.name)[codes(events["name"])[row]]
    if change.operator is not None:
        chosen &= _launched_by(events, row, change.operator)
    return chosen


def _matches(column: pd.Series, pattern: str) -> NDArray[np.bool_]:
    """Return for every category whether it matches; the last entry stands for missing."""
    fits = [bool(re.search(pattern, str(name))) for name in column.cat.categories]
    return np.array([*fits, False])


def _launched_by(events: pd.DataFrame, row: Ints, pattern: str) -> NDArray[np.bool_]:
    """Return which GPU work was launched inside an operator of that name, at any depth."""
    work = gpu_work(events)
    tree = nest(events, work)
    fits = _matches(events["name"], pattern)[codes(events["name"])[tree.row]]
    # Operators are by thread and start: a parent comes before its children.
    for position in np.flatnonzero(tree.parent != MISSING):
        fits[position] |= fits[tree.parent[position]]
    by_row = np.zeros(len(events), dtype=bool)
    by_row[work.row] = np.append(fits, False)[tree.starter]
    return by_row[row]


def _work_edges(graph: ExecutionGraph, work: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Choose the edges whose weight is the time of some GPU work."""
    begins, ends = np.zeros((2, len(graph.time_ns)), dtype=bool)
    begins[graph.gpu_start[work]] = True
    ends[graph.gpu_start[work] + 1] = True
    kind = graph.edge_kind
    own = (kind == EDGE_KINDS.index("GPU work")) | (kind == EDGE_KINDS.index("shared GPU"))
    # Of a matched collective only the transfer shrinks; waiting for ranks is theirs.
    transfer = (kind == EDGE_KINDS.index("collective")) & ends[graph.target]
    chosen: NDArray[np.bool_] = (own & begins[graph.source]) | transfer
    return chosen


def _ratios(
    events: pd.DataFrame, graph: ExecutionGraph, from_gpu: str, to_gpu: str
) -> NDArray[np.float64]:
    """Give, for every edge that lasts as long as some work, the ratio of its times on two GPUs."""
    rows = events.reindex(graph.event[graph.gpu_start])
    of_point = np.ones(len(graph.time_ns) + 1)
    of_point[graph.gpu_start] = time_ratios(rows["name"], rows["kind"], from_gpu, to_gpu)
    is_transfer = graph.edge_kind == EDGE_KINDS.index("collective")
    return of_point[np.where(is_transfer, graph.target - 1, graph.source)]


def time_ratios(
    names: pd.Series, kinds: pd.Series, from_gpu: str, to_gpu: str
) -> NDArray[np.float64]:
    """Return time on one GPU over time on another, per kernel, by the ratio of what binds it.

    Matrix products, attention and convolutions: dense bfloat16 peaks; other compute, and copies
    on the GPU: memory bandwidths; communication: links. Anything else is kept. Latencies do not
    scale, so short kernels change less than this says.
    """
    kind, names = kinds.astype(object).to_numpy(), names.astype(str)
    old, new = gpu_row(from_gpu), gpu_row(to_gpu)
    heavy = names.str.contains(_COMPUTE_BOUND).to_numpy(dtype=bool)
    # A copy to or from the host is bound by the bus between them, which no data sheet has here.
    on_host = names.str.contains(_HOST_COPY).to_numpy(dtype=bool)
    is_compute, is_memory = kind == "compute", kind == "memory"
    ratio = np.ones(len(names))
    in_memory = (is_compute & ~heavy) | (is_memory & ~on_host)
    ratio[in_memory] = old["memory_bytes_per_s"] / new["memory_bytes_per_s"]
    if (is_compute & heavy).any():
        ratio[is_compute & heavy] = peak_of(from_gpu, "bfloat16") / peak_of(to_gpu, "bfloat16")
    ratio[kind == "communication"] = old["link_bytes_per_s"] / new["link_bytes_per_s"]
    return ratio


def _cpu_edges(graph: ExecutionGraph, change: Change) -> NDArray[np.bool_]:
    kinds = [EDGE_KINDS.index(kind) for kind in ("CPU", "gap", "call", "inter-thread")]
    chosen = np.isin(graph.edge_kind, kinds)
    # The time before the first row of a thread is a gap as well.
    begins = graph.edge_kind == EDGE_KINDS.index("trace start")
    chosen |= begins & (graph.thread[graph.target] >= 0)
    if change.rank is not None:
        chosen &= graph.point_rank[graph.target] == change.rank
    return chosen


def _fuse(
    events: pd.DataFrame,
    graph: ExecutionGraph,
    work: NDArray[np.bool_],
    weight: NDArray[np.float64],
) -> None:
    """Take away gaps and launches between neighbours of the chosen work, in place."""
    is_chosen = np.zeros(len(graph.time_ns) + 1, dtype=bool)
    is_chosen[graph.gpu_start[work]] = True
    in_order = graph.edge_kind == EDGE_KINDS.index("stream order")
    joined = in_order & is_chosen[graph.source - 1] & is_chosen[graph.target]
    weight[joined] = 0
    later = np.zeros(len(graph.time_ns), dtype=bool)
    later[graph.target[joined]] = True
    launch = (graph.edge_kind == EDGE_KINDS.index("launch")) & later[graph.target]
    # Every launch but the first of a run is saved, with what the call cost the CPU.
    call = np.unique(graph.source[launch])
    cost = events["dur_ns"].reindex(graph.event[call]).fillna(0).to_numpy()
    saved = np.zeros(len(graph.time_ns))
    saved[call] = cost
    host = np.isin(graph.edge_kind, [EDGE_KINDS.index(kind) for kind in ("CPU", "call")])
    weight[host] = np.maximum(weight[host] - saved[graph.source[host]], 0)
