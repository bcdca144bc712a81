"""Campaigns: inject every fault, judge every input, keep what is done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from workbench._progress import progress
from workbench.simulate.injections._judge import Judge
from workbench.simulate.injections.campaigns.checkpoint import Checkpoint
from workbench.simulate.injections.campaigns.head import campaign_row, identity, quality
from workbench.simulate.injections.campaigns.settings import CampaignSettings
from workbench.simulate.injections.campaigns.work import Work, prepared
from workbench.tables import FAULTS, OUTCOMES, PARAMETERS, TRIALS, Injections

_ARGMAX = Judge()
_PLAIN = CampaignSettings()


def campaign(
    model: Any,
    inputs: Any,
    faults: pd.DataFrame,
    *,
    judge: Judge = _ARGMAX,
    settings: CampaignSettings = _PLAIN,
) -> Injections:
    """Inject faults into a model, one experiment after another, and count what comes of it.

    The model is run in evaluation mode and put back as it was, whatever happens. With
    ``settings.folder`` a campaign that was stopped goes on where it was.

    Parameters
    ----------
    model
        A ``torch.nn.Module`` that gives one row of outputs per input.
    inputs
        A tensor, a tuple or dict of tensors (the arguments of the model), or a list of
        such batches.
    faults
        Table :data:`workbench.tables.FAULTS`, from :func:`uniform_faults` and its kin.
    judge
        When an output counts as wrong.
    settings
        Everything else.

    Returns
    -------
    Injections
        The tables ``campaign``, ``faults``, ``outcomes``, ``trials`` (empty unless
        kept), ``parameters`` and ``quality``.

    Raises
    ------
    InjectionError
        If faults, inputs, judge or settings do not fit the model, the run without faults
        is not the same twice, the folder holds another campaign, or a chunk of it is not the
        one that was written.
    """
    work = prepared(model, inputs, faults, judge, settings)
    kept = Checkpoint.of(settings, identity(work), work.exp_ids, lambda: work.chunk_size)
    parts = [*progress(
        _chunks(work, kept),
        total=-(-len(work.exp_ids) // kept.chunk_size),
        unit="chunks",
        label=f"injecting into {work.name}",
        enabled=settings.progress,
    )]  # fmt: skip
    return gathered(work, kept, parts)


def running(
    model: Any,
    inputs: Any,
    faults: pd.DataFrame,
    *,
    judge: Judge = _ARGMAX,
    settings: CampaignSettings = _PLAIN,
) -> Iterator[pd.DataFrame]:
    """Run a campaign chunk by chunk, and give the outcomes of each when it is done.

    Between two chunks the model is as it was; close the generator to stop.

    Parameters
    ----------
    model, inputs, faults, judge, settings
        As for :func:`campaign`.

    Yields
    ------
    pandas.DataFrame
        Table :data:`workbench.tables.OUTCOMES` of the next chunk; those of a folder come
        first, without being run again.
    """
    work = prepared(model, inputs, faults, judge, settings)
    kept = Checkpoint.of(settings, identity(work), work.exp_ids, lambda: work.chunk_size)
    for outcomes, _ in _chunks(work, kept):
        yield outcomes


def _chunks(work: Work, kept: Checkpoint) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Give the chunks in order, from the folder where they are done."""
    for start, stop in kept.ranges(len(work.exp_ids)):
        part = kept.read(start, stop)
        if part is None:
            part = work.chunk(start, stop)
            kept.write(start, stop, *part)
        yield part


def gathered(
    work: Work, kept: Checkpoint, parts: list[tuple[pd.DataFrame, pd.DataFrame]]
) -> Injections:
    """Put the tables of a campaign together."""
    outcomes = pd.concat([part[0] for part in parts], ignore_index=True)
    found = [part[1] for part in parts if len(part[1])]
    trials = pd.concat(found, ignore_index=True) if found else TRIALS.empty()
    faults = FAULTS.check(work.faults.assign(campaign_id=work.name))
    faults.attrs = {}
    return Injections(
        campaign=campaign_row(work, kept.created),
        faults=faults,
        outcomes=OUTCOMES.check(outcomes),
        trials=TRIALS.check(trials),
        parameters=PARAMETERS.check(work.parameters.assign(campaign_id=work.name)),
        quality=quality(work, len(kept.unproven)),
    )
