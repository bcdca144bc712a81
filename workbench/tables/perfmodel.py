"""Tables of performance models: graphs, tasks, kernel times and other layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.tables.table import Table, columns, table

# The arrays of an ExecutionGraph hold kinds as positions in these two.
EDGE_KINDS = (
    "GPU work", "CPU", "gap", "call", "inter-thread", "launch", "stream order", "queue limit",
    "synchronise", "inter-stream", "shared GPU", "dark GPU time", "collective", "trace start",
)  # fmt: skip
POINT_KINDS = (
    "trace start", "GPU start", "GPU end", "CPU start", "CPU end", "call", "wait start",
    "wait end", "collective ready",
)  # fmt: skip

GRAPH_POINTS = table("""
    graph_points: One row per point in time of an execution graph: starts and ends of GPU work, and
    the moments on the CPU that something depends on.

    rank: int32 >=-1 - global rank
    kind: category - what happens at the point: trace start, GPU start, GPU end, CPU start, CPU
        end, call, wait start, wait end, collective ready
    event: Int64? - row label in the events table
    time_ns: int64 - when it was measured, from the start of the graph
    explained_ns: int64 - when the measured times of its predecessors say it should be
    residual_ns: int64 - measured less explained; positive: a cause is missing
""")
GRAPH_EDGES = table("""
    graph_edges: One row per dependency: the target is not before the source plus the weight.

    source: int32 >=0 - point that comes first
    target: int32 >=0 - point that waits
    weight_ns: int64 >=0 - least time between the two
    kind: category - why the target waits: GPU work, CPU, gap, call, inter-thread, launch, stream
        order, queue limit, synchronise, inter-stream, shared GPU, dark GPU time, collective, trace
        start
    is_inferred: bool - guessed from times or order, not read from the trace
""")
GRAPH_BUILD = table("""
    graph_build: One row per step that built an execution graph.

    step: str - name of the step, to be given in `without`
    is_used: bool - whether it ran
    read_count: int64 >=0 - edges read from the trace
    inferred_count: int64 >=0 - edges guessed from times or order
    left_out_count: int64 >=0 - edges dropped since the times contradict them
    note: str - what was measured or could not be used
""")


_FIDELITY = columns("""
    rank: int32 >=0 - global rank
    window_ns: int64 >=0 - first to last event, as measured
    replayed_ns: int64 >=0 - the same, as replayed
    error_ratio: float64 >=-1 - replayed / measured - 1
    span_error_ratio: float64 >=-1 - the same for first to last GPU work
    step_count: int64 >=0 - ProfilerSteps
    step_error_mean_ratio: Float64? >=0 - mean absolute error of the time from step to step
    step_error_max_ratio: Float64? >=0 - largest of these
    breakdown_error_ratio: float64 >=0 - absolute errors of the parts of the GPU time, summed, over
        the span
    busy_correlation: Float64? -1..1 - of busy time per ms, measured and replayed
    explained_share: float64 0..1 - of the window: explained time
    unexplained_ns: int64 >=0 - time on the measured path that nothing explains
    gap_share: float64 0..1 - of the window: gaps on that path that keep their length
    inferred_share: float64 0..1 - of the window: guessed edges on that path
    dark_ns: int64 >=0 - GPU work on that path that was not recorded
    unlaunched_share: float64 0..1 - of the GPU work: without a launch in the trace
    halved_ratio: float64 >=0 - replayed with half of all times / replayed; 0.5 if all is explained
    point_count: int64 >=0 - points of the rank
    edge_count: int64 >=0 - edges that lead to them
    left_out_count: int64 >=0 - edges of all ranks that times contradict
    is_usable: bool - enough is explained, and the replay near enough, to predict from it
    doubt: str - why predictions are unreliable; empty if nothing speaks against them
""")
REPLAY_FIDELITY = Table(
    "replay_fidelity", "One row per rank: how well the replay of a trace fits the trace.", _FIDELITY
)
GRAPH_ABLATION = Table(
    "graph_ablation",
    "One row per rank and way to build the graph: what the steps are worth.",
    {**columns("without: str - steps that were dropped; empty for none"), **_FIDELITY},
)


HELD_OUT_STEPS = table("""
    held_out_steps: One row per step: what the other steps of a trace predict for it.

    step: int32 - step number as the profiler counts
    measured_ns: int64 >=0 - from its start to that of the next
    predicted_ns: int64 >=0 - replayed with the times of the other steps
    error_ratio: float64 >=-1 - predicted / measured - 1
    naive_ns: int64 >=0 - mean of the other steps
    naive_error_ratio: float64 >=-1 - that mean / measured - 1
    known_share: float64 0..1 - of its times that other steps have, too
""")


CRITICAL_PATH = table("""
    critical_path: One row per dependency on the longest path, in order of time; they add up to the
    whole.

    rank: int32 >=-1 - rank of what waited; -1 for several
    kind: category - why it waited: GPU work, CPU, gap, call, inter-thread, launch, stream order,
        queue limit, synchronise, inter-stream, shared GPU, dark GPU time, collective, trace start
    name: str - name of what waited
    event: Int64? - its row label in the events table
    start_ns: int64 - when the dependency began, replayed
    dur_ns: int64 >=0 - how long it took
    is_inferred: bool - the dependency is guessed
""")
SLACK = table("""
    slack: One row per piece of GPU work: how much later it could come without delaying the end.

    rank: int32 >=0 - global rank
    event: int64 - row label in the events table
    name: str - name of the work
    kind: category? - compute, communication, memory, other
    stream: Int64? - GPU stream
    start_ns: int64 - start, replayed
    dur_ns: int64 >=0 - duration, replayed
    slack_ns: int64 >=0 - time it could lose alone
""")
WHAT_IF = table("""
    what_if: One row per question: the predicted step time of a what-if analysis.

    question: str - the changes, in words
    measured_ns: int64 >=0 - mean time of a step, measured
    replayed_ns: int64 >=0 - the same, replayed without a change
    predicted_ns: int64 >=0 - mean time of a step with the changes
    low_ns: Int64? >=0 - lower end of the interval over steps
    high_ns: Int64? >=0 - upper end
    speedup_ratio: float64 >=0 - measured / predicted
    changed_ns: int64 >=0 - time in the whole trace that was changed
    step_count: int64 >=1 - steps that were replayed
    basis: category - how it was found: measured, scaled or modelled
    explained_share: float64 0..1 - of the time: explained, in the worst rank
    doubt: str - why it is unreliable; empty if nothing speaks against it
""")


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
    thread: NDArray[np.int32]  # thread of every point on a CPU, -1 elsewhere
    origin_ns: int  # what to add to times to be on the clock of the events
    build: pd.DataFrame
    doubts: Sequence[str] = ()  # what makes predictions from it unreliable

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
        return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))

    def __repr__(self) -> str:
        """Describe the size of the graph and why it is unreliable."""
        inferred = float(self.is_inferred.mean()) if len(self.is_inferred) else 0.0
        ranks = len(np.unique(self.point_rank[self.point_rank >= 0]))
        head = (
            f"ExecutionGraph of {ranks} rank{'s' * (ranks != 1)}: {len(self.time_ns):,} points, "
            f"{len(self.source):,} edges ({inferred:.1%} inferred), "
            f"{len(self.gpu_start):,} pieces of GPU work"
        )
        return "\n".join([head, *(f"  {doubt}" for doubt in self.doubts)])


HARDWARE = table("""
    hardware: One row per GPU: what its data sheet promises, without sparsity, and what was
    measured.

    gpu: str - GPU, as the hardware table calls it, e.g. H100
    fp16_flop_per_s: float64 >=0 - dense matrix peak in float16
    bf16_flop_per_s: float64 >=0 - dense matrix peak in bfloat16
    fp8_flop_per_s: Float64? >=0 - dense matrix peak in 8-bit floats; missing without
    measured_flop_per_s: Float64? >=0 - best matrix product measured, bfloat16
    memory_bytes: float64 >=0 - memory of the GPU
    memory_bytes_per_s: float64 >=0 - peak bandwidth of the memory
    link_bytes_per_s: float64 >=0 - NVLink or xGMI to the GPUs of the node, one direction
    network_bytes_per_s: float64 >=0 - network between nodes per GPU, one direction
    multiprocessor_count: int64 >=1 - SMs or CUs in use
    node_gpu_count: int64 >=1 - GPUs of a node
""")

MATRIX_PRODUCTS = table("""
    matrix_products: One row per size of matrix product that a model computes: C (m x n) = A (m x k)
    times B (k x n).

    product: str - what it is for, or the operator
    m_count: int64 >=1 - rows of A and C
    n_count: int64 >=1 - columns of B and C
    k_count: int64 >=1 - columns of A, rows of B
    call_count: int64 >=1 - times it is computed: per micro-batch, or in the trace
    basis: str - layout (computed from a configuration), trace (recorded) or contraction (folded)
""")

MATRIX_PEAKS = table("""
    matrix_peaks: One row per GPU and type of the operands: what its data sheet promises, without
    sparsity.

    gpu: str - GPU or processor
    dtype: str - element type of the operands, e.g. bfloat16
    element_bytes: int64 >=1 - bytes of an element
    peak_flop_per_s: float64 >=1 - dense peak
    memory_bytes_per_s: float64 >=1 - peak bandwidth of the memory
""")

FAST_COEFFICIENTS = table("""
    fast_coefficients: One row per coefficient of an algorithm of fast matrix multiplication.

    algorithm: str - name of its file
    m_part_count: int64 >=1 - parts that m is cut into
    k_part_count: int64 >=1 - parts that k is cut into
    n_part_count: int64 >=1 - parts that n is cut into
    operand: str - A, B (summed before the multiplication) or C (after)
    block: int64 >=0 - block of the operand, row by row
    product: int64 >=0 - product of the algorithm
    coefficient_ratio: float64 - factor of the block in the product, or of the product in the block
""")

FAST_ALGORITHMS = table("""
    fast_algorithms: One row per algorithm of fast matrix multiplication: what one level saves and
    adds.

    algorithm: str - name
    m_part_count: int64 >=1 - parts that m is cut into
    k_part_count: int64 >=1 - parts that k is cut into
    n_part_count: int64 >=1 - parts that n is cut into
    product_count: int64 >=1 - products of blocks (rank)
    a_addition_count: int64 >=0 - additions of blocks of A
    b_addition_count: int64 >=0 - additions of blocks of B
    c_addition_count: int64 >=0 - additions of products to blocks of C
    saving_ratio: float64 - products of the plain algorithm / products, less 1
    error_growth_ratio: float64 >=0 - bound on the error, of that of the plain product, per level
    residual_ratio: float64 >=0 - largest deviation from the equations of a right algorithm
""")

FAST_MATMUL_CROSSOVER = table("""
    fast_matmul_crossover: One row per GPU and type: from which size of square products on fast
    multiplication pays. A model of data-sheet peaks, not measured.

    gpu: str - GPU or processor
    dtype: str - element type of the operands
    algorithm: str - algorithm with the smallest crossover
    level_count: int64 >=1 - recursion levels
    unfused_count: float64 >=0 - side of the product if sums are written to memory
    hidden_count: float64 >=0 - side if the kernel sums while it multiplies and hides all of it
    bound_ratio: float64 >=1 - speed-up that no size exceeds
""")

FAST_MATMUL = table("""
    fast_matmul: One row per matrix product: what fast multiplication would gain. A model of
    data-sheet peaks, not measured.

    product: str - what it is for, or the operator
    m_count: int64 >=1 - rows of A and C
    n_count: int64 >=1 - columns of B and C
    k_count: int64 >=1 - columns of A, rows of B
    call_count: int64 >=1 - times it is computed
    gpu: str - GPU or processor
    dtype: str - element type of the operands
    algorithm: str - algorithm that is fastest if its sums are written to memory
    level_count: int64 >=1 - recursion levels
    effective_count: float64 >=0 - side of the square product that gains as much
    crossover_count: float64 >=0 - side from which that algorithm pays if sums are written
    plain_ns: float64 >=0 - time of the plain product
    unfused_ratio: float64 >=0 - speed-up if sums are written to memory
    hidden_ratio: float64 >=0 - speed-up if the kernel hides them; a real one lies between
    bound_ratio: float64 >=1 - speed-up that no size exceeds
    error_growth_ratio: float64 >=0 - bound on the error, of that of the plain product
    verdict: str - pays, only fused (perhaps, if sums are not written) or does not pay
    doubt: str - why it may be wrong beyond being a model; empty if nothing is known
""")

FAST_MATMUL_TIMES = table("""
    fast_matmul_times: One row per pair of runs on a CPU: the plain product beside the fast one.

    dtype: str - element type
    n_count: int64 >=1 - side of the square product
    level_count: int64 >=1 - recursion levels
    repeat: int64 >=1 - number of the pair
    plain_ns: int64 >=1 - time of the plain product
    fast_ns: int64 >=1 - time of the fast one
    error_ratio: float64 >=0 - largest difference of both, of the largest entry
""")


STEP_BREAKDOWN = table("""
    step_breakdown: One row per rank and step: what its GPUs did from the start of the step to that
    of the next. compute + exposed communication + exposed memory + exposed other + idle = dur,
    exactly.

    rank: int32 >=0 - global rank
    step: Int32? - ProfilerStep; missing where the row is a whole trace
    dur_ns: int64 >=1 - from the start of the step to that of the next
    compute_ns: int64 >=0 - time with compute running
    overlap_ns: int64 >=0 - of that, time with communication running, too
    exposed_communication_ns: int64 >=0 - communication without compute
    exposed_memory_ns: int64 >=0 - copies or sets without compute and communication
    exposed_other_ns: int64 >=0 - work of kind other while nothing else runs
    idle_ns: int64 >=0 - time without GPU work
""")
