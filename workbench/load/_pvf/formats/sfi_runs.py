"""Runs of SFIadvancedmodels that have not been compared with the golden one yet."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._pvf.columns import real, text, whole
from workbench.load._pvf.csv_columns import column, text_table
from workbench.load._pvf.part import (
    InjectionPart,
    campaign,
    filled,
    folder,
    note_columns,
    stem,
)
from workbench.load._pvf.trials import UNKNOWN, common, counted, fp32_roles
from workbench.tables import FAULTS, OUTCOMES, TRIALS

_PLACES = tuple(f"Fault_Index_{number}" for number in range(4))
_TAKEN = ("Fault_ID", "Fault_Layer", *_PLACES, "Fault_Bit", "Fault_Value", "Batch_ID", "Image_ID")
_ACCURACY = re.compile(rb"\s*(\d+),(?:1(?:\.0*)?|0(?:\.\d*)?|\d(?:\.\d+)?e-\d+)\s*")
_FEWEST_LINES = 2
_NO_GOLDEN = "rows without a golden run beside: how they ended is not known"


def param_of(layer: str) -> str:
    """Return the full name of the tensor that the tool hits in a layer."""
    return layer if re.search(r"(weight|bias)$", layer) else f"{layer}.weight"


def looks_like_accuracies(head: bytes) -> bool:
    """Recognise ``0,0.91`` ``1,0.90`` ...: faults counted from 0, and an accuracy each."""
    lines = head.splitlines()[:5] if b"\n" in head else []
    found = [_ACCURACY.fullmatch(line) for line in lines]
    return len(found) >= _FEWEST_LINES and all(
        match is not None and int(match[1]) == number for number, match in enumerate(found)
    )


def predictions(sources: list[Source], rules: Mapping[str, Any]) -> list[InjectionPart]:
    """Read decisions per fault and image; the batches of a folder are one campaign."""
    parts = []
    for place in dict.fromkeys(map(folder, sources)):
        mine = [source for source in sources if folder(source) == place]
        findings = [Findings(source.label) for source in mine]
        read = [_prediction_rows(*pair) for pair in zip(mine, findings, strict=True)]
        parts.append(_predicted(pd.concat(read, ignore_index=True), mine, findings, rules))
    return parts


def _prediction_rows(source: Source, findings: Findings) -> pd.DataFrame:
    table = text_table(source, findings)
    note_columns(findings, [name for name in table.column_names if name not in _TAKEN])
    findings.add("noted", _NO_GOLDEN, table.num_rows)
    columns: dict[str, Any] = {
        name: np.asarray(whole(column(table, name, source), lower=0, may_lack=False), np.int64)
        for name in ("Fault_ID", "Fault_Bit", "Batch_ID", "Image_ID")
    }
    columns["Fault_Layer"] = text(column(table, "Fault_Layer", source))
    for name in (*_PLACES, "Fault_Value"):
        if name in table.column_names:
            columns[name] = pd.array(whole(column(table, name, source)))
        else:
            columns[name] = pd.array([pd.NA] * table.num_rows, dtype="Int64")
    return pd.DataFrame(columns)


def _predicted(
    rows: pd.DataFrame, sources: list[Source], findings: list[Findings], rules: Mapping[str, Any]
) -> InjectionPart:
    name = stem(sources[0])
    first = rows.drop_duplicates("Fault_ID").sort_values("Fault_ID", ignore_index=True)
    told = first[list(_PLACES)]
    places = told.apply(lambda row: f"({', '.join(map(str, row.dropna()))})", axis=1)
    stuck = {0: "stuck0", 1: "stuck1"}.get(common(first["Fault_Value"]))
    faults = {
        "campaign_id": name,
        "exp_id": first["Fault_ID"],
        "flip": 0,
        "layer": first["Fault_Layer"],
        "param": first["Fault_Layer"].map(param_of),
        "kind": "weight",
        "index": places.where(told.notna().any(axis=1)),
        "bit": first["Fault_Bit"],
        "bit_role": fp32_roles(first["Fault_Bit"]),
        "dtype": "fp32",
    }
    inputs = rows["Batch_ID"] * (rows["Image_ID"].max() + 1) + rows["Image_ID"]
    codes = np.full(len(rows), UNKNOWN)
    outcomes = counted(name, rows["Fault_ID"].to_numpy(), codes, known=())
    model = "sbf" if first["Fault_Value"].isna().all() else stuck or "other"
    more = {"fault_model": model, "input_count": common(outcomes["input_count"])}
    trials = {"campaign_id": name, "exp_id": rows["Fault_ID"], "input_id": inputs}
    return InjectionPart(
        campaign(campaign_id=name, **{**rules, **more}),
        outcomes,
        filled(FAULTS, faults, len(first)),
        filled(TRIALS, trials, len(rows)),
        findings=findings,
    )


def accuracies(sources: list[Source], rules: Mapping[str, Any]) -> list[InjectionPart]:
    """Read accuracies per fault; a file that is the mean of the others beside it replaces them."""
    parts = []
    for place in dict.fromkeys(map(folder, sources)):
        parts += _accuracies_of([each for each in sources if folder(each) == place], rules)
    return parts


def _accuracies_of(sources: list[Source], rules: Mapping[str, Any]) -> list[InjectionPart]:
    read = [_accuracy_rows(source) for source in sources]
    mean = _mean_of_others([rows for rows, _ in read])
    parts = []
    for number in range(len(read)) if mean is None else [mean]:
        rows, findings = read[number]
        name = stem(sources[number])
        columns: dict[str, Any] = {"exp_id": rows["fault"], "metric_value": rows["accuracy"]}
        columns |= {"campaign_id": name, "metric_name": "accuracy"}
        more = {"metric_name": "accuracy", "criterion": "metric_drop", "masked_rule": None}
        parts.append(
            InjectionPart(
                campaign(campaign_id=name, **{**rules, **more}),
                filled(OUTCOMES, columns, len(rows)),
                findings=[findings],
            )
        )
    if mean is not None:
        others = [findings for number, (_, findings) in enumerate(read) if number != mean]
        for findings in others:
            what = f"accuracies of one batch; {sources[mean].label} is their mean"
            findings.add("set aside", what)
        parts[0].findings += others
    return parts


def _accuracy_rows(source: Source) -> tuple[pd.DataFrame, Findings]:
    findings = Findings(source.label)
    table: pa.Table = text_table(source, findings, names=["fault", "accuracy"])
    fault = np.asarray(whole(column(table, "fault", source), lower=0, may_lack=False), np.int64)
    accuracy = real(column(table, "accuracy", source), lower=0)
    return pd.DataFrame({"fault": fault, "accuracy": accuracy}), findings


def _mean_of_others(frames: list[pd.DataFrame]) -> int | None:
    """Find the file that averages all others; None if there is none."""
    if len(frames) < 2 or len({len(frame) for frame in frames}) > 1:
        return None
    values = np.array([frame["accuracy"].to_numpy() for frame in frames])
    for number, own in enumerate(values):
        others = np.delete(values, number, axis=0)
        if np.allclose(own, others.mean(axis=0), rtol=0, atol=1e-9):
            return number
    return None
