"""A campaign on a shipped model in one call, for live pictures."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from workbench.simulate.injections.campaigns.campaign import running
from workbench.simulate.injections.campaigns.settings import CampaignSettings
from workbench.simulate.injections.designs.faults import fault_list
from workbench.simulate.injections.models.shipped import (
    shipped_inputs,
    shipped_judge,
    shipped_model,
)


def shipped_running(
    name: str, faults: pd.DataFrame, *, chunk_size: int = 200
) -> Iterator[pd.DataFrame]:
    """Inject faults into a shipped model, and give the outcomes chunk by chunk.

    Nothing happens, and PyTorch is not needed, before the first chunk is asked for.

    Parameters
    ----------
    name
        One of ``injections.SHIPPED``.
    faults
        Table :data:`workbench.tables.FAULTS`, e.g. those of ``analyze.truth_sample``.
    chunk_size
        Experiments per chunk.

    Yields
    ------
    pandas.DataFrame
        Table :data:`workbench.tables.OUTCOMES`.

    Raises
    ------
    InjectionError
        If there is no such model, or it does not have what the faults hit.
    MissingExtraError
        If PyTorch is not installed.
    """
    model = shipped_model(name)
    inputs, labels = shipped_inputs(name)
    settings = CampaignSettings(labels=labels, chunk_size=chunk_size)
    yield from running(
        model, inputs, fault_list(model, faults), judge=shipped_judge(name), settings=settings
    )
