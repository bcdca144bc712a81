"""Campaigns: what they count, that they survive being stopped, and what they refuse."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pandas as pd
import pytest

from workbench import tables
from workbench.errors import InjectionError
from workbench.inject import (
    CampaignSettings,
    FaultModel,
    Judge,
    activation_faults,
    campaign,
    exhaustive_faults,
    fault_list,
    parameters,
    shipped_inputs,
    shipped_judge,
    shipped_model,
    stored_as,
    uniform_faults,
)
from workbench.inject.campaigns.campaign import running

PLAIN = CampaignSettings(engine="flip_and_run", chunk_size=20)
TIMES = ["time_s"]


def same(result, expected):
    """Compare two campaigns but for when they ran."""
    pd.testing.assert_frame_equal(
        result.outcomes.drop(columns=TIMES), expected.outcomes.drop(columns=TIMES)
    )
    pd.testing.assert_frame_equal(result.trials, expected.trials)
    pd.testing.assert_frame_equal(
        result.campaign.drop(columns="created"), expected.campaign.drop(columns="created")
    )


# --- laws ---


@pytest.mark.parametrize(
    "fault_model",
    [
        FaultModel(), FaultModel("mbf", flip_count=8), FaultModel("mbf", bit_error_ratio=5e-4),
        FaultModel("mbbf", burst_bits=4), FaultModel("stuck1"), FaultModel("value", value=9.0),
    ],
    ids=lambda model: f"{model.kind}-{model.bit_error_ratio}",
)  # fmt: skip
def test_every_input_ends_one_way(mlp, inputs, fault_model):
    faults = uniform_faults(mlp, 60, seed=1, fault_model=fault_model)
    result = campaign(mlp, inputs, faults, settings=PLAIN)
    table = tables.OUTCOMES.check(result.outcomes)
    assert table["exp_id"].tolist() == list(range(60))
    counts = table[["masked_count", "benign_count", "sdc_count", "due_count"]].sum(axis=1)
    assert (counts == 20).all()
    assert (table["input_count"] == 20).all()
    assert table["beneficial_count"].isna().all()
    head = tables.CAMPAIGN.check(result.campaign).iloc[0]
    assert (head["fault_model"], head["design"], head["seed"]) == (fault_model.kind, "uniform", 1)


@pytest.mark.long
@pytest.mark.parametrize("chunk_size", [1, 7, 1000])
def test_results_do_not_depend_on_the_size_of_chunks(mlp, inputs, chunk_size):
    faults = uniform_faults(mlp, 50, seed=1)
    settings = replace(PLAIN, keep_trials=True)
    expected = campaign(mlp, inputs, faults, settings=settings)
    result = campaign(mlp, inputs, faults, settings=replace(settings, chunk_size=chunk_size))
    same(expected, result)


def test_trials_add_up_to_outcomes(torch_here, mlp, inputs):
    labels = torch_here.arange(20) % 3
    settings = replace(PLAIN, keep_trials=True, labels=labels)
    faults = uniform_faults(mlp, 40, seed=1, bits=[29, 30, 31])
    result = campaign(mlp, inputs, faults, settings=settings)
    trials = tables.TRIALS.check(result.trials)
    assert len(trials) == 40 * 20
    for name in tables.OUTCOME_NAMES:
        counted = (trials["outcome"] == name).groupby(trials["exp_id"]).sum()
        assert (counted.to_numpy() == result.outcomes[f"{name}_count"].to_numpy()).all()
    assert trials["is_beneficial"].sum() == result.outcomes["beneficial_count"].sum()
    right = float((mlp(inputs).argmax(1) == labels).double().mean())
    assert result.campaign["golden_metric"].tolist() == [right]
    assert result.campaign["metric_name"].tolist() == ["accuracy"]


def test_tables_belong_together(mlp, inputs):
    mlp.components = {"3.*": "head", "*": "body"}
    faults = uniform_faults(stored_as(mlp, "int8"), 30, seed=1)
    settings = replace(PLAIN, name="bytes", dataset="noise", is_synthetic=True)
    result = campaign(stored_as(mlp, "int8"), inputs, faults, settings=settings)
    for table in ("campaign", "faults", "outcomes", "parameters"):
        assert set(getattr(result, table)["campaign_id"]) == {"bytes"}
    tables.FAULTS.check(result.faults)
    assert set(tables.PARAMETERS.check(result.parameters)["component"]) == {"head", "body"}
    assert result.campaign["dtype"].tolist() == ["int8"]
    assert result.is_synthetic
    assert "1 campaign, 30 experiments" in repr(result)


def test_components_are_those_under_which_faults_were_drawn(mlp, inputs):
    population = parameters(mlp, components={"*": "whole"})
    faults = uniform_faults(mlp, 200, seed=1, where=population)
    assert set(campaign(mlp, inputs, faults, settings=PLAIN).parameters["component"]) == {"whole"}


def test_activations_are_part_of_the_population(mlp, inputs):
    faults = activation_faults(mlp, inputs, 40, seed=1)
    result = campaign(mlp, inputs, faults, settings=PLAIN)
    kinds = result.parameters["kind"].astype(str).value_counts()
    assert kinds["activation"] == 4
    assert result.outcomes["masked_count"].sum() < 40 * 20


def test_what_a_module_with_parts_gives_can_be_hit(torch_here, mlp, inputs):
    model = torch_here.nn.Sequential(mlp[:2], mlp[2:])
    for where in ("0", ""):
        faults = activation_faults(model, inputs, 4, seed=1, where=where)
        result = campaign(model, inputs, faults, settings=PLAIN)
        assert len(result.outcomes) == 4
        assert f"{where}:output" in set(result.parameters["param"])


def test_a_threshold_judges_one_number(make_mlp, inputs):
    model = make_mlp(classes=1)
    faults = exhaustive_faults(model, "3.bias")
    judge = Judge("threshold", threshold=0.25)
    result = campaign(model, inputs, faults, judge=judge, settings=PLAIN)
    assert result.outcomes["sdc_count"].sum() > 0
    assert result.campaign["tolerance"].tolist() == [0.25]
    assert result.campaign["design"].tolist() == ["exhaustive"]


def test_a_drop_of_a_metric_is_judged_once_per_experiment(torch_here, mlp, inputs):
    labels = mlp.eval()(inputs).argmax(1)

    def accuracy(outputs, wanted):
        return float((outputs.argmax(1) == wanted).double().mean())

    faults = uniform_faults(mlp, 80, seed=1, bits=[2, 30, 31])
    settings = replace(PLAIN, labels=labels, metric=accuracy)
    judge = Judge("metric_drop", tolerance=0.1)
    result = campaign(mlp, inputs, faults, judge=judge, settings=settings)
    table = result.outcomes
    assert (table["input_count"] == 1).all()
    assert set(table["metric_name"]) == {"accuracy"}
    wrong = table["metric_value"] < 0.9
    assert 0 < wrong.sum() < 80
    assert (table["sdc_count"] + table["due_count"] >= wrong).all()
    finite = table["due_count"] == 0
    assert (table.loc[finite, "sdc_count"].astype(bool) == wrong[finite]).all()
    assert result.campaign["input_count"].tolist() == [1]
    assert result.campaign["golden_metric"].tolist() == [1.0]
    plain = campaign(mlp, inputs, faults, settings=settings)
    assert plain.outcomes["metric_value"].equals(table["metric_value"])


def test_the_model_is_as_before_also_between_chunks(torch_here, mlp, inputs):
    mlp.train()
    mlp[0].eval()
    chunks = running(mlp, inputs, uniform_faults(mlp, 50, seed=1), settings=PLAIN)
    first = tables.OUTCOMES.check(next(chunks))
    assert len(first) == 20
    assert torch_here.is_grad_enabled()
    assert [module.training for module in mlp] == [False, True, True, True]
    chunks.close()
    assert not any(module._forward_hooks for module in mlp.modules())


def test_experiments_that_hit_nothing_are_masked_and_noted(mlp, inputs):
    model = FaultModel("mbf", bit_error_ratio=0.0)
    faults = uniform_faults(mlp, 4, seed=1, fault_model=model)
    result = campaign(mlp, inputs, faults, settings=PLAIN)
    assert result.outcomes["masked_count"].tolist() == [20] * 4
    assert result.quality["what"].str.contains("hit nothing").any()


def test_a_list_without_provenance_says_what_its_rows_say(mlp, inputs):
    table = pd.DataFrame({"param": ["0.weight"] * 2, "elem": [0, 1], "bit": [1, 2]})
    head = campaign(mlp, inputs, fault_list(mlp, table), settings=PLAIN).campaign.iloc[0]
    assert (head["fault_model"], head["flip_count"], head["design"]) == ("sbf", 1, "fault_list")
    values = pd.DataFrame({"param": ["0.weight"], "elem": [0], "value_after": [0.5]})
    head = campaign(mlp, inputs, fault_list(mlp, values), settings=PLAIN).campaign.iloc[0]
    assert head["fault_model"] == "value"


@pytest.mark.slow
@pytest.mark.parametrize("component", ["embeddings", "bottom", "top"])
def test_the_fast_engine_decides_as_the_plain_one(torch_here, component):
    model, (inputs, labels) = shipped_model("dlrm"), shipped_inputs("dlrm")
    faults = uniform_faults(model, 60, seed=1, where=component, bits=range(20, 32))
    judge, settings = shipped_judge("dlrm"), CampaignSettings(labels=labels)
    fast = campaign(model, inputs, faults, judge=judge, settings=settings)
    plain = campaign(
        model, inputs, faults, judge=judge, settings=replace(settings, engine="flip_and_run")
    )
    for name in ("sdc_count", "due_count", "beneficial_count"):
        assert fast.outcomes[name].equals(plain.outcomes[name])
    assert fast.campaign["masked_rule"].tolist() == ["proven"]
    assert plain.campaign["masked_rule"].tolist() == ["bit_equal"]
    assert fast.campaign["model_sha"].equals(plain.campaign["model_sha"])


# --- stopped and taken up ---


@pytest.mark.long
def test_a_campaign_taken_up_is_the_campaign_run_whole(mlp, inputs, tmp_path):
    faults = uniform_faults(mlp, 90, seed=1)
    settings = replace(PLAIN, keep_trials=True)
    expected = campaign(mlp, inputs, faults, settings=settings)
    settings = replace(settings, folder=tmp_path / "kept")
    chunks = running(mlp, inputs, faults, settings=settings)
    next(chunks), next(chunks)
    chunks.close()
    assert len(list((tmp_path / "kept").glob("outcomes-*.parquet"))) == 2
    for name in ("outcomes-0000000040-0000000060.parquet.1.tmp", ".campaign.json-1-00aa11bb"):
        (tmp_path / "kept" / name).write_bytes(b"half")
    same(campaign(mlp, inputs, faults, settings=replace(settings, chunk_size=33)), expected)
    assert not [*(tmp_path / "kept").glob("*.tmp"), *(tmp_path / "kept").glob(".*")]
    again = campaign(mlp, inputs, faults, settings=settings)
    assert again.outcomes["time_s"].gt(0).all()
    same(again, expected)


def test_an_interrupt_leaves_the_chunks_that_are_done(torch_here, mlp, inputs, tmp_path):
    faults = uniform_faults(mlp, 60, seed=1)
    settings = replace(PLAIN, folder=tmp_path)
    before = mlp[0].weight.clone()
    calls = []

    def interrupt(*_):
        calls.append(1)
        if len(calls) > 35:
            raise KeyboardInterrupt

    handle = mlp[3].register_forward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        campaign(mlp, inputs, faults, settings=settings)
    handle.remove()
    assert len(list(tmp_path.glob("outcomes-*"))) == 1
    assert torch_here.equal(mlp[0].weight, before)
    same(
        campaign(mlp, inputs, faults, settings=settings),
        campaign(mlp, inputs, faults, settings=PLAIN),
    )


PROGRAM = """
import sys, time, torch
from workbench.inject import *
torch.set_num_threads(1)
torch.manual_seed(7)
model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
inputs = torch.randn(20, 5)
model[1].register_forward_hook(lambda *_: time.sleep(float(sys.argv[2])))
settings = CampaignSettings(folder=sys.argv[1], chunk_size=10, engine="flip_and_run")
faults = uniform_faults(model, 200, seed=1)
found = campaign(model, inputs, faults, settings=settings)
found.outcomes.drop(columns="time_s").to_csv(sys.argv[3], index=False)
"""


@pytest.mark.slow
def test_a_killed_campaign_goes_on_to_the_same_table(torch_here, tmp_path):
    def command(folder, pause, out):
        return [sys.executable, "-c", PROGRAM, str(tmp_path / folder), pause, str(tmp_path / out)]

    undisturbed = subprocess.Popen(command("whole", "0", "whole.csv"))
    started = subprocess.Popen(command("killed", "0.02", "killed.csv"))
    deadline = time.monotonic() + 120
    while len(list((tmp_path / "killed").glob("outcomes-*.parquet"))) < 3:
        assert time.monotonic() < deadline
        assert started.poll() is None
        time.sleep(0.05)
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    done = len(list((tmp_path / "killed").glob("outcomes-*.parquet")))
    assert 3 <= done < 20
    assert not (tmp_path / "killed.csv").exists()
    subprocess.run(command("killed", "0", "killed.csv"), check=True)
    assert undisturbed.wait() == 0
    assert (tmp_path / "killed.csv").read_text() == (tmp_path / "whole.csv").read_text()


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("campaign_id", {"name": "other"}),
        ("keep_trials", {"keep_trials": True}),
        ("labels_sha", {"labels": [0] * 20}),
        ("detectors", {"detectors": {"nan": lambda model, outputs, inputs: outputs[:, 0].isnan()}}),
    ],
)
def test_refuses_a_folder_of_other_settings(mlp, inputs, tmp_path, field, change):
    faults = uniform_faults(mlp, 20, seed=1)
    settings = replace(PLAIN, folder=tmp_path)
    campaign(mlp, inputs, faults, settings=settings)
    with pytest.raises(
        InjectionError, match=rf"folder: .* another campaign, .* differs in {field}"
    ):
        campaign(mlp, inputs, faults, settings=replace(settings, **change))


def test_refuses_a_folder_of_another_model_input_fault_or_judge(
    make_mlp, torch_here, inputs, tmp_path
):
    mlp = make_mlp()
    faults = uniform_faults(mlp, 20, seed=1)
    settings = replace(PLAIN, folder=tmp_path)
    campaign(mlp, inputs, faults, settings=settings)
    for field, arguments in {
        "inputs_sha": (mlp, inputs + 1, faults),
        "faults_sha": (mlp, inputs, uniform_faults(mlp, 20, seed=2)),
    }.items():
        with pytest.raises(InjectionError, match=f"differs in {field} "):
            campaign(*arguments, settings=settings)
    with pytest.raises(InjectionError, match=r"differs in judge \(judge there: .*argmax"):
        campaign(mlp, inputs, faults, judge=Judge("difference"), settings=settings)
    with torch_here.no_grad():
        mlp[2].bias.add_(1)
    with pytest.raises(InjectionError, match="differs in model_sha"):
        campaign(
            mlp, inputs, faults[["param"]].pipe(lambda _: strip(mlp, faults)), settings=settings
        )


def strip(model, faults):
    """Give the same places, with the values of this model."""
    return fault_list(model, faults.drop(columns=["value_before", "value_after", "direction"]))


def test_refuses_a_folder_whose_files_are_damaged(mlp, inputs, tmp_path):
    faults = uniform_faults(mlp, 20, seed=1)
    settings = replace(PLAIN, folder=tmp_path)
    campaign(mlp, inputs, faults, settings=settings)
    (chunk,) = tmp_path.glob("outcomes-*.parquet")
    chunk.write_bytes(chunk.read_bytes()[:100])
    with pytest.raises(InjectionError, match=r"outcomes-.* cannot be used: .*; delete outcomes-"):
        campaign(mlp, inputs, faults, settings=settings)
    head = tmp_path / "campaign.json"
    head.write_text(json.dumps({**json.loads(head.read_text()), "format": 99}))
    with pytest.raises(InjectionError, match="differs in format"):
        campaign(mlp, inputs, faults, settings=settings)
    head.write_text("{")
    with pytest.raises(InjectionError, match=r"campaign\.json is not the head of a campaign"):
        campaign(mlp, inputs, faults, settings=settings)


def chunks_of(folder):
    return {name: sorted(folder.glob(f"{name}-*")) for name in ("outcomes", "trials", "sums")}


def without_sums(folder):
    """Make the folder one of a version that wrote no check sums."""
    for file in folder.glob("sums-*"):
        file.unlink()
    head = folder / "campaign.json"
    stored = json.loads(head.read_text())
    del stored["has_sums"]
    head.write_text(json.dumps(stored))


@pytest.mark.long
@pytest.mark.parametrize("has_sums", [True, False])
@pytest.mark.parametrize("name", ["outcomes", "trials"])
def test_a_chunk_that_is_a_copy_of_another_is_refused(mlp, inputs, tmp_path, name, has_sums):
    settings = replace(PLAIN, folder=tmp_path, keep_trials=True, chunk_size=20)
    faults = uniform_faults(mlp, 60, seed=1)
    campaign(mlp, inputs, faults, settings=settings)
    if not has_sums:
        without_sums(tmp_path)
    first, second, _ = chunks_of(tmp_path)[name]
    second.write_bytes(first.read_bytes())
    with pytest.raises(InjectionError, match=r"outcomes-0000000020-0000000040\.parquet cannot be "):
        campaign(mlp, inputs, faults, settings=settings)


@pytest.mark.parametrize("has_sums", [True, False])
def test_a_chunk_without_its_trials_is_refused_and_run_again_if_deleted(
    mlp, inputs, tmp_path, has_sums
):
    settings = replace(PLAIN, folder=tmp_path, keep_trials=True, chunk_size=20)
    faults = uniform_faults(mlp, 60, seed=1)
    expected = campaign(mlp, inputs, faults, settings=settings)
    if not has_sums:
        without_sums(tmp_path)
    chunks_of(tmp_path)["trials"][1].unlink()
    with pytest.raises(InjectionError, match=r"missing.*; delete outcomes-.* is run again"):
        campaign(mlp, inputs, faults, settings=settings)
    chunks_of(tmp_path)["outcomes"][1].unlink()
    same(campaign(mlp, inputs, faults, settings=settings), expected)


def test_all_files_of_a_chunk_copied_from_another_are_refused(mlp, inputs, tmp_path):
    settings = replace(PLAIN, folder=tmp_path, keep_trials=True, chunk_size=20)
    faults = uniform_faults(mlp, 60, seed=1)
    campaign(mlp, inputs, faults, settings=settings)
    for first, second, _ in chunks_of(tmp_path).values():
        second.write_bytes(first.read_bytes())
    with pytest.raises(InjectionError, match=r"sums-.* is of another chunk"):
        campaign(mlp, inputs, faults, settings=settings)


def test_one_changed_count_of_a_chunk_is_refused(mlp, inputs, tmp_path):
    settings = replace(PLAIN, folder=tmp_path, chunk_size=20)
    faults = uniform_faults(mlp, 60, seed=1)
    campaign(mlp, inputs, faults, settings=settings)
    path = chunks_of(tmp_path)["outcomes"][1]
    table = pd.read_parquet(path)
    table.assign(sdc_count=table["sdc_count"] + 1).to_parquet(path)
    with pytest.raises(InjectionError, match="is not the file that was written"):
        campaign(mlp, inputs, faults, settings=settings)


def test_a_folder_without_check_sums_is_taken_up_and_said_to_be_one(mlp, inputs, tmp_path):
    settings = replace(PLAIN, folder=tmp_path, keep_trials=True, chunk_size=20)
    faults = uniform_faults(mlp, 60, seed=1)
    expected = campaign(mlp, inputs, faults, settings=settings)
    assert not expected.quality["what"].str.contains("check sums").any()
    without_sums(tmp_path)
    again = campaign(mlp, inputs, faults, settings=settings)
    same(again, expected)
    note = again.quality[again.quality["what"].str.contains("without check sums")]
    assert note[["finding", "count"]].to_numpy().tolist() == [["noted", 3]]


def test_a_chunk_whose_writing_was_cut_short_is_run_again(mlp, inputs, tmp_path):
    settings = replace(PLAIN, folder=tmp_path, chunk_size=20)
    faults = uniform_faults(mlp, 60, seed=1)
    expected = campaign(mlp, inputs, faults, settings=settings)
    chunks_of(tmp_path)["sums"][1].unlink()
    same(campaign(mlp, inputs, faults, settings=settings), expected)
    assert len(chunks_of(tmp_path)["sums"]) == 3


# --- what is refused ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "slow"}, "engine='slow' is not one of"),
        ({"chunk_size": 0}, "chunk_size must be"),
    ],
)
def test_refuses_settings_that_cannot_be_followed(options, message):
    with pytest.raises(InjectionError, match=message):
        CampaignSettings(**options)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda x: x[:0], "inputs: batch 0 is empty; there is nothing to judge"),
        (lambda x: [], "inputs: the list of batches is empty"),
        (lambda x: {"input": 3}, "inputs: batch 0 holds no tensor"),
        (lambda x: x.numpy(), "inputs: ndarray is not a batch; pass a tensor"),
        (lambda x: x.to("meta"), r"inputs: they are on \['meta'\], the model on \['cpu'\]"),
        (lambda x: [x, x[0]], r"inputs: batch 1 gives an output of shape \(3,\), the first"),
    ],
)
def test_refuses_inputs_that_cannot_be_judged(mlp, inputs, given, message):
    with pytest.raises(InjectionError, match=message):
        campaign(mlp, given(inputs), uniform_faults(mlp, 5, seed=1), settings=PLAIN)


@pytest.mark.parametrize(
    ("judge", "change", "message"),
    [
        (Judge(), {"labels": [1, 2]}, "2 labels for 20 inputs"),
        (Judge("metric_drop"), {}, "metric: criterion 'metric_drop' needs a function"),
        (Judge("threshold"), {}, "'threshold' judges one number per input, here are 3"),
        (Judge(), {"engine": "fast", "keep_trials": True}, "engine: 'fast' judges faults in"),
        (Judge(), {"engine": "fast", "labels": [0] * 7}, "7 labels for 20 inputs"),
    ],
)
def test_refuses_a_judge_or_settings_that_do_not_fit(mlp, inputs, judge, change, message):
    with pytest.raises(InjectionError, match=message):
        campaign(
            mlp,
            inputs,
            uniform_faults(mlp, 5, seed=1),
            judge=judge,
            settings=replace(PLAIN, **change),
        )


def test_the_fast_engine_refuses_batches_and_auto_takes_them(mlp, inputs):
    faults = uniform_faults(mlp, 5, seed=1)
    batches = [inputs[:7], inputs[7:]]
    with pytest.raises(InjectionError, match="engine: 'fast' takes one batch of unnamed"):
        campaign(mlp, batches, faults, settings=CampaignSettings(engine="fast"))
    assert campaign(mlp, batches, faults).quality["what"].tolist()[-1].endswith("FlipAndRun")


def test_refuses_labels_of_another_length_for_a_metric(mlp, inputs):
    settings = replace(PLAIN, labels=[1], metric=lambda outputs, labels: 1.0)
    with pytest.raises(InjectionError, match="labels: 1 are given for 20 inputs"):
        campaign(
            mlp,
            inputs,
            uniform_faults(mlp, 5, seed=1),
            judge=Judge("metric_drop"),
            settings=settings,
        )


def test_refuses_a_model_that_is_not_the_same_twice(torch_here, inputs):
    class Noisy(torch_here.nn.Linear):
        def forward(self, x):
            return super().forward(x) + torch_here.rand(())

    model = Noisy(5, 3)
    with pytest.raises(InjectionError, match="model: two runs without faults differ on batch 0"):
        campaign(model, inputs, uniform_faults(model, 5, seed=1), settings=PLAIN)


def test_dropout_is_turned_off_by_evaluation_mode(torch_here, inputs):
    nn = torch_here.nn
    model = nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.5)).train()
    campaign(model, inputs, uniform_faults(model, 5, seed=1), settings=PLAIN)
    assert model[1].training


def test_refuses_an_output_whose_shape_depends_on_the_fault(torch_here, inputs):
    class Cut(torch_here.nn.Linear):
        def forward(self, x):
            out = super().forward(x)
            return out if self.bias[0] > 0 else out[:, :2]

    model = Cut(5, 3)
    torch_here.nn.init.ones_(model.bias)
    faults = exhaustive_faults(model, "bias", bits=31)
    with pytest.raises(InjectionError, match="the output changed its shape under a fault"):
        campaign(model, inputs, faults, settings=PLAIN)


def test_refuses_faults_of_another_model_and_none_at_all(mlp, make_mlp, inputs):
    faults = uniform_faults(make_mlp(classes=4), 300, seed=1)
    with pytest.raises(InjectionError, match=r"faults: elem .* is outside its tensor"):
        campaign(mlp, inputs, faults, settings=PLAIN)
    with pytest.raises(InjectionError, match="faults: the table has no rows"):
        campaign(mlp, inputs, faults.iloc[:0], settings=PLAIN)
    double = uniform_faults(mlp, 5, seed=1).assign(exp_id=0)
    with pytest.raises(InjectionError, match=r"flip .* appears twice in its experiment"):
        campaign(mlp, inputs, double, settings=PLAIN)
