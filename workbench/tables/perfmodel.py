"""Tables of performance models: graphs, tasks, kernel times and other layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.tables.configurations import CONFIGURATIONS
from workbench.tables.table import Column, Table

# A trace as a graph of points in time, and what a replay of it says.

EDGE_KINDS = (
    "GPU work",
    "CPU",
    "gap",
    "call",
    "inter-thread",
    "launch",
    "stream order",
    "queue limit",
    "synchronise",
    "inter-stream",
    "shared GPU",
    "dark GPU time",
    "collective",
    "data",
    "trace start",
)
POINT_KINDS = (
    "trace start",
    "GPU start",
    "GPU end",
    "CPU start",
    "CPU end",
    "call",
    "wait start",
    "wait end",
    "collective ready",
)

GRAPH_POINTS = Table(
    "graph_points",
    "One row per point in time of an execution graph: starts and ends of GPU work, and the "
    "moments on the CPU that something depends on.",
    {
        "rank": Column("int32", "global rank", lower=-1),
        "kind": Column("category", "what happens at the point: " + ", ".join(POINT_KINDS)),
        "event": Column("Int64", "row label in the events table", nullable=True),
        "time_ns": Column("int64", "when it was measured, from the start of the graph"),
        "explained_ns": Column(
            "int64", "when the measured times of its predecessors say it should be"
        ),
        "residual_ns": Column("int64", "measured less explained; positive: a cause is missing"),
    },
)
GRAPH_EDGES = Table(
    "graph_edges",
    "One row per dependency: the target is not before the source plus the weight.",
    {
        "source": Column("int32", "point that comes first", lower=0),
        "target": Column("int32", "point that waits", lower=0),
        "weight_ns": Column("int64", "least time between the two", lower=0),
        "kind": Column("category", "why the target waits: " + ", ".join(EDGE_KINDS)),
        "is_inferred": Column("bool", "guessed from times or order, not read from the trace"),
    },
)
GRAPH_BUILD = Table(
    "graph_build",
    "One row per step that built an execution graph.",
    {
        "step": Column("str", "name of the step, to be given in `without`"),
        "is_used": Column("bool", "whether it ran"),
        "read_count": Column("int64", "edges read from the trace", lower=0),
        "inferred_count": Column("int64", "edges guessed from times or order", lower=0),
        "left_out_count": Column("int64", "edges dropped since the times contradict them", lower=0),
        "note": Column("str", "what was measured or could not be used"),
    },
)


_FIDELITY = {
    "rank": Column("int32", "global rank", lower=0),
    "window_ns": Column("int64", "first to last event, as measured", lower=0),
    "replayed_ns": Column("int64", "the same, as replayed", lower=0),
    "error_ratio": Column("float64", "replayed / measured - 1", lower=-1),
    "span_error_ratio": Column("float64", "the same for first to last GPU work", lower=-1),
    "step_count": Column("int64", "ProfilerSteps", lower=0),
    "step_error_mean_ratio": Column(
        "Float64", "mean absolute error of the time from step to step", lower=0, nullable=True
    ),
    "step_error_max_ratio": Column("Float64", "largest of these", lower=0, nullable=True),
    "breakdown_error_ratio": Column(
        "float64", "absolute errors of the parts of the GPU time, summed, over the span", lower=0
    ),
    "busy_correlation": Column(
        "Float64", "of busy time per ms, measured and replayed", -1, 1, nullable=True
    ),
    "explained_share": Column("float64", "of the window: time that has a cause", 0, 1),
    "unexplained_ns": Column("int64", "time on the measured path without a cause", lower=0),
    "gap_share": Column("float64", "of the window: gaps on that path that keep their length", 0, 1),
    "inferred_share": Column("float64", "of the window: guessed edges on that path", 0, 1),
    "dark_ns": Column("int64", "GPU work on that path that was not recorded", lower=0),
    "point_count": Column("int64", "points of the rank", lower=0),
    "edge_count": Column("int64", "edges that lead to them", lower=0),
    "left_out_count": Column("int64", "edges of all ranks that times contradict", lower=0),
    "is_usable": Column(
        "bool", "enough is explained, and the replay near enough, to predict from it"
    ),
    "doubt": Column("str", "why predictions are unsure; empty if nothing speaks against them"),
}
REPLAY_FIDELITY = Table(
    "replay_fidelity",
    "One row per rank: how well the replay of a trace fits the trace.",
    _FIDELITY,
)
GRAPH_ABLATION = Table(
    "graph_ablation",
    "One row per rank and way to build the graph: what the steps are worth.",
    {"without": Column("str", "steps that were dropped; empty for none"), **_FIDELITY},
)


HELD_OUT_STEPS = Table(
    "held_out_steps",
    "One row per step: what the other steps of a trace predict for it.",
    {
        "step": Column("int32", "step number as the profiler counts"),
        "measured_ns": Column("int64", "from its start to that of the next", lower=0),
        "predicted_ns": Column("int64", "replayed with the times of the other steps", lower=0),
        "error_ratio": Column("float64", "predicted / measured - 1", lower=-1),
        "naive_ns": Column("int64", "mean of the other steps", lower=0),
        "naive_error_ratio": Column("float64", "that mean / measured - 1", lower=-1),
        "known_share": Column("float64", "of its times that other steps have, too", 0, 1),
    },
)


CRITICAL_PATH = Table(
    "critical_path",
    "One row per dependency on the longest path, in order of time; they add up to the whole.",
    {
        "rank": Column("int32", "rank of what waited; -1 for several", lower=-1),
        "kind": Column("category", "why it waited: " + ", ".join(EDGE_KINDS)),
        "name": Column("str", "name of what waited"),
        "event": Column("Int64", "its row label in the events table", nullable=True),
        "start_ns": Column("int64", "when the dependency began, replayed"),
        "dur_ns": Column("int64", "how long it took", lower=0),
        "is_inferred": Column("bool", "the dependency is guessed"),
    },
)
SLACK = Table(
    "slack",
    "One row per piece of GPU work: how much later it could come without delaying the end.",
    {
        "rank": Column("int32", "global rank", lower=0),
        "event": Column("int64", "row label in the events table"),
        "name": Column("str", "name of the work"),
        "kind": Column("category", "compute, communication, memory, other", nullable=True),
        "stream": Column("Int64", "GPU stream", nullable=True),
        "start_ns": Column("int64", "start, replayed"),
        "dur_ns": Column("int64", "duration, replayed", lower=0),
        "slack_ns": Column("int64", "time it could lose alone", lower=0),
    },
)
WHAT_IF = Table(
    "what_if",
    "One row per question: what a step would take if something were otherwise.",
    {
        "question": Column("str", "the changes, in words"),
        "measured_ns": Column("int64", "mean time of a step, measured", lower=0),
        "replayed_ns": Column("int64", "the same, replayed without a change", lower=0),
        "predicted_ns": Column("int64", "mean time of a step with the changes", lower=0),
        "low_ns": Column("Int64", "lower end of the interval over steps", 0, nullable=True),
        "high_ns": Column("Int64", "upper end", lower=0, nullable=True),
        "speedup_ratio": Column("float64", "measured / predicted", lower=0),
        "changed_ns": Column("int64", "time in the whole trace that was changed", lower=0),
        "step_count": Column("int64", "steps that were replayed", lower=1),
        "basis": Column("category", "how it was found: measured, scaled or modelled"),
        "explained_share": Column("float64", "of the time: has a cause, in the worst rank", 0, 1),
        "doubt": Column("str", "why it is unsure; empty if nothing speaks against it"),
    },
)


def _labelled(codes: NDArray[np.int8], labels: tuple[str, ...]) -> Any:
    return pd.Categorical.from_codes(codes.tolist(), categories=pd.Index(labels))


@dataclass(frozen=True, eq=False)
class ExecutionGraph:
    """Points in time and what each waits for, as plain arrays; built by `execution_graph`.

    Points of one rank follow each other; point 0 is the start of everything.
    ``points`` and ``edges`` give tables of them.
    """

    time_ns: NDArray[np.int64]
    point_rank: NDArray[np.int32]
    point_kind: NDArray[np.int8]
    event: NDArray[np.int64]
    source: NDArray[np.int32]
    target: NDArray[np.int32]
    weight_ns: NDArray[np.int64]
    edge_kind: NDArray[np.int8]
    is_inferred: NDArray[np.bool_]
    gpu_start: NDArray[np.int32]
    """Point where each piece of GPU work starts; it ends at the next point."""
    thread: NDArray[np.int32]
    """Thread of every point on a CPU, -1 elsewhere."""
    origin_ns: int
    """What to add to times to be on the clock of the events."""
    build: pd.DataFrame
    doubts: Sequence[str] = ()
    """What makes predictions from it unsure, in words."""

    @property
    def explained_ns(self) -> NDArray[np.int64]:
        """When each point should be, by the measured times of what it waits for."""
        explained = np.zeros(len(self.time_ns), dtype=np.int64)
        np.maximum.at(explained, self.target, self.time_ns[self.source] + self.weight_ns)
        return explained

    @property
    def points(self) -> pd.DataFrame:
        """Table :data:`GRAPH_POINTS`, the index is the number of the point."""
        explained = self.explained_ns
        event = pd.array(self.event, dtype="Int64")
        event[self.event < 0] = pd.NA
        return pd.DataFrame(
            {
                "rank": self.point_rank,
                "kind": _labelled(self.point_kind, POINT_KINDS),
                "event": event,
                "time_ns": self.time_ns,
                "explained_ns": explained,
                "residual_ns": self.time_ns - explained,
            }
        )

    @property
    def edges(self) -> pd.DataFrame:
        """Table :data:`GRAPH_EDGES`."""
        return pd.DataFrame(
            {
                "source": self.source,
                "target": self.target,
                "weight_ns": self.weight_ns,
                "kind": _labelled(self.edge_kind, EDGE_KINDS),
                "is_inferred": self.is_inferred,
            }
        )

    @property
    def nbytes(self) -> int:
        """Memory of the arrays."""
        arrays = (getattr(self, field.name) for field in fields(self))
        return sum(each.nbytes for each in arrays if isinstance(each, np.ndarray))

    def __repr__(self) -> str:
        """Say how large it is and what is unsure about it."""
        inferred = float(self.is_inferred.mean()) if len(self.is_inferred) else 0.0
        ranks = len(np.unique(self.point_rank[self.point_rank >= 0]))
        head = (
            f"ExecutionGraph of {ranks} rank{'s' * (ranks != 1)}: {len(self.time_ns):,} points, "
            f"{len(self.source):,} edges ({inferred:.1%} inferred), "
            f"{len(self.gpu_start):,} pieces of GPU work"
        )
        return "\n".join([head, *(f"  {doubt}" for doubt in self.doubts)])


# Measured times of kernels and collectives, what models predict, and the hardware they ran on.

_GPU = Column("str", "GPU, as the hardware table calls it, e.g. H100")
_DTYPE = Column("str", "element type of the operands, e.g. bfloat16")
_SOURCE = Column("str", "where it was measured: package, file or project")
_LOW = "lower end of the interval"
_HIGH = "upper end of the interval"
_BASIS = (
    "measured: this very shape was; fitted: between measured ones; extrapolated: outside them; "
    "modelled: from published latencies and bandwidths; scaled: from another GPU"
)

GEMM_TIMES = Table(
    "gemm_times",
    "One row per measured matrix product C[m, n] = A[m, k] B[k, n].",
    {
        "gpu": _GPU,
        "dtype": _DTYPE,
        "m_count": Column("int64", "rows of A and C", lower=1),
        "n_count": Column("int64", "columns of B and C", lower=1),
        "k_count": Column("int64", "columns of A, rows of B", lower=1),
        "dur_ns": Column("int64", "measured time", lower=1),
        "source": _SOURCE,
    },
)

COLLECTIVE_TIMES = Table(
    "collective_times",
    "One row per measured collective. Sizes are as nccl-tests counts them: the larger of what "
    "a rank sends and receives.",
    {
        "gpu": _GPU,
        "collective": Column("str", "all-reduce, all-gather, reduce-scatter, all-to-all, ..."),
        "dtype": _DTYPE,
        "rank_count": Column("int64", "ranks that take part", lower=2),
        "node_count": Column("int64", "nodes they are on", lower=1),
        "size_bytes": Column("int64", "size of the larger buffer of a rank", lower=1),
        "dur_ns": Column("int64", "measured time", lower=1),
        "source": _SOURCE,
    },
)

PREDICTED_TIMES = Table(
    "predicted_times",
    "The rows requested, each with its predicted time, the interval and how it was found.",
    {
        "gpu": _GPU,
        "dur_ns": Column("int64", "predicted time", lower=1),
        "low_ns": Column("int64", _LOW, lower=0),
        "high_ns": Column("int64", _HIGH, lower=1),
        "analytic_ns": Column("int64", "by the closed formula alone", lower=1),
        "basis": Column("str", _BASIS),
        "doubt": Column("str", "why the time may be wrong; empty if nothing speaks against it"),
    },
)

SCALED_TIMES = Table(
    "scaled_times",
    "The rows given, each with the ratio by which its time would change on another GPU.",
    {
        "gpu": Column("str", "GPU that is asked about"),
        "bound": Column("str", "what limits it: compute, memory, communication, or other"),
        "time_ratio": Column("float64", "time there / time here", lower=0),
        "scaled_ns": Column("int64", "time there", lower=0),
        "basis": Column("str", _BASIS),
        "doubt": Column("str", "why the time may be wrong; empty if nothing speaks against it"),
    },
)

HARDWARE = Table(
    "hardware",
    "One row per GPU: what its data sheet promises, without sparsity, and what was measured.",
    {
        "gpu": _GPU,
        "fp16_flop_per_s": Column("float64", "dense matrix peak in float16", lower=0),
        "bf16_flop_per_s": Column("float64", "dense matrix peak in bfloat16", lower=0),
        "fp8_flop_per_s": Column(
            "Float64", "dense matrix peak in 8-bit floats; missing without", lower=0, nullable=True
        ),
        "measured_flop_per_s": Column(
            "Float64", "best matrix product measured, bfloat16", lower=0, nullable=True
        ),
        "memory_bytes": Column("float64", "memory of the GPU", lower=0),
        "memory_bytes_per_s": Column("float64", "peak bandwidth of the memory", lower=0),
        "link_bytes_per_s": Column(
            "float64", "NVLink or xGMI to the GPUs of the node, one direction", lower=0
        ),
        "network_bytes_per_s": Column(
            "float64", "network between nodes per GPU, one direction", lower=0
        ),
        "multiprocessor_count": Column("int64", "SMs or CUs in use", lower=1),
        "node_gpu_count": Column("int64", "GPUs of a node", lower=1),
    },
)

HARDWARE_SOURCES = Table(
    "hardware_sources",
    "One row per GPU and number of the hardware table: where it was printed.",
    {
        "gpu": _GPU,
        "quantity": Column("str", "column of the hardware table"),
        "value": Column("float64", "as printed, in the unit beside", lower=0),
        "unit": Column("str", "unit of the value"),
        "source": Column("str", "who prints it, where"),
    },
)

KERNEL_MODEL_ERRORS = Table(
    "kernel_model_errors",
    "One row per model and class of shapes: error on what it was not fitted on.",
    {
        "gpu": _GPU,
        "dtype": _DTYPE,
        "model": Column("str", "roofline (peaks alone), analytic (fitted formula) or hybrid"),
        "shapes": Column("str", "all; training: m, n, k >= 1024; or a range of FLOPs"),
        "held_out": Column("str", "what was held out when fitting"),
        "row_count": Column("int64", "measurements predicted", lower=1),
        "flop_count": Column("float64", "median FLOPs of them", lower=0),
        "mean_ratio": Column("float64", "mean of |predicted / measured - 1|", lower=0),
        "median_ratio": Column("float64", "its median", lower=0),
        "max_ratio": Column("float64", "its maximum", lower=0),
    },
)

COLLECTIVE_MODEL = Table(
    "collective_model",
    "One row per measured collective: what a model of three lines says, and the bandwidth.",
    {
        "gpu": _GPU,
        "collective": Column("str", "all-reduce, all-gather, reduce-scatter, all-to-all, ..."),
        "rank_count": Column("int64", "ranks that take part", lower=2),
        "node_count": Column("int64", "nodes they are on", lower=1),
        "size_bytes": Column("int64", "size of the larger buffer of a rank", lower=1),
        "dur_ns": Column("int64", "measured time; median of repeats", lower=1),
        "bus_gb_per_s": Column("float64", "bus bandwidth of it [10^9 bytes/s]", lower=0),
        "modelled_ns": Column("float64", "by the three lines fitted to all sizes", lower=0),
        "held_out_ns": Column(
            "Float64",
            "by the lines fitted without this size; missing where too few sizes are left",
            lower=0,
            nullable=True,
        ),
        "line": Column("int32", "which of the lines it is on; 1 has the lowest latency", lower=1),
        "latency_ns": Column("float64", "of that line: time of a message without bytes", lower=0),
        "line_gb_per_s": Column("float64", "of that line: size by time beyond", lower=0),
    },
)

# What the steps of a trace consist of, and what other layouts would make of them.

STEP_BREAKDOWN = Table(
    "step_breakdown",
    "One row per rank and step: what its GPUs did from the start of the step to that of the "
    "next. compute + exposed communication + exposed memory + exposed other + idle = dur, exactly.",
    {
        "rank": Column("int32", "global rank", lower=0),
        "step": Column(
            "Int32", "ProfilerStep; missing where the row is a whole trace", nullable=True
        ),
        "dur_ns": Column("int64", "from the start of the step to that of the next", lower=1),
        "compute_ns": Column("int64", "time with compute running", lower=0),
        "overlap_ns": Column("int64", "of that, time with communication running, too", lower=0),
        "exposed_communication_ns": Column("int64", "communication without compute", lower=0),
        "exposed_memory_ns": Column(
            "int64", "copies or sets without compute and communication", lower=0
        ),
        "exposed_other_ns": Column("int64", "work of kind other while nothing else runs", lower=0),
        "idle_ns": Column("int64", "time without GPU work", lower=0),
    },
)

_PARTS = {
    "compute": "kernels that compute, the update of the parameters with them",
    "communication": "communication that nothing hides",
    "bubble": "stages that wait for the pipeline to fill and drain",
    "other": "copies and other GPU work while nothing else runs",
    "idle": "time without GPU work: the host",
}
_LAYOUT_CHANGES_BASIS = (
    "measured (as in the trace), scaled (by the closed form's ratio) or modelled (the trace "
    "has none, the closed form gives it)"
)
LAYOUT_WHAT_IF = Table(
    "layout_what_if",
    "One row per configuration requested: what the steps of a trace of another one would take.",
    {
        **CONFIGURATIONS.columns,
        "change": Column("str", "what differs from the configuration of the trace, in words"),
        "measured_ns": Column("int64", "median time of a measured step", lower=1),
        "dur_ns": Column("int64", "the same in this configuration", lower=1),
        "low_ns": Column("Int64", "lower end of the interval over steps", 0, nullable=True),
        "high_ns": Column("Int64", "upper end", lower=0, nullable=True),
        "step_count": Column("int64", "measured steps", lower=1),
        "throughput_ratio": Column("float64", "tokens per second, of those in the trace", lower=0),
        **{
            f"{part}_ns": Column("int64", f"of the median step: {meaning}", lower=0)
            for part, meaning in _PARTS.items()
        },
        "overlap_ns": Column("int64", "of compute: hides communication", lower=0),
        "mfu_share": Column("float64", "model FLOPs / (time x peak)", 0, 1),
        "hfu_share": Column("float64", "the same with what is recomputed", 0, 1),
        "memory_bytes": Column("int64", "memory per GPU, fullest stage", lower=0),
        "fits": Column("bool", "whether that is less than a GPU has"),
        **{
            f"{part}_basis": Column("str", f"basis of {part}: {_LAYOUT_CHANGES_BASIS}")
            for part in _PARTS
        },
        "doubt": Column("str", "why it may be wrong; empty if nothing is known"),
    },
)

# Execution graphs as two plain tables: what is done, and what must be done before it.

TASKS = Table(
    "tasks",
    "One row per piece of work of an execution graph.",
    {
        "task": Column("int64", "number of the task", lower=0),
        "rank": Column("int32", "global rank", lower=0),
        "event": Column(
            "Int64",
            "where it comes from: row label in the events table, or id of the node of an "
            "execution trace",
            nullable=True,
        ),
        "name": Column("category", "name as recorded"),
        "category": Column("category", "profiler category, or type of the node"),
        "start_ns": Column("Int64", "start, if recorded", nullable=True),
        "dur_ns": Column(
            "Int64", "time of its own, without what it called", lower=0, nullable=True
        ),
        "stream": Column("Int64", "GPU stream, of GPU work", nullable=True),
        "thread": Column("category", "thread, of work on a CPU", nullable=True),
    },
)

TASK_EDGES = Table(
    "task_edges",
    "One row per dependency between tasks: the source ends before the target starts.",
    {
        "src": Column("int64", "task that comes first", lower=0),
        "dst": Column("int64", "task that waits", lower=0),
        "kind": Column("category", "why it waits: data, control, thread order, launch, ..."),
        "is_inferred": Column("bool", "guessed from order or times, not read from the trace"),
    },
)


@dataclass(frozen=True, eq=False)
class TaskGraph:
    """An execution graph as tables TASKS and TASK_EDGES, and what makes it doubtful."""

    tasks: pd.DataFrame
    edges: pd.DataFrame
    cyclic: tuple[int, ...] = ()
    """Tasks on cycles or between them, which can never all be done."""
    doubts: tuple[str, ...] = ()
    """What a replay of it would get wrong, in words."""
