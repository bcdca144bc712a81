"""Tables of unequal loads: jobs, packing, sharding and simulated pipelines."""

from __future__ import annotations

from workbench.tables.table import Column, Table

# Jobs recorded operation by operation.

JOB_OPERATIONS = Table(
    "job_operations",
    "One row per operation of one worker of a pipelined, data-parallel job in one step. "
    "Workers of one tensor-parallel group share their rows.",
    {
        "step": Column("int64", "training step; steps may be a sample", lower=0),
        "dp_rank": Column("int32", "data-parallel rank", lower=0),
        "stage": Column("int32", "pipeline stage", lower=0),
        "operation": Column(
            "category", "forward-compute, backward-compute, forward-send, grads-reduce-scatter ..."
        ),
        "sequence": Column("int32", "order among equal operations of a worker in a step", lower=0),
        "micro_batch": Column(
            "Int32", "micro-batch; missing unless the operation computes", lower=0, nullable=True
        ),
        "chunk": Column(
            "Int32",
            "model chunk, counted along the pipeline; missing unless the operation computes",
            lower=0,
            nullable=True,
        ),
        "start_ns": Column("int64", "start, from the beginning of the step or of the job"),
        "dur_ns": Column("int64", "duration, waiting for peers included", lower=0),
    },
)

JOB_SLOWDOWN = Table(
    "job_slowdown",
    "One row: how much slower a job is than it would be if equal operations took equal time.",
    {
        "step_count": Column("int64", "steps replayed", lower=1),
        "worker_count": Column("int64", "pairs of data-parallel rank and stage", lower=1),
        "actual_ns": Column("float64", "mean step, as recorded", lower=0),
        "replay_ns": Column("float64", "mean step, replayed without launch delays", lower=0),
        "ideal_ns": Column("float64", "mean step with equal operations", lower=0),
        "slowdown_ratio": Column("float64", "S: replay / ideal", lower=0),
        "waste_ratio": Column("float64", "1 - 1 / S: GPU time that equal operations would save"),
        "delay_ratio": Column("float64", "of the recorded step: launch delays, lost by the replay"),
        "worst_workers_ratio": Column(
            "Float64", "M_W: of the excess, gone with the worst workers ideal", nullable=True
        ),
        "slow_workers_ratio": Column(
            "Float64",
            "of the excess, gone with all workers ideal that are slow beside the median of their "
            "stage; missing if there are none",
            nullable=True,
        ),
        "last_stage_ratio": Column(
            "Float64", "M_S: of the excess, gone with the last stage ideal", nullable=True
        ),
        "communication_ratio": Column(
            "Float64", "of the excess, gone with all transfers and collectives ideal", nullable=True
        ),
        "pauses_ratio": Column(
            "Float64",
            "of the excess, gone with the few longest computations ideal, each measured by the "
            "median of its kind and stage",
            nullable=True,
        ),
        "forward_backward_correlation": Column(
            "Float64", "Pearson's r of both durations of a micro-batch", -1, 1, nullable=True
        ),
        "within_rank_correlation": Column(
            "Float64", "the same, each by the median of its rank", -1, 1, nullable=True
        ),
        "verdict": Column(
            "category",
            "no straggler, worker, sequence lengths, last stage, communication, pauses, other",
        ),
        "note": Column("str", "what was dropped, and what is doubtful", nullable=True),
    },
)

JOB_SLOWDOWN_BY = Table(
    "job_slowdown_by",
    "One row per part of a job: the slowdown if only this part kept its own durations.",
    {
        "dp_rank": Column(
            "Int32", "data-parallel rank; missing for parts of all", 0, nullable=True
        ),
        "stage": Column("Int32", "pipeline stage; missing for parts of all", 0, nullable=True),
        "operation": Column("category", "operation; missing if it is any", nullable=True),
        "slowdown_ratio": Column("float64", "S of the part: its replay / ideal", lower=0),
        "bound_ratio": Column(
            "Float64",
            "of a worker: the lower S of its rank and its stage; missing for other parts",
            lower=0,
            nullable=True,
        ),
    },
)


TRACE_DIFF = Table(
    "trace_diff",
    "One row per category (and name, or step) of two traces: what changed from a to b.",
    {
        "category": Column("category", "profiler category"),
        "name": Column("category", "name; missing unless compared by name", nullable=True),
        "step": Column(
            "Int32",
            "position of the step in its trace, from 0; missing unless by step",
            0,
            nullable=True,
        ),
        "change": Column("category", "added, removed, or both (in both traces)"),
        "a_count": Column("int64", "rows in a", lower=0),
        "b_count": Column("int64", "rows in b", lower=0),
        "difference_count": Column("int64", "b minus a"),
        "a_total_ns": Column("int64", "summed durations in a", lower=0),
        "b_total_ns": Column("int64", "summed durations in b", lower=0),
        "difference_ns": Column("int64", "b minus a"),
        "total_ratio": Column(
            "Float64", "b / a; missing if a has no duration", lower=0, nullable=True
        ),
        "a_per_step_ns": Column(
            "Float64", "a's total per rank and step; missing without steps", 0, nullable=True
        ),
        "b_per_step_ns": Column(
            "Float64", "b's total per rank and step; missing without steps", 0, nullable=True
        ),
    },
)


JOB_STEPS = Table(
    "job_steps",
    "One row per step of a job: as recorded, replayed, and with equal operations.",
    {
        "step": Column("int64", "training step", lower=0),
        "actual_ns": Column("float64", "the step as recorded", lower=0),
        "replay_ns": Column("float64", "replayed, without launch delays", lower=0),
        "ideal_ns": Column("float64", "replayed with equal operations", lower=0),
        "slowdown_ratio": Column("float64", "replay / ideal", lower=0),
        "delay_ratio": Column(
            "float64", "1 - replay / actual: launch delays, or the replay's error"
        ),
    },
)

JOB_SCHEDULE = Table(
    "job_schedule",
    "One row per operation of one step and data-parallel rank, in each version of the step: "
    "recorded, actual (replayed with own durations) and ideal (with equal ones).",
    {
        "version": Column("category", "recorded, actual or ideal"),
        "step": Column("int64", "training step", lower=0),
        "dp_rank": Column("int32", "data-parallel rank", lower=0),
        "stage": Column("int32", "pipeline stage", lower=0),
        "operation": Column("category", "as in job_operations"),
        "micro_batch": Column("Int32", "missing unless it computes", lower=0, nullable=True),
        "chunk": Column("Int32", "missing unless it computes", lower=0, nullable=True),
        "start_ns": Column("int64", "start, from the beginning of the step", lower=0),
        "dur_ns": Column("int64", "duration; recorded ones include the waiting for peers", lower=0),
    },
)

JOB_MICRO_BATCHES = Table(
    "job_micro_batches",
    "One row per micro-batch of one step and data-parallel rank on one stage: how long its "
    "forward and its backward pass computed.",
    {
        "step": Column("int64", "training step", lower=0),
        "dp_rank": Column("int32", "data-parallel rank", lower=0),
        "stage": Column("int32", "pipeline stage", lower=0),
        "micro_batch": Column("int32", "micro-batch of the step", lower=0),
        "forward_ns": Column("int64", "forward passes, all chunks of the stage", lower=0),
        "backward_ns": Column("int64", "backward passes, all chunks of the stage", lower=0),
    },
)

JOB_DISPERSION = Table(
    "job_dispersion",
    "One row per measure of imbalance of one job: what it says, and what it cannot see.",
    {
        "measure": Column("str", "what is measured"),
        "value_ratio": Column(
            "Float64", "its value; missing where the job cannot tell", lower=0, nullable=True
        ),
        "lost_share": Column(
            "Float64",
            "GPU time that the measure would call lost; missing if it speaks of none",
            0,
            1,
            nullable=True,
        ),
        "formula": Column("str", "how it is worked out"),
        "hides": Column("str", "what it cannot see"),
    },
)

JOB_TRUTH = Table(
    "job_truth",
    "One row per cause of slowness that was put into a simulated job.",
    {
        "cause": Column("category", "slow worker, last stage, sequence lengths, ..."),
        "dp_rank": Column("Int32", "where; missing if it is any rank", lower=0, nullable=True),
        "stage": Column("Int32", "where; missing if it is any stage", lower=0, nullable=True),
        "size_ratio": Column("float64", "how strong, as given", lower=0),
        "slowdown_ratio": Column(
            "float64", "mean step with this cause alone / without any", lower=0
        ),
    },
)

# Document lengths, packing, context sharding and pipelines.

DOCUMENT_LENGTHS = Table(
    "document_lengths",
    "One row per document (or request), in the order in which training would read them.",
    {"length_tokens": Column("int64", "tokens of the document", lower=1)},
)

LENGTH_SHARES = Table(
    "length_shares",
    "One row per length, in ascending order: what documents up to it hold together.",
    {
        "length_tokens": Column("int64", "a length that occurs", lower=1),
        "longer_share": Column("float64", "documents at least this long (CCDF)", 0, 1),
        "token_share": Column("float64", "tokens in documents up to this length", 0, 1),
        "square_share": Column(
            "float64", "sum of squared lengths, and so attention, up to this length", 0, 1
        ),
    },
)

PACKED_DOCUMENTS = Table(
    "packed_documents",
    "One row per piece of a document in a micro-batch, in order of batch and micro-batch.",
    {
        "batch": Column("int64", "global batch (one optimizer step), from 0", lower=0),
        "micro_batch": Column("int64", "micro-batch within the global batch, from 0", lower=0),
        "document": Column("int64", "number of the document in the stream, from 0", lower=0),
        "start_tokens": Column("int64", "where the piece begins in its document", lower=0),
        "length_tokens": Column("int64", "tokens of the piece", lower=1),
        "delay_batches": Column(
            "int64",
            "batch less the batch a plain loader would put the piece into; below 0 where a "
            "window was read ahead",
        ),
    },
)

PACKING_QUEUES = Table(
    "packing_queues",
    "One row per queue in which long documents wait, the shortest first.",
    {
        "from_tokens": Column("int64", "documents from this length on wait here", lower=1),
        "to_tokens": Column("Int64", "up to below this length", lower=1, nullable=True),
        "arrival_ratio": Column(
            "float64",
            "documents that arrive per batch over those that can leave (the micro-batches of a "
            "batch); from 1 the queue and the delay grow for ever",
            lower=0,
        ),
        "waiting_count": Column("int64", "documents still waiting at the end", lower=0),
        "most_waiting_count": Column("int64", "documents waiting at the worst moment", lower=0),
        "is_stable": Column("bool", "whether fewer arrive than can leave"),
    },
)

MICRO_BATCHES = Table(
    "micro_batches",
    "One row per micro-batch, in order; costs in units of the linear work of one crossover "
    "length, forward pass, whole model.",
    {
        "batch": Column("int64", "global batch, from 0", lower=0),
        "micro_batch": Column("int64", "micro-batch within the global batch, from 0", lower=0),
        "document_count": Column("int64", "pieces of documents in it", lower=0),
        "length_tokens": Column("int64", "tokens in it", lower=0),
        "longest_tokens": Column("int64", "tokens of its longest piece", lower=0),
        "linear_cost": Column("float64", "work that grows with tokens", lower=0),
        "attention_cost": Column("float64", "work that grows with squared lengths", lower=0),
    },
)

PACKING_BALANCE = Table(
    "packing_balance",
    "One row per way of packing: how even its micro-batches are, and what that costs.",
    {
        "plan": Column("str", "the way of packing, in words"),
        "batch_count": Column("int64", "global batches measured, without both edges", lower=0),
        "imbalance_ratio": Column(
            "float64", "work of the heaviest micro-batch over the mean, mean over batches", 1
        ),
        "imbalance_p95_ratio": Column("float64", "the same, 95th percentile of batches", 1),
        "attention_imbalance_ratio": Column("float64", "the same, of attention alone", 1),
        "token_imbalance_ratio": Column("float64", "the same, of tokens: not of work", 1),
        "memory_ratio": Column("float64", "most tokens in a micro-batch over the context", 0),
        "fill_ratio": Column("float64", "mean tokens in a micro-batch over the context", 0),
        "delay_batches": Column("float64", "batches a token is late, mean over tokens"),
        "displacement_batches": Column(
            "float64", "batches a token is early or late, mean over tokens", lower=0
        ),
        "cut_count": Column("int64", "documents cut into several pieces", lower=0),
        "left_share": Column("float64", "tokens that were never packed", 0, 1),
        "left_square_share": Column(
            "float64", "squared lengths, and so attention, that was never packed", 0, 1
        ),
        "is_stable": Column("bool", "whether neither a queue nor want of memory delays for ever"),
        "note": Column("str", "what is doubtful about the row; empty if nothing"),
    },
)

ATTENTION_PROFILE = Table(
    "attention_profile",
    "One row per measured run of the attention kernel of one layer on one document.",
    {
        "length_tokens": Column("int64", "tokens of the document", lower=1),
        "tensor_parallel": Column("int64", "ranks that share the heads", lower=1),
        "context_parallel": Column("int64", "ranks that share the document", lower=1),
        "dur_ns": Column("float64", "forward time", lower=0),
    },
)

LINEAR_PROFILE = Table(
    "linear_profile",
    "One row per measured run of everything but attention of one layer.",
    {
        "token_count": Column("int64", "tokens in the batch", lower=1),
        "tensor_parallel": Column("int64", "ranks that share the matrices", lower=1),
        "dur_ns": Column("float64", "forward time, all operators together", lower=0),
    },
)

CROSSOVER = Table(
    "crossover",
    "One row per tensor-parallel degree: where attention overtakes everything else.",
    {
        "tensor_parallel": Column("int64", "ranks that share a layer", lower=1),
        "crossover_tokens": Column("float64", "length at which both cost the same", lower=0),
        "attention_ns_per_square": Column(
            "float64", "attention time over the squared length", lower=0
        ),
        "linear_ns_per_token": Column("float64", "time of all else over tokens", lower=0),
        "point_count": Column("int64", "measurements that were used", lower=1),
    },
)

CONTEXT_SHARDING = Table(
    "context_sharding",
    "One row per micro-batch: attention of the slowest context-parallel rank, forward, in the "
    "cost unit of micro_batches.",
    {
        "batch": Column("int64", "global batch, from 0", lower=0),
        "micro_batch": Column("int64", "micro-batch within the global batch, from 0", lower=0),
        "length_tokens": Column("int64", "tokens in it", lower=0),
        "linear_cost": Column("float64", "work of one rank that grows with tokens", lower=0),
        "even_cost": Column("float64", "if pairs were shared evenly by a perfect kernel", 0),
        "per_sequence_cost": Column("float64", "the sequence cut into chunks", lower=0),
        "per_document_cost": Column("float64", "every document cut into chunks", lower=0),
        "adaptive_cost": Column("float64", "the better of both", lower=0),
        "hybrid_cost": Column("float64", "long documents cut by themselves", lower=0),
        "per_sequence_ratio": Column("float64", "slowest rank over the mean", lower=0),
        "per_document_ratio": Column("float64", "slowest rank over the mean", lower=0),
        "hybrid_ratio": Column("float64", "slowest rank over the mean", lower=0),
        "is_per_document": Column("bool", "whether adaptive cuts the documents"),
    },
)

CONTEXT_CHUNKS = Table(
    "context_chunks",
    "One row per run of query tokens of one micro-batch that one rank computes.",
    {
        "rank": Column("int32", "context-parallel rank", lower=0),
        "rank_count": Column("int32", "context-parallel ranks, idle ones included", lower=1),
        "chunk": Column("int64", "number of the chunk, from 0; rank r has r and 2n-1-r", lower=0),
        "document": Column("int64", "document in the micro-batch, from 0", lower=0),
        "start_tokens": Column("int64", "where the run begins in its document", lower=0),
        "length_tokens": Column("int64", "query tokens", lower=1),
        "pair_count": Column("float64", "query-key pairs as the kernel pays for them", lower=0),
    },
)

MICRO_BATCH_COSTS = Table(
    "micro_batch_costs",
    "One row per micro-batch: its passes through the whole model on one context-parallel rank, "
    "in the cost unit of micro_batches.",
    {
        "batch": Column("int64", "global batch, from 0", lower=0),
        "micro_batch": Column("int64", "micro-batch within the global batch, from 0", lower=0),
        "length_tokens": Column("int64", "tokens in it", lower=0),
        "forward_cost": Column("float64", "forward pass", lower=0),
        "backward_cost": Column("float64", "backward pass", lower=0),
    },
)

TRAINING_STEPS = Table(
    "training_steps",
    "One row per global batch: the time of the step in the cost unit of micro_batches.",
    {
        "batch": Column("int64", "global batch, from 0", lower=0),
        "length_tokens": Column("int64", "tokens trained on", lower=0),
        "step_cost": Column("float64", "until the last data-parallel rank is done", lower=0),
        "even_cost": Column("float64", "if all micro-batches were the mean of the batch", lower=0),
        "bubble_share": Column("float64", "time in which a stage does nothing", 0, 1),
        "dp_rank": Column("int64", "data-parallel rank that is done last", lower=0),
        "critical_micro_batch": Column(
            "int64", "heaviest micro-batch, in the order of micro_batch_costs", lower=0
        ),
        "note": Column("str", "what is doubtful about the step; empty if nothing"),
    },
)

PIPELINE = Table(
    "pipeline",
    "One row per pass of a micro-batch through a chunk of the model, for one global batch.",
    {
        "version": Column("category", "which way of packing, or actual and ideal"),
        "dp_rank": Column("int64", "data-parallel rank", lower=0),
        "stage": Column("int64", "pipeline stage", lower=0),
        "task": Column("category", "forward or backward"),
        "micro_batch": Column("int64", "micro-batch of the rank, from 0", lower=0),
        "chunk": Column("int64", "part of the model, from 0", lower=0),
        "start_cost": Column("float64", "start since the begin of the step", lower=0),
        "dur_cost": Column("float64", "duration", lower=0),
    },
)

TRAINING_SPEED = Table(
    "training_speed",
    "One row per recipe of packing and sharding, the plain one first.",
    {
        "recipe": Column("str", "name of the recipe"),
        "builds_on": Column("str", "recipe that it adds something to"),
        "packing": Column("str", "how documents are packed"),
        "context_sharding": Column("str", "how attention is shared among ranks"),
        "speedup_ratio": Column("float64", "tokens per time over those of the plain recipe", 0),
        "imbalance_ratio": Column("float64", "heaviest micro-batch over the mean", lower=1),
        "bubble_share": Column("float64", "time in which a stage does nothing", 0, 1),
        "delay_batches": Column("float64", "batches a token is late, mean over tokens"),
        "memory_ratio": Column("float64", "most tokens in a micro-batch over the context", 0),
        "left_square_share": Column("float64", "attention that was never packed", 0, 1),
        "is_stable": Column("bool", "whether neither a queue nor want of memory delays for ever"),
        "note": Column("str", "what is doubtful about the recipe; empty if nothing"),
    },
)

TUNED_PACKING = Table(
    "tuned_packing",
    "One row per choice of queues that was tried, the best allowed one first.",
    {
        "queues": Column("str", "lengths from which documents wait"),
        "imbalance_ratio": Column("float64", "as in packing_balance", lower=1),
        "delay_batches": Column("float64", "batches a token is late, mean over tokens"),
        "memory_ratio": Column("float64", "most tokens in a micro-batch over the context", 0),
        "fill_ratio": Column("float64", "mean tokens in a micro-batch over the context", 0),
        "is_allowed": Column("bool", "stable, and within the bound of delay"),
        "note": Column("str", "why it is not; empty if it is"),
    },
)

LAUNCH_LOSS = Table(
    "launch_loss",
    "One row per tensor-parallel degree: what attention kernels lose on short runs of queries.",
    {
        "tensor_parallel": Column("int64", "ranks that share the heads", lower=1),
        "launch_tokens": Column("float64", "queries lost per run", lower=0),
        "point_count": Column("int64", "measurements that were used", lower=1),
    },
)

# Embedding tables on ranks, and look-ups of unequal popularity.

EMBEDDING_TABLES = Table(
    "embedding_tables",
    "One row per embedding table of a recommendation model.",
    {
        "table": Column("str", "name of the table"),
        "row_count": Column("int64", "rows, one per id", lower=1),
        "dim_count": Column("int64", "columns: the embedding dimension", lower=1),
        "pooling_ratio": Column("float64", "mean look-ups per sample", lower=0),
        "element_bytes": Column("int64", "bytes per element", lower=1),
    },
)

TABLE_SHARDING = Table(
    "table_sharding",
    "One row per shard: which part of which embedding table lies on which rank, and what it costs.",
    {
        "table": Column("str", "name of the table"),
        "rank": Column("int32", "global rank that holds the shard", lower=0),
        "world_size": Column("int32", "ranks of the whole job", lower=1),
        "scheme": Column("str", "how the table is cut: table (not at all), column, row, table-row"),
        "first_row": Column("int64", "first row of the shard", lower=0),
        "row_count": Column("int64", "rows of the shard", lower=1),
        "first_dim": Column("int64", "first column of the shard", lower=0),
        "dim_count": Column("int64", "columns of the shard", lower=1),
        "memory_bytes": Column("int64", "weights of the shard", lower=0),
        "lookup_ms": Column(
            "float64", "estimated time of a step in look-ups, forward and backward", lower=0
        ),
        "communication_ms": Column(
            "float64", "estimated time of a step in communication, both ways", lower=0
        ),
        "perf_ms": Column("float64", "look-ups plus communication", lower=0),
    },
)

SHARD_BALANCE = Table(
    "shard_balance",
    "One row per rank: what its shards cost together. The step takes as long as the slowest rank.",
    {
        "rank": Column("int32", "global rank", lower=0),
        "lookup_ms": Column("float64", "time in look-ups", lower=0),
        "communication_ms": Column("float64", "time in communication", lower=0),
        "perf_ms": Column("float64", "the two together", lower=0),
        "memory_bytes": Column("int64", "weights", lower=0),
        "shard_count": Column("int64", "shards; 0 for a rank without any", lower=0),
    },
)

LOAD_IMBALANCE = Table(
    "load_imbalance",
    "One row per measure (and group of loads): load-imbalance metrics of ranks, experts or "
    "micro-batches are.",
    {
        "group": Column("str", "which loads, e.g. layer 3; all if they were not grouped"),
        "measure": Column("str", "name of the measure"),
        "value_ratio": Column("float64", "its value", lower=0),
        "equal_ratio": Column("float64", "its value if all loads were equal", lower=0),
        "worst_ratio": Column("float64", "its value if one load were everything", lower=0),
        "load_count": Column("int64", "loads compared: k", lower=1),
        "formula": Column("str", "of the loads x_i, their shares p_i and their number k"),
        "source": Column("str", "who defines it so"),
    },
)

EXPERT_LOADS = Table(
    "expert_loads",
    "One row per layer and expert of a mixture-of-experts model: how much was routed to it.",
    {
        "layer": Column("int32", "layer", lower=0),
        "expert": Column("int32", "expert of the layer", lower=0),
        "load_count": Column("float64", "tokens, or any measure that grows with them", lower=0),
    },
)

REUSE_HISTOGRAM = Table(
    "reuse_histogram",
    "One row per batch and bin: how many rows of embedding tables are looked up how often.",
    {
        "batch": Column("str", "name of the batch, as its file is called"),
        "sample_count": Column("int64", "samples of the batch", lower=1),
        "above_count": Column("int64", "look-ups of a row in the batch: more than this", lower=0),
        "upto_count": Column(
            "Int64", "and at most this; missing for the open bin", lower=1, nullable=True
        ),
        "row_share": Column("float64", "of the rows that are looked up at all", 0, 1),
        "lookup_share": Column("float64", "of all look-ups", 0, 1),
        "lookup_count": Column("int64", "look-ups of the whole batch", lower=1),
        "unique_count": Column("int64", "different rows looked up in the whole batch", lower=1),
        "reuse_ratio": Column("float64", "look-ups per different row, as the file says", lower=0),
    },
)

ROW_POPULARITY = Table(
    "row_popularity",
    "One row per class of equally popular table rows, most popular first.",
    {
        "row_count": Column("int64", "rows in the class", lower=1),
        "lookup_share": Column("float64", "of all look-ups: the class together", 0, 1),
    },
)

ROW_SHARDING = Table(
    "row_sharding",
    "One row per placement (and number of hot rows): how unequally rows load memory units.",
    {
        "placement": Column("str", "contiguous, random, round-robin or LPT"),
        "unit_count": Column("int64", "memory units", lower=1),
        "row_count": Column("int64", "rows placed", lower=1),
        "top_row_share": Column("float64", "of all look-ups: the most popular row", 0, 1),
        "hot_row_count": Column("int64", "rows treated apart, the most popular ones", lower=0),
        "hot_share": Column("float64", "of all look-ups: these rows together", 0, 1),
        "copy_count": Column("int64", "copies of each; 0: served outside the units", lower=0),
        "max_to_mean_ratio": Column("float64", "busiest unit / mean unit", lower=1),
        "bound_ratio": Column("float64", "no placement of whole rows can be better", lower=1),
    },
)

# What was injected into simulated data.

FLEET_TRUTH = Table(
    "fleet_truth",
    "What was injected into a simulated training job: one row per fault.",
    {
        "what": Column("str", "slow rank, late host, power cap, failing node or job restart"),
        "rank": Column("Int32", "global rank it hit", lower=0, nullable=True),
        "node": Column("str", "host it hit"),
        "first_step": Column("Int32", "first training step it hit", lower=0, nullable=True),
        "last_step": Column("Int32", "last training step it hit", lower=0, nullable=True),
        "start_ns": Column("int64", "start; ns since the Unix epoch"),
        "end_ns": Column("int64", "end; ns since the Unix epoch"),
        "size": Column("float64", "how much, in the unit named in the next column"),
        "unit": Column("str", "unit of the size, e.g. ms per step, W, x (times as long)"),
        "seen_in": Column("str", "files that show it"),
    },
)

FAILURE_TRUTH = Table(
    "failure_truth",
    "What was injected into simulated failure logs: one row per incident, in order of time.",
    {
        "start_ns": Column("int64", "when it struck: its first line; ns since the Unix epoch"),
        "end_ns": Column("int64", "its last line; ns since the Unix epoch"),
        "node": Column("str", "host; missing where no host is at fault", nullable=True),
        "device": Column("str", "PCI address of the GPU: 0000:9b:00", nullable=True),
        "code": Column("str", "Xid; missing where the kernel says nothing", nullable=True),
        "other_codes": Column("str", "further Xids of the same incident: 63, 45"),
        "cause": Column("str", "what failed, in words"),
        "line_count": Column("int64", "kernel log lines that report it", lower=0),
        "is_fatal": Column("bool", "whether what runs on that device cannot go on"),
        "is_job_stopped": Column("bool", "whether it stopped the job: not on an idle spare"),
        "is_lemon": Column("bool", "whether the host fails far more often than others"),
        "attempt": Column("Int32", "attempt of the job that it stopped", lower=1, nullable=True),
        "detected_ns": Column("Int64", "when it was noticed; ns since the epoch", nullable=True),
        "ready_ns": Column("Int64", "when the job had its nodes again", nullable=True),
        "resumed_ns": Column("Int64", "when the job trained again", nullable=True),
        "lost_step_count": Column("Int64", "steps computed again", lower=0, nullable=True),
    },
)

HANG_TRUTH = Table(
    "hang_truth",
    "One row for the fault that was put into a simulated job that hangs; none without one.",
    {
        "fault": Column("str", "frozen host, failed GPU, mismatched operation or mismatched size"),
        "rank": Column("int32", "global rank it hit", lower=0),
        "group": Column("str", "process group of the collective it hit"),
        "description": Column("str", "what that group is for"),
        "seq": Column("int64", "sequence number of the collective in the group", lower=1),
        "operation": Column("str", "what was to be called there"),
    },
)
