"""Document lengths, packing, context sharding and pipelines."""

from __future__ import annotations

from workbench.tables._table import Column, Table

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
