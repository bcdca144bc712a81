"""The tables that loaders return and analyses exchange.

Every frame that crosses a module boundary is one of the tables below. A table
is plain data: column names, dtypes, units, meaning and limits. It checks frames
(:meth:`Table.check`), makes empty ones (:meth:`Table.empty`) and writes its own
documentation (:meth:`Table.markdown`).

Four rules keep the tables readable:

* the unit is the last part of the column name (``start_ns``, ``power_w``);
* shares are fractions between 0 and 1 and end in ``_share``, never per cent;
* time stamps are UTC, durations are plain numbers with a unit suffix;
* missing is missing: columns that can lack a value have a nullable dtype
  (``Int64``, not ``int64`` with -1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import pandas as pd

from workbench.errors import TableError


@dataclass(frozen=True)
class Column:
    """One column: what it holds and which values are allowed."""

    dtype: str
    meaning: str
    lower: float | None = None
    upper: float | None = None
    nullable: bool = False

    def misfit(self, values: pd.Series) -> str:
        """Say what is wrong with ``values``; an empty text means nothing is."""
        if not self._same_dtype(values):
            return f"has dtype {values.dtype}, needs {self.dtype}"
        if not self.nullable and values.isna().any():
            return f"has {values.isna().sum()} missing values, none are allowed"
        for limit, extreme, words in (
            (self.lower, values.min, "below"),
            (self.upper, values.max, "above"),
        ):
            # The extreme is found without a temporary column; most frames are fine.
            if limit is None or pd.isna(most := extreme()):
                continue
            if most < limit if words == "below" else most > limit:
                outside = values < limit if words == "below" else values > limit
                outside = outside.fillna(value=False)
                return f"has {outside.sum()} values {words} {limit}, e.g. row {outside.idxmax()}"
        return ""

    def _same_dtype(self, values: pd.Series) -> bool:
        # pandas 2 holds text as object, pandas 3 as str; both are text to us.
        if self.dtype == "str":
            return bool(pd.api.types.is_string_dtype(values.dtype)) or (
                values.dtype == object and values.empty
            )
        return str(values.dtype) == self.dtype


@dataclass(frozen=True)
class Table:
    """A named set of columns, in the order they are shown."""

    name: str
    meaning: str
    columns: Mapping[str, Column]

    def check(self, frame: object, origin: str = "the frame") -> pd.DataFrame:
        """Return ``frame`` unchanged, or raise one error that lists every misfit.

        Columns beyond those of the table are allowed and left alone.
        """
        if not isinstance(frame, pd.DataFrame):
            kind = type(frame).__name__
            msg = f"{origin} is a {kind}, not a '{self.name}' table; pass a pandas DataFrame"
            if isinstance(frame, Trace):
                msg = f"{origin} is a whole Trace; pass one of its tables, e.g. trace.events"
            raise TableError(msg)
        misfits = [f"'{name}' is missing" for name in self.columns if name not in frame]
        for name, column in self.columns.items():
            if name in frame and (misfit := column.misfit(frame[name])):
                misfits.append(f"'{name}' {misfit}")
        if misfits:
            msg = f"{origin} is not a valid '{self.name}' table:\n  - " + "\n  - ".join(misfits)
            raise TableError(msg)
        return frame

    def empty(self) -> pd.DataFrame:
        """Return a frame without rows that fits the table."""
        columns: dict[str, Any] = {}
        for name, column in self.columns.items():
            columns[name] = pd.array([], dtype=column.dtype)  # type: ignore[call-overload]
        return pd.DataFrame(columns)

    def cast(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the table's columns of ``frame`` in its dtypes; missing texts stay missing."""
        # pandas 2 would turn a missing text into the text 'None' if asked for 'str'.
        dtypes: dict[str, Any] = {name: column.dtype for name, column in self.columns.items()}
        text = pd.Series([""]).dtype
        return pd.DataFrame(
            {name: frame[name].astype(text if d == "str" else d) for name, d in dtypes.items()}
        )

    def markdown(self) -> str:
        """Render the table as Markdown, for docs and notebooks."""
        rows = [f"| `{n}` | {c.dtype} | {c.meaning} |" for n, c in self.columns.items()]
        return "\n".join(
            [
                f"**{self.name}** - {self.meaning}",
                "",
                "| column | dtype | meaning |",
                "|---|---|---|",
                *rows,
            ]
        )


# --- traces -----------------------------------------------------------------

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
            "Int64", "bytes this rank sends or holds, if recorded", lower=0, nullable=True
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
    "What a loader could not read, had to mend, or had to assume; nothing is left out silently.",
    {
        "source": Column("str", "file, or archive and member"),
        "finding": Column(
            "category",
            "harmless: read, set aside (has no place in the tables), noted; or needs a look: "
            "left out, repaired, assumed, truncated, suspicious",
        ),
        "what": Column("str", "what was found, in words"),
        "count": Column("int64", "how often", lower=0),
        "where": Column("str", "first place: byte offset, line or event", nullable=True),
    },
)


# --- data sets --------------------------------------------------------------

DATASETS = Table(
    "datasets",
    "One row per data set that the workbench knows by name.",
    {
        "dataset": Column("str", "name to ask for"),
        "synthetic": Column("bool", "made by a generator, not measured"),
        "place": Column("str", "bundled, mirror, cache or not at hand"),
        "file_count": Column("int64", "files of the set", lower=0),
        "size_bytes": Column("int64", "their size together", lower=0),
        "licence": Column("str", "licence of the files"),
        "about": Column("str", "what it is"),
        "citation": Column("str", "whom to cite"),
        "origin": Column("str", "where it comes from: repository and commit, or the generator"),
    },
)

DATASET_FILES = Table(
    "dataset_files",
    "One row per file of a data set, compared with its checksum.",
    {
        "dataset": Column("str", "name of the set"),
        "file": Column("str", "name inside the set's folder"),
        "size_bytes": Column("int64", "size the file should have", lower=0),
        "sha256": Column("str", "checksum the file should have"),
        "path": Column("str", "where the file is, or would be"),
        "verdict": Column("str", "ok, missing or changed"),
    },
)

# --- simulation -------------------------------------------------------------

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


# --- fidelity ---------------------------------------------------------------

FIDELITY = Table(
    "fidelity",
    "One row per number printed elsewhere and computed here.",
    {
        "noun": Column("str", "what the claim is about, e.g. traces"),
        "claim": Column("str", "name of the claim"),
        "what": Column("str", "which of its numbers this is; empty for the claim as a whole"),
        "source": Column("str", "paper, table, page or project that printed the number"),
        "printed": Column("float64", "number as printed, in `unit`", nullable=True),
        "here": Column("float64", "number computed here, in `unit`", nullable=True),
        "tolerance": Column(
            "float64", "largest difference allowed, in `unit`", lower=0, nullable=True
        ),
        "unit": Column("str", "unit of the three numbers; empty for a plain number"),
        "verdict": Column("category", "pass, FAIL, or absent (the data set is not at hand)"),
        "note": Column("str", "why a claim failed or how to get its data set; else empty"),
    },
)


# Findings that do not ask for anybody's attention.
HARMLESS = ("read", "set aside", "noted")
_LISTED_FINDINGS = 5
SAYS_SYNTHETIC = "the trace says that it is synthetic"


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
        flagged = self.quality[~self.quality["finding"].isin(HARMLESS)]
        kinds = (
            flagged.groupby(["finding", "what"], observed=True, sort=False)["count"]
            .sum()
            .reset_index()
        )
        sizes = ", ".join(
            f"{len(table):,} {field.name}"
            for field in fields(self)
            if field.name in {"events", "nodes"} and len(table := getattr(self, field.name))
        )
        found = f"{len(flagged)} finding{'s' * (len(flagged) != 1)} to look at (see .quality)"
        listed = [
            f"\n  {row.finding}: {row.what} ({row.count:,})"
            for row in kinds.head(_LISTED_FINDINGS).itertuples()
        ]
        listed += ["\n  ..."] * (len(kinds) > _LISTED_FINDINGS)
        return (
            f"Trace of {len(self.ranks)} rank{'s' * (len(self.ranks) != 1)}: {sizes or 'no events'}"
            f"; {found}{''.join(listed)}"
        )


# --- trace analyses ---

_RANK = Column("int32", "global rank", lower=0)
_STEP = Column("Int32", "ProfilerStep; missing for work outside every step", nullable=True)
_DEVICE = Column("Int32", "GPU index; missing if the trace names none", nullable=True)
_STREAM = Column("Int64", "GPU stream; missing if the trace names none", nullable=True)

TIME_BREAKDOWN = Table(
    "time_breakdown",
    "One row per rank (and step): where the time of its GPUs went. compute + exposed "
    "communication + exposed memory + exposed other + idle = span, exactly.",
    {
        "rank": _RANK,
        "step": Column(
            "Int32",
            "ProfilerStep; missing when the row stands for a whole rank, or for GPU work "
            "outside every step",
            nullable=True,
        ),
        "device_count": Column("int32", "GPUs with work; 0: nothing ran on a GPU", lower=0),
        "span_ns": Column(
            "Int64",
            "first start to last end of the GPU work; missing where no window exists: "
            "work outside every step, or no GPU work",
            lower=0,
            nullable=True,
        ),
        "compute_ns": Column("int64", "time with compute running", lower=0),
        "overlap_ns": Column("int64", "time with compute and communication running", lower=0),
        "communication_ns": Column("int64", "time with communication running", lower=0),
        "memory_ns": Column("int64", "time with copies or sets running", lower=0),
        "exposed_communication_ns": Column("int64", "communication without compute", lower=0),
        "exposed_memory_ns": Column(
            "int64", "copies or sets without compute and communication", lower=0
        ),
        "exposed_other_ns": Column("int64", "work of kind other while nothing else runs", lower=0),
        "busy_ns": Column("int64", "time with any GPU work running", lower=0),
        "idle_ns": Column("Int64", "span minus busy; missing where the span is", nullable=True),
    },
)

COMMUNICATION_OVERLAP = Table(
    "communication_overlap",
    "One row per rank (and step): how much of the communication hides behind compute.",
    {
        "rank": _RANK,
        "step": _STEP,
        "communication_ns": Column("int64", "time with communication running", lower=0),
        "overlap_ns": Column("int64", "of that, time with compute running too", lower=0),
        "exposed_ns": Column("int64", "of that, time without compute", lower=0),
        "overlap_share": Column(
            "Float64", "overlap / communication; missing without communication", 0, 1, nullable=True
        ),
    },
)

KIND_OVERLAPS = Table(
    "kind_overlaps",
    "One row per rank and set of kinds: how long exactly these kinds of work ran at once.",
    {
        "rank": _RANK,
        "kinds": Column("str", "kinds that ran together, joined by ' + '"),
        "time_ns": Column("int64", "time with exactly these kinds running", lower=0),
        "time_share": Column("Float64", "of the time with any GPU work", 0, 1, nullable=True),
    },
)

IDLE_TIME = Table(
    "idle_time",
    "One row per rank, GPU (or stream) and cause: how long it had nothing to run, and why.",
    {
        "rank": _RANK,
        "device": _DEVICE,
        "stream": Column("Int64", "GPU stream; missing for a whole GPU", nullable=True),
        "cause": Column(
            "category",
            "host late, launch overhead, kernel gap, sync wait, dark, unknown (whole GPU); "
            "host wait, kernel wait, other, unknown (stream)",
        ),
        "detail": Column(
            "str",
            "what the cause is made of: what the launching thread did while it was late, what "
            "was waited for, why nothing is known",
            nullable=True,
        ),
        "gap_count": Column("int64", "gaps that this cause has a part in", lower=0),
        "idle_ns": Column("int64", "idle time", lower=0),
        "idle_share": Column("Float64", "of the span of the GPU or stream", 0, 1, nullable=True),
    },
)

KERNELS = Table(
    "kernels",
    "One row per rank (and step) and name of GPU work: how often it ran and how long.",
    {
        "rank": _RANK,
        "step": Column("Int32", "ProfilerStep; missing without by_step or outside", nullable=True),
        "name": Column("category", "kernel, copy or set, as the profiler wrote it"),
        "kind": Column("category", "compute, communication, memory or other"),
        "kernel_count": Column("int64", "times it ran", lower=1),
        "total_ns": Column("int64", "sum of durations", lower=0),
        "mean_ns": Column("float64", "mean duration", lower=0),
        "min_ns": Column("int64", "shortest", lower=0),
        "max_ns": Column("int64", "longest", lower=0),
        "std_ns": Column(
            "Float64", "sample standard deviation; missing for one run", lower=0, nullable=True
        ),
        "time_share": Column(
            "Float64", "of the summed durations of the rank (and step)", 0, 1, nullable=True
        ),
    },
)

KERNEL_KINDS = Table(
    "kernel_kinds",
    "One row per rank, kind and rule: what the GPU work is for, and who says so.",
    {
        "rank": _RANK,
        "kind": Column("category", "compute, communication, memory or other"),
        "rule": Column(
            "str",
            "rule that decided; category: the profiler's own category did; loader: the trace was "
            "loaded with rules that are not known here; default: no rule matched",
        ),
        "is_unclassified": Column("bool", "no rule matched: the kind is a guess"),
        "name_count": Column("int64", "different names", lower=1),
        "kernel_count": Column("int64", "times such work ran", lower=1),
        "total_ns": Column("int64", "sum of durations", lower=0),
        "time_share": Column("Float64", "of the summed durations of the rank", 0, 1, nullable=True),
    },
)

UNCLASSIFIED_KERNELS = Table(
    "unclassified_kernels",
    "One row per kernel name that no rule knows, longest total first.",
    {
        "name": Column("str", "kernel name"),
        "kind": Column("category", "kind it was given by default"),
        "kernel_count": Column("int64", "times it ran, all ranks", lower=1),
        "total_ns": Column("int64", "sum of durations, all ranks", lower=0),
        "time_share": Column(
            "Float64", "of the summed durations of all GPU work", 0, 1, nullable=True
        ),
    },
)

OPERATORS = Table(
    "operators",
    "One row per rank and CPU operator: its own time and that of the GPU work it started. "
    "The row without a name holds the GPU work for which no operator was found.",
    {
        "rank": _RANK,
        "name": Column("category", "operator, e.g. aten::mm", nullable=True),
        "op_count": Column("int64", "calls", lower=0),
        "total_ns": Column(
            "int64", "host time including operators inside; recursion counted once", lower=0
        ),
        "self_ns": Column("int64", "host time without the operators inside", lower=0),
        "kernel_count": Column("int64", "GPU work it started itself", lower=0),
        "gpu_self_ns": Column("int64", "summed durations of that work", lower=0),
        "gpu_ns": Column(
            "int64", "the same including operators inside; recursion counted once", lower=0
        ),
    },
)

LAUNCHES = Table(
    "launches",
    "One row per rank and name of the call that starts GPU work. The row without a name holds "
    "GPU work whose launch is not in the trace.",
    {
        "rank": _RANK,
        "name": Column("category", "runtime or driver call", nullable=True),
        "call_count": Column("int64", "calls", lower=0),
        "childless_count": Column("int64", "calls without GPU work in the trace", lower=0),
        "kernel_count": Column("int64", "GPU work started; a graph starts many", lower=0),
        "host_ns": Column("int64", "summed durations of the calls", lower=0),
        "host_mean_ns": Column("Float64", "mean duration of a call", nullable=True),
        "host_max_ns": Column("Int64", "longest call", nullable=True),
        "latency_count": Column("int64", "GPU work whose stream was idle at launch", lower=0),
        "latency_mean_ns": Column(
            "Float64", "mean of its start minus launch start", lower=0, nullable=True
        ),
        "latency_median_ns": Column("Float64", "median of the same", lower=0, nullable=True),
        "latency_max_ns": Column("Int64", "largest of the same", lower=0, nullable=True),
        "queued_count": Column("int64", "GPU work whose stream was busy at launch", lower=0),
        "queue_mean_ns": Column(
            "Float64", "mean of its start minus launch start", lower=0, nullable=True
        ),
        "queue_median_ns": Column("Float64", "median of the same", lower=0, nullable=True),
        "queue_max_ns": Column("Int64", "largest of the same", lower=0, nullable=True),
        "early_count": Column(
            "int64", "GPU work that starts before its launch: clocks disagree", lower=0
        ),
    },
)

QUEUE_LENGTH = Table(
    "queue_length",
    "One row per change of a stream's queue: launches issued whose work has not begun.",
    {
        "rank": _RANK,
        "device": _DEVICE,
        "stream": _STREAM,
        "time_ns": Column("int64", "when the length changed"),
        "queue_count": Column("int64", "launches waiting from then on", lower=0),
        "blocked_ns": Column(
            "int64",
            "duration of the launch call issued here if the queue was at its limit, else 0",
            lower=0,
        ),
    },
)

QUEUE_SUMMARY = Table(
    "queue_summary",
    "One row per stream: how long its queue was.",
    {
        "rank": _RANK,
        "device": _DEVICE,
        "stream": _STREAM,
        "max_count": Column("int64", "longest queue", lower=0),
        "mean_count": Column(
            "Float64", "time-weighted mean length; missing for one instant", lower=0, nullable=True
        ),
        "blocked_count": Column("int64", "launch calls issued at the limit", lower=0),
        "blocked_ns": Column("int64", "summed durations of those calls", lower=0),
    },
)

COPY_BANDWIDTH = Table(
    "copy_bandwidth",
    "One row per rank, GPU and direction: how fast memory was copied or set.",
    {
        "rank": _RANK,
        "device": _DEVICE,
        "direction": Column("category", "HtoD, DtoH, DtoD, PtoP, HtoH, Memset or unknown"),
        "copy_count": Column("int64", "copies or sets", lower=1),
        "instant_count": Column("int64", "copies of 0 ns, taken as 1 µs", lower=0),
        "unsized_count": Column("int64", "copies without a size, left out of the rates", lower=0),
        "size_bytes": Column("Int64", "bytes of all sized copies", lower=0, nullable=True),
        "busy_ns": Column("int64", "time with at least one sized copy running", lower=0),
        "mean_gb_per_s": Column(
            "Float64", "bytes / busy: rates of concurrent copies add up", lower=0, nullable=True
        ),
        "peak_gb_per_s": Column(
            "Float64", "largest sum of concurrent rates", lower=0, nullable=True
        ),
    },
)

COLLECTIVES = Table(
    "collectives",
    "One row per collective kernel: which one it is across ranks, and how it went.",
    {
        "collective": Column(
            "Int64", "number of the matched collective; missing if not matched", nullable=True
        ),
        "rank": _RANK,
        "event": Column("int64", "row label in the events table"),
        "operation": Column(
            "category",
            "all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, reduce, gather, "
            "scatter, send-receive, send, receive, barrier, wait, coalesced or unknown",
        ),
        "group": Column("category", "process group, or the stream if none is recorded"),
        "group_size": Column("Int32", "ranks in the process group", lower=0, nullable=True),
        "rank_count": Column("int32", "ranks of this collective that were found", lower=1),
        "is_complete": Column(
            "boolean", "all ranks of the group were found; missing if unknown", nullable=True
        ),
        "step": _STEP,
        "start_ns": Column("int64", "start on this rank"),
        "dur_ns": Column("int64", "duration on this rank", lower=0),
        "wait_ns": Column(
            "Int64", "latest start of all ranks minus own start", lower=0, nullable=True
        ),
        "transfer_ns": Column(
            "Int64", "own end minus latest start of all ranks", lower=0, nullable=True
        ),
        "transfer_min_ns": Column(
            "Int64", "shortest duration of all ranks: the transfer itself", lower=0, nullable=True
        ),
        "blamed_rank": Column("Int32", "rank that started last", lower=0, nullable=True),
        "start_skew_ns": Column("Int64", "latest minus earliest start", lower=0, nullable=True),
        "end_skew_ns": Column("Int64", "latest minus earliest end", lower=0, nullable=True),
        "is_sure": Column(
            "boolean",
            "who was last: ranks end at most half as far apart as they start and, with clocks, the "
            "last starts later than clocks can mistake; missing without wait",
            nullable=True,
        ),
        "size_bytes": Column(
            "Int64", "size as nccl-tests counts it; missing if not recorded", 0, nullable=True
        ),
        "size_imbalance_ratio": Column(
            "Float64", "largest size of all ranks / mean size", lower=1, nullable=True
        ),
        "algorithm_gb_per_s": Column(
            "Float64", "mean size / shortest duration", lower=0, nullable=True
        ),
        "bus_gb_per_s": Column(
            "Float64", "the same times the factor of the operation", lower=0, nullable=True
        ),
        "confidence": Column("category", "of the match: high, medium, low; none if not matched"),
        "note": Column("str", "why not matched, or what is doubtful", nullable=True),
    },
)

COLLECTIVE_WAITS = Table(
    "collective_waits",
    "One row per matched collective and rank: waiting for the last rank, then moving data.",
    {
        "collective": Column("int64", "number of the matched collective", lower=0),
        "rank": _RANK,
        "step": _STEP,
        "operation": Column("category", "e.g. all-reduce"),
        "group": Column("category", "process group, or the stream if none is recorded"),
        "start_ns": Column("int64", "start on this rank"),
        "wait_ns": Column("int64", "latest start minus own start", lower=0),
        "transfer_ns": Column("int64", "own end minus latest start", lower=0),
        "blamed_rank": Column("int32", "rank that started last", lower=0),
        "is_complete": Column(
            "boolean", "all ranks of the group were found; missing if unknown", nullable=True
        ),
        "is_sure": Column(
            "bool",
            "who was last: ranks end at most half as far apart as they start and, with clocks, the "
            "last starts later than clocks can mistake",
        ),
        "confidence": Column("category", "of the match: high, medium or low"),
    },
)

BLAME = Table(
    "blame",
    "One row per rank that was waited for and rank that waited.",
    {
        "blamed_rank": Column("int32", "rank that started last", lower=0),
        "rank": Column("int32", "rank that waited", lower=0),
        "wait_ns": Column("int64", "summed waiting", lower=0),
        "collective_count": Column("int64", "collectives in which this happened", lower=1),
        "wait_share": Column(
            "Float64", "of all waiting; missing if there is none", 0, 1, nullable=True
        ),
    },
)

# --- jobs, operation by operation ---

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
        "note": Column("str", "what was left out, and what is doubtful", nullable=True),
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

STEP_TIMES = Table(
    "step_times",
    "One row per rank and step: how long it took on the host and on the GPU.",
    {
        "rank": _RANK,
        "step": Column("int32", "step number as the profiler counts"),
        "start_ns": Column("Int64", "start of the ProfilerStep on the host", nullable=True),
        "host_ns": Column("Int64", "its duration on the host", lower=0, nullable=True),
        "gpu_start_ns": Column("Int64", "start of its first GPU work", nullable=True),
        "gpu_ns": Column("Int64", "first start to last end of its GPU work", 0, nullable=True),
        "busy_ns": Column("Int64", "time with GPU work of the step", lower=0, nullable=True),
    },
)

# --- packing ----------------------------------------------------------------

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

# --- measured imbalance ---

CLOCKS = Table(
    "clocks",
    "One row per rank: how far its clock is from that of the others, and how well that is known.",
    {
        "rank": _RANK,
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
            "ProfilerStep of the rank that waited; missing outside every step, or if not asked for",
            nullable=True,
        ),
        "group": Column("category", "process group; missing if not asked for", nullable=True),
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
        "step": _STEP,
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

# --- embedding tables and skewed look-ups ---

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

# --- jobs, looked at closely ---

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
