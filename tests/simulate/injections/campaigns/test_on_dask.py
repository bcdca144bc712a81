"""A campaign on a cluster is the campaign in one process."""

from dataclasses import replace

import pandas as pd
import pytest

from workbench.errors import MissingExtraError
from workbench.simulate.injections import (
    CampaignSettings,
    campaign,
    campaign_on_dask,
    range_detector,
    running,
    uniform_faults,
    weight_clamp,
)


@pytest.fixture(scope="module")
def client(torch_here, absent):
    """Start a cluster of two threads of this process."""
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        absent("Dask is not installed; pip install 'ai-infra-workbench[cluster]'")
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=2,
            processes=False,
            dashboard_address=None,
            protocol="inproc",
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.mark.slow
def test_a_cluster_counts_what_one_process_counts(client, mlp, inputs, tmp_path):
    faults = uniform_faults(mlp, 70, seed=1)
    settings = CampaignSettings(
        engine="flip_and_run",
        chunk_size=15,
        keep_trials=True,
        detectors={"range": range_detector(mlp, inputs)},
        mitigation=weight_clamp(mlp),
    )
    alone = campaign(mlp, inputs, faults, settings=settings)
    settings = replace(settings, folder=tmp_path)
    chunks = running(mlp, inputs, faults, settings=settings)
    next(chunks)
    chunks.close()
    spread = campaign_on_dask(client, mlp, inputs, faults, settings=settings)
    for table in ("outcomes", "trials", "faults", "parameters"):
        expected, result = (getattr(tables, table) for tables in (alone, spread))
        drop = ["time_s"] if table == "outcomes" else []
        pd.testing.assert_frame_equal(expected.drop(columns=drop), result.drop(columns=drop))
    assert len(list(tmp_path.glob("outcomes-*.parquet"))) == 5


def test_without_dask_it_says_what_to_install(monkeypatch, torch_here, mlp, inputs):
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ai-infra-workbench\[cluster\]'"):
        campaign_on_dask(None, mlp, inputs, uniform_faults(mlp, 5, seed=1))
