"""The shipped campaigns are what their script makes."""

import importlib.util
import sys

import pandas as pd
import pytest

from workbench import datasets, inject, load

COUNTS = ["input_count", "sdc_count", "due_count", "beneficial_count"]


@pytest.fixture
def make(monkeypatch):
    # Nothing may be left beside the data.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path = datasets.path("pvf-demo") / "make.py"
    spec = importlib.util.spec_from_file_location("make_pvf_demo", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def outcomes(folder, campaign=None):
    table = load.injections(datasets.path("pvf-demo") / folder).outcomes
    return table if campaign is None else table[table["campaign_id"] == campaign]


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 8])
def test_flips_in_a_stored_type_are_made_anew(torch_here, make, count):
    stored = inject.stored_as(inject.shipped_model("dlrm"), "int8")
    kind = inject.FaultModel("mbf", flip_count=count)
    faults = inject.uniform_faults(stored, make.DRAWS, fault_model=kind, where="top", seed=count)
    outcomes_now = make.run("dlrm", stored, faults, f"top int8 x{count}").outcomes
    shipped = outcomes("flips", f"top int8 x{count}")
    assert outcomes_now[COUNTS].to_numpy().tolist() == shipped[COUNTS].to_numpy().tolist()


@pytest.mark.slow
def test_the_pilot_of_the_components_is_made_anew(torch_here, make):
    pilot_count, _, by = make.SITES["dlrm"]
    model = inject.shipped_model("dlrm")
    faults = inject.stratified_faults(model, pilot_count, by=by, seed=1)
    outcomes_now = make.run("dlrm", model, faults, "dlrm").outcomes
    shipped = outcomes("components/dlrm").head(len(outcomes_now))
    assert outcomes_now[COUNTS].to_numpy().tolist() == shipped[COUNTS].to_numpy().tolist()


@pytest.mark.usefixtures("torch_here")
def test_checksum_trials_are_made_anew():
    shipped = pd.read_parquet(datasets.path("pvf-demo") / "detectors.parquet")
    now = inject.gemm_checksum_trials(count=40, seed=1)
    of_gemm = shipped[shipped["detector"] == "gemm_checksum"].head(len(now))
    assert now["residual"].tolist() == of_gemm["residual"].tolist()
    assert now["bit"].astype("Int16").tolist() == of_gemm["bit"].astype("Int16").tolist()


def test_every_campaign_says_what_it_was_judged_on():
    for folder in ("components/dlrm", "components/lenet", "components/tickets", "flips"):
        campaign = load.injections(datasets.path("pvf-demo") / folder).campaign
        assert campaign["is_synthetic"].notna().all()
        assert campaign["dataset"].notna().all()
        is_real = campaign["dataset"].str.contains("handwritten")
        assert (campaign["is_synthetic"] != is_real).all()
