"""Results of GoldenEye: injections into one layer, and the mismatches of all layers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._pvf import part
from workbench.load._pvf.checks import DUE, SDC, UNKNOWN, counted
from workbench.load._pvf.columns import (
    column,
    header_of,
    numbers,
    real,
    text_table,
    without_repeats,
)
from workbench.load._pvf.part import InjectionFile, InjectionPart
from workbench.tables import FAULTS, OUTCOMES, TRIALS

TOOL = "GoldenEye"
NAME = "GoldenEye"
_DETAIL = ("Injection", "ImgID", "GoldTop2Diff", "GoldLabel", "InjLabel", "DeltaLoss")
_LAYERS = ("fmap_id", "Mismatches", "Sample_Size", "Proportion")
_LAYER = re.compile(r"layer(\d+)")
# The tool leaves rows whose loss is NaN out of the details, and keeps them in Sample_Size.
_LOST = (
    "injections of the sample that the details lack, counted as DUE: their loss was not finite, "
    "unless the run was stopped early; the tool counts them as correct"
)


@dataclass(frozen=True)
class _Detail:
    layer: str
    source: Source
    is_sdc: np.ndarray
    image: np.ndarray
    margin: np.ndarray


def role(head: bytes, source: Source) -> str:  # noqa: ARG001 - the head tells
    """Recognise details of a layer and the table of all layers by their header."""
    names = set(header_of(head))
    if names >= set(_DETAIL):
        return "detail"
    return "layers" if names >= set(_LAYERS) else ""


def read(files: list[InjectionFile]) -> list[InjectionPart]:
    """Read the layers of a folder as one campaign, each injection one experiment.

    Without details, a layer is one experiment. The table of all layers stands in another
    folder than the details; if there is one of each, they belong together.
    """
    details = [file.source for file in files if file.role == "detail"]
    tables = [file.source for file in files if file.role == "layers"]
    locations = part.by_folder(details)
    if locations and (len(tables) > len(locations) or min(len(locations), len(tables)) > 1):
        msg = (
            f"{tables[0].label}: {len(tables)} tables of layers and details in {len(locations)} "
            "folders; load one run at a time"
        )
        raise LoadError(msg)
    beside = tables[0] if tables and len(locations) == 1 else None
    campaigns = [_read_details(own, beside) for own in locations.values()]
    if not locations:
        campaigns += [_read_layers(source) for source in tables]
    elif tables and len(locations) > 1:
        campaigns.append(_read_layers(tables[0]))
    return campaigns


def _head(name: str, **more: Any) -> pd.DataFrame:
    rules = {"tool": TOOL, "task": "classification", "criterion": "argmax", "design": "other"}
    return part.campaign(campaign_id=name, nan_policy="as_is", **rules, **more)


def _read_details(sources: list[Source], table: Source | None) -> InjectionPart:
    _refuse_twice(sources)
    findings = [Findings(source.label) for source in sources]
    details = [_detail(*pair) for pair in zip(sources, findings, strict=True)]
    lost = np.zeros(len(details), np.int64)
    if table is not None:
        findings.append(Findings(table.label))
        lost = _lost(details, _layer_rows(table, findings[-1]), table, findings[-1])
    sizes = [len(detail.is_sdc) + missing for detail, missing in zip(details, lost, strict=True)]
    per_detail = [
        np.r_[np.where(detail.is_sdc, SDC, UNKNOWN), np.full(missing, DUE)]
        for detail, missing in zip(details, lost, strict=True)
    ]
    codes = np.concatenate(per_detail)
    name = f"GoldenEye {part.folder(sources[0]).rsplit('/', 1)[-1]}"
    name = name if table is None else part.stem(table)
    exp = np.arange(len(codes))
    # Only the sample sizes of the other table tell how many rows the details lack.
    outcomes = ("sdc", "due") if table is not None else ("sdc",)
    layers = np.repeat(np.array([detail.layer for detail in details], object), sizes)
    faults = {"campaign_id": name, "exp_id": exp, "flip": 0, "layer": pd.Categorical(layers)}
    # Of a lost injection nothing but its number is known: it has an outcome and no trial.
    kept = codes != DUE
    images, margins = (np.concatenate([getattr(detail, name) for detail in details])
                       for name in ("image", "margin"))  # fmt: skip
    trials = {
        "campaign_id": name,
        "exp_id": exp[kept],
        "input_id": images,
        "golden_margin": margins,
    }
    trials["outcome"] = part.outcome_categories(codes[kept])
    return InjectionPart(
        _head(name, input_count=1), counted(name, exp, codes, outcomes=outcomes),
        part.filled(FAULTS, faults, len(exp)), part.filled(TRIALS, trials, int(kept.sum())),
        findings=findings, is_counted_here=True, is_numbered_here=True,
    )  # fmt: skip


# The layer stands nowhere but in the name of the file.
def _layer_of(source: Source) -> str | None:
    match = _LAYER.search(part.stem(source))
    return match[1] if match else None


# Two files of one layer are a copy, or two runs; either would count twice.
def _refuse_twice(sources: list[Source]) -> None:
    seen: dict[str, Source] = {}
    for source in sources:
        layer = _layer_of(source) or part.stem(source)
        if layer in seen:
            msg = (
                f"{source.label}: injections into layer {layer}, as in {seen[layer].label}; a copy "
                "would count twice: keep one of them, and each run in a folder of its own"
            )
            raise LoadError(msg)
        seen[layer] = source


def _detail(source: Source, findings: Findings) -> _Detail:
    table = without_repeats(text_table(source, findings), findings)
    part.note_columns(findings, table.column_names, _DETAIL)
    columns = ("GoldLabel", "InjLabel", "ImgID")
    golden, faulty, image = (numbers(table, name, source, None) for name in columns)
    layer = _layer_of(source)
    text = "the layer is not known: the file name has no layer<number>"
    findings.add("noted", text, int(layer is None))
    margin = real(column(table, "GoldTop2Diff", source))
    return _Detail(layer or part.stem(source), source, golden != faulty, image, margin)


def _layer_rows(source: Source, findings: Findings) -> pd.DataFrame:
    table: pa.Table = without_repeats(text_table(source, findings), findings)
    part.note_columns(findings, table.column_names, _LAYERS)
    columns = ("fmap_id", "Mismatches", "Sample_Size")
    frame = pd.DataFrame({name: numbers(table, name, source) for name in columns})
    if (bad := frame["Mismatches"] > frame["Sample_Size"]).any():
        column(table, "Mismatches", source).refuse(bad.to_numpy(), "mismatches within the sample")
    if (bad := frame["fmap_id"].duplicated()).any():
        column(table, "fmap_id", source).refuse(bad.to_numpy(), "layers of one run, each once")
    return frame


def _lost(
    details: list[_Detail], layers: pd.DataFrame, table: Source, findings: Findings
) -> np.ndarray:
    by_layer = layers.assign(fmap_id=layers["fmap_id"].astype(str)).set_index("fmap_id")
    lost = []
    for detail in details:
        if detail.layer not in by_layer.index:
            msg = f"{detail.source.label}: layer {detail.layer} is not in {table.label}"
            raise LoadError(msg)
        mismatches = int(by_layer["Mismatches"][detail.layer])
        size = int(by_layer["Sample_Size"][detail.layer])
        changed = int(detail.is_sdc.sum())
        # Only tables of one run can be subtracted from each other.
        if changed != mismatches or len(detail.is_sdc) > size:
            msg = (
                f"{detail.source.label}: {changed:,} mismatches in {len(detail.is_sdc):,} "
                f"injections, {table.label} has {mismatches:,} in {size:,}; they are "
                "of different runs"
            )
            raise LoadError(msg)
        lost.append(size - len(detail.is_sdc))
    findings.add("assumed", _LOST, sum(lost))
    return np.array(lost, np.int64)


def _read_layers(source: Source) -> InjectionPart:
    findings = Findings(source.label)
    layers = _layer_rows(source, findings)
    name = part.stem(source)
    key = {"campaign_id": name, "exp_id": layers["fmap_id"]}
    counts = {"input_count": layers["Sample_Size"], "sdc_count": layers["Mismatches"]}
    text = "layers without details: all injections of a layer are one experiment"
    findings.add("noted", text, len(layers))
    faults = {"flip": 0, "layer": layers["fmap_id"].astype(str).astype("category")}
    outcomes = part.filled(OUTCOMES, {**key, **counts}, len(layers))
    of_faults = part.filled(FAULTS, {**key, **faults}, len(layers))
    return InjectionPart(_head(name), outcomes, of_faults, findings=[findings])
