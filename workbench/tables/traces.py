"""Tables of traces: events, clocks and calls of operators."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, runtime_checkable

import pandas as pd

from workbench.tables.table import table

# Clocks of ranks, and who came late.

CLOCKS = table("""
    clocks: One row per rank: how far its clock is from that of the others, and how well that is
    known.

    rank: int32 >=0 - global rank
    clock: str? - ranks that can be put on one clock with this one, e.g. 0-7; missing if none can
    offset_ns: Int64? - to subtract from the rank's times; 0 for the median rank
    residual_ns: Int64? >=0 - uncertainty: robust standard deviation of the differences of ends
        that are left; missing with too few collectives
    drift_ratio: Float64? - how much faster the clock runs than the others'; missing if it cannot
        be told from 0
    reference_ns: Int64? - time on the rank's clock at which the offset holds
    collective_count: int64 >=0 - collectives that the offset is taken from
    is_sure: bool - offset and uncertainty are known
    note: str? - what is doubtful
""")

LATE_ARRIVALS = table("""
    late_arrivals: One row per collective: what the rank that came last did since the collective
    before it. compute + communication + memory + other + idle = window, exactly.

    collective: int64 >=0 - number of the matched collective
    operation: category - e.g. all-reduce
    group: category - process group, or the stream if none is recorded
    step: Int32? - ProfilerStep; missing for work outside every step
    blamed_rank: int32 >=0 - rank that started last
    wait_ns: int64 >=0 - summed waiting of the others
    late_ns: Int64? >=0 - start minus the median start of the others
    window_ns: int64 >=0 - end of the group's collective before, or first event of the step, to the
        start
    compute_ns: int64 >=0 - of the window, time with compute running
    communication_ns: int64 >=0 - communication without compute
    memory_ns: int64 >=0 - copies or sets without compute and communication
    other_ns: int64 >=0 - work of kind other while nothing else runs
    idle_ns: int64 >=0 - time without GPU work
    began_late_ns: Int64? - start of the window minus the median of the others' windows
    excess_kind: category? - what it spent most time on beyond the median of the others: compute,
        communication, memory, other, idle, or began late (its window began later)
    excess_ns: Int64? >=0 - that time beyond the median
    compute_ratio: Float64? >=0 - compute launched since the collective before / median of the
        others; missing if nothing can be compared
    longest_kernel: str? - GPU work that ran longest in the window
    longest_kernel_ns: Int64? >=0 - its time in the window
    longest_idle_ns: Int64? >=0 - longest time without GPU work
    host_operator: str? - outermost operator, annotation or call of the host in most of that time;
        missing if none was traced
    host_operator_ns: Int64? >=0 - how much of it
    is_sure: bool - who was last is sure, and no rank is missing
    note: str? - what is doubtful, or not in the trace
""")

# Traces as loaded, and what a loader says of them.

# Longest first among equal starts, so that a caller stands before what it calls. Numbers that
# many rows lack are nullable: stream 0 exists, and profilers write -1 with meanings of its own.
EVENTS = table("""
    events: One row per profiler record that has a place in time, in order of rank, start and
    (longest first) duration.

    rank: int32 >=0 - global rank of the process, or of its GPU where it used several
    start_ns: int64 - start; ns since the Unix epoch if the trace knows it, else its own clock
    dur_ns: int64 >=0 - duration; 0 for instants
    name: category - name as the profiler wrote it
    category: category - profiler category in its present spelling: cpu_op, user_annotation,
        python_function, cuda_runtime, cuda_driver, kernel, gpu_memcpy, gpu_memset,
        gpu_user_annotation, cuda_sync, ...
    kind: category? - what GPU work is for: compute, communication, memory, other; missing for
        every row that is not GPU work
    step: Int32? - number of the ProfilerStep the row belongs to; GPU rows follow their launch
    process: category - pid as written, as text
    thread: category - tid as written, as text
    device: Int32? - GPU index
    stream: Int64? - GPU stream (0 is a valid stream)
    correlation: Int64? - id that joins a launch to its GPU work
    external_id: Int64? - id that joins a runtime call to its CPU op
    launch: Int64? - row label of the runtime call that launched this GPU work
    size_bytes: Int64? >=0 - bytes copied or set
    collective: category? - collective as recorded, e.g. allreduce
    group: category? - name of the process group
    group_size: Int32? >=0 - ranks in the process group
    seq: Int64? - sequence number inside the process group
    in_count: Int64? - elements sent by this rank
    out_count: Int64? - elements received by this rank
    dtype: category? - element type of the collective, e.g. Float
    wait_stream: Int64? - cuda_sync: stream that is waited for
    wait_correlation: Int64? - cuda_sync: correlation of the event record that is waited for
    autograd_seq: Int32? - cpu_op: sequence number of the autograd node that the operator made
        or, in the backward pass, runs
    input_shapes: category? optional - sizes of an operator's inputs as JSON, [] for what is no
        tensor; like the three below only where the profiler recorded shapes
    input_types: category? optional - types of the inputs as JSON, e.g. ["c10::BFloat16","Scalar"]
    input_strides: category? optional - strides of the inputs as JSON
    input_values: category? optional - values of inputs that are numbers or flags, as JSON
""")

RANKS = table("""
    ranks: One row per loaded rank: where it came from and what its trace says of itself.

    rank: int32 >=0 - global rank
    rank_source: str - trace (distributedInfo), argument, file name, or assumed
    world_size: Int32? >=1 - ranks of the whole job
    backend: str? - communication backend
    source: str - file, or archive and member, the rank was read from
    format: str - format of that file, e.g. kineto
    clock: str - epoch (comparable with wall time) or own (arbitrary zero)
    first_ns: Int64? - start of the earliest event
    last_ns: Int64? - end of the latest event
    event_count: int64 >=0 - rows of this rank in the events table
    host: str? optional - name of the host, where the trace says it
""")

RANK_FILES = table("""
    rank_files: One row per rank of a job, before its trace is read.

    rank: int32 >=0 - global rank
    rank_source: str - trace (distributedInfo), argument, file name, or assumed
    world_size: Int32? >=1 - ranks of the whole job, where the head of the file says
    size_bytes: int64 >=0 - size of the file as it is stored
    source: str - file, or archive and member
""")

TELLING_RANKS = table("""
    telling_ranks: One row per rank that a page shows of a job of many, the most telling first.

    rank: int32 >=0 - global rank
    reason: str - why it is shown
    lost_ms: Float64? >=0 - time that the job would gain if the rank were never late; missing where
        no collective is matched
    exposed_communication_ns: int64 >=0 - communication that no computation hides
""")

TELLING_WINDOWS = table("""
    telling_windows: One row per window of a timeline that is worth a look, the worst of every
    reason first.

    rank: int32 >=0 - global rank
    start_ns: int64 - start of the window, with a margin, on the clock of the rank
    end_ns: int64 - end of the window
    dur_ns: int64 >=0 - how long the reason lasts
    reason: str - GPU idle, exposed communication, long kernel or copy, others wait for this rank,
        slow step
""")

EVENT_LINKS = table("""
    event_links: One row per event that one event depends on, or that depends on it.

    relation: str - launched by, called in, waits for, launches
    event: int64 - row label in the events table
    name: str - its name
    start_ns: int64 - its start
    dur_ns: int64 >=0 - its duration
""")

DEVICES = table("""
    devices: One row per rank and GPU that its trace describes.

    rank: int32 >=0 - global rank
    device: Int32? - GPU index
    name: str - marketing name, empty where the profiler wrote none
    memory_bytes: Int64? >=0 - total memory
    capability: str? - compute capability, e.g. 9.0
    processor_count: Int32? >=0 - streaming multiprocessors
""")

PROCESS_GROUPS = table("""
    process_groups: One row per rank and process group that its trace describes.

    rank: int32 >=0 - global rank that reports the group
    group: str - name of the group
    description: str? - what the group is for, e.g. default_pg
    backend: str? - backend configuration
    group_size: Int32? >=0 - number of members
    members: str - global ranks, comma separated; empty if not recorded
""")

STEPS = table("""
    steps: One row per rank and ProfilerStep.

    rank: int32 >=0 - global rank
    step: int32 - step number as the profiler counts
    start_ns: int64 - start of the step on the CPU
    dur_ns: int64 >=0 - duration of the step on the CPU
""")

NODES = table("""
    nodes: One row per node of an execution trace (PyTorch or Chakra).

    rank: int32 >=0 - global rank
    node: int64 - id of the node inside its rank
    name: category - name of the operator or step
    type: category - node type as the file states it, e.g. COMP_NODE, COMM_COLL_NODE; PyTorch
        execution traces state none and have cpu_op, annotation, root, collective (moves data) or
        wait (wait and barrier, move none)
    parent: Int64? - node that called this one
    start_ns: Int64? - start, if recorded
    dur_ns: Int64? >=0 - duration, if recorded
    record_function: Int64? - id that joins the node to a profiler event (rf_id)
    collective: category? - collective type, e.g. all_reduce
    group: category? - process group
    size_bytes: Int64? >=0 - bytes of the tensors that this rank puts in, if recorded; for an
        all-gather its own share, as Chakra counts
    is_cpu: boolean? - ran on the CPU, not on the GPU
""")

DEPENDENCIES = table("""
    dependencies: One row per edge of an execution trace: a node and one that must end before it
    starts.

    rank: int32 >=0 - global rank
    node: int64 - node that waits
    needs: int64 - node that must end first
    edge: category - data or control; converters from PyTorch write callers as control edges,
        though a caller ends last
""")

QUALITY = table("""
    quality: What a loader could not read, had to repair, or had to assume; nothing is dropped
    silently.

    source: str - file, or archive and member
    finding: category - harmless: read, skipped by design (has no place in the tables), noted; or
        needs a look: dropped, repaired, assumed, truncated, suspicious
    what: str - what was found, in words
    count: int64 >=0 - how often
    where: str? - first place: byte offset, line or event
""")

VISIBLE = table("""
    visible: One row per property that an obfuscated trace still shows.

    what: str - property
    value: str - its value in the copy
    reveals: str - what a reader can tell from it about the source
""")


# Findings that do not ask for anybody's attention.
HARMLESS = ("read", "skipped by design", "noted")
_LISTED_FINDINGS = 5
SAYS_SYNTHETIC = "the file says that it is synthetic"
# How a quality table says that a whole kind of data is lacking, which is an error to a command.
UNREAD = "no file could be read of the "
SAYS_OBFUSCATED = "the file says that it is obfuscated: times are scaled, names are made up"


class Loaded:
    """Facts about the files of any load."""

    quality: pd.DataFrame

    @property
    def is_synthetic(self) -> bool:
        """Whether any file is marked as simulated; figures should say so, too."""
        return bool((self.quality["what"] == SAYS_SYNTHETIC).any())


@dataclass(frozen=True, eq=False)
class Trace(Loaded):
    """The tables of one loaded trace set; a plain bundle, all work is done by functions.

    ``events`` holds what happened when; ``nodes`` and ``dependencies`` hold execution traces, which
    know what depends on what but not always when.
    """

    events: pd.DataFrame
    ranks: pd.DataFrame
    devices: pd.DataFrame
    process_groups: pd.DataFrame
    steps: pd.DataFrame
    nodes: pd.DataFrame
    dependencies: pd.DataFrame
    quality: pd.DataFrame

    @classmethod
    def of(cls, **tables: pd.DataFrame) -> Trace:
        """Make a trace of some of its tables; the others are empty.

        Parameters
        ----------
        **tables
            Tables by the names of the fields; checked by whoever made them.

        Returns
        -------
        Trace
            All eight tables.
        """
        declared = (EVENTS, RANKS, DEVICES, PROCESS_GROUPS, STEPS, NODES, DEPENDENCIES, QUALITY)
        lacking = [table for table in declared if table.name not in tables]
        return cls(**{table.name: table.empty() for table in lacking}, **tables)

    def __repr__(self) -> str:
        """Describe what was loaded, and list the first findings that need a look."""
        sizes = ", ".join(
            f"{len(table):,} {field.name}"
            for field in fields(self)
            if field.name in {"events", "nodes"} and len(table := getattr(self, field.name))
        )
        return (
            f"Trace of {len(self.ranks)} rank{'s' * (len(self.ranks) != 1)}: {sizes or 'no events'}"
            f"; {flagged_text(self.quality)}"
        )


class RankFile(Protocol):
    """One rank of a job that can be loaded by itself, as ``load.rank_files`` lists them."""

    @property
    def rank(self) -> int:
        """Global rank."""
        ...

    @property
    def label(self) -> str:
        """The file, or the archive and its member."""
        ...

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        ...

    def load(self) -> Trace:
        """Load the rank."""
        ...


@runtime_checkable
class RankFiles(Protocol):
    """The ranks of a job, as ``load.rank_files`` lists them."""

    @property
    def quality(self) -> pd.DataFrame:
        """List what was skipped."""
        ...

    @property
    def needs_one_pass(self) -> bool:
        """Whether they lie in one compressed archive."""
        ...

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[RankFile]: ...
    def load(self, ranks: Collection[int]) -> Trace:
        """Load some ranks together."""
        ...

    def each(self) -> Iterator[tuple[RankFile, Trace | Exception]]:
        """Load one rank after the other, or say why it cannot be read."""
        ...


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
    files = {key: list(dict.fromkeys(str(row["source"]) for row in groups[key])) for key in groups}
    kept: list[dict[str, Any]] = []
    for row in rows:
        key = row["finding"], row["what"]
        names = files[key]
        if len(names) <= most_files:
            kept.append(dict(row))
        elif row is groups[key][0]:
            count = sum(finding["count"] for finding in groups[key])
            # The folder of the first file stands for the others.
            first = [names[0], *(re.split(r"[/\\!]", name)[-1] for name in names[1:most_files])]
            more = f"{', '.join(first)} and {len(names) - most_files:,} more"
            source = f"{len(names):,} files with the same finding: {more}"
            kept.append({**row, "source": source, "count": count})
    return kept


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
    summary = f"{len(kinds)} finding{'s' * (len(kinds) != 1)} to look at (see .quality)"
    return summary + "".join(listed)
