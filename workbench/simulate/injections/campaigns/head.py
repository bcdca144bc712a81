"""What is said of a campaign: its head, what makes it this campaign, and what to know of it."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

import workbench
from workbench.simulate.injections._inputs import batches, inputs_sha, model_sha, sha_of
from workbench.simulate.injections._judge import as_tensor
from workbench.simulate.injections.campaigns.work import Work, metric_name
from workbench.simulate.injections.designs.stored import storage
from workbench.tables import CAMPAIGN, QUALITY

_NUMBERS = {"exp_id": -1, "flip": -1, "elem": -1, "bit": -1}


def identity(work: Work) -> dict[str, Any]:
    """Give what two runs must share to be one campaign; JSON can hold it."""
    settings = work.settings
    labels = settings.labels
    return {
        "campaign_id": work.name,
        "model_sha": _model(work.model),
        "model_text": hashlib.sha256(repr(work.model).encode()).hexdigest(),
        "decisions_sha": sha_of([("", work.golden.decisions)]),
        "inputs_sha": inputs_sha(batches(work.inputs)),
        "faults_sha": faults_sha(work.faults),
        "labels_sha": None if labels is None else sha_of([("", as_tensor(labels))]),
        "judge": asdict(work.judge),
        "engine": type(work.engine).__name__,
        "metric": metric_name(settings.metric),
        "keep_trials": settings.keep_trials,
        "detectors": sorted(settings.detectors),
        "mitigation": [
            hashlib.sha256(each.described().encode()).hexdigest() for each in settings.mitigations
        ],
    }


def _model(model: Any) -> str:
    """Give the hash of weights and of the types they are stored in."""
    kinds = [f"{name} {kept.layout.name}" for name, kept in sorted(storage(model).items())]
    text = "\n".join([model_sha(model), *kinds])
    return hashlib.sha256(text.encode()).hexdigest()


def faults_sha(faults: pd.DataFrame) -> str:
    """Give the sha256 of what faults do: places and effects, not what is said of them."""
    found = hashlib.sha256()
    for name, missing in _NUMBERS.items():
        found.update(faults[name].fillna(missing).to_numpy(dtype=np.int64).tobytes())
    for name in ("param", "direction"):
        codes, texts = pd.factorize(faults[name].astype(object).fillna(""))
        found.update(codes.astype(np.int64).tobytes())
        found.update("\n".join(map(str, texts)).encode())
    found.update(faults["value_after"].to_numpy(dtype=np.float64).tobytes())
    return found.hexdigest()


def campaign_row(work: Work, created: pd.Timestamp) -> pd.DataFrame:
    """Give the head of a campaign as table CAMPAIGN."""
    settings, told = work.settings, work.faults.attrs
    hit = sorted(set(work.faults["dtype"].dropna().astype(str)))
    mitigations = [each.name for each in settings.mitigations]
    is_rated = settings.metric is not None or work.golden_metric is not None
    row = {
        "campaign_id": work.name,
        "tool": "workbench",
        "tool_version": workbench.__version__,
        "model_name": type(work.model).__name__,
        "model_sha": _model(work.model),
        "dataset": settings.dataset,
        "is_synthetic": settings.is_synthetic,
        "input_count": 1 if work.judge.criterion == "metric_drop" else len(work.golden),
        "inputs_sha": inputs_sha(batches(work.inputs)),
        "dtype": "+".join(hit) or None,
        "task": None,
        "criterion": work.judge.criterion,
        "tolerance": _tolerance(work),
        "masked_rule": getattr(work.engine, "masked_rule", None),
        "nan_policy": "apart",
        "fault_model": told.get("fault_model", _fault_model(work.faults)),
        "flip_count": told.get("flip_count", _flip_count(work.faults)),
        "bit_error_ratio": told.get("bit_error_ratio"),
        "mitigation": "+".join(mitigations) or None,
        "design": told.get("design", "other"),
        "seed": told.get("seed"),
        "golden_metric": work.golden_metric,
        "metric_name": (metric_name(settings.metric) or "accuracy") if is_rated else None,
        "created": created,
    }
    return CAMPAIGN.check(CAMPAIGN.cast(pd.DataFrame([row], columns=list(CAMPAIGN.columns))))


def _tolerance(work: Work) -> float | None:
    """Give the number that the criterion compares with."""
    judge = work.judge
    if judge.criterion == "argmax":
        return None
    return judge.threshold if judge.criterion == "threshold" else judge.tolerance


def _flip_count(faults: pd.DataFrame) -> int | None:
    """Give the bits per experiment if all have as many."""
    sizes = faults.groupby("exp_id").size()
    return int(sizes.iloc[0]) if sizes.nunique() == 1 and faults["bit"].notna().all() else None


def _fault_model(faults: pd.DataFrame) -> str:
    """Name the fault model as far as the rows tell it."""
    if faults["bit"].isna().all():
        return "value"
    return "sbf" if _flip_count(faults) == 1 else "other"


_UNPROVEN = "chunks without check sums, by an earlier version: only places and counts were checked"


def quality(work: Work, unproven: int = 0) -> pd.DataFrame:
    """Say what one should know before using the outcomes."""
    idle = int(work.faults["param"].isna().sum())
    rows = [*work.notes, ("noted", f"judged by the engine {type(work.engine).__name__}", 1)]
    if unproven:
        rows.append(("noted", _UNPROVEN, unproven))
    if idle:
        rows.append(("noted", "experiments that hit nothing, as drawn by bit-error ratio", idle))
    frame = pd.DataFrame(rows, columns=["finding", "what", "count"]).assign(
        source=work.name, where=None
    )
    return QUALITY.check(QUALITY.cast(frame))
