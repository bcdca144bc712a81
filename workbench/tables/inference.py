"""Tables of inference: iterations of a serving engine, their phases, and replayed graphs."""

from __future__ import annotations

from workbench.tables.table import table

INFERENCE_ITERATIONS = table("""
    inference_iterations: One row per rank and iteration of an inference engine, in order of its GPU
    work.

    rank: int32 >=0 - global rank
    iteration: int64 >=0 - number on its rank
    name: category - annotation, or call that replays the graph
    engine: category - vLLM, SGLang, TensorRT-LLM or xDiT; graph replay where nothing is annotated
    phase: category - prefill, decode, mixed, or unknown: the annotation does not say
    start_ns: int64 - start of its first GPU work
    dur_ns: int64 >=0 - until the end of its last GPU work
    busy_ns: int64 >=0 - of that, time in which its GPU work runs
    period_ns: int64 >=0 - until the first work of the next iteration; for the last until its end
    idle_ns: int64 >=0 - of the period, time without any GPU work before the end of its last
    gap_ns: int64 >=0 - of the period, time without any GPU work after that
    kernel_count: int64 >=1 - pieces of GPU work
    context_request_count: Int64? >=0 - requests in prefill; missing where not told, as all counts
    context_token_count: Int64? >=0 - their tokens
    generation_request_count: Int64? >=0 - requests in decode
    generation_token_count: Int64? >=0 - their tokens: one a request unless the annotation says more
    launch: category - eager, graph, or eager and graph
    graph: Int64? >=0 - number of the graph with most work, as in graph_kernels; missing without one
    doubt: str - why it may be no iteration
""")

INFERENCE_SUMMARY = table("""
    inference_summary: One row per rank and phase: its share of the time, of which gaps.

    rank: int32 >=0 - global rank
    phase: str - prefill, decode, mixed or unknown
    iteration_count: int64 >=1 - iterations
    period_ns: int64 >=0 - their time, each until the next begins
    time_share: Float64? 0..1 - of that of all phases of the rank
    idle_share: Float64? 0..1 - of the period: no GPU work inside an iteration
    gap_share: Float64? 0..1 - of the period: no GPU work between iterations
    token_count: Int64? >=0 - tokens of prefill and decode; missing if one iteration tells none
    tokens_per_s: Float64? >=0 - tokens / period [1/s]
    doubt: str - why these may be no iterations
""")

GRAPH_KERNELS = table("""
    graph_kernels: One row per rank, replayed graph, kernel name and operator: what a graph runs.

    rank: int32 >=0 - global rank
    graph: int64 >=0 - number of the graph on its rank: replays of the same kernels are one graph
    name: str - GPU work
    operator: str? - innermost operator around the call that captured it; missing if not known
    replay_count: int64 >=1 - replays of the graph
    kernel_count: int64 >=1 - pieces of this work in one replay
    dur_ns: int64 >=0 - summed over all replays
    note: str - why the operator is missing
""")
