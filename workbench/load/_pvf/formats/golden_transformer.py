"""Results of GoldenTransformer: one JSON document with a baseline and one entry per fault."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._pvf.columns import whole_text
from workbench.load._pvf.part import InjectionFile, InjectionPart, campaign, filled, stem
from workbench.tables import FAULTS, OUTCOMES

TOOL = "GoldenTransformer"
NAME = "GoldenTransformer"
_HEAD = re.compile(rb'\A\s*\{\s*"baseline"\s*:\s*\{')
_INFO = re.compile(r"(\w+)\((.*)\)", re.DOTALL)
_LAYERS = re.compile(r"layers?=(?:\[(?=[\d,\s]+\])|(?=\d+[,)]))([\d\s]+(?:,[\d\s]+)*)")
_KINDS = {"WeightCorruption": "weight", "ActivationFault": "activation", "LayerFault": "activation"}
# Time is a measure of the run, not of the quality of the output.
_TIMES = "LatencyMetric"
_OTHERS = "measures besides the first one"


def role(head: bytes, source: Source) -> str:  # noqa: ARG001 - the head tells
    """Recognise the document by its first key."""
    return "results" if _HEAD.match(head) else ""


def read(files: list[InjectionFile]) -> list[InjectionPart]:
    return [_read_file(file.source) for file in files]


def _read_file(source: Source) -> InjectionPart:
    findings = Findings(source.label)
    try:
        document = json.loads(whole_text(source, findings))
    except (ValueError, RecursionError) as error:
        msg = (
            f"{source.label}: damaged JSON ({str(error)[:80]}); it was cut off, or two were put "
            "together: get it again, or split it"
        )
        raise LoadError(msg) from None
    # Two layouts: a list of faults, or an object whose keys are their texts.
    entries = document.get("fault_results")
    if isinstance(faults := document.get("faults"), dict):
        entries = [{"fault_info": info, "metrics": metrics} for info, metrics in faults.items()]
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        msg = f"{source.label}: has no list 'fault_results' of faults beside its baseline"
        raise LoadError(msg)
    findings.add("read", "faults", len(entries))
    stated = [document["baseline"], *(entry.get("metrics") for entry in entries)]
    measures = [_measures(metrics) for metrics in stated]
    metric = _chosen(measures)
    unused = {name for metrics in measures for name in metrics if name != metric}
    findings.add("skipped by design", _OTHERS, len(unused), ", ".join(sorted(unused)[:8]) or None)
    # An error is a failure of the tool, not an output that is not finite: it is not a DUE.
    errors = [None if (e := entry.get("error")) is None else str(e) for entry in entries]
    failed = len(entries) - errors.count(None)
    findings.add("noted", "experiments in which the tool itself failed", failed)
    name = stem(source)
    key = {"campaign_id": name, "exp_id": range(len(entries))}
    values = [metrics.get(metric or "") for metrics in measures[1:]]
    outcomes = {"metric_name": metric, "metric_value": pd.Series(values, dtype="float64")}
    outcomes["error"] = pd.Series(errors, dtype=pd.Series([""]).dtype)
    head = campaign(
        campaign_id=name, tool=TOOL, criterion="metric_drop", fault_model="other",
        design="fault_list", metric_name=metric, golden_metric=measures[0].get(metric or ""),
    )  # fmt: skip
    of_outcomes = filled(OUTCOMES, {**key, **outcomes}, len(entries))
    of_faults = filled(FAULTS, {**key, **_sites(entries)}, len(entries))
    return InjectionPart(head, of_outcomes, of_faults, findings=[findings])


def _measures(metrics: object) -> dict[str, float]:
    """Return the measures of a run by name: ``{"Accuracy": {"accuracy": 0.5}}`` as one level."""
    flat = {}
    for name, values in metrics.items() if isinstance(metrics, Mapping) else ():
        measures = values if isinstance(values, Mapping) else {name: values}
        for key, value in measures.items():
            # True is an int to Python, and no measure.
            if isinstance(value, int | float) and not isinstance(value, bool):
                flat[name if key.lower() == name.lower() else f"{name}.{key}"] = float(value)
    return flat


def _chosen(measures: list[dict[str, float]]) -> str | None:
    names = [name for metrics in measures for name in metrics]
    return next((name for name in names if not name.startswith(_TIMES)), None)


def _sites(entries: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Read ``LayerFault(layers=[0], type=attention_mask, severity=0.2)``; the text is kept."""
    infos = [str(entry.get("fault_info", "")) for entry in entries]
    names = [match[1] if (match := _INFO.fullmatch(info)) else "" for info in infos]
    layers = [match[1].replace(" ", "") if (match := _LAYERS.search(i)) else None for i in infos]
    text: Any = pd.Series([""]).dtype
    kinds = [_KINDS.get(str(name)) for name in names]
    columns = {"layer": pd.Series(layers, dtype=text).astype("category")}
    columns |= {"kind": pd.Series(kinds, dtype=text).astype("category")}
    return {**columns, "flip": 0, "index": pd.Series(infos, dtype=text)}
