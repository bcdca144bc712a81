"""A campaign on a cluster of two processes is the campaign in one process."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from workbench._shared import cluster
from workbench.errors import InjectionError, MissingExtraError
from workbench.inject import (
    CampaignSettings,
    Judge,
    campaign,
    range_detector,
    uniform_faults,
    weight_clamp,
)
from workbench.inject.campaigns.campaign import running

KILLED = """
import sys, time
import torch
from distributed import Client
from workbench.inject import CampaignSettings, campaign, uniform_faults

nn = torch.nn
torch.manual_seed(7)
model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3))
inputs = torch.randn(20, 5, generator=torch.Generator().manual_seed(1))
settings = CampaignSettings(
    engine="flip_and_run", chunk_size=5, folder=sys.argv[1], progress=False
)
with Client(sys.argv[2]) as client:
    campaign(model, inputs, uniform_faults(model, 400, seed=1), settings=settings, client=client)
"""


def assert_same(expected, result):
    for table in ("outcomes", "trials", "faults", "parameters"):
        drop = ["time_s"] if table == "outcomes" else []
        first, second = (getattr(tables, table).drop(columns=drop) for tables in (expected, result))
        pd.testing.assert_frame_equal(first, second)


@pytest.mark.slow
def test_a_cluster_counts_what_one_process_counts(two_workers, mlp, inputs, tmp_path):
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
    assert_same(alone, campaign(mlp, inputs, faults, settings=settings, client=two_workers))
    assert len(list(tmp_path.glob("outcomes-*.parquet"))) == 5


@pytest.mark.slow
@pytest.mark.parametrize("deaths", [1, 9])
def test_a_chunk_whose_worker_dies(two_workers, mlp, inputs, tmp_path, deaths):
    own = os.getpid()

    class Deadly(Judge):
        def golden(self, *outputs):
            if os.getpid() != own and len(list(tmp_path.glob("death-*"))) < deaths:
                (tmp_path / f"death-{os.getpid()}").touch()
                os._exit(1)
            return super().golden(*outputs)

    faults = uniform_faults(mlp, 30, seed=1)
    settings = CampaignSettings(engine="flip_and_run", chunk_size=15, progress=False)
    run = {"judge": Deadly(), "settings": settings, "client": two_workers}
    if deaths > 1:
        with pytest.raises(InjectionError, match=r"experiments .* their workers died"):
            campaign(mlp, inputs, faults, **run)
    else:
        assert_same(
            campaign(mlp, inputs, faults, settings=settings), campaign(mlp, inputs, faults, **run)
        )


@pytest.mark.slow
def test_a_campaign_whose_client_is_killed_goes_on(two_workers, mlp, inputs, tmp_path):
    folder, script = tmp_path / "kept", tmp_path / "killed.py"
    script.write_text(KILLED)
    root = Path(__file__).resolve().parents[4]
    process = subprocess.Popen(
        [sys.executable, str(script), str(folder), two_workers.scheduler.address],
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    while process.poll() is None and not list(folder.glob("sums-*.json")):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert 0 < len(list(folder.glob("sums-*.json"))) < 80
    faults = uniform_faults(mlp, 400, seed=1)
    settings = CampaignSettings(engine="flip_and_run", chunk_size=5, folder=folder, progress=False)
    again = campaign(mlp, inputs, faults, settings=settings, client=two_workers)
    assert_same(campaign(mlp, inputs, faults, settings=replace(settings, folder=None)), again)


def test_without_dask_it_says_what_to_install(monkeypatch, torch_here, mlp, inputs):
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ai-infra-workbench\[cluster\]'"):
        campaign(mlp, inputs, uniform_faults(mlp, 5, seed=1), client=object())


def kind_of_hooks(_, model):
    return type(model._forward_pre_hooks).__name__


@pytest.mark.slow
def test_a_model_with_hooks_arrives_at_every_worker_as_it_was_sent(two_workers, mlp):
    mlp.register_forward_pre_hook(partial(print, next(mlp.parameters())))
    two_workers.wait_for_workers(2)  # one that died in another test is started anew
    sent = cluster._sent(two_workers, mlp)
    # One of them made the model, and the other one has it from there.
    workers = list(two_workers.scheduler_info()["workers"])
    kinds = [
        two_workers.submit(
            cluster._unpacked, kind_of_hooks, 0, sent, workers=[worker], pure=False
        ).result()
        for worker in workers
    ]
    assert kinds == ["OrderedDict", "OrderedDict"]
