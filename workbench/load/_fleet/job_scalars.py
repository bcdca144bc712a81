"""Scalars that trackers of runs keep by name: TensorBoard event files and MLflow metrics."""

from __future__ import annotations

import math
import re
import struct
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.protobuf import decoder_of, message_class
from workbench.load._files.stream import Stream
from workbench.load._files.text import text_lines
from workbench.load._fleet.job_part import (
    JobGiven,
    JobPart,
    factor_ns,
    in_order,
    meaning_of,
    plain,
    span_rows,
    whole_steps,
)
from workbench.tables import LOGGED_STEPS

NAME = "scalars of a run"
NOT_READ = "scalars that are not read"
WANDB_MAGIC = b":W&B"
WANDB_ADVICE = (
    "is an offline run of Weights & Biases; upload it (wandb sync FOLDER) and export its history: "
    "wandb.Api().run('entity/project/id').history(pandas=True).to_csv('history.csv')"
)
_HEADER, _FOOTER_BYTES = struct.Struct("<QI"), 4
# Scalars take some 50 bytes; images, graphs and histograms are skipped unread.
_LARGEST_RECORD_BYTES = 1 << 14
_CHUNK_BYTES = 1 << 20
_METRIC = re.compile(rb"\A(?:1\d{12} \S{1,40} \d{1,12}\r?\n)+", re.ASCII)
_METRIC_LINE = re.compile(r"(1\d{12}) (\S{1,40}) (\d{1,12})")
_FOLDER_OF_METRICS = re.compile(r"(?:^|[/!])metrics/(?!.*(?:^|/)metrics/)")
_NOT_TRAINING = re.compile(r"(?:^|[/!])(?:val|valid|validation|eval|test)(?:/|$)", re.IGNORECASE)
# Names of known writers whose source tells what they are: Megatron-LM, NeMo, torchtitan, Keras.
_OF_VALIDATION = re.compile(
    r"(?:^|[/!_.-])(?:val|valid|validation|eval|evaluation|test)$", re.IGNORECASE
)
_KNOWN = {
    "iteration_time": ("duration", "s"),
    "train_step_timing_in_s": ("duration", "s"),
    "end_to_end(s)": ("duration", "s"),
    "global_avg_loss": ("loss", ""),
    "batch_loss": ("loss", ""),
}
_READ = ("duration", "loss", "tokens", "samples", "rate")
_LATEST_S = 4e9

Rows = list[tuple[int, int, float, int, str]]  # step, time in ns, value, record, file


def looks_like(head: bytes, label: str) -> bool:
    """Recognise an event file by the checksum of its first length, or a file of one metric."""
    if len(head) >= _HEADER.size:
        length, check = _HEADER.unpack_from(head)
        if 0 < length < 1 << 32 and check == _masked(head[:8]):
            return True
    return bool(_FOLDER_OF_METRICS.search(label)) and _METRIC.match(head) is not None


def run_of(source: Source) -> str:
    """Return the folder of the run that a file belongs to."""
    if match := _FOLDER_OF_METRICS.search(source.label):
        return source.label[: match.start()]
    return source.label.rpartition("/")[0]


def of_validation(runs: Collection[str]) -> set[str]:
    """Return the runs whose folder says that they are the validation of a run beside them.

    Keras and ``add_scalars`` write one folder for each, with the same names of scalars.
    """
    named = {run for run in runs if _OF_VALIDATION.search(run)}
    beside = {run.rpartition("/")[0] for run in runs if run not in named}
    beside |= {run for run in runs if run not in named}
    return {run for run in named if run.rpartition("/")[0] in beside}


def read_run(sources: Sequence[Source], options: JobGiven) -> Iterator[JobPart]:
    """Read the files of one run as one log, file after file by the times of their first records.

    The end of a step is when the first of its scalars was written. What is wrong with a further
    file is told of that file, in a part of its own without steps.
    """
    files: list[tuple[dict[str, Rows], Findings]] = []
    for source in sources:
        is_metric = _METRIC.match(source.head()) is not None
        files.append(({}, Findings(source.label)))
        (_read_metric if is_metric else _read_events)(source, *files[-1])
    scalars: dict[str, Rows] = {}
    for tags, _ in sorted(
        files, key=lambda file: min([rows[0][1] for rows in file[0].values()], default=0)
    ):
        for tag, rows in tags.items():
            scalars.setdefault(tag, []).extend(rows)
    yield part_of(scalars, options, files[0][1])
    for _, findings in files[1:]:
        yield JobPart(LOGGED_STEPS.empty(), span_rows([], ""), findings)


def part_of(scalars: dict[str, Rows], options: JobGiven, findings: Findings) -> JobPart:
    """Make a log of the scalars of one run."""
    columns = _columns(scalars, options, findings)
    table = _table(scalars, columns, findings)
    if options.tokens_per_step is not None and len(table):
        table["token_count"] = table["token_count"].fillna(options.tokens_per_step)
    return JobPart(whole_steps(table, findings), span_rows([], ""), findings, says_attempt=False)


def _columns(
    scalars: dict[str, Rows], options: JobGiven, findings: Findings
) -> dict[str, tuple[str, str]]:
    """Return tag and unit for what is read: as the caller says, or by name."""
    columns: dict[str, tuple[str, str]] = {}
    for tag in sorted(scalars, key=lambda tag: (tag.count("/"), len(tag), tag)):
        kind, unit = _meaning(tag)
        if kind == "duration" and not unit:
            words = f"scalar {tag!r} does not state its unit; not read"
            findings.add("noted", f'{words}, columns={{"duration_s": {tag!r}}} says it')
        elif kind and kind not in columns:
            columns[kind] = (tag, unit)
    for meaning, tag in options.columns.items():
        kind = {"tokens_per_s": "rate"}.get(meaning, meaning.partition("_")[0])
        if tag not in scalars or kind not in _READ:
            some = ", ".join(sorted(scalars)[:20])
            msg = (
                f"{findings.source}: columns= names {tag!r} as {meaning}, which it lacks; it has "
                f"{some}; a scalar is duration_s, loss, tokens, tokens_per_s or samples"
            )
            raise LoadError(msg)
        columns[kind] = (tag, meaning.partition("_")[2] if kind == "duration" else "")
    others = sorted(set(scalars) - {tag for tag, _ in columns.values()})
    if others:
        findings.add("noted", NOT_READ, len(others), ", ".join(others[:8]))
    return columns


def _meaning(tag: str) -> tuple[str, str]:
    """Return what a tag means and its unit.

    Scalars over samples (``loss vs samples``) have no step, those of validation another one.
    """
    if " vs " in tag or _NOT_TRAINING.search(tag):
        return "", ""
    last = tag.rpartition("/")[2]
    kind, unit = _KNOWN.get(plain(last)) or meaning_of(last)
    return (kind, unit) if kind in _READ else ("", "")


def _table(
    scalars: dict[str, Rows], columns: dict[str, tuple[str, str]], findings: Findings
) -> pd.DataFrame:
    """Make one row per step and pass of the run over it."""
    pieces = []
    # What is wrong with the order of the records is told once, of the scalar that has most.
    most = max(columns, key=lambda kind: len(scalars[columns[kind][0]]), default="")
    for kind, (tag, unit) in columns.items():
        rows = pd.DataFrame(scalars[tag], columns=["step", "end_ns", "value", "line", "source"])
        rows = in_order(rows, findings if kind == most else Findings(""))
        # A step number that does not rise begins another pass, after a restart.
        rows["pass"] = (rows["step"].diff() <= 0).fillna(value=False).cumsum()
        rows = rows.drop_duplicates(["pass", "step"], keep="last")
        values = rows["value"] * (factor_ns(unit) if kind == "duration" else 1)
        pieces.append(rows.assign(kind=kind, value=values))
    names = {"duration": "dur_ns", "tokens": "token_count", "samples": "sample_count"}
    empty = pd.DataFrame(columns=["step", "pass", "end_ns", "value", "line", "kind", "source"])
    long = pd.concat(pieces, ignore_index=True) if pieces else empty
    keys = ["pass", "step"]
    first = long.sort_values(["end_ns", "line"], kind="stable").groupby(keys)
    table = first[["end_ns", "line", "source"]].first()
    for kind in _READ:
        of_kind = long[long["kind"] == kind].set_index(keys)["value"]
        values = of_kind.reindex(table.index).astype("float64")
        if kind in ("loss", "rate"):
            table[{"rate": "token_rate"}.get(kind, kind)] = values
        else:
            # Durations have fractions of a nanosecond; counts that are not whole numbers are none.
            whole = values.round() if kind == "duration" else values.where(values % 1 == 0)
            table[names[kind]] = whole.where(whole.between(0, 1 << 53)).astype("Int64")
    table = table.reset_index().sort_values(["end_ns", "line"], ignore_index=True)
    return table.assign(
        start_ns=pd.array([pd.NA] * len(table), "Int64"),
        attempt=pd.array([pd.NA] * len(table), "Int64"),
        step=table["step"].astype("Int64"), end_ns=table["end_ns"].astype("Int64"),
    ).drop(columns="pass")  # fmt: skip


def _read_metric(source: Source, scalars: dict[str, Rows], findings: Findings) -> None:
    match = _FOLDER_OF_METRICS.search(source.label)
    tag = source.label[match.end() :] if match else source.label
    rows = scalars.setdefault(tag, [])
    for number, text in text_lines(source, findings):
        line = _METRIC_LINE.fullmatch(text.strip())
        value = _number(line[2]) if line else None
        if line is None or value is None:
            findings.add("dropped", "lines without time, value and step", 1, f"line {number:,}")
        else:
            at_ns = int(line[1]) * 1_000_000
            rows.append((int(line[3]), at_ns, value, number, source.label))


def unbounded(value: float) -> float:
    """Return a value of MLflow, whose databases keep infinity as the largest float there is."""
    return math.copysign(math.inf, value) if abs(value) >= sys.float_info.max else float(value)


def _number(text: str) -> float | None:
    try:
        return unbounded(float(text))
    except ValueError:
        return None


@cache
def _event_class() -> Any:
    return message_class("workbench_tensorboard", "Event", _MESSAGES, syntax="proto2")


def _read_events(source: Source, scalars: dict[str, Rows], findings: Findings) -> None:
    decode = decoder_of(_event_class())
    count = 0
    with source.open() as stream:
        for number, payload in enumerate(_records(stream, findings), start=1):
            event = decode(payload)
            if event is None:
                findings.add("dropped", "records that are not events", 1, f"record {number:,}")
                continue
            if not event.summary.value:
                continue
            if not 0 <= event.wall_time < _LATEST_S or not 0 <= event.step < 1 << 53:
                findings.add(
                    "dropped", "events without a usable time or step", 1, f"record {number:,}"
                )
                continue
            for value in event.summary.value:
                if (scalar := _scalar(value)) is not None:
                    tag = value.tag.decode("utf-8", "replace")
                    time_ns = round(event.wall_time * 1e9)
                    row = (event.step, time_ns, scalar, number, source.label)
                    scalars.setdefault(tag, []).append(row)
                    count += 1
        if stream.truncated_at is not None:
            findings.add("truncated", "the packed file ends early: the rest is dropped")
    findings.add("read", "scalars", count)


def _records(stream: Stream, findings: Findings) -> Iterator[bytes]:
    """Yield the payloads of TFRecords; those too large for scalars are skipped."""
    at = 0
    while header := stream.read(_HEADER.size):
        length, check = _HEADER.unpack(header.ljust(_HEADER.size, b"\0"))
        if len(header) < _HEADER.size or check != _masked(header[:8]):
            words = "a length is damaged or cut off: the rest is dropped"
            findings.add("truncated", words, 1, f"byte {at:,}")
            return
        is_large = length > _LARGEST_RECORD_BYTES
        kept = 0 if is_large else length
        body = stream.read(kept + _FOOTER_BYTES) if _passed_over(stream, length - kept) else b""
        if len(body) < kept + _FOOTER_BYTES:
            findings.add("truncated", "the file ends inside a record", 1, f"byte {at:,}")
            return
        is_sound = is_large or int.from_bytes(body[kept:], "little") == _masked(body[:kept])
        where = f"byte {at:,}"
        findings.add("skipped by design", "records of images, graphs and the like", int(is_large))
        findings.add("dropped", "records whose checksum does not fit", int(not is_sound), where)
        yield body[:kept] if is_sound else b""
        at += _HEADER.size + length + _FOOTER_BYTES


def _passed_over(stream: Stream, size_bytes: int) -> bool:
    """Read so many bytes; False if there are fewer."""
    while size_bytes:
        piece = stream.read(min(size_bytes, _CHUNK_BYTES))
        if not piece:
            return False
        size_bytes -= len(piece)
    return True


def _scalar(value: Any) -> float | None:
    """Return the number of a value; None if it is none, e.g. an image or a histogram."""
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if not value.HasField("tensor"):
        return None
    tensor = value.tensor
    for numbers in (tensor.float_val, tensor.double_val, tensor.int_val, tensor.int64_val):
        if len(numbers) == 1:
            return float(numbers[0])
    dtype = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8"}.get(tensor.dtype)
    if dtype is None or len(tensor.tensor_content) != np.dtype(dtype).itemsize:
        return None
    return float(np.frombuffer(tensor.tensor_content, dtype)[0])


@cache
def _crc_table() -> list[int]:
    """Make the table of CRC-32C (Castagnoli, reflected)."""
    table = list(range(256))
    for _ in range(8):
        table = [(value >> 1) ^ (0x82F63B78 if value & 1 else 0) for value in table]
    return table


def _masked(data: bytes) -> int:
    r"""Return the checksum of TFRecords: CRC-32C, rotated and shifted.

    Examples
    --------
    >>> hex(_masked(bytes(8)))
    '0x7980329'
    """
    table, crc = _crc_table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


_MESSAGES = {
    "Tensor": {
        "dtype": "1 int32", "tensor_content": "4 bytes", "float_val": "5 float*",
        "double_val": "6 double*", "int_val": "7 int32*", "int64_val": "10 int64*",
    },
    "Value": {"tag": "1 bytes", "simple_value": "2 float", "tensor": "8 Tensor"},
    "Summary": {"value": "1 Value*"},
    "Event": {"wall_time": "1 double", "step": "2 int64", "summary": "5 Summary"},
}  # fmt: skip
