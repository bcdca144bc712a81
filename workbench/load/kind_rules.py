"""By what the kinds of data are recognised: the first bytes of a file, and where it was met."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from workbench.load._failures.flight_dumps.reader import looks_like_a_dump
from workbench.load._failures.formats import prometheus_xid
from workbench.load._failures.formats.failure_table import names_failures
from workbench.load._failures.formats.registry import (
    looks_like_a_log,
    looks_like_a_trace,
    readers_of,
)
from workbench.load._files.archive import Source
from workbench.load._files.tables import header_of, keys_of, parquet_schema
from workbench.load._files.wanted import FAILURE_LOGS, TRACES
from workbench.load._fleet import job_events as _job_events
from workbench.load._fleet import job_megatron as _job_megatron
from workbench.load._fleet import job_mlflow as _job_mlflow
from workbench.load._fleet import job_mllog as _job_mllog
from workbench.load._fleet import job_scalars as _job_scalars
from workbench.load._fleet import job_table as _job_table
from workbench.load._fleet.job_part import columns_of as _columns_of
from workbench.load._imbalance.document_lengths import looks_like_lengths
from workbench.load._imbalance.job_operations import names_operations
from workbench.load._power.formats.registry import power_format_of
from workbench.load._power.formats.table.layout import time_column
from workbench.load._pvf.formats.own_tables import is_exhaustive
from workbench.load._pvf.reader import looks_like_injections
from workbench.load._pvf.records import names_records
from workbench.load._traces import parquet
from workbench.load._traces.memory import snapshot as memory_snapshot
from workbench.load._traces.reader import format_of
from workbench.load.power_kind import is_power_log

_JOB_READERS = (_job_events, _job_megatron, _job_table)
_PARQUET = b"PAR1"


# How much of a file is looked at to recognise its kind.
HEAD_BYTES = 1 << 16


@dataclass(frozen=True)
class Sample:
    """A file as it is seen before it is read, with its first bytes, unpacked.

    ``is_named`` says whether the caller named the file itself, rather than a folder around it.
    """

    source: Source
    head: bytes
    is_named: bool

    @cached_property
    def names(self) -> list[str]:
        """Names of the columns of a table, or of the fields of the first record."""
        if not self.head.startswith(_PARQUET):
            return header_of(self.head) or keys_of(self.head)
        return [] if self.schema is None else list(self.schema.names)

    @cached_property
    def schema(self) -> pa.Schema | None:
        """The columns of a Parquet file; None for other files and damaged ones."""
        if not self.head.startswith(_PARQUET):
            return None
        try:
            return parquet_schema(self.source)
        except (OSError, ValueError, pa.ArrowException):
            return None

    @cached_property
    def columns(self) -> set[str]:
        """Names of the columns of a Parquet file, or of a CSV file with commas."""
        if self.head.startswith(_PARQUET):
            return set(self.names)
        first = self.head.split(b"\n", 1)[0]
        is_csv = b"," in first and not first.startswith(b"#")
        return set(header_of(self.head)) if is_csv else set()

    @cached_property
    def is_table(self) -> bool:
        """Whether a file is Parquet, or its first two lines are rows of equally many cells."""
        if self.head.startswith(_PARQUET):
            return bool(self.names)
        header, _, body = self.head.lstrip().partition(b"\n")
        cells = len(header_of(header))
        return cells > 1 and len(header_of(body)) == cells

    @property
    def is_profile(self) -> bool:
        """Whether a table has the columns that profilers of ROCm give kernels."""
        return bool({"Start_Timestamp", "BeginNs"} & set(self.names))

    @cached_property
    def is_document(self) -> bool:
        """Whether a file that was only met is documentation or code by its name."""
        return not self.is_named and bool(FAILURE_LOGS.refused(self.source.label, self.head))


# Each rule is given the kinds that were recognised already; rows of kinds that exclude others
# are asked first.
def is_every_fault(sample: Sample, _found: Set[str]) -> bool:
    """Recognise a file with every single-bit fault of a model."""
    return is_exhaustive(sample.source, sample.head)


def is_injections(sample: Sample, _found: Set[str]) -> bool:
    """Recognise results of fault injection of any tool."""
    return looks_like_injections(sample.source, sample.head)


def is_injection_records(sample: Sample, _found: Set[str]) -> bool:
    """Recognise JSON lines of injections whose fields are named as in the package's tables."""
    names = keys_of(sample.head) if sample.head.lstrip().startswith(b"{") else []
    return not sample.is_document and names_records(names)


def is_failure_table(sample: Sample, kinds: Set[str]) -> bool:
    """Recognise failures in a table whose columns are named as in the package's own."""
    return not kinds and _is_data(sample) and names_failures(sample.columns)


def is_operations(sample: Sample, _found: Set[str]) -> bool:
    """Recognise the operations of a job, by the names of the columns."""
    return names_operations(sample.names)


def is_power(sample: Sample, _found: Set[str]) -> bool:
    """Recognise power telemetry, for sure."""
    return is_power_log(sample.source, sample.head)


def is_trace(sample: Sample, kinds: Set[str]) -> bool:
    """Recognise a profile or an execution trace."""
    # Lines of MLLOG hold JSON objects as well, which the formats of traces could take for theirs.
    if kinds or _job_mllog.looks_like(sample.head):
        return False
    if sample.schema is not None:
        return parquet.is_trace(sample.schema) or format_of(sample.source) == "nsight"
    is_met = not sample.is_named and TRACES.refused(sample.source.label, sample.head)
    return not is_met and bool(format_of(sample.source))


def is_memory_snapshot(sample: Sample, kinds: Set[str]) -> bool:
    """Recognise a snapshot of PyTorch's memory allocator."""
    return not kinds and memory_snapshot.looks_like(sample.head)


def is_flight_dump(sample: Sample, kinds: Set[str]) -> bool:
    """Recognise a dump of the flight recorder, pickled or JSON."""
    return not kinds and not looks_like_a_trace(sample.head) and looks_like_a_dump(sample.head)


def is_failure_log(sample: Sample, kinds: Set[str]) -> bool:
    """Recognise a log of failures; an exporter serves the last Xid beside the power."""
    if kinds:
        return prometheus_xid.looks_like(sample.head, sample.source.label)
    if sample.is_document or _job_mllog.looks_like(sample.head):
        return False
    if looks_like_a_log(sample.head, sample.source.label):
        return True
    # What ends a job stands at the end of its output, often behind the beginning seen here.
    return len(sample.head) >= HEAD_BYTES and bool(readers_of(sample.source, sample.head)[0])


def is_job_log(sample: Sample, kinds: Set[str]) -> bool:
    """Recognise a log of steps; one logger may write them beside what they draw."""
    if "power logs" in kinds:
        return _job_table.are_steps(sample.names)
    if sample.schema is not None:
        return not kinds and _job_table.are_steps(sample.names)
    is_scalars = _job_scalars.looks_like(sample.head, sample.source.label)
    if is_scalars or _job_mllog.looks_like(sample.head):
        return True
    if _job_mlflow.is_store(sample.source, sample.head):
        return True
    # It cannot be read here, but the reader says how to export it.
    if sample.head.startswith(_job_scalars.WANDB_MAGIC):
        return True
    if sample.is_document or sample.is_profile:
        return False
    return any(reader.looks_like(sample.head) for reader in _JOB_READERS)


def is_lengths(sample: Sample, kinds: Set[str]) -> bool:
    """Recognise lengths of documents: numbers, or a column that is named so."""
    return not kinds and _is_data(sample) and looks_like_lengths(sample.head, sample.names)


def is_plain_power(sample: Sample, kinds: Set[str]) -> bool:
    """Recognise a table of numbers over time, taken for power only if it is named itself."""
    # Epochs of training are no times.
    is_training = {"step", "loss"} <= set(_columns_of(sample.names))
    is_free = not kinds and sample.is_named and not (is_training or sample.is_profile)
    if sample.schema is not None:
        return is_free and time_column(sample.names) is not None
    return is_free and power_format_of(sample.head, sample.source.label) is not None


def _is_data(sample: Sample) -> bool:
    return sample.head.startswith(_PARQUET) or not sample.is_document
