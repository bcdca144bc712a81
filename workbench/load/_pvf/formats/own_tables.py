"""The workbench's own results of fault injection: one file per table, Parquet or CSV."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pandas as pd
import pyarrow as pa

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.stream import DamagedError
from workbench.load._files.tables import opened_parquet, parquet_schema
from workbench.load._pvf.columns import Cells, converted, header_of, text_table
from workbench.load._pvf.part import TABLES, InjectionFile, InjectionPart, folder, note_columns
from workbench.tables import Column

TOOL = "workbench"
NAME = "injection tables"
METADATA = b"workbench-injections"
EXHAUSTIVE_METADATA = b"workbench-exhaustive-injections"
VERSION = 1
# The first four bytes of any Parquet file.
_MAGIC = b"PAR1"
_NO_TAG = "results without a campaign header"
# Names that other writers of these tables use.
SYNONYMS: Mapping[str, str] = {
    "n_inputs": "input_count", "n_masked": "masked_count", "n_benign": "benign_count",
    "n_sdc": "sdc_count", "n_due": "due_count", "n_beneficial": "beneficial_count",
    "flip_no": "flip",
}  # fmt: skip
_MASK_TOLERANCE = "mask_tol"
# Detectors have names of their own, so no table can list their columns.
_DETECTED = Column("Int64", "inputs at which the detector raised an alarm", lower=0, nullable=True)


def role(head: bytes, source: Source) -> str:
    """Describe which table a file holds, by the names of its columns."""
    if head.startswith(_MAGIC):
        try:
            names = parquet_schema(source).names
        except (pa.ArrowException, OSError):
            return ""
    elif head.lstrip()[:1] == b"{":
        names = _json_keys(head)
        return "campaign" if {"campaign_id", "tool"} <= set(names) else ""
    else:
        names = header_of(head)
    return _role_of({SYNONYMS.get(name, name) for name in names})


def _role_of(names: set[str]) -> str:
    if {"campaign_id", "tool"} <= names and "exp_id" not in names:
        return "campaign"
    if {"param", "element_count", "bit_count"} <= names:
        return "parameters"
    if "exp_id" not in names:
        return ""
    if "input_id" in names:
        return "trials"
    if names & {"sdc_count", "metric_value", "due_count"}:
        return "outcomes"
    return "faults" if names & {"bit", "elem", "param", "flip"} else ""


def read(files: list[InjectionFile]) -> list[InjectionPart]:
    """Read the tables of each folder as one set of campaigns."""
    campaigns = []
    for location in dict.fromkeys(folder(file.source) for file in files):
        own = [file for file in files if folder(file.source) == location]
        campaigns.append(_read_folder(location, own))
    return campaigns


def _read_folder(location: str, files: list[InjectionFile]) -> InjectionPart:
    by_role: dict[str, Source] = {}
    for file in files:
        if file.role in by_role:
            msg = (
                f"{location}: holds the table {file.role!r} twice, {by_role[file.role].label} and "
                f"{file.source.label}; load them one by one"
            )
            raise LoadError(msg)
        by_role[file.role] = file.source
    if "campaign" not in by_role:
        msg = (
            f"{location}: holds {_NO_TAG}: beside {', '.join(sorted(by_role))} there must be the "
            "table 'campaign' (campaign.parquet, .csv or .json with campaign_id, tool, ...), "
            "which says what was injected into what"
        )
        raise LoadError(msg)
    notes = {name: Findings(source.label) for name, source in by_role.items()}
    campaign = _read_table("campaign", by_role["campaign"], notes["campaign"], None)
    only = campaign["campaign_id"].iloc[0] if len(campaign) == 1 else None
    frames = {
        name: _read_table(name, source, notes[name], only)
        for name, source in by_role.items()
        if name != "campaign"
    }
    empty = {name: TABLES[name].empty() for name in ("outcomes", "faults", "trials", "parameters")}
    tables: Row = {**empty, **frames}
    return InjectionPart(campaign, **tables, findings=list(notes.values()))


def _read_table(name: str, source: Source, findings: Findings, only: str | None) -> pd.DataFrame:
    table, categories = _cells_of(source, findings)
    if not table.num_rows and name == "campaign":
        msg = f"{source.label}: has a header and no rows; the run was stopped or the file is cut"
        raise LoadError(msg)
    table = _completed(_renamed(table, source), name, only)
    declared = TABLES[name].columns
    if missing := [key for key in declared if key not in table.column_names]:
        msg = f"{source.label}: table {name!r} has no column {missing}; it has {table.column_names}"
        raise LoadError(msg)
    wanted = {**declared, **{key: _DETECTED for key in table.column_names if _is_detector(key)}}
    columns = {
        key: converted(Cells(source.label, key, table[key]), column, categories.get(key))
        for key, column in wanted.items()
        if name == "outcomes" or key in declared
    }
    note_columns(findings, table.column_names, columns)
    return TABLES[name].check(pd.DataFrame(columns), source.label)


def _completed(table: pa.Table, name: str, only: str | None) -> pa.Table:
    """Add what follows from the rest, and columns without a value for what may be missing."""
    count = table.num_rows
    if name == "campaign" and _MASK_TOLERANCE in table.column_names:
        texts = table[_MASK_TOLERANCE].cast(pa.string()).to_pylist()
        rule = ["bit_equal" if text in {"0", "0.0"} else None for text in texts]
        table = table.drop_columns([_MASK_TOLERANCE])
        table = table.append_column("masked_rule", pa.array(rule, pa.string()))
    defaults = {"flip": 0, **({} if only is None else {"campaign_id": only})}
    for key, column in TABLES[name].columns.items():
        if key in table.column_names:
            continue
        if key in defaults:
            table = table.append_column(key, pa.repeat(defaults[key], count))
        elif column.nullable:
            table = table.append_column(key, pa.nulls(count, pa.string()))
    return table


def _is_detector(name: str) -> bool:
    return name.startswith("detected_") and name.endswith("_count")


def _cells_of(source: Source, findings: Findings) -> tuple[pa.Table, dict[str, list[str]]]:
    head = source.head()
    if head.startswith(_MAGIC):
        return _parquet(source, findings)
    if head.lstrip()[:1] == b"{":
        return _json_campaign(source), {}
    return text_table(source, findings, may_be_empty=True), {}


def _renamed(table: pa.Table, source: Source) -> pa.Table:
    names = [SYNONYMS.get(name.strip(), name.strip()) for name in table.column_names]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        msg = f"{source.label}: columns {doubled} are there twice; rename or drop one of each"
        raise LoadError(msg)
    return table.rename_columns(names)


def _parquet(source: Source, findings: Findings) -> tuple[pa.Table, dict[str, list[str]]]:
    try:
        with opened_parquet(source) as file:
            table = file.read()
    except (pa.ArrowException, OSError) as error:
        msg = f"{source.label}: cannot be read as Parquet ({str(error)[:200]}); get it again"
        raise DamagedError(msg) from None
    raw = (table.schema.metadata or {}).get(METADATA)
    header = _loaded(raw, source) if raw else {}
    if header and header.get("version") != VERSION:
        msg = f"{source.label}: has layout version {header.get('version')}, this reads {VERSION}"
        raise LoadError(msg)
    findings.add("read", "rows", table.num_rows)
    return table, header.get("categories", {})


def is_exhaustive(source: Source, head: bytes) -> bool:
    """Return whether a file holds every fault of a model, which another function loads."""
    if not head.startswith(_MAGIC):
        return False
    try:
        return EXHAUSTIVE_METADATA in (parquet_schema(source).metadata or {})
    except (pa.ArrowException, OSError):
        return False


def _json_keys(head: bytes) -> list[str]:
    try:
        document = json.loads(head)
    except (ValueError, RecursionError):
        return []
    return list(document) if isinstance(document, dict) else []


def _json_campaign(source: Source) -> pa.Table:
    with source.open() as stream:
        values = _loaded(stream.read(), source)
    texts = {
        name: None if value is None else value if isinstance(value, str) else json.dumps(value)
        for name, value in values.items()
    }
    return pa.table({name: pa.array([text], pa.string()) for name, text in texts.items()})


def _loaded(raw: bytes, source: Source) -> Row:
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        msg = f"{source.label}: damaged JSON ({str(error)[:80]})"
        raise LoadError(msg) from None
    if not isinstance(document, dict):
        msg = f"{source.label}: holds a JSON {type(document).__name__}, not one object"
        raise LoadError(msg)
    return document
