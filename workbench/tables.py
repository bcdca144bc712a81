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
        if self.lower is not None and (outside := (values < self.lower).fillna(False)).any():
            return f"has {outside.sum()} values below {self.lower}, e.g. row {outside.idxmax()}"
        if self.upper is not None and (outside := (values > self.upper).fillna(False)).any():
            return f"has {outside.sum()} values above {self.upper}, e.g. row {outside.idxmax()}"
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
        return pd.DataFrame(
            {name: pd.Series([], dtype=column.dtype) for name, column in self.columns.items()}
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
            "traces state none and have cpu_op, annotation, root or collective",
        ),
        "parent": Column("Int64", "node that called this one", nullable=True),
        "start_ns": Column("Int64", "start, if recorded", nullable=True),
        "dur_ns": Column("Int64", "duration, if recorded", lower=0, nullable=True),
        "record_function": Column(
            "Int64", "id that joins the node to a profiler event (rf_id)", nullable=True
        ),
        "collective": Column("category", "collective type, e.g. all_reduce", nullable=True),
        "group": Column("category", "process group", nullable=True),
        "size_bytes": Column("Int64", "bytes moved or held", lower=0, nullable=True),
    },
)

DEPENDENCIES = Table(
    "dependencies",
    "One row per edge of an execution trace: a node and one that must end before it starts.",
    {
        "rank": Column("int32", "global rank", lower=0),
        "node": Column("int64", "node that waits"),
        "needs": Column("int64", "node that must end first"),
        "edge": Column("category", "data or control"),
    },
)

QUALITY = Table(
    "quality",
    "What a loader could not read, had to mend, or had to assume; nothing is left out silently.",
    {
        "source": Column("str", "file, or archive and member"),
        "finding": Column("category", "read, left out, repaired, assumed, truncated or suspicious"),
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
        "claim": Column("str", "what is compared"),
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

    def __repr__(self) -> str:
        """Say in one line what was loaded and whether anything needs a look."""
        flagged = self.quality[self.quality["finding"] != "read"]
        sizes = ", ".join(
            f"{len(table):,} {field.name}"
            for field in fields(self)
            if field.name in {"events", "nodes"} and len(table := getattr(self, field.name))
        )
        return (
            f"Trace of {len(self.ranks)} rank{'s' * (len(self.ranks) != 1)}: {sizes or 'no events'}"
            f"; {len(flagged)} quality finding{'s' * (len(flagged) != 1)} (see .quality)"
        )
