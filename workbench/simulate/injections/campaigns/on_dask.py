"""A campaign split over the workers of a Dask cluster."""

from __future__ import annotations

import copy
import importlib
from dataclasses import replace
from typing import Any

import pandas as pd

from workbench._shared.progress import progress
from workbench.errors import MissingExtraError
from workbench.simulate.injections._judge import Judge
from workbench.simulate.injections.campaigns.campaign import Checkpoint, gathered
from workbench.simulate.injections.campaigns.work import CampaignSettings, prepared
from workbench.tables import Injections

_ARGMAX = Judge()
_PLAIN = CampaignSettings()


def campaign_on_dask(
    client: Any,
    model: Any,
    inputs: Any,
    faults: pd.DataFrame,
    *,
    judge: Judge = _ARGMAX,
    settings: CampaignSettings = _PLAIN,
) -> Injections:
    """Run a campaign on a Dask cluster, each chunk on some worker.

    Workers get a copy of the model and run it without faults first. What is done is kept
    in ``settings.folder`` by this process, so workers need no common file system, and a
    campaign may go on with or without a cluster.

    Parameters
    ----------
    client
        A ``distributed.Client``.
    model, inputs, faults, judge, settings
        As for :func:`campaign`; the model must survive ``copy.deepcopy``, and pickling if
        workers are other processes.

    Returns
    -------
    Injections
        The same tables as :func:`campaign` gives, but for times.

    Raises
    ------
    InjectionError
        As for :func:`campaign`.
    MissingExtraError
        If Dask is not installed.
    """
    try:
        distributed = importlib.import_module("distributed")
    except ImportError as error:
        msg = "a cluster needs Dask; pip install 'ai-infra-workbench[cluster]'"
        raise MissingExtraError(msg) from error
    work = prepared(model, inputs, faults, judge, settings)
    kept = Checkpoint.of(work)
    ranges = list(kept.ranges(len(work.exp_ids)))
    done = {span: tables for span in ranges if (tables := kept.read(*span)) is not None}
    alone = replace(settings, folder=None, progress=False)
    load = client.scatter([(model, inputs, faults, judge, alone)], broadcast=True)[0]
    tasks = {
        client.submit(_chunk, load, *span, pure=False): span for span in ranges if span not in done
    }
    try:
        for task in progress(
            distributed.as_completed(tasks),
            total=len(tasks),
            unit="chunks",
            label=f"injecting into {work.name}",
            enabled=settings.progress,
        ):
            done[tasks[task]] = task.result()
            kept.write(*tasks[task], *done[tasks[task]])
            task.release()
    finally:
        client.cancel(list(tasks))
    return gathered(work, kept, [done[span] for span in ranges])


def _chunk(
    load: tuple[Any, Any, pd.DataFrame, Judge, CampaignSettings], start: int, stop: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Run one chunk on a copy: threads of a worker share what was scattered."""
    model, inputs, faults, judge, settings = load
    model, settings = copy.deepcopy((model, settings))
    return prepared(model, inputs, faults, judge, settings).chunk(start, stop)
