"""A table of training steps: CSV, JSON objects or Parquet, its columns found by name."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, guarded
from workbench.load._files.tables import (
    PARQUET_MAGIC,
    csv_table,
    header_of,
    json_table,
    keys_of,
    parquet_schema,
    parquet_texts,
)
from workbench.load._files.time import utc_ns
from workbench.load._fleet.job_part import (
    NAMES,
    JobGiven,
    JobPart,
    columns_of,
    factor_ns,
    meaning_of,
    plain,
    span_rows,
    whole_steps,
)
from workbench.load._traces.parquet import is_trace
from workbench.tables import SAYS_SYNTHETIC

NAME = "table of steps"
_UNITS = ("duration_s", "duration_ms", "duration_us", "duration_ns")
_MEANT = (*NAMES, *_UNITS, "tokens_per_s")
# Columns whose stamps may be of the beginning of a step as well as of its end.
_EITHER = ("time", "timestamp", "_timestamp", "ts", "datetime", "wall_time", "date")
# Numbers that can only be times since 1970 in one unit: the years 2001 to 2096.
_FIRST, _LAST = 1e9, 4e9
_SCALES = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"


# Columns of tables that hold one metric per row: MLflow's database, and its metrics as a frame.
_ONE_METRIC = ("key", "value", "step")


def looks_like(head: bytes, columns: dict[str, str] | None = None) -> bool:
    """Recognise a header, or a first object, with a stamp, and a step or its duration in a unit."""
    return are_steps(header_of(head) or keys_of(head), columns)


def has_named_columns(source: Source, head: bytes, columns: dict[str, str]) -> bool:
    """Recognise a table of named columns, or in Parquet, before other formats are tried."""
    if not head.startswith(PARQUET_MAGIC):
        return bool(columns) and looks_like(head, columns)
    with guarded(source.label):
        schema = parquet_schema(source)
        # A stored trace has steps and times, too.
        return not is_trace(schema) and are_steps(schema.names, columns)


def are_steps(names: list[str], columns: dict[str, str] | None = None) -> bool:
    if columns:
        return bool(names) and set(columns.values()) <= set(names)
    meanings = columns_of(names)
    has_time = bool({"start", "end"} & set(meanings))
    return has_time and ("step" in meanings or bool(meanings.get("duration", ("", ""))[1]))


def read_job(source: Source, options: JobGiven) -> JobPart:
    findings = Findings(source.label)
    raw, noun = _texts(source, findings)
    meanings = _found(raw, options, source.label)
    steps = _Cells(raw, findings, noun)
    table = pd.DataFrame({"line": raw.index.to_numpy()}, index=raw.index)
    for name, kind in (("step", "step"), ("attempt", "attempt"), ("token_count", "tokens")):
        table[name] = steps.whole(meanings.get(kind))
    table["sample_count"] = steps.whole(meanings.get("samples"))
    if options.tokens_per_step is not None:
        table["token_count"] = table["token_count"].fillna(options.tokens_per_step)
    for name in ("start", "end"):
        table[f"{name}_ns"] = steps.stamps(meanings.get(name), options.tz)
    table["dur_ns"] = steps.durations(meanings.get("duration"))
    for name, kind in (("loss", "loss"), ("token_rate", "rate")):
        if kind in meanings:
            table[name] = steps.numbers(meanings[kind][0])
    if "synthetic" in raw:
        says = raw["synthetic"].str.lower().isin(["true", "1", "yes"])
        findings.add("noted", SAYS_SYNTHETIC, int(says.sum()))
    _tell_of_ends(meanings, options, findings)
    if len(table) and "attempt" in meanings:
        # Attempts count from 1 here; many loggers begin with 0.
        table["attempt"] = table["attempt"] + max(0, 1 - int(table["attempt"].min()))
    says_attempt = "attempt" in meanings
    return JobPart(whole_steps(table, findings), span_rows([], ""), findings, says_attempt)


def _texts(source: Source, findings: Findings) -> tuple[pd.DataFrame, str]:
    """Read a table as text, and say what its index counts."""
    head = source.head(1 << 16)
    if head.startswith(PARQUET_MAGIC):
        return parquet_texts(source, findings), "row"
    if header_of(head):
        return csv_table(source, findings), "line"
    return json_table(source, findings), "record"


def _found(raw: pd.DataFrame, options: JobGiven, label: str) -> dict[str, tuple[str, str]]:
    """Return name and unit of the column for each meaning: as the caller says, or by name."""
    meanings = columns_of(map(str, raw.columns))
    for meaning, name in options.columns.items():
        if name not in raw:
            msg = f"{label}: columns= names {name!r}, which it has not; it has {_few(raw)}"
            raise LoadError(msg)
        kind, _, unit = meaning.partition("_") if meaning != "tokens_per_s" else ("rate", "", "")
        meanings[kind] = (name, unit or meaning_of(name)[1])
    if set(_ONE_METRIC) <= set(raw) and raw["key"].nunique() > 1:
        msg = (
            f"{label}: has a row per metric, several of which make up one step; pass the mlflow.db "
            "or mlruns/ that it is from, or give each metric a column"
        )
        raise LoadError(msg)
    if not {"start", "end"} & set(meanings):
        msg = (
            f"{label}: no column with the time of a step; it has {_few(raw)}. Say which it is "
            'with columns={"end": "..."} or columns={"start": "..."}'
        )
        raise LoadError(msg)
    name, unit = meanings.get("duration", ("", "s"))
    if not unit:
        msg = (
            f"{label}: column {name!r} does not state its unit; pass "
            f'columns={{"duration_s": {name!r}}} or columns={{"duration_ms": {name!r}}}'
        )
        raise LoadError(msg)
    return meanings


def check_columns(columns: dict[str, str]) -> None:
    if unknown := sorted(set(columns) - set(_MEANT)):
        msg = f"columns= names {unknown}, which no step has; known: {list(_MEANT)}"
        raise LoadError(msg)


def _tell_of_ends(
    meanings: dict[str, tuple[str, str]], options: JobGiven, findings: Findings
) -> None:
    name = meanings.get("end", ("", ""))[0]
    if name and "end" not in options.columns and "start" not in meanings and plain(name) in _EITHER:
        assumption = f"stamps of column {name!r} taken as the ends of steps"
        findings.add("assumed", f'{assumption}; columns={{"start": ...}} says otherwise')


def _few(raw: pd.DataFrame) -> list[str]:
    return [str(name) for name in raw.columns][:20]


class _Cells:
    """Reads columns of text as numbers and stamps; what is none is missing, and counted."""

    def __init__(self, raw: pd.DataFrame, findings: Findings, noun: str) -> None:
        self._raw, self._findings, self._noun = raw, findings, noun

    def whole(self, column: tuple[str, str] | None) -> pd.Series:
        if column is None:
            return pd.Series(pd.NA, index=self._raw.index, dtype="Int64")
        values = self.numbers(column[0])
        with np.errstate(invalid="ignore"):
            good = (values >= 0) & (values % 1 == 0) & (values < 1 << 53)
        self._count(column[0], ~good & self._raw[column[0]].notna(), "whole numbers from 0")
        return values.where(good).astype("Int64")

    def durations(self, column: tuple[str, str] | None) -> pd.Series:
        if column is None:
            return pd.Series(pd.NA, index=self._raw.index, dtype="Int64")
        values = self.numbers(column[0]) * factor_ns(column[1])
        good = values.between(0, 1 << 62)
        self._count(column[0], ~good & self._raw[column[0]].notna(), "durations from 0")
        return values.where(good).round().astype("Int64")

    def stamps(self, column: tuple[str, str] | None, tz: str | None) -> pd.Series:
        """Read instants: numbers since 1970, or ISO 8601."""
        if column is None:
            return pd.Series(pd.NA, index=self._raw.index, dtype="Int64")
        texts = self._raw[column[0]].fillna("").str.strip()
        is_number = texts.str.fullmatch(_NUMBER)
        lines = pd.Series(self._raw.index.to_numpy(), index=self._raw.index)
        written = utc_ns(texts[~is_number], lines[~is_number], tz, self._findings)
        numbers = self._since_1970(column, texts[is_number])
        instants: pd.Series = pd.concat([written.ns.astype("Int64"), numbers]).reindex(texts.index)
        return instants

    def _since_1970(self, column: tuple[str, str], texts: pd.Series) -> pd.Series:
        values = texts.astype("float64")
        if values.empty:
            return pd.Series(dtype="Int64")
        name, stated = column
        usual = float(values.median())
        units = [u for u, s in _SCALES.items() if _FIRST <= usual / s < _LAST]
        if not units or (stated and stated not in units):
            unit_text = f", in {stated}" if stated else ""
            msg = (
                f"{self._findings.source}: column {name!r} holds {usual:.15g}{unit_text}, which is "
                "not a time since 1970; write stamps as ISO 8601 or as s, ms, us or ns since 1970"
            )
            raise LoadError(msg)
        scale = _SCALES[units[0]]
        finding = "noted" if stated else "assumed"
        assumption = f"numbers of column {name!r} taken as {units[0]} since 1970"
        assumption += "" if stated else ", by their size"
        self._findings.add(finding, assumption, len(values))
        good = (values / scale).between(_FIRST, _LAST)
        self._count(name, (~good).reindex(self._raw.index, fill_value=False), "times like the rest")
        # Digits beyond what a float holds are kept: whole and fraction are read apart.
        pieces = texts[good].str.extract(r"^\+?(\d+)(?:\.(\d*))?$")
        integer = pd.to_numeric(pieces[0]).astype("Int64")
        digits = pieces[1].fillna("").str.slice(0, 9).str.pad(9, "right", "0")
        fraction = digits.astype("int64") // scale
        exact = integer * (1_000_000_000 // scale) + fraction
        rough = (values[good] * (1e9 / scale)).round().astype("Int64")
        return exact.fillna(rough)

    def numbers(self, name: str) -> pd.Series:
        return pd.to_numeric(self._raw[name], errors="coerce").astype("float64")

    def _count(self, name: str, bad: pd.Series, noun: str) -> None:
        if bad.any():
            first = bad.index[bad.to_numpy(dtype=bool)][0]
            text = str(self._raw[name][first])[:40]
            where = f"{self._noun} {int(first):,}: {text}"
            remark = f"cells of {name!r} that are not {noun}"
            self._findings.add("dropped", remark, int(bad.sum()), where)
