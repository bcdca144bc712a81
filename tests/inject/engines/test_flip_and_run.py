"""The plain engine: exact counts, and a model that is as it was."""

import copy

import numpy as np
import pandas as pd
import pytest

from workbench.errors import InjectionError
from workbench.inject import FaultModel, Judge, activation_faults, fault_list, uniform_faults
from workbench.inject.designs.changes import changes
from workbench.inject.designs.population import activations
from workbench.inject.engines.flip_and_run import FlipAndRun

COUNTS = ("masked", "benign", "sdc", "due", "beneficial")


def engine(model, inputs, labels=None, judge=None):
    model = model.eval()
    outputs = model(*inputs) if isinstance(inputs, tuple) else model(inputs)
    return FlipAndRun(model, inputs, (judge or Judge()).golden(outputs, labels))


def naive(torch, model, inputs, faults):
    """Count what faults do, by flipping a copy and comparing outputs; one flip per experiment."""
    rows = []
    golden = model.eval()(inputs).detach()
    for fault in faults.itertuples():
        faulty = copy.deepcopy(model)
        flat = dict(faulty.named_parameters())[fault.param].detach().view(-1)
        bits = flat.view(torch.int32)
        bits[fault.elem] ^= -(2**31) if fault.bit == 31 else 2 ** int(fault.bit)
        out = faulty(inputs).detach()
        due = ~out.isfinite().all(1)
        masked = (out == golden).all(1)
        sdc = (out.argmax(1) != golden.argmax(1)) & ~due & ~masked
        rows.append([masked.sum(), (~masked & ~sdc & ~due).sum(), sdc.sum(), due.sum()])
    return np.array(rows, dtype=int)


def state(model):
    return {name: values.clone() for name, values in model.state_dict().items()}


@pytest.mark.oracle
def test_counts_are_those_of_a_flipped_copy(torch_here, mlp, inputs):
    faults = uniform_faults(mlp, 300, seed=1)
    faults = pd.concat([faults, uniform_faults(mlp, 100, seed=2, bits=[30])], ignore_index=True)
    faults = faults.assign(exp_id=range(400))
    counts = engine(mlp, inputs).counts(changes(mlp, faults))
    together = np.stack([counts.masked, counts.benign, counts.sdc, counts.due], axis=1)
    assert (together == naive(torch_here, mlp, inputs, faults)).all()
    assert (together.sum(axis=1) == 20).all()
    assert counts.sdc.sum() > 50
    assert (counts.beneficial == 0).all()


@pytest.mark.parametrize(
    "fault_model",
    [FaultModel("mbf", flip_count=20), FaultModel("mbbf", burst_bits=8), FaultModel("stuck1")],
)
def test_the_model_is_put_back_bit_for_bit(torch_here, mlp, inputs, fault_model):
    before = state(mlp)
    mlp.train()
    golden = Judge().golden(mlp(inputs))
    faults = uniform_faults(mlp, 60, seed=1, fault_model=fault_model)
    FlipAndRun(mlp, inputs, golden).counts(changes(mlp, faults))
    assert mlp.training
    assert all(torch_here.equal(before[name], now) for name, now in mlp.state_dict().items())


def test_an_interrupted_model_is_put_back(torch_here, mlp, inputs):
    plain = engine(mlp, inputs)
    before = state(mlp)

    def interrupt(*_):
        assert not torch_here.equal(mlp[0].weight, before["0.weight"])
        raise KeyboardInterrupt

    handle = mlp[3].register_forward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        plain.counts(changes(mlp, uniform_faults(mlp, 3, seed=1, where="0.weight", bits=30)))
    handle.remove()
    assert all(torch_here.equal(before[name], now) for name, now in mlp.state_dict().items())


def test_flips_of_one_element_are_combined_before_they_are_injected(mlp):
    twice = pd.DataFrame(
        {"param": "0.weight", "elem": [3, 3, 3], "bit": [30, 30, 5], "exp_id": 0, "flip": [0, 1, 2]}
    )
    once = pd.DataFrame({"param": ["0.weight"], "elem": [3], "bit": [5]})
    combined, single = (changes(mlp, fault_list(mlp, table)) for table in (twice, once))
    assert len(combined.elem) == 1
    assert combined.after.tolist() == single.after.tolist()


def test_a_value_is_set_and_a_bit_that_is_stuck_already_changes_nothing(mlp):
    value = uniform_faults(mlp, 9, seed=1, fault_model=FaultModel("value", value=2.5))
    assert changes(mlp, value).after.tolist() == [2.5] * 9
    stuck = uniform_faults(mlp, 60, seed=1, fault_model=FaultModel("stuck0"), bits=31)
    work = changes(mlp, stuck)
    assert (work.after >= 0).all()
    assert (work.after == work.before.abs()).all()


def test_changes_of_all_types_go_into_one_tensor(torch_here, mlp):
    mlp[3].half()
    work = changes(mlp, uniform_faults(mlp, 50, seed=1, bits=[3]))
    assert work.after.dtype == torch_here.float32
    assert np.isin(work.target, [0, 1, 2, 3, 4, 5]).all()


def test_the_largest_change_is_that_of_finite_outputs(mlp, inputs):
    faults = fault_list(mlp, pd.DataFrame({"param": ["3.bias"], "elem": [0], "value_after": [9.0]}))
    before = float(mlp[3].bias[0].detach())
    counts = engine(mlp, inputs).counts(changes(mlp, faults))
    assert counts.max_abs_delta.tolist() == pytest.approx([9 - before], rel=1e-5)


def test_a_crash_under_a_fault_is_a_due(torch_here, inputs):
    class Fragile(torch_here.nn.Linear):
        def forward(self, x):
            rows = torch_here.arange(2) if self.bias[0] > 0 else torch_here.tensor([0, 7])
            return super().forward(x)[:, rows]

    model = Fragile(5, 2)
    torch_here.nn.init.ones_(model.bias)
    faults = fault_list(model, pd.DataFrame({"param": ["bias"], "elem": [0], "bit": [31]}))
    counts = engine(model, inputs).counts(changes(model, faults))
    assert counts.due.tolist() == [20]
    assert np.isnan(counts.max_abs_delta).all()


def test_labels_tell_which_wrong_decisions_do_good(torch_here, mlp, inputs):
    faults = uniform_faults(mlp, 100, seed=1, bits=[30, 31])
    wrong = (mlp.eval()(inputs).argmax(1) + 1) % 3
    counts = engine(mlp, inputs, labels=wrong).counts(changes(mlp, faults))
    assert 0 < counts.beneficial.sum() < counts.sdc.sum()
    assert (counts.beneficial <= counts.sdc).all()


def test_parameters_of_any_layout_are_hit_at_their_place(torch_here):
    torch_here.manual_seed(0)
    conv = torch_here.nn.Conv2d(2, 3, 3).to(memory_format=torch_here.channels_last)
    model = torch_here.nn.Sequential(conv, torch_here.nn.Flatten())
    images = torch_here.randn(4, 2, 5, 5)
    faults = uniform_faults(model, 40, seed=1, bits=[30])
    plain = FlipAndRun(model, images, Judge().golden(model(images)))
    contiguous = copy.deepcopy(model).to(memory_format=torch_here.contiguous_format)
    reference = FlipAndRun(contiguous, images, Judge().golden(model(images)))
    for name in ("sdc", "due"):
        counts, expected = (
            getattr(engines.counts(changes(model, faults)), name) for engines in (plain, reference)
        )
        assert (counts == expected).all()


def test_inputs_can_be_tuples_dicts_and_batches(torch_here, mlp, inputs):
    work = changes(mlp, uniform_faults(mlp, 40, seed=1, bits=[30, 31]))
    golden = Judge().golden(mlp.eval()(inputs))
    kinds = [(inputs,), {"input": inputs}, [inputs[:7], (inputs[7:],)]]
    expected = FlipAndRun(mlp, inputs, golden).counts(work)
    for kind in kinds:
        counts = FlipAndRun(mlp, kind, golden).counts(work)
        assert (counts.sdc == expected.sdc).all()


# --- activations ---


def test_activations_are_listed_per_input(mlp, inputs):
    table = activations(mlp, inputs)
    assert table["param"].tolist() == ["0:output", "1:output", "2:output", "3:output"]
    assert table["element_count"].tolist() == [8, 8, 8, 3]
    assert set(table["kind"].astype(str)) == {"activation"}


def test_an_activation_is_hit_in_every_input(torch_here, mlp, inputs):
    seen = []
    faults = activation_faults(mlp, inputs, 1, seed=1, where="3", fault_model=FaultModel("stuck0"))
    faults = faults.assign(bit=faults["bit"] * 0 + 31, elem=faults["elem"] * 0 + 2)
    plain = engine(mlp, inputs)
    mlp.register_forward_hook(lambda module, args, output: seen.append(output.detach().clone()))
    golden = mlp(inputs).detach()
    plain.counts(changes(mlp, faults))
    expected = golden.clone()
    expected[:, 2] = expected[:, 2].abs()
    assert torch_here.equal(seen[-1], expected)
    plain.counts(changes(mlp, uniform_faults(mlp, 1, seed=1, bits=0, where="0.bias")))
    assert not mlp[3]._forward_hooks
    assert torch_here.allclose(seen[-1], golden, atol=1e-3)


@pytest.mark.parametrize(
    ("fault_model", "value"),
    [(FaultModel("value", value=4.0), 4.0), (FaultModel("mbbf", burst_bits=2), None)],
)
def test_activations_take_values_and_bursts(mlp, inputs, fault_model, value):
    faults = activation_faults(mlp, inputs, 30, seed=1, fault_model=fault_model)
    assert faults["value_before"].isna().all()
    counts = engine(mlp, inputs).counts(changes(mlp, faults))
    total = sum(getattr(counts, name) for name in COUNTS[:4])
    assert (total == 20).all()
    assert (counts.masked < 20).any()


def test_a_module_called_twice_is_hit_once_per_run(torch_here, inputs):
    class Twice(torch_here.nn.Module):
        def __init__(self):
            super().__init__()
            self.relu = torch_here.nn.ReLU()
            self.last = torch_here.nn.Linear(5, 2)

        def forward(self, x):
            return self.last(self.relu(self.relu(x) - 1))

    torch_here.manual_seed(0)
    model = Twice().eval()
    value = FaultModel("value", value=-50.0)
    faults = activation_faults(model, inputs, 5, seed=1, where="relu", fault_model=value)
    counts = engine(model, inputs).counts(changes(model, faults))
    # A negative value is set in the first call; the second makes it 0 again.
    assert (counts.max_abs_delta < 5).all()


def test_refuses_modules_that_are_not_there(mlp, inputs):
    with pytest.raises(InjectionError, match="where: 'x' names no module that gives a tensor"):
        activation_faults(mlp, inputs, 5, seed=1, where="x")


def test_refuses_a_module_whose_output_is_no_tensor(torch_here, mlp, inputs):
    class Pair(torch_here.nn.Module):
        def forward(self, x):
            return x, x

    class Model(torch_here.nn.Module):
        def __init__(self):
            super().__init__()
            self.pair, self.last = Pair(), torch_here.nn.Linear(5, 2)

        def forward(self, x):
            return self.last(self.pair(x)[0])

    model = Model()
    faults = activation_faults(model, inputs, 1, seed=1, where="last").astype({"param": object})
    faults["param"] = pd.Categorical(["pair:output"])
    with pytest.raises(InjectionError, match="activation 'pair:output' is a tuple, not a tensor"):
        engine(model, inputs).counts(changes(model, faults))
