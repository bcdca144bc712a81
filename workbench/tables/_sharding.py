"""Embedding tables on ranks, and look-ups of unequal popularity."""

from __future__ import annotations

from workbench.tables._table import Column, Table

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
    "One row per measure (and group of loads): how unequal the loads of ranks, experts or "
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
