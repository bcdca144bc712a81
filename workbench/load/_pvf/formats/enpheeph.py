"""Results of enpheeph: the quality of a model, layer by layer and rate by rate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._pvf import part
from workbench.load._pvf.columns import column, header_of, layer_names, real, text_table
from workbench.load._pvf.part import InjectionFile, InjectionPart
from workbench.tables import CAMPAIGN, FAULTS, OUTCOMES

TOOL = "enpheeph"
NAME = "enpheeph"
_NEEDED = ("randomness", "layer_name", "execution_time")
_METRICS = {"test_accuracy": "accuracy", "test_acc": "accuracy", "test_iou": "iou"}
# The tool names this layer in the rows of its run without faults.
_GOLDEN = "-"
_STRAY = "lines before the header"


def role(head: bytes, source: Source) -> str:  # noqa: ARG001 - the head tells
    """Recognise the header, also after stray lines of a log."""
    return "" if _header_line(head) is None else "results"


def _header_line(head: bytes) -> int | None:
    if b"randomness" not in head or b"\0" in head:
        return None
    for number, line in enumerate(head.split(b"\n")):
        if b"randomness" in line and set(header_of(line)) >= set(_NEEDED):
            return number
    return None


def read(files: list[InjectionFile]) -> list[InjectionPart]:
    """Read each file; every rate of injection is a campaign."""
    return [_read_file(file.source) for file in files]


def _read_file(source: Source) -> InjectionPart:
    findings = Findings(source.label)
    # Some published files of the tool open with stray lines of a log.
    skipped = _header_line(source.head(1 << 16)) or 0
    findings.add("skipped by design", _STRAY, skipped)
    table = text_table(source, findings, skip=skipped)
    metrics = [name for name in _METRICS if name in table.column_names]
    if not metrics:
        msg = f"{source.label}: none of the columns {list(_METRICS)}; it has {table.column_names}"
        raise LoadError(msg)
    names = [name or "(no name)" for name in table.column_names]
    part.note_columns(findings, names, (*_NEEDED, metrics[0]))
    rows = _rows(table, metrics[0], source, findings)
    golden = rows[rows["layer"] == _GOLDEN]
    findings.add("skipped by design", "rows without faults: the golden run", len(golden))
    text = "no row without faults: the golden quality is not known"
    findings.add("noted", text, int(golden.empty))
    if golden["metric"].nunique() > 1:
        remark = "golden runs of different quality; the first is taken"
        findings.add("suspicious", remark, int(golden["metric"].nunique()))
    # Without a golden run a drop of the quality cannot be told, but the qualities themselves can.
    measure = golden["metric"].iloc[0] if len(golden) else None
    faulty = rows[rows["layer"] != _GOLDEN].reset_index(drop=True)
    return _part(faulty, (part.stem(source), _METRICS[metrics[0]], measure), findings)


def _rows(table: pa.Table, metric: str, source: Source, findings: Findings) -> pd.DataFrame:
    layers = layer_names(table, "layer_name", source)
    rates = column(table, "randomness", source)
    # Words are kept as they are written: they name the campaign where a rate is not a number.
    written = pd.Series(rates.texts().to_pandas(), dtype=object).replace("", None)
    # A golden run has no faults, whatever its rate.
    if (lacking := written.isna() & layers.ne(_GOLDEN)).any():
        rates.refuse(lacking.to_numpy(), "rates of injection")
    rate = pd.to_numeric(written, errors="coerce").to_numpy(np.float64)
    is_word = np.isnan(rate) & written.notna().to_numpy()
    findings.add("noted", "rows whose rate of injection is a word", int(is_word.sum()))
    if (bad := (rate < 0) | (rate > 1)).any():
        rates.refuse(bad, "rates of injection from 0 to 1")
    told = [f"{n:g}" if n == n else t for n, t in zip(rate, written, strict=True)]
    time_s = real(column(table, "execution_time", source), lower=0)
    quality = real(column(table, metric, source))
    rows = {"rate": rate, "told": told, "layer": layers, "time_s": time_s, "metric": quality}
    return pd.DataFrame(rows)


def _part(rows: pd.DataFrame, run: tuple[str, str, Any], findings: Findings) -> InjectionPart:
    name, metric, golden = run
    first = rows.drop_duplicates("told")
    ids = {word: f"{name}, rate {word}" for word in first["told"]}
    heads = [
        part.campaign(
            campaign_id=ids[word], tool=TOOL, criterion="metric_drop", nan_policy="as_is",
            bit_error_ratio=rate, design="other", golden_metric=golden, metric_name=metric,
        )
        for word, rate in zip(first["told"], first["rate"], strict=True)
    ]  # fmt: skip
    key = {
        "campaign_id": rows["told"].map(ids).astype(pd.Series([""]).dtype),
        "exp_id": rows.groupby("told").cumcount(),
    }
    measures = {"metric_name": metric, "metric_value": rows["metric"], "time_s": rows["time_s"]}
    faults = {"flip": 0, "layer": rows["layer"].astype("category")}
    outcomes = part.filled(OUTCOMES, {**key, **measures}, len(rows))
    of_faults = part.filled(FAULTS, {**key, **faults}, len(rows))
    return InjectionPart(part.stacked(heads, CAMPAIGN), outcomes, of_faults, findings=[findings])
