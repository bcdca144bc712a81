"""Results of any tool that keeps them in CSV or JSON lines, by the names of its columns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from workbench.errors import LoadError
from workbench.load._files.archive import Source, survey
from workbench.load._files.findings import Findings, Record, Row
from workbench.load._files.tables import MOST_COLUMNS
from workbench.load._files.text import text_lines
from workbench.load._files.wanted import INJECTIONS
from workbench.load._pvf.checks import DUE, SDC, UNKNOWN, check_part, counted
from workbench.load._pvf.columns import Cells, converted, text_table
from workbench.load._pvf.part import InjectionPart, filled, note_columns, outcome_categories, stem
from workbench.load._pvf.reader import assembled
from workbench.tables import CAMPAIGN, FAULTS, OUTCOME_NAMES, OUTCOMES, TRIALS, Column, Injections

_DECISIONS = {
    "golden": Column("str", "decision without the fault", nullable=True),
    "faulty": Column("str", "decision with it", nullable=True),
    "label": Column("str", "right decision", nullable=True),
    "is_due": Column("boolean", "whether the output was not finite", nullable=True),
    "outcome": Column("str", "how the input ended, in words of the file", nullable=True),
}
_KNOWN: Mapping[str, Column] = {
    name: column
    for declared in (FAULTS.columns, TRIALS.columns, OUTCOMES.columns, _DECISIONS)
    for name, column in declared.items()
    if name != "campaign_id"
}
_RESULTS = ("sdc_count", "due_count", "masked_count", "benign_count", "metric_value")


def injection_records(
    path: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    campaign: Record | None = None,
    outcomes: Mapping[str, str] | None = None,
) -> Injections:
    """Load results from a CSV file or JSON lines whose columns you name: PyTorchFI, your own.

    Every row, or line, is an experiment, with counts or a measure of quality; or, if
    ``outcome``, or ``golden`` and ``faulty``, are named, one input of an experiment.

    Parameters
    ----------
    path
        The file, CSV or one JSON object per line; gzip is fine.
    columns
        Names in the file (of a value in an object inside a line: ``outer.inner``), by name in
        the tables :data:`workbench.tables.FAULTS`, ``OUTCOMES`` and ``TRIALS``: ``{"exp_id":
        "run", "layer": "layer", "bit": "bit", "sdc_count": "mismatches"}``. Further for rows of
        single inputs: ``golden`` and ``faulty`` decisions, the right one (``label``), and
        ``is_due`` (output not finite). Bits count from the least significant. By default
        every column that is named as in the tables is read.
    campaign
        What is known of the campaign, by columns of :data:`workbench.tables.CAMPAIGN`:
        ``{"tool": "PyTorchFI", "model_name": "resnet18", "dtype": "fp32"}``.
    outcomes
        Outcomes by the words in the file: ``{"SDC-1": "sdc", "ok": "masked"}``.

    Returns
    -------
    Injections
        As from :func:`injections`.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If a column is absent or holds something else, or counts contradict each other.
    ValueError
        If ``columns``, ``campaign`` or ``outcomes`` name what the tables do not have.

    Notes
    -----
    Where decisions are equal it is not known whether the output changed: then
    ``masked_count`` and ``benign_count`` are missing. Without ``is_due`` so is ``due_count``.
    """
    head = {"tool": "unknown", **(campaign or {})}
    if columns is not None:
        _check_names(columns, head, outcomes or {})
    source = _only(path)
    findings = Findings(source.label)
    read = json_table if is_json_lines(source) else text_table
    table = read(source, findings)
    if columns is None:
        columns = _own_names(table.column_names, source)
        _check_names(columns, head, outcomes or {})
    if missing := [name for name in columns.values() if name not in table.column_names]:
        msg = (
            f"{source.label}: no column {missing}; it has {table.column_names[:20]}. "
            "Say which is which with columns={...}"
        )
        raise LoadError(msg)
    note_columns(findings, table.column_names, set(columns.values()))
    values = _values(table, columns, source)
    head.setdefault("campaign_id", stem(source))
    _check_values(head)
    result = _part(values, head, outcomes or {}, source)
    result.findings.append(findings)
    check_part(result)
    return assembled([result])


def names_records(names: Iterable[str]) -> bool:
    """Return whether fields of these names hold injections that need no ``columns``."""
    present = set(names)
    has_result = bool(present & {*_RESULTS, "outcome"}) or {"golden", "faulty"} <= present
    return has_result and bool(present & {"exp_id", "bit"})


def _own_names(names: Sequence[str], source: Source) -> dict[str, str]:
    if not names_records(names):
        msg = (
            f"{source.label}: no column is named as a result and its experiment are in the "
            f"tables; it has {list(names)[:20]}. Say which is which with columns={{...}}"
        )
        raise LoadError(msg)
    if "outcome" in names and {"golden", "faulty"} & set(names):
        msg = (
            f"{source.label}: has a column outcome and decisions (golden, faulty); say which is "
            "to be believed with columns={...}"
        )
        raise LoadError(msg)
    # One decision alone is compared with nothing.
    alone = set() if {"golden", "faulty"} <= set(names) else {"golden", "faulty"}
    return {name: name for name in names if name in _KNOWN and name not in alone}


def _check_names(columns: Mapping[str, str], campaign: Record, outcomes: Mapping[str, str]) -> None:
    for argument, names, allowed in (
        ("columns", columns, _KNOWN),
        ("campaign", campaign, CAMPAIGN.columns),
        ("outcomes", set(outcomes.values()), OUTCOME_NAMES),
    ):
        if unknown := sorted(set(names) - set(allowed)):
            msg = f"{argument}= names {unknown}, which the tables do not have; they have "
            msg += f"{list(allowed)}"
            raise ValueError(msg)
    if ("golden" in columns) != ("faulty" in columns):
        msg = "columns= names one of golden and faulty; decisions are compared, so name both"
        raise ValueError(msg)
    if "outcome" in columns and "golden" in columns:
        msg = "columns= names outcome and decisions; name the one that is to be believed"
        raise ValueError(msg)
    if not {*_RESULTS, "outcome", "golden"} & set(columns):
        msg = f"columns= names no result; name outcome, golden and faulty, or one of {_RESULTS}"
        raise ValueError(msg)


def _check_values(campaign: Record) -> None:
    for name, value in campaign.items():
        try:
            filled(CAMPAIGN, {"campaign_id": "", "tool": "", name: value}, 1)
        except (ValueError, TypeError) as error:
            column = CAMPAIGN.columns[name]
            msg = (
                f"campaign={{{name!r}: {value!r}}} is no {column.dtype} ({column.meaning}): {error}"
            )
            raise ValueError(msg) from None


def _only(path: str | Path) -> Source:
    sources = survey(path, wanted=INJECTIONS).sources
    if len(sources) != 1:
        msg = f"{path}: holds {len(sources)} files; load.injection_records reads one file"
        raise LoadError(msg)
    return sources[0]


def _values(table: pa.Table, columns: Mapping[str, str], source: Source) -> Row:
    return {
        name: pd.Series(converted(Cells(source.label, key, table[key]), _KNOWN[name]))
        for name, key in columns.items()
    }


def _part(values: Row, head: Row, words: Mapping[str, str], source: Source) -> InjectionPart:
    name, rows = str(head["campaign_id"]), len(next(iter(values.values())))
    exp = values.setdefault("exp_id", pd.Series(np.arange(rows)))
    if "outcome" not in values and "golden" not in values:
        kept = {key: series for key, series in values.items() if key in OUTCOMES.columns}
        outcomes = filled(OUTCOMES, {**kept, "campaign_id": name}, rows)
        faults = _faults(values, name, source)
        return InjectionPart(filled(CAMPAIGN, head, 1), outcomes, faults)
    codes, outcomes_told = _codes(values, words, source)
    beneficial = None
    if {"label", "golden"} <= set(values):
        _refuse_missing(values, "label", source)
        golden, faulty, label = (_alike(values[series]) for series in ("golden", "faulty", "label"))
        beneficial = (codes == SDC) & (golden != label) & (faulty == label)
        beneficial = beneficial.to_numpy(np.bool_)
    trials = {
        "campaign_id": name,
        "input_id": exp.groupby(exp).cumcount(),
        **{key: series for key, series in values.items() if key in TRIALS.columns},
        "outcome": outcome_categories(codes),
        "is_beneficial": beneficial,
    }
    result = InjectionPart(
        filled(CAMPAIGN, head, 1),
        counted(name, exp.to_numpy(np.int64), codes, outcomes=outcomes_told, beneficial=beneficial),
        _faults(values, name, source),
        filled(TRIALS, trials, rows),
    )
    result.is_counted_here = True
    result.is_numbered_here = "input_id" not in values
    return result


def _codes(
    values: Row, words: Mapping[str, str], source: Source
) -> tuple[np.ndarray, tuple[str, ...]]:
    if "outcome" in values:
        stated = values["outcome"].replace(dict(words)) if words else values["outcome"]
        numbers = {name: number for number, name in enumerate(OUTCOME_NAMES)}
        codes = stated.map(numbers)
        if (bad := codes.isna() & stated.notna()).any():
            row = int(bad.to_numpy().argmax())
            msg = (
                f"{source.label}: row {row + 1:,} ends as {stated.iloc[row]!r}; say what that is, "
                f"one of {OUTCOME_NAMES}, with outcomes={{{stated.iloc[row]!r}: ...}}"
            )
            raise LoadError(msg)
        outcomes_told = tuple(dict.fromkeys([*words.values(), *stated.dropna().unique()]))
        codes_of_rows = codes.fillna(UNKNOWN).to_numpy(np.int64)
    else:
        _refuse_missing(values, "golden", source)
        _refuse_missing(values, "faulty", source)
        same = _alike(values["golden"]) == _alike(values["faulty"])
        # Equal decisions may come of other outputs: masked or benign is not known.
        outcomes_told, codes_of_rows = ("sdc",), np.where(same, UNKNOWN, SDC)
    if "is_due" in values:
        _refuse_missing(values, "is_due", source)
        is_due = values["is_due"].to_numpy(np.bool_)
        outcomes_told, codes_of_rows = (
            tuple(dict.fromkeys([*outcomes_told, "due"])),
            np.where(is_due, DUE, codes_of_rows),
        )
    return codes_of_rows, outcomes_told


# A column that once lacked a cell holds 3.0 where another holds 3.
def _alike(decisions: pd.Series) -> pd.Series:
    return decisions.astype(object).str.strip().str.replace(r"^(-?\d+)\.0+$", r"\1", regex=True)


def _refuse_missing(values: Row, name: str, source: Source) -> None:
    bad = values[name].isna()
    # An output that is not finite has no decision to compare.
    if "is_due" in values and name != "is_due":
        bad &= ~values["is_due"].fillna(value=False).astype(bool)
    if bad.any():
        row = int(bad.to_numpy().argmax())
        msg = (
            f"{source.label}: row {row + 1:,} has an empty cell as {name!r} ({int(bad.sum()):,} "
            "rows do); how these inputs ended is not known: take the rows out, or name a column "
            "is_due for outputs that are not finite"
        )
        raise LoadError(msg)


def _faults(values: Row, name: str, source: Source) -> pd.DataFrame:
    kept = {key: series for key, series in values.items() if key in FAULTS.columns}
    # Rows of single inputs repeat the fault of their experiment.
    rows = pd.DataFrame(kept).assign(flip=kept.get("flip", 0)).drop_duplicates(ignore_index=True)
    if (again := rows.duplicated(["exp_id", "flip"])).any():
        exp = rows.loc[again, "exp_id"].iloc[0]
        msg = (
            f"{source.label}: experiment {exp} is recorded as hitting different places; name a "
            "column for flip if it hit several bits"
        )
        raise LoadError(msg)
    columns = {str(key): series for key, series in rows.items()}
    return filled(FAULTS, {**columns, "campaign_id": name}, len(rows))


def is_json_lines(source: Source) -> bool:
    """Return whether a file begins with an object of JSON; a row of CSV does not."""
    return source.head().removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{"


def json_table(source: Source, findings: Findings) -> pa.Table:
    """Read every line as a row; values of objects inside are named ``outer.inner``."""
    columns: dict[str, list[str | None]] = {}
    rows = 0
    for line, text in text_lines(source, findings):
        if not text.strip():
            continue
        if (record := _record(text)) is None:
            findings.add("dropped", "lines that are not JSON objects", 1, f"line {line:,}")
            continue
        for name in record:
            columns.setdefault(name, [None] * rows)
        # A hostile file could name a new column in every line, each as long as the table.
        if len(columns) > MOST_COLUMNS:
            msg = f"{source.label}: over {MOST_COLUMNS:,} names by line {line:,}; is it a table?"
            raise LoadError(msg)
        for name, values in columns.items():
            values.append(record.get(name))
        rows += 1
    if not rows:
        msg = f"{source.label}: no line is a JSON object; write one object per line"
        raise LoadError(msg)
    findings.add("read", "rows", rows)
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})


def _record(text: str) -> dict[str, str | None] | None:
    """Return the values of one line as text; None if not an object, or if a name is used twice."""
    try:
        # Numbers stay as they are written: they may be longer than Python converts.
        value = json.loads(
            text, parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=_once
        )
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    flat: Row = {}
    for name, inside in value.items():
        inner = inside if isinstance(inside, dict) else None
        flat |= {name: inside} if inner is None else {f"{name}.{k}": v for k, v in inner.items()}
    return {name: _text(inside) for name, inside in flat.items()}


def _once(pairs: list[tuple[str, Any]]) -> Row:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        msg = "an object names a value twice"
        raise ValueError(msg)
    return unique


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    return json.dumps(value)
