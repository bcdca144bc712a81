"""Every single-bit fault of a model: the truth that samples estimate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from workbench._shared.progress import progress
from workbench.errors import InjectionError
from workbench.inject._judge import Judge
from workbench.inject.campaigns.campaign import campaign_row
from workbench.inject.campaigns.work import CampaignSettings, as_hit, prepared
from workbench.inject.designs.bits import storage
from workbench.inject.designs.faults import (
    Bits,
    FaultModel,
    Where,
    cells,
    chosen,
    uniform_faults,
)
from workbench.inject.engines.fast_engine import FastEngine
from workbench.tables import CAMPAIGN, EXHAUSTIVE, ExhaustiveInjections

_ARGMAX = Judge()
_PLAIN = CampaignSettings()
# Counts per site are int16: a site of a model takes few bytes, and there are millions.
_MOST_INPUTS = np.iinfo(np.int16).max


def exhaustive(
    model: Any,
    inputs: Any,
    *,
    judge: Judge = _ARGMAX,
    settings: CampaignSettings = _PLAIN,
    where: Where = "*",
    bits: Bits = None,
) -> ExhaustiveInjections:
    """Inject every single-bit fault, one after another, and count the wrong outputs of each.

    Meant for linear, convolution and embedding layers of float32 models on a CPU, judged by
    ``"argmax"`` or ``"threshold"``: their faults are computed many at once, in about a
    microsecond per site and 1,000 inputs for the shipped DLRM. All other faults are run one
    by one, 2 to 100 sites per second; such models are better sampled.

    Parameters
    ----------
    model
        A ``torch.nn.Module`` that gives one row of outputs per input.
    inputs
        A tensor or a tuple of tensors, one row per input; at most 32,767 rows.
    judge
        When an output counts as wrong; every criterion but ``"metric_drop"``.
    settings
        ``name``, ``dataset``, ``is_synthetic``, ``labels`` and ``progress`` are used.
    where, bits
        As for :func:`uniform_faults`.

    Returns
    -------
    ExhaustiveInjections
        ``sites`` (:data:`workbench.tables.EXHAUSTIVE`), ``campaign`` and ``parameters``
        (all of the model's, whatever ``where`` drops).

    Raises
    ------
    InjectionError
        If the model, its inputs or the judge do not fit, the model is a copy made by
        :func:`stored_as`, settings ask for a mitigation, there are more than 32,767 inputs, or
        ``where`` or ``bits`` name none.
    """
    _refuse_what_is_not_plain(model, settings)
    settings = replace(settings, engine="fast", folder=None)
    # One fault stands for all: it lets `prepared` check model, inputs and judge.
    first = uniform_faults(model, 1, fault_model=FaultModel(), where=where, bits=bits, seed=0)
    work = prepared(model, inputs, first, judge, settings)
    assert isinstance(work.engine, FastEngine)
    if len(work.golden) > _MOST_INPUTS:
        msg = f"inputs: {len(work.golden):,} rows; counts of at most {_MOST_INPUTS:,} are kept"
        raise InjectionError(msg)
    population = chosen(model, where)
    every_cell = cells(population, bits)
    counted = []
    with work.in_place():
        total = int(every_cell["element_count"].sum())
        with progress(total=total, unit="site", label="all bits", enabled=settings.progress) as bar:
            for number, param in enumerate(population["param"]):
                of_param = sorted(every_cell.loc[every_cell["tensor"] == number, "bit"].tolist())
                sdc, due = work.engine.exhausted(param, of_param)
                counted.append((param, of_param, sdc, due))
                bar.update(sdc.size)
    head = campaign_row(work, pd.Timestamp.now("UTC").floor("s")).assign(seed=None)
    head["design"] = pd.Categorical(["exhaustive"])
    return ExhaustiveInjections(
        campaign=CAMPAIGN.of(head),
        parameters=as_hit(work.parameters, population).assign(campaign_id=work.name),
        sites=_sites(counted),
    )


def _refuse_what_is_not_plain(model: Any, settings: CampaignSettings) -> None:
    """Refuse what would have no effect here: narrow storage and protections."""
    narrow = sorted({kept.layout.name for kept in storage(model).values() if kept.is_narrow})
    if narrow:
        msg = (
            f"model: its parameters are stored as {', '.join(narrow)}, and only the bits of the "
            "model's own type are exhausted; use campaign with exhaustive_faults"
        )
        raise InjectionError(msg)
    if settings.mitigations:
        names = [mitigation.name for mitigation in settings.mitigations]
        msg = f"settings: exhaustive has no mitigation ({names}); use campaign"
        raise InjectionError(msg)


def _sites(counted: list[tuple[str, list[int], Any, Any]]) -> pd.DataFrame:
    """Return one row per site, in order of tensor, element and bit."""
    names = [param for param, *_ in counted]
    sizes = [sdc.size for *_, sdc, _ in counted]
    codes = np.repeat(np.arange(len(counted), dtype=np.int16), sizes)
    columns = {
        "param": pd.Categorical.from_codes(codes, pd.Index(names)),
        "elem": [np.repeat(np.arange(len(s), dtype=np.int32), len(b)) for _, b, s, _ in counted],
        "bit": [np.tile(np.array(b, dtype=np.int8), len(s)) for _, b, s, _ in counted],
        "sdc_count": [s.astype(np.int16).reshape(-1) for *_, s, _ in counted],
        "due_count": [d.astype(np.int16).reshape(-1) for *_, d in counted],
    }
    joined = {k: np.concatenate(v) if isinstance(v, list) else v for k, v in columns.items()}
    return EXHAUSTIVE.check(pd.DataFrame(joined))
