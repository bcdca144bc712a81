"""Tables of unequal loads: jobs, packing, sharding and simulated pipelines."""

from __future__ import annotations

from workbench.tables.table import table

# Jobs recorded operation by operation.

# Durations are int64, as recorded; what is replayed from them is a mean, and float64.
JOB_OPERATIONS = table("""
    job_operations: One row per operation of one worker of a pipelined, data-parallel job in one
    step. Workers of one tensor-parallel group share their rows.

    step: int64 >=0 - training step; steps may be a sample
    dp_rank: int32 >=0 - data-parallel rank
    stage: int32 >=0 - pipeline stage
    operation: category - forward-compute, backward-compute, forward-send, grads-reduce-scatter ...
    sequence: int32 >=0 - order among equal operations of a worker in a step
    micro_batch: Int32? >=0 - micro-batch; missing unless the operation computes
    chunk: Int32? >=0 - model chunk, counted along the pipeline; missing unless the operation
        computes
    start_ns: int64 - start, from the beginning of the step or of the job
    dur_ns: int64 >=0 - duration, waiting for peers included
""")

JOB_SLOWDOWN = table("""
    job_slowdown: One row: how much slower a job is than it would be if equal operations took equal
    time.

    step_count: int64 >=1 - steps replayed
    worker_count: int64 >=1 - pairs of data-parallel rank and stage
    actual_ns: float64 >=0 - mean step, as recorded
    replay_ns: float64 >=0 - mean step, replayed without launch delays
    ideal_ns: float64 >=0 - mean step with equal operations
    slowdown_ratio: float64 >=0 - S: replay / ideal
    waste_ratio: float64 - 1 - 1 / S: GPU time that equal operations would save
    delay_ratio: float64 - of the recorded step: launch delays, lost by the replay
    worst_workers_ratio: Float64? - M_W: of the excess, gone with the worst workers ideal
    slow_workers_ratio: Float64? - of the excess, gone with all workers ideal that are slow beside
        the median of their stage; missing if there are none
    last_stage_ratio: Float64? - M_S: of the excess, gone with the last stage ideal
    communication_ratio: Float64? - of the excess, gone with all transfers and collectives ideal
    pauses_ratio: Float64? - of the excess, gone with the few longest computations ideal, each
        measured by the median of its kind and stage
    micro_batches_ratio: Float64? - of the excess, gone with each micro-batch at the mean of its
        worker
    forward_backward_correlation: Float64? -1..1 - Pearson's r of both durations of a micro-batch
    within_rank_correlation: Float64? -1..1 - the same, each by the median of its rank
    verdict: category - no straggler, worker, sequence lengths, last stage, communication, pauses,
        other
    note: str? - what was dropped, and what is doubtful
""")

JOB_SLOWDOWN_BY = table("""
    job_slowdown_by: One row per part of a job: the slowdown if only this part kept its own
    durations.

    dp_rank: Int32? >=0 - data-parallel rank; missing for parts of all
    stage: Int32? >=0 - pipeline stage; missing for parts of all
    operation: category? - operation; missing if it is any
    slowdown_ratio: float64 >=0 - S of the part: its replay / ideal
    bound_ratio: Float64? >=0 - of a worker: the lower S of its rank and its stage; missing for
        other parts
""")


TRACE_DIFF = table("""
    trace_diff: One row per category (and name, or step) of two traces: what changed from a to b.

    category: category - profiler category
    name: category? - name; missing unless compared by name
    step: Int32? >=0 - position of the step in its trace, from 0; missing unless by step
    change: category - added, removed, or both (in both traces)
    a_count: int64 >=0 - rows in a
    b_count: int64 >=0 - rows in b
    difference_count: int64 - b minus a
    a_total_ns: int64 >=0 - summed durations in a
    b_total_ns: int64 >=0 - summed durations in b
    difference_ns: int64 - b minus a
    total_ratio: Float64? >=0 - b / a; missing if a has no duration
    a_per_step_ns: Float64? >=0 - a's total per rank and step; missing without steps
    b_per_step_ns: Float64? >=0 - b's total per rank and step; missing without steps
""")


JOB_STEPS = table("""
    job_steps: One row per step of a job: as recorded, replayed, and with equal operations.

    step: int64 >=0 - training step
    actual_ns: float64 >=0 - the step as recorded
    replay_ns: float64 >=0 - replayed, without launch delays
    ideal_ns: float64 >=0 - replayed with equal operations
    slowdown_ratio: float64 >=0 - replay / ideal
    delay_ratio: float64 - 1 - replay / actual: launch delays, or the replay's error
""")

JOB_SCHEDULE = table("""
    job_schedule: One row per operation of one step and data-parallel rank, in each version of the
    step: recorded, actual (replayed with own durations) and ideal (with equal ones).

    version: category - recorded, actual or ideal
    step: int64 >=0 - training step
    dp_rank: int32 >=0 - data-parallel rank
    stage: int32 >=0 - pipeline stage
    operation: category - as in job_operations
    micro_batch: Int32? >=0 - missing unless it computes
    chunk: Int32? >=0 - missing unless it computes
    start_ns: int64 >=0 - start, from the beginning of the step
    dur_ns: int64 >=0 - duration; recorded ones include the waiting for peers
""")

JOB_MICRO_BATCHES = table("""
    job_micro_batches: One row per micro-batch of one step and data-parallel rank on one stage: how
    long its forward and its backward pass computed.

    step: int64 >=0 - training step
    dp_rank: int32 >=0 - data-parallel rank
    stage: int32 >=0 - pipeline stage
    micro_batch: int32 >=0 - micro-batch of the step
    forward_ns: int64 >=0 - forward passes, all chunks of the stage
    backward_ns: int64 >=0 - backward passes, all chunks of the stage
""")

JOB_DISPERSION = table("""
    job_dispersion: One row per measure of imbalance of one job: what it says, and what it cannot
    see.

    measure: str - what is measured
    value_ratio: Float64? >=0 - its value; missing where the job cannot tell
    lost_share: Float64? 0..1 - GPU time that the measure would call lost; missing if it speaks of
        none
    formula: str - how it is computed
    hides: str - what it cannot see
""")

# Document lengths, packing, context sharding and pipelines.

DOCUMENT_LENGTHS = table("""
    document_lengths: One row per document (or request), in the order in which training would read
    them.

    length_tokens: int64 >=1 - tokens of the document
""")

LENGTH_SHARES = table("""
    length_shares: One row per length, in ascending order: what documents up to it hold together.

    length_tokens: int64 >=1 - a length that occurs
    longer_share: float64 0..1 - documents at least this long (CCDF)
    token_share: float64 0..1 - tokens in documents up to this length
    square_share: float64 0..1 - sum of squared lengths, and so attention, up to this length
""")

PACKED_DOCUMENTS = table("""
    packed_documents: One row per piece of a document in a micro-batch, in order of batch and
    micro-batch.

    batch: int64 >=0 - global batch (one optimizer step), from 0
    micro_batch: int64 >=0 - micro-batch within the global batch, from 0
    document: int64 >=0 - number of the document in the stream, from 0
    start_tokens: int64 >=0 - where the piece begins in its document
    length_tokens: int64 >=1 - tokens of the piece
    delay_batches: int64 - batch less the batch a plain loader would put the piece into; below 0
        where a window was read ahead
""")

PACKING_QUEUES = table("""
    packing_queues: One row per queue in which long documents wait, the shortest first.

    from_tokens: int64 >=1 - documents from this length on wait here
    to_tokens: Int64? >=1 - up to below this length
    arrival_ratio: float64 >=0 - documents that arrive per batch over those that can leave (the
        micro-batches of a batch); from 1 the queue and the delay grow forever
    waiting_count: int64 >=0 - documents still waiting at the end
    most_waiting_count: int64 >=0 - documents waiting at the worst moment
    is_stable: bool - whether fewer arrive than can leave
""")

MICRO_BATCHES = table("""
    micro_batches: One row per micro-batch, in order; costs in units of the linear work of one
    crossover length, forward pass, whole model.

    batch: int64 >=0 - global batch, from 0
    micro_batch: int64 >=0 - micro-batch within the global batch, from 0
    document_count: int64 >=0 - pieces of documents in it
    length_tokens: int64 >=0 - tokens in it
    longest_tokens: int64 >=0 - tokens of its longest piece
    linear_cost: float64 >=0 - work that grows with tokens
    attention_cost: float64 >=0 - work that grows with squared lengths
""")

PACKING_BALANCE = table("""
    packing_balance: One row per way of packing: how even its micro-batches are, and what that
    costs.

    plan: str - the way of packing, in words
    batch_count: int64 >=0 - global batches measured, without both edges
    imbalance_ratio: float64 >=1 - work of the heaviest micro-batch over the mean, mean over
        batches
    imbalance_p95_ratio: float64 >=1 - the same, 95th percentile of batches
    attention_imbalance_ratio: float64 >=1 - the same, of attention alone
    token_imbalance_ratio: float64 >=1 - the same, of tokens: not of work
    memory_ratio: float64 >=0 - most tokens in a micro-batch over the context
    fill_ratio: float64 >=0 - mean tokens in a micro-batch over the context
    delay_batches: float64 - batches a token is late, mean over tokens
    displacement_batches: float64 >=0 - batches a token is early or late, mean over tokens
    cut_count: int64 >=0 - documents cut into several pieces
    left_share: float64 0..1 - tokens that were never packed
    left_square_share: float64 0..1 - squared lengths, and so attention, that was never packed
    is_stable: bool - whether neither a queue nor lack of memory delays forever
    note: str - what is doubtful about the row; empty if nothing
""")


CONTEXT_SHARDING = table("""
    context_sharding: One row per micro-batch: attention of the slowest context-parallel rank,
    forward, in the cost unit of micro_batches.

    batch: int64 >=0 - global batch, from 0
    micro_batch: int64 >=0 - micro-batch within the global batch, from 0
    length_tokens: int64 >=0 - tokens in it
    linear_cost: float64 >=0 - work of one rank that grows with tokens
    even_cost: float64 >=0 - if pairs were shared evenly by a perfect kernel
    per_sequence_cost: float64 >=0 - the sequence cut into chunks
    per_document_cost: float64 >=0 - every document cut into chunks
    adaptive_cost: float64 >=0 - the better of both
    hybrid_cost: float64 >=0 - long documents cut by themselves
    per_sequence_ratio: float64 >=0 - slowest rank over the mean
    per_document_ratio: float64 >=0 - slowest rank over the mean
    hybrid_ratio: float64 >=0 - slowest rank over the mean
    is_per_document: bool - whether adaptive cuts the documents
""")

CONTEXT_CHUNKS = table("""
    context_chunks: One row per run of query tokens of one micro-batch that one rank computes.

    rank: int32 >=0 - context-parallel rank
    rank_count: int32 >=1 - context-parallel ranks, idle ones included
    chunk: int64 >=0 - number of the chunk, from 0; rank r has r and 2n-1-r
    document: int64 >=0 - document in the micro-batch, from 0
    start_tokens: int64 >=0 - where the run begins in its document
    length_tokens: int64 >=1 - query tokens
    pair_count: float64 >=0 - query-key pairs as the kernel pays for them
""")

# Costs have no unit of time: 1 is the linear work of a document of the crossover length.
MICRO_BATCH_COSTS = table("""
    micro_batch_costs: One row per micro-batch: its passes through the whole model on one
    context-parallel rank, in the cost unit of micro_batches.

    batch: int64 >=0 - global batch, from 0
    micro_batch: int64 >=0 - micro-batch within the global batch, from 0
    length_tokens: int64 >=0 - tokens in it
    forward_cost: float64 >=0 - forward pass
    backward_cost: float64 >=0 - backward pass
""")

TRAINING_STEPS = table("""
    training_steps: One row per global batch: the time of the step in the cost unit of
    micro_batches.

    batch: int64 >=0 - global batch, from 0
    length_tokens: int64 >=0 - tokens trained on
    step_cost: float64 >=0 - until the last data-parallel rank is done
    even_cost: float64 >=0 - if all micro-batches were the mean of the batch
    bubble_share: float64 0..1 - time in which a stage does nothing
    dp_rank: int64 >=0 - data-parallel rank that is done last
    critical_micro_batch: int64 >=0 - heaviest micro-batch, in the order of micro_batch_costs
    note: str - what is doubtful about the step; empty if nothing
""")

PIPELINE = table("""
    pipeline: One row per pass of a micro-batch through a chunk of the model, for one global batch.

    version: category - which way of packing, or actual and ideal
    dp_rank: int64 >=0 - data-parallel rank
    stage: int64 >=0 - pipeline stage
    task: category - forward or backward
    micro_batch: int64 >=0 - micro-batch of the rank, from 0
    chunk: int64 >=0 - part of the model, from 0
    start_cost: float64 >=0 - start since the begin of the step
    dur_cost: float64 >=0 - duration
""")

TRAINING_SPEED = table("""
    training_speed: One row per recipe of packing and sharding, the plain one first.

    recipe: str - name of the recipe
    builds_on: str - recipe that it adds something to
    packing: str - how documents are packed
    context_sharding: str - how attention is shared among ranks
    speedup_ratio: float64 >=0 - tokens per time over those of the plain recipe
    imbalance_ratio: float64 >=1 - heaviest micro-batch over the mean
    bubble_share: float64 0..1 - time in which a stage does nothing
    delay_batches: float64 - batches a token is late, mean over tokens
    memory_ratio: float64 >=0 - most tokens in a micro-batch over the context
    left_square_share: float64 0..1 - attention that was never packed
    is_stable: bool - whether neither a queue nor lack of memory delays forever
    note: str - what is doubtful about the recipe; empty if nothing
""")


# Embedding tables on ranks, and look-ups of unequal popularity.

EMBEDDING_TABLES = table("""
    embedding_tables: One row per embedding table of a recommendation model.

    table: str - name of the table
    row_count: int64 >=1 - rows, one per id
    dim_count: int64 >=1 - columns: the embedding dimension
    pooling_ratio: float64 >=0 - mean look-ups per sample
    element_bytes: int64 >=1 - bytes per element
""")

TABLE_SHARDING = table("""
    table_sharding: One row per shard: which part of which embedding table lies on which rank, and
    what it costs.

    table: str - name of the table
    rank: int32 >=0 - global rank that holds the shard
    world_size: int32 >=1 - ranks of the whole job
    scheme: str - how the table is cut: table (not at all), column, row, table-row
    first_row: int64 >=0 - first row of the shard
    row_count: int64 >=1 - rows of the shard
    first_dim: int64 >=0 - first column of the shard
    dim_count: int64 >=1 - columns of the shard
    memory_bytes: int64 >=0 - weights of the shard
    lookup_ms: float64 >=0 - estimated time of a step in look-ups, forward and backward
    communication_ms: float64 >=0 - estimated time of a step in communication, both ways
    perf_ms: float64 >=0 - look-ups plus communication
""")

SHARD_BALANCE = table("""
    shard_balance: One row per rank: what its shards cost together. The step takes as long as the
    slowest rank.

    rank: int32 >=0 - global rank
    lookup_ms: float64 >=0 - time in look-ups
    communication_ms: float64 >=0 - time in communication
    perf_ms: float64 >=0 - the two together
    memory_bytes: int64 >=0 - weights
    shard_count: int64 >=0 - shards; 0 for a rank without any
""")

LOAD_IMBALANCE = table("""
    load_imbalance: One row per measure (and group of loads): load-imbalance metrics of ranks,
    experts or micro-batches are.

    group: str - which loads, e.g. layer 3; all if they were not grouped
    measure: str - name of the measure
    value_ratio: float64 >=0 - its value
    equal_ratio: float64 >=0 - its value if all loads were equal
    worst_ratio: float64 >=0 - its value if one load were everything
    load_count: int64 >=1 - loads compared: k
    formula: str - of the loads x_i, their shares p_i and their number k
    source: str - who defines it so
""")

EXPERT_LOADS = table("""
    expert_loads: One row per layer and expert of a mixture-of-experts model: how much was routed
    to it.

    layer: int32 >=0 - layer
    expert: int32 >=0 - expert of the layer
    load_count: float64 >=0 - tokens, or any measure that grows with them
""")

REUSE_HISTOGRAM = table("""
    reuse_histogram: One row per batch and bin: how many rows of embedding tables are looked up how
    often.

    batch: str - name of the batch, as its file is called
    sample_count: int64 >=1 - samples of the batch
    above_count: int64 >=0 - look-ups of a row in the batch: more than this
    upto_count: Int64? >=1 - and at most this; missing for the open bin
    row_share: float64 0..1 - of the rows that are looked up at all
    lookup_share: float64 0..1 - of all look-ups
    lookup_count: int64 >=1 - look-ups of the whole batch
    unique_count: int64 >=1 - different rows looked up in the whole batch
    reuse_ratio: float64 >=0 - look-ups per different row, as the file says
""")

ROW_POPULARITY = table("""
    row_popularity: One row per class of equally popular table rows, most popular first.

    row_count: int64 >=1 - rows in the class
    lookup_share: float64 0..1 - of all look-ups: the class together
""")

ROW_SHARDING = table("""
    row_sharding: One row per placement (and number of hot rows): how unequally rows load memory
    units.

    placement: str - contiguous, random, round-robin or LPT
    unit_count: int64 >=1 - memory units
    row_count: int64 >=1 - rows placed
    top_row_share: float64 0..1 - of all look-ups: the most popular row
    hot_row_count: int64 >=0 - rows treated apart, the most popular ones
    hot_share: float64 0..1 - of all look-ups: these rows together
    copy_count: int64 >=0 - copies of each; 0: served outside the units
    max_to_mean_ratio: float64 >=1 - busiest unit / mean unit
    bound_ratio: float64 >=1 - no placement of whole rows can be better
""")

ROW_CACHE = table("""
    row_cache: One row per size of a cache of table rows: which share of look-ups it serves.

    cached_row_count: int64 >=0 - rows that the cache holds
    lru_share: float64 0..1 - of all look-ups: served if the row used least recently gives way
    hottest_share: float64 0..1 - of all look-ups: served if the most popular rows stay forever
""")

INFERENCE_NODE = table("""
    inference_node: One row per setting of a node that serves a recommendation model, and resource:
    how fast it would be if only this resource counted. A model of data-sheet peaks, not measured.

    setting: str - model, cards and batch in words
    card: str - name of the accelerator card
    card_count: int64 >=1 - cards of the node
    batch_count: int64 >=1 - samples that are computed together
    resource: str - compute, memory, PCIe, network or launch
    busy_ns: float64 >=0 - time per batch of the busiest card, or of the host
    throughput_per_s: float64 >=0 - samples per second of the node, by this resource
    is_binding: bool - no other resource is slower
    latency_ns: float64 >=0 - of one batch on an idle node: the times of all resources
    needed_bytes: int64 >=0 - embedding tables and weights, on all cards
    held_bytes: int64 >=0 - memory of all cards
    fits: bool - whether the node holds the model; if not, nothing else counts
    doubt: str - why it may be wrong beyond being a model; empty if nothing is known
""")

INFERENCE_CAPACITY = table("""
    inference_capacity: One row per batch size: nodes that serve a rate within a latency. Service
    times of a model, queue simulated.

    batch_count: int64 >=1 - queries that are computed together
    interval_ns: float64 >=0 - time from batch to batch of a busy node
    idle_latency_ns: float64 >=0 - of a full batch on an idle node
    node_count: Int64? >=1 - nodes needed; missing if no number is enough
    utilization_share: Float64? 0..1 - of the nodes
    fill_ns: Float64? >=0 - mean wait of a query until its batch is full
    wait_ns: Float64? >=0 - mean wait of a batch for the node, simulated
    md1_wait_ns: Float64? >=0 - the same by the formula of the M/D/1 queue; missing for batches of
        several queries
    latency_ns: Float64? >=0 - latency of the given share of queries
    latency_error_ratio: Float64? >=0 - standard error of that, by the simulation alone
    power_w: Float64? >=0 - TDP of the cards of all nodes, without hosts
    is_best: bool - fewest nodes; of equals the lowest latency
    verdict: str - feasible, or what prevents it
    doubt: str - why it may be wrong beyond being a model; empty if nothing is known
""")
