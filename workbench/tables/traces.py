"""Tables of traces: events, clocks and calls of operators."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pandas as pd

from workbench.tables.table import Column, Table
from workbench.tables.trace_analyses import RANK_COLUMN, STEP_COLUMN

# Clocks of ranks, and who came late.

CLOCKS = Table(
    "clocks",
    "One row per rank: how far its clock is from that of the others, and how well that is known.",
    {
        "rank": RANK_COLUMN,
        "clock": Column(
            "str",
            "ranks that can be put on one clock with this one, e.g. 0-7; missing if none can",
            nullable=True,
        ),
        "offset_ns": Column(
            "Int64", "to subtract from the rank's times; 0 for the median rank", nullable=True
        ),
        "residual_ns": Column(
            "Int64",
            "uncertainty: robust standard deviation of the differences of ends that are left; "
            "missing with too few collectives",
            lower=0,
            nullable=True,
        ),
        "drift_ratio": Column(
            "Float64",
            "how much faster the clock runs than the others'; missing if it cannot be told from 0",
            nullable=True,
        ),
        "reference_ns": Column(
            "Int64", "time on the rank's clock at which the offset holds", nullable=True
        ),
        "collective_count": Column("int64", "collectives that the offset is taken from", lower=0),
        "is_sure": Column("bool", "offset and uncertainty are known"),
        "note": Column("str", "what is doubtful", nullable=True),
    },
)

BLAME_BY = Table(
    "blame_by",
    "One row per step or process group (or both), rank that was waited for and rank that waited.",
    {
        "step": Column(
            "Int32",
            "ProfilerStep of the rank that waited; missing outside every step, or if not requested",
            nullable=True,
        ),
        "group": Column("category", "process group; missing if not requested", nullable=True),
        "blamed_rank": Column("int32", "rank that started last", lower=0),
        "rank": Column("int32", "rank that waited", lower=0),
        "wait_ns": Column("int64", "summed waiting", lower=0),
        "collective_count": Column("int64", "collectives in which this happened", lower=1),
        "wait_share": Column(
            "Float64",
            "of all waiting of the step or group; missing if there is none",
            0,
            1,
            nullable=True,
        ),
    },
)

LATE_ARRIVALS = Table(
    "late_arrivals",
    "One row per collective: what the rank that came last did since the collective before it. "
    "compute + communication + memory + other + idle = window, exactly.",
    {
        "collective": Column("int64", "number of the matched collective", lower=0),
        "operation": Column("category", "e.g. all-reduce"),
        "group": Column("category", "process group, or the stream if none is recorded"),
        "step": STEP_COLUMN,
        "blamed_rank": Column("int32", "rank that started last", lower=0),
        "wait_ns": Column("int64", "summed waiting of the others", lower=0),
        "late_ns": Column(
            "Int64", "start minus the median start of the others", lower=0, nullable=True
        ),
        "window_ns": Column(
            "int64",
            "end of the group's collective before, or first event of the step, to the start",
            lower=0,
        ),
        "compute_ns": Column("int64", "of the window, time with compute running", lower=0),
        "communication_ns": Column("int64", "communication without compute", lower=0),
        "memory_ns": Column("int64", "copies or sets without compute and communication", lower=0),
        "other_ns": Column("int64", "work of kind other while nothing else runs", lower=0),
        "idle_ns": Column("int64", "time without GPU work", lower=0),
        "began_late_ns": Column(
            "Int64", "start of the window minus the median of the others' windows", nullable=True
        ),
        "excess_kind": Column(
            "category",
            "what it spent most time on beyond the median of the others: compute, communication, "
            "memory, other, idle, or began late (its window began later)",
            nullable=True,
        ),
        "excess_ns": Column("Int64", "that time beyond the median", lower=0, nullable=True),
        "compute_ratio": Column(
            "Float64",
            "compute launched since the collective before / median of the others; missing if "
            "nothing can be compared",
            lower=0,
            nullable=True,
        ),
        "longest_kernel": Column("str", "GPU work that ran longest in the window", nullable=True),
        "longest_kernel_ns": Column("Int64", "its time in the window", lower=0, nullable=True),
        "longest_idle_ns": Column("Int64", "longest time without GPU work", lower=0, nullable=True),
        "host_operator": Column(
            "str",
            "outermost operator, annotation or call of the host in most of that time; missing if "
            "none was traced",
            nullable=True,
        ),
        "host_operator_ns": Column("Int64", "how much of it", lower=0, nullable=True),
        "is_sure": Column("bool", "who was last is sure, and no rank is missing"),
        "note": Column("str", "what is doubtful, or not in the trace", nullable=True),
    },
)

# Operators of an execution trace, replayed alone, beside what they took in the job.

OPERATOR_CALLS = Table(
    "operator_calls",
    "One row per highest-level operator call of a PyTorch execution trace, in the order of "
    "the trace; what such a call calls itself is part of it and has no row.",
    {
        "rank": Column("int32", "global rank", lower=0),
        "node": Column("int64", "id of the node inside its rank"),
        "name": Column("category", "name of the operator"),
        "op_schema": Column("category", "schema as recorded", nullable=True),
        "parent": Column("Int64", "node that called it", nullable=True),
        "thread": Column("category", "thread as numbered in the trace", nullable=True),
        "device": Column("category", "where its tensors are: cpu, cuda, ...", nullable=True),
        "stream": Column("category", "GPU stream, if the arguments name one", nullable=True),
        "record_function": Column(
            "Int64", "id that joins the call to a profiler event (rf_id)", nullable=True
        ),
        "dur_ns": Column("Int64", "duration, if recorded", lower=0, nullable=True),
        "arguments": Column(
            "str", "inputs as JSON: kind, and value or shape, dtype and stride of each"
        ),
        "outputs": Column("str", "outputs as JSON, like the arguments"),
        "input_bytes": Column("int64", "bytes of all tensors that are read", lower=0),
        "assumed_stride_count": Column(
            "int32", "tensors whose strides are not known; taken as contiguous", lower=0
        ),
        "collective": Column("category", "collective, of calls that communicate", nullable=True),
        "group": Column("category", "process group of the collective", nullable=True),
        "size_bytes": Column("Int64", "bytes this rank sends", lower=0, nullable=True),
        "is_replayed": Column("bool", "a generated benchmark can call it"),
        "reason": Column("category", "why not, in words", nullable=True),
    },
)

OPERATOR_REPLAY = Table(
    "operator_replay",
    "One row per operator call that a generated benchmark tried to run.",
    {
        "rank": Column("int32", "global rank of the call in the trace", lower=0),
        "node": Column("int64", "id of the node of the call"),
        "name": Column("category", "name of the operator"),
        "device": Column("category", "where it ran: cpu or cuda"),
        "run_count": Column("int32", "timed runs", lower=0),
        "host_ns": Column("Float64", "median time of the call on the CPU", lower=0, nullable=True),
        "gpu_ns": Column("Float64", "median time on the GPU", lower=0, nullable=True),
        "reason": Column("category", "why it has no time, in words", nullable=True),
    },
)

NODE_TIMES = Table(
    "node_times",
    "One row per node of an execution trace: what a profiler trace of the same job says it took.",
    {
        "rank": Column("int32", "global rank", lower=0),
        "node": Column("int64", "id of the node inside its rank"),
        "event": Column("Int64", "row label of the first event joined to it", nullable=True),
        "event_count": Column("int32", "events of which the times are the mean", lower=0),
        "start_ns": Column("Int64", "start of the first event", nullable=True),
        "host_ns": Column("Float64", "time of the call on the CPU", lower=0, nullable=True),
        "gpu_ns": Column(
            "Float64", "GPU work that it, or what it called, launched", lower=0, nullable=True
        ),
        "joined_by": Column(
            "category",
            "id (the same id and the same name), order (as many calls of that name on both "
            "sides), repeats (a whole multiple of them, in order) or none",
        ),
    },
)

OPERATOR_BENCHMARK = Table(
    "operator_benchmark",
    "One row per operator: what its calls took in the job, and what they take when replayed.",
    {
        "name": Column("category", "name of the operator"),
        "call_count": Column("int64", "calls in the trace", lower=0),
        "replayed_count": Column("int64", "of those, calls with a time of the replay", lower=0),
        "original_count": Column("int64", "of those, calls with a time in the job", lower=0),
        "compared_count": Column("int64", "calls with both times, which are compared", lower=0),
        "original_ns": Column("Float64", "time in the job of all calls", lower=0, nullable=True),
        "original_compared_ns": Column(
            "Float64", "time in the job of the calls compared", lower=0, nullable=True
        ),
        "replayed_ns": Column(
            "Float64", "time of the replay of all calls that ran", lower=0, nullable=True
        ),
        "replayed_compared_ns": Column(
            "Float64", "time of the replay of the calls compared", lower=0, nullable=True
        ),
        "replay_ratio": Column(
            "Float64", "replayed to original, of the calls compared", lower=0, nullable=True
        ),
        "device": Column("category", "where it ran in the job and in the replay"),
        "is_comparable": Column("bool", "both ran on the same kind of device"),
        "note": Column("str", "what is doubtful, or why there is no ratio"),
    },
)

OPERATOR_COVERAGE = Table(
    "operator_coverage",
    "One row per outcome of the calls of a trace; the shares of all rows add up to 1.",
    {
        "outcome": Column("category", "replayed, or why not"),
        "call_count": Column("int64", "calls", lower=0),
        "call_share": Column("float64", "of all calls", lower=0, upper=1),
        "original_ns": Column("Float64", "time in the job, if known", lower=0, nullable=True),
        "original_share": Column(
            "Float64", "of the time in the job of all calls", lower=0, upper=1, nullable=True
        ),
        "compared_count": Column("int64", "calls with comparable times on both sides", lower=0),
        "replay_ratio": Column(
            "Float64", "replayed to original, of the calls compared", lower=0, nullable=True
        ),
    },
)

# Traces as loaded, and what a loader says of them.

EVENTS = Table(
    "events",
    "One row per profiler record that has a place in time, in order of rank, start and "
    "(longest first) duration.",
    {
        "rank": Column("int32", "global rank of the process", lower=0),
        "start_ns": Column(
            "int64", "start; ns since the Unix epoch if the trace knows it, else its own clock"
        ),
        "dur_ns": Column("int64", "duration; 0 for instants", lower=0),
        "name": Column("category", "name as the profiler wrote it"),
        "category": Column(
            "category",
            "profiler category in its present spelling: cpu_op, user_annotation, python_function, "
            "cuda_runtime, cuda_driver, kernel, gpu_memcpy, gpu_memset, gpu_user_annotation, "
            "cuda_sync, ...",
        ),
        "kind": Column(
            "category",
            "what GPU work is for: compute, communication, memory, other; missing for every row "
            "that is not GPU work",
            nullable=True,
        ),
        "step": Column(
            "Int32",
            "number of the ProfilerStep the row belongs to; GPU rows follow their launch",
            nullable=True,
        ),
        "process": Column("category", "pid as written, as text"),
        "thread": Column("category", "tid as written, as text"),
        "device": Column("Int32", "GPU index", nullable=True),
        "stream": Column("Int64", "GPU stream (0 is a valid stream)", nullable=True),
        "correlation": Column("Int64", "id that joins a launch to its GPU work", nullable=True),
        "external_id": Column("Int64", "id that joins a runtime call to its CPU op", nullable=True),
        "launch": Column(
            "Int64", "row label of the runtime call that launched this GPU work", nullable=True
        ),
        "size_bytes": Column("Int64", "bytes copied or set", lower=0, nullable=True),
        "collective": Column("category", "collective as recorded, e.g. allreduce", nullable=True),
        "group": Column("category", "name of the process group", nullable=True),
        "group_size": Column("Int32", "ranks in the process group", lower=0, nullable=True),
        "seq": Column("Int64", "sequence number inside the process group", nullable=True),
        "in_count": Column("Int64", "elements sent by this rank", nullable=True),
        "out_count": Column("Int64", "elements received by this rank", nullable=True),
        "dtype": Column("category", "element type of the collective, e.g. Float", nullable=True),
        "wait_stream": Column("Int64", "cuda_sync: stream that is waited for", nullable=True),
        "wait_correlation": Column(
            "Int64", "cuda_sync: correlation of the event record that is waited for", nullable=True
        ),
    },
)

RANKS = Table(
    "ranks",
    "One row per loaded rank: where it came from and what its trace says of itself.",
    {
        "rank": Column("int32", "global rank", lower=0),
        "rank_source": Column("str", "trace (distributedInfo), argument, file name, or assumed"),
        "world_size": Column("Int32", "ranks of the whole job", lower=1, nullable=True),
        "backend": Column("str", "communication backend", nullable=True),
        "source": Column("str", "file, or archive and member, the rank was read from"),
        "format": Column("str", "format of that file, e.g. kineto"),
        "clock": Column("str", "epoch (comparable with wall time) or own (arbitrary zero)"),
        "first_ns": Column("Int64", "start of the earliest event", nullable=True),
        "last_ns": Column("Int64", "end of the latest event", nullable=True),
        "event_count": Column("int64", "rows of this rank in the events table", lower=0),
    },
)

DEVICES = Table(
    "devices",
    "One row per rank and GPU that its trace describes.",
    {
        "rank": Column("int32", "global rank", lower=0),
        "device": Column("Int32", "GPU index", nullable=True),
        "name": Column("str", "marketing name, empty where the profiler wrote none"),
        "memory_bytes": Column("Int64", "total memory", lower=0, nullable=True),
        "capability": Column("str", "compute capability, e.g. 9.0", nullable=True),
        "processor_count": Column("Int32", "streaming multiprocessors", lower=0, nullable=True),
    },
)

PROCESS_GROUPS = Table(
    "process_groups",
    "One row per rank and process group that its trace describes.",
    {
        "rank": Column("int32", "global rank that reports the group", lower=0),
        "group": Column("str", "name of the group"),
        "description": Column("str", "what the group is for, e.g. default_pg", nullable=True),
        "backend": Column("str", "backend configuration", nullable=True),
        "group_size": Column("Int32", "number of members", lower=0, nullable=True),
        "members": Column("str", "global ranks, comma separated; empty if not recorded"),
    },
)

STEPS = Table(
    "steps",
    "One row per rank and ProfilerStep.",
    {
        "rank": Column("int32", "global rank", lower=0),
        "step": Column("int32", "step number as the profiler counts"),
        "start_ns": Column("int64", "start of the step on the CPU"),
        "dur_ns": Column("int64", "duration of the step on the CPU", lower=0),
    },
)

NODES = Table(
    "nodes",
    "One row per node of an execution trace (PyTorch or Chakra).",
    {
        "rank": Column("int32", "global rank", lower=0),
        "node": Column("int64", "id of the node inside its rank"),
        "name": Column("category", "name of the operator or step"),
        "type": Column(
            "category",
            "node type as the file states it, e.g. COMP_NODE, COMM_COLL_NODE; PyTorch execution "
            "traces state none and have cpu_op, annotation, root, collective (moves data) or wait "
            "(wait and barrier, move none)",
        ),
        "parent": Column("Int64", "node that called this one", nullable=True),
        "start_ns": Column("Int64", "start, if recorded", nullable=True),
        "dur_ns": Column("Int64", "duration, if recorded", lower=0, nullable=True),
        "record_function": Column(
            "Int64", "id that joins the node to a profiler event (rf_id)", nullable=True
        ),
        "collective": Column("category", "collective type, e.g. all_reduce", nullable=True),
        "group": Column("category", "process group", nullable=True),
        "size_bytes": Column(
            "Int64",
            "bytes of the tensors that this rank puts in, if recorded; for an all-gather its own "
            "share, as Chakra counts",
            lower=0,
            nullable=True,
        ),
        "is_cpu": Column("boolean", "ran on the CPU, not on the GPU", nullable=True),
    },
)

DEPENDENCIES = Table(
    "dependencies",
    "One row per edge of an execution trace: a node and one that must end before it starts.",
    {
        "rank": Column("int32", "global rank", lower=0),
        "node": Column("int64", "node that waits"),
        "needs": Column("int64", "node that must end first"),
        "edge": Column(
            "category",
            "data or control; converters from PyTorch write callers as control edges, though a "
            "caller ends last",
        ),
    },
)

QUALITY = Table(
    "quality",
    "What a loader could not read, had to mend, or had to assume; nothing is dropped silently.",
    {
        "source": Column("str", "file, or archive and member"),
        "finding": Column(
            "category",
            "harmless: read, skipped by design (has no place in the tables), noted; or "
            "needs a look: "
            "dropped, repaired, assumed, truncated, suspicious",
        ),
        "what": Column("str", "what was found, in words"),
        "count": Column("int64", "how often", lower=0),
        "where": Column("str", "first place: byte offset, line or event", nullable=True),
    },
)


# Findings that do not ask for anybody's attention.
HARMLESS = ("read", "skipped by design", "noted")
_LISTED_FINDINGS = 5
SAYS_SYNTHETIC = "the file says that it is synthetic"


@dataclass(frozen=True, eq=False)
class Trace:
    """The tables of one loaded trace set; a plain bundle, all work is done by functions.

    ``events`` holds what happened when; ``nodes`` and ``dependencies`` hold execution
    traces, which know what depends on what but not always when.
    """

    events: pd.DataFrame
    ranks: pd.DataFrame
    devices: pd.DataFrame
    process_groups: pd.DataFrame
    steps: pd.DataFrame
    nodes: pd.DataFrame
    dependencies: pd.DataFrame
    quality: pd.DataFrame

    @property
    def is_synthetic(self) -> bool:
        """Whether any of the files says that it was simulated; figures should say so too."""
        return bool((self.quality["what"] == SAYS_SYNTHETIC).any())

    def __repr__(self) -> str:
        """Say what was loaded, and list the first findings that need a look."""
        sizes = ", ".join(
            f"{len(table):,} {field.name}"
            for field in fields(self)
            if field.name in {"events", "nodes"} and len(table := getattr(self, field.name))
        )
        return (
            f"Trace of {len(self.ranks)} rank{'s' * (len(self.ranks) != 1)}: {sizes or 'no events'}"
            f"; {flagged_text(self.quality)}"
        )


def folded_findings(
    rows: Sequence[Mapping[str, Any]], *, most_files: int = 3
) -> list[dict[str, Any]]:
    """Make one row of equal findings on many files.

    Parameters
    ----------
    rows
        Rows of the quality table.
    most_files
        Files with one finding that keep a row each; also how many are named of more.

    Returns
    -------
    list of dict
        Rows of the same columns: the files named in ``source``, their counts added up.

    Examples
    --------
    >>> row = {"finding": "noted", "what": "no steps", "count": 2, "where": None}
    >>> folded_findings([{"source": f"logs/{n}.txt", **row} for n in range(5)])[0]["source"]
    '5 files with the same finding: logs/0.txt, 1.txt, 2.txt and 2 more'
    """
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["finding"], row["what"]), []).append(row)
    kept: list[dict[str, Any]] = []
    for row in rows:
        group = groups[row["finding"], row["what"]]
        files = list(dict.fromkeys(str(each["source"]) for each in group))
        if len(files) <= most_files:
            kept.append(dict(row))
        elif row is group[0]:
            count = sum(each["count"] for each in group)
            kept.append({**row, "source": _many(files, most_files), "count": count})
    return kept


def _many(files: Sequence[str], named: int) -> str:
    """Name some of many files, with the folder of the first."""
    shown = [files[0], *(re.split(r"[/\\!]", file)[-1] for file in files[1:named])]
    more = f" and {len(files) - named:,} more"
    return f"{len(files):,} files with the same finding: {', '.join(shown)}{more}"


def flagged_text(quality: pd.DataFrame) -> str:
    """Count the findings that need a look, equal ones of many files once, and list the first."""
    flagged = quality[~quality["finding"].isin(HARMLESS)]
    kinds = (
        flagged.groupby(["finding", "what"], observed=True, sort=False)["count"].sum().reset_index()
    )
    listed = [
        f"\n  {row.finding}: {row.what} ({row.count:,})"
        for row in kinds.head(_LISTED_FINDINGS).itertuples()
    ]
    listed += ["\n  ..."] * (len(kinds) > _LISTED_FINDINGS)
    found = f"{len(kinds)} finding{'s' * (len(kinds) != 1)} to look at (see .quality)"
    return found + "".join(listed)
