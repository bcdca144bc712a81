"""Fault lists and results of SFIadvancedmodels, nearest to a format that tools share."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._pvf import columns as columns_of
from workbench.load._pvf import part
from workbench.load._pvf.checks import SDC, UNKNOWN, common, counted, fp32_roles
from workbench.load._pvf.columns import column, header_of, numbers, real, text_table, whole
from workbench.load._pvf.part import InjectionFile, InjectionPart
from workbench.tables import FAULTS, OUTCOMES, TRIALS

TOOL = "SFIadvancedmodels"
NAME = "SFIadvancedmodels"
LIST = ("Injection", "Layer", "TensorIndex", "Bit")
COUNTS = ("masked", "non_critical", "critical")
_ANALYSIS = ("fault", "batch", "image", "output")
_PREDICTIONS = ("Fault_ID", "Fault_Layer", "Fault_Bit", "Batch_ID", "Image_ID", "Top_1")
_ROLES = ("list", "summary", "analysis", "predictions", "accuracies")
_INDEX = r"\( *\d+ *(, *\d+ *)*,? *\)"
_LAST_BIT = 31
_KNOWN = ("masked", "benign", "sdc")
# The tool compares outputs with ==, takes the plain argmax, and injects single flips into
# float32 weights; it flips also where a run is named stuck-at, as lists carry no value.
RULES = {
    "tool": TOOL, "task": "classification", "dtype": "fp32", "criterion": "argmax",
    "masked_rule": "bit_equal", "nan_policy": "as_is", "fault_model": "sbf", "flip_count": 1,
    "design": "fault_list",
}  # fmt: skip


@dataclass(frozen=True)
class _Faults:
    source: Source
    frame: pd.DataFrame
    findings: Findings


def role(head: bytes, source: Source) -> str:  # noqa: ARG001 - the head tells
    """Recognise lists, summaries, analyses and predictions by their header."""
    names = set(header_of(head))
    if names >= {*LIST, *COUNTS}:
        return "summary"
    for kind, needed in (("list", LIST), ("analysis", _ANALYSIS), ("predictions", _PREDICTIONS)):
        if names >= set(needed):
            return kind
    # Last, as it is the weakest sign: these files have no header.
    return "accuracies" if looks_like_accuracies(head) else ""


def read(files: list[InjectionFile]) -> list[InjectionPart]:
    """Read everything; an analysis is joined to the fault list it was run with."""
    by = {name: [file.source for file in files if file.role == name] for name in _ROLES}
    lists = [_read_list(source) for source in by["list"]]
    campaigns = [_read_analysis(source, _list_of(source, lists)) for source in by["analysis"]]
    joined = {id(_list_of(source, lists)) for source in by["analysis"]}
    for source in by["summary"]:
        result = _read_summary(source)
        if same := next((run for run in campaigns if _same_counts(run, result)), None):
            same.findings += result.findings
            remark = "a summary of an analysis that is loaded as well; taken once"
            result.findings[0].add("skipped by design", remark)
        else:
            campaigns.append(result)
    for fault_list in lists:
        if id(fault_list) in joined:
            continue
        if same := next((result for result in campaigns if _same_faults(fault_list, result)), None):
            remark = "a fault list that a summary repeats; taken once"
            fault_list.findings.add("skipped by design", remark)
            same.findings.append(fault_list.findings)
        else:
            head = part.campaign(campaign_id=part.stem(fault_list.source), **RULES)
            findings = [fault_list.findings]
            campaigns.append(
                InjectionPart(head, OUTCOMES.empty(), fault_list.frame, findings=findings)
            )
    campaigns += predictions(by["predictions"])
    return campaigns + accuracies(by["accuracies"])


def _list_of(source: Source, lists: list[_Faults]) -> _Faults | None:
    own = part.folder(source)
    beside = [fault_list for fault_list in lists if part.folder(fault_list.source) == own]
    chosen = beside or lists
    if len(chosen) > 1:
        names = ", ".join(fault_list.source.label for fault_list in chosen[:3])
        msg = (
            f"{source.label}: several fault lists may be its own ({names}); load the analysis "
            "with one of them: load.injections([list, analysis])"
        )
        raise LoadError(msg)
    return chosen[0] if chosen else None


def _read_list(source: Source) -> _Faults:
    findings = Findings(source.label)
    table = columns_of.without_repeats(text_table(source, findings), findings)
    part.note_columns(findings, table.column_names, LIST)
    return _Faults(source, _fault_rows(table, source, part.stem(source)), findings)


def _fault_rows(table: pa.Table, source: Source, campaign_id: str) -> pd.DataFrame:
    bits = whole(column(table, "Bit", source), bits=16, lower=0, may_lack=False)
    cells = column(table, "TensorIndex", source)
    index = columns_of.text(columns_of.Cells(source.label, "TensorIndex", cells.texts()))
    if (bad := ~index.fillna("").str.fullmatch(_INDEX).to_numpy(np.bool_)).any():
        cells.refuse(bad, "places in a tensor such as (3, 0, 2, 1)")
    if (bad := np.asarray(bits) > _LAST_BIT).any():
        column(table, "Bit", source).refuse(bad, "bits of a float32 (0 to 31)")
    layers = columns_of.layer_names(table, "Layer", source)
    columns = {
        "campaign_id": campaign_id, "exp_id": numbers(table, "Injection", source), "flip": 0,
        "layer": layers, "param": layers.map(param_of), "kind": "weight", "index": index,
        "bit": bits, "bit_role": fp32_roles(pd.Series(bits)), "dtype": "fp32",
    }  # fmt: skip
    return part.filled(FAULTS, columns, len(index))


def _read_summary(source: Source) -> InjectionPart:
    findings = Findings(source.label)
    table = columns_of.without_repeats(text_table(source, findings), findings)
    name = part.stem(source)
    faults = _fault_rows(table, source, name)
    counts = [numbers(table, name_of, source) for name_of in COUNTS]
    total = np.sum(counts, axis=0)
    # n_injections is a constant of the data set in the tool; the counts are what was run.
    if "n_injections" in table.column_names:
        stated = pd.Series(whole(column(table, "n_injections", source)))
        remark = "n_injections that are not the sum of the counts; the sum is taken"
        findings.add("noted", remark, int((stated > total).sum()))
        remark = "counts above n_injections: the analysis was probably appended to twice"
        findings.add("suspicious", remark, int((stated < total).sum()))
    ran = total > 0
    findings.add("skipped by design", "faults whose counts sum to 0: never run", int((~ran).sum()))
    part.note_columns(findings, table.column_names, {*LIST, *COUNTS, "n_injections"})
    columns = {f"{n}_count": count[ran] for n, count in zip(_KNOWN, counts, strict=True)}
    columns |= {"exp_id": faults["exp_id"].to_numpy()[ran], "input_count": total[ran]}
    outcomes = part.filled(OUTCOMES, {"campaign_id": name, **columns}, int(ran.sum()))
    head = part.campaign(campaign_id=name, input_count=common(outcomes["input_count"]), **RULES)
    return InjectionPart(head, outcomes, faults, findings=[findings])


def _read_analysis(source: Source, faults: _Faults | None) -> InjectionPart:
    findings = Findings(source.label)
    table = text_table(source, findings, integers=_ANALYSIS)
    part.note_columns(findings, table.column_names, _ANALYSIS)
    fault, batch, image, output = (numbers(table, name, source) for name in _ANALYSIS)
    if (bad := output > SDC).any():
        column(table, "output", source).refuse(bad, "0 (masked), 1 (non-critical) or 2 (SDC-1)")
    # Images count from 0 in each batch; all batches but the last are of one size.
    inputs = batch * (int(image.max()) + 1) + image
    kept = _first_of_each(fault, inputs, output, source, findings)
    if not kept.all():
        fault, inputs, output = fault[kept], inputs[kept], output[kept]
    name = part.stem(source)
    outcomes = counted(name, fault, output, outcomes=_KNOWN)
    head = part.campaign(campaign_id=name, input_count=common(outcomes["input_count"]), **RULES)
    trials = {"campaign_id": name, "exp_id": fault, "input_id": inputs}
    trials["outcome"] = part.outcome_categories(output)
    rows = part.filled(TRIALS, trials, len(fault))
    result = InjectionPart(head, outcomes, trials=rows, findings=[findings])
    result.is_counted_here = result.is_numbered_here = True
    if faults is None:
        findings.add("noted", "no fault list beside the analysis: places are not known")
        return result
    result.faults = faults.frame.assign(
        campaign_id=pd.Series(name, index=faults.frame.index, dtype=pd.Series([""]).dtype)
    )
    result.findings.append(faults.findings)
    return result


# The tool appends to its analysis run after run: one row per fault and image is kept.
def _first_of_each(
    fault: np.ndarray, inputs: np.ndarray, output: np.ndarray, source: Source, findings: Findings
) -> np.ndarray:
    plain = fault * (int(inputs.max()) + 1) + inputs
    if (plain[1:] > plain[:-1]).all():  # as a run writes them
        return np.ones(len(plain), np.bool_)
    keys = pd.Series(plain)
    again = keys.duplicated().to_numpy()
    if not again.any():
        return np.ones(len(keys), np.bool_)
    pairs = pd.DataFrame({"key": keys, "output": output}).drop_duplicates()
    if (odd := pairs["key"].duplicated(keep=False)).any():
        key = pairs.loc[odd, "key"].iloc[0]
        first, second = np.flatnonzero(keys.to_numpy() == key)[[0, -1]]
        msg = (
            f"{source.label}: fault {fault[first]}, input {inputs[first]} ends as {output[first]} "
            f"in row {first + 1:,} and as {output[second]} in row {second + 1:,}; the file holds "
            "two campaigns, split it"
        )
        raise LoadError(msg)
    remark = "rows that are there already, from a file appended to twice"
    findings.add("repaired", remark, int(again.sum()))
    return ~again


def _same_counts(first: InjectionPart, second: InjectionPart) -> bool:
    names = ["exp_id", "masked_count", "benign_count", "sdc_count"]
    sorted_frames = [
        result.outcomes[names].sort_values("exp_id", ignore_index=True)
        for result in (first, second)
    ]
    return len(first.trials) > 0 and sorted_frames[0].equals(sorted_frames[1])


def _same_faults(faults: _Faults, result: InjectionPart) -> bool:
    names = ["exp_id", "layer", "index", "bit"]
    keys = [
        pd.MultiIndex.from_frame(frame[names].astype(str))
        for frame in (faults.frame, result.faults)
    ]
    return bool(keys[0].isin(keys[1]).all())


_PLACES = tuple(f"Fault_Index_{number}" for number in range(4))
_TAKEN = ("Fault_ID", "Fault_Layer", *_PLACES, "Fault_Bit", "Fault_Value", "Batch_ID", "Image_ID")
_ACCURACY = re.compile(rb"\s*(\d+),(?:1(?:\.0*)?|0(?:\.\d*)?|\d(?:\.\d+)?e-\d+)\s*")
_FEWEST_LINES = 2
_NO_GOLDEN = "rows without a golden run beside: how they ended is not known"


def param_of(layer: str) -> str:
    """Return the full name of the tensor that the tool hits in a layer."""
    # The tool writes the layer without the name of its tensor.
    return layer if re.search(r"(weight|bias)$", layer) else f"{layer}.weight"


def looks_like_accuracies(head: bytes) -> bool:
    """Recognise ``0,0.91`` ``1,0.90`` ...: faults counted from 0, and an accuracy each."""
    lines = head.splitlines()[:5] if b"\n" in head else []
    matches = [_ACCURACY.fullmatch(line) for line in lines]
    return len(matches) >= _FEWEST_LINES and all(
        match is not None and int(match[1]) == number for number, match in enumerate(matches)
    )


def predictions(sources: list[Source]) -> list[InjectionPart]:
    """Read decisions per fault and image; the batches of a folder are one campaign."""
    campaigns = []
    for own in part.by_folder(sources).values():
        findings = [Findings(source.label) for source in own]
        read = [_prediction_rows(*pair) for pair in zip(own, findings, strict=True)]
        campaigns.append(_predicted(pd.concat(read, ignore_index=True), own, findings))
    return campaigns


def _prediction_rows(source: Source, findings: Findings) -> pd.DataFrame:
    table = text_table(source, findings)
    part.note_columns(findings, table.column_names, _TAKEN)
    findings.add("noted", _NO_GOLDEN, table.num_rows)
    columns: Row = {
        name: numbers(table, name, source)
        for name in ("Fault_ID", "Fault_Bit", "Batch_ID", "Image_ID")
    }
    columns["Fault_Layer"] = columns_of.text(column(table, "Fault_Layer", source))
    for name in (*_PLACES, "Fault_Value"):
        if name in table.column_names:
            columns[name] = pd.array(whole(column(table, name, source)))
        else:
            columns[name] = pd.array([pd.NA] * table.num_rows, dtype="Int64")
    return pd.DataFrame(columns)


def _predicted(
    rows: pd.DataFrame, sources: list[Source], findings: list[Findings]
) -> InjectionPart:
    name = part.stem(sources[0])
    first = rows.drop_duplicates("Fault_ID").sort_values("Fault_ID", ignore_index=True)
    index_cells = first[list(_PLACES)]
    indices = index_cells.apply(lambda row: f"({', '.join(map(str, row.dropna()))})", axis=1)
    stuck = {0: "stuck0", 1: "stuck1"}.get(common(first["Fault_Value"]))
    faults = {
        "campaign_id": name, "exp_id": first["Fault_ID"], "flip": 0, "dtype": "fp32",
        "layer": first["Fault_Layer"], "param": first["Fault_Layer"].map(param_of),
        "kind": "weight", "index": indices.where(index_cells.notna().any(axis=1)),
        "bit": first["Fault_Bit"], "bit_role": fp32_roles(first["Fault_Bit"]),
    }  # fmt: skip
    # Images count from 0 in each batch.
    inputs = rows["Batch_ID"] * (rows["Image_ID"].max() + 1) + rows["Image_ID"]
    codes = np.full(len(rows), UNKNOWN)
    outcomes = counted(name, rows["Fault_ID"].to_numpy(), codes, outcomes=())
    model = "sbf" if first["Fault_Value"].isna().all() else stuck or "other"
    more = {"fault_model": model, "input_count": common(outcomes["input_count"])}
    trials = {"campaign_id": name, "exp_id": rows["Fault_ID"], "input_id": inputs}
    head = part.campaign(campaign_id=name, **{**RULES, **more})
    rows_of_faults = part.filled(FAULTS, faults, len(first))
    inputs_run = part.filled(TRIALS, trials, len(rows))
    return InjectionPart(head, outcomes, rows_of_faults, inputs_run, findings=findings)


def accuracies(sources: list[Source]) -> list[InjectionPart]:
    """Read accuracies per fault; a file that is the mean of the others beside it replaces them."""
    folders = part.by_folder(sources).values()
    return [result for own in folders for result in _accuracies_of(own)]


def _accuracies_of(sources: list[Source]) -> list[InjectionPart]:
    read = [_accuracy_rows(source) for source in sources]
    # Beside the files of its batches the tool writes their mean: all together would count twice.
    mean = _mean_of_others([rows for rows, _ in read])
    campaigns = []
    for number in range(len(read)) if mean is None else [mean]:
        rows, findings = read[number]
        name = part.stem(sources[number])
        columns: Row = {"exp_id": rows["fault"], "metric_value": rows["accuracy"]}
        columns |= {"campaign_id": name, "metric_name": "accuracy"}
        more = {"metric_name": "accuracy", "criterion": "metric_drop", "masked_rule": None}
        head = part.campaign(campaign_id=name, **{**RULES, **more})
        outcomes = part.filled(OUTCOMES, columns, len(rows))
        campaigns.append(InjectionPart(head, outcomes, findings=[findings]))
    if mean is not None:
        batches = [findings for number, (_, findings) in enumerate(read) if number != mean]
        for findings in batches:
            remark = f"accuracies of one batch; {sources[mean].label} is their mean"
            findings.add("skipped by design", remark)
        campaigns[0].findings += batches
    return campaigns


def _accuracy_rows(source: Source) -> tuple[pd.DataFrame, Findings]:
    findings = Findings(source.label)
    table: pa.Table = text_table(source, findings, names=["fault", "accuracy"])
    accuracy = real(column(table, "accuracy", source), lower=0)
    fault = numbers(table, "fault", source)
    return pd.DataFrame({"fault": fault, "accuracy": accuracy}), findings


def _mean_of_others(frames: list[pd.DataFrame]) -> int | None:
    if len(frames) < 2 or len({len(frame) for frame in frames}) > 1:
        return None
    values = np.array([frame["accuracy"].to_numpy() for frame in frames])
    for number, own in enumerate(values):
        batches = np.delete(values, number, axis=0)
        if np.allclose(own, batches.mean(axis=0), rtol=0, atol=1e-9):
            return number
    return None
