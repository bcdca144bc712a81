"""The fast engine gives the counts of flip and run, whatever the model."""

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.errors import InjectionError
from workbench.inject import Judge, activation_faults, exhaustive_faults, uniform_faults
from workbench.inject.designs.changes import changes
from workbench.inject.engines import bounds as _bounds
from workbench.inject.engines import reexecution as _reexecution
from workbench.inject.engines import units as _units
from workbench.inject.engines.fast_engine import FastEngine
from workbench.inject.engines.flip_and_run import FlipAndRun
from workbench.tables import FAULTS

HEAVY = [31, 30, 30, 30, 29, 28, 25]


@pytest.fixture(scope="session")
def dlrm(torch_here):
    """Give a small recommendation model, its inputs and labels."""
    from workbench.inject.models import DLRM

    torch_here.manual_seed(0)
    model = DLRM(5, (40,) * 6, 4, bottom=(12,), top=(16, 8))
    draws = torch_here.Generator().manual_seed(1)
    dense = torch_here.randn(150, 5, generator=draws)
    sparse = torch_here.randint(0, 30, (150, 6), generator=draws)
    return model.eval(), (dense, sparse), torch_here.randint(0, 2, (150,), generator=draws)


@pytest.fixture(scope="session")
def lenet(torch_here):
    """Give a small network of convolutions."""
    nn = torch_here.nn
    torch_here.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(3, 5, 3, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(20, 9), nn.ReLU(inplace=True), nn.Linear(9, 4),
    )  # fmt: skip
    images = torch_here.rand(70, 1, 11, 11, generator=torch_here.Generator().manual_seed(1))
    return model.eval(), (images[:, :, :, :],), None


@pytest.fixture(scope="session")
def transformer(torch_here):
    """Give a transformer of the shape of the shipped one, two blocks, and short tickets."""
    from workbench.inject.models import TicketClassifier

    torch_here.manual_seed(0)
    model = TicketClassifier(30, 4, 6)
    words = torch_here.randint(1, 25, (16, 6), generator=torch_here.Generator().manual_seed(1))
    words[::3, 4:] = 0
    return model.eval(), (words,), None


@pytest.fixture(scope="session")
def odd(torch_here):
    """Give a model with all that stands in the way of short cuts."""
    nn = torch_here.nn

    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Linear(6, 8)
            self.twice = nn.Linear(8, 8)
            self.norm = nn.LayerNorm(8)
            self.scale = nn.Parameter(torch_here.ones(8))
            self.unused = nn.Linear(6, 3)
            self.tied = nn.Linear(8, 8)
            self.tied.weight = self.twice.weight
            self.leave = nn.Linear(8, 3)

        def forward(self, x):
            self.unused(x)
            y = torch_here.relu(self.enter(x))
            y = y + torch_here.tanh(self.twice(y))
            y = self.norm(y + self.twice(y)) * self.scale
            y = torch_here.cat([y, self.tied(y)], 1).view(x.shape[0], 2, -1).sum(1)
            return self.leave(y)

    torch_here.manual_seed(0)
    x = torch_here.randn(50, 6, generator=torch_here.Generator().manual_seed(1))
    return Odd().eval(), (x,), None


@pytest.fixture(scope="session")
def branching(torch_here):
    """Give a model whose way depends on values, so that it has no graph."""
    nn = torch_here.nn

    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.more, self.leave = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x):
            y = torch_here.relu(self.enter(x))
            for _ in range(3):
                if y.mean() > 0.1:
                    y = torch_here.relu(self.more(y)) * 0.5
            return self.leave(y) if y.max() < 1e9 else -self.leave(y)

    torch_here.manual_seed(0)
    x = torch_here.randn(50, 6, generator=torch_here.Generator().manual_seed(1))
    return Branching().eval(), (x,), None


@pytest.fixture(params=["dlrm", "lenet", "transformer", "odd", "branching"])
def whole(request):
    """Give each of these models in turn."""
    return request.getfixturevalue(request.param)


def measure(model, inputs, labels):
    outputs = model(*inputs).detach()
    judge = Judge("threshold") if outputs.ndim == 1 else Judge()
    return judge.golden(outputs, labels)


def compare(model, inputs, faults, labels=None, **options):
    """Run faults in both engines, demand equal counts; give the counts and the engine."""
    golden = measure(model, inputs, labels)
    faults = faults.assign(exp_id=range(len(faults)))
    work = changes(model, faults)
    fast = FastEngine(model, inputs, golden, **options)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fast_counts = fast.counts(work)
    plain_counts = FlipAndRun(model, inputs, golden).counts(work)
    for name in ("sdc", "due", "beneficial"):
        differs = np.flatnonzero(getattr(fast_counts, name) != getattr(plain_counts, name))
        assert faults.iloc[differs][["param", "elem", "bit"]].to_numpy().tolist() == [], name
    assert (
        fast_counts.masked + fast_counts.benign == plain_counts.masked + plain_counts.benign
    ).all()
    assert (fast_counts.masked <= plain_counts.masked).all()
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    return fast_counts, plain_counts, fast


def drawn(model, count, seed=1):
    """Draw faults in all bits, and as many in those that matter."""
    draws = [uniform_faults(model, count, seed=seed)]
    draws += [uniform_faults(model, count, seed=seed + 1, bits=sorted(set(HEAVY)))]
    return joined(draws)


def joined(draws):
    """Give several draws as one."""
    return FAULTS.cast(pd.concat([draw.astype(object) for draw in draws], ignore_index=True))


@pytest.mark.slow
def test_counts_are_those_of_flip_and_run(whole):
    model, inputs, labels = whole
    fast_counts, _, _ = compare(model, inputs, drawn(model, 300), labels)
    assert fast_counts.sdc.sum() > 50


@pytest.mark.slow
@pytest.mark.parametrize("component", ["top", "bottom", "tables"])
def test_counts_hold_in_every_component_of_a_recommendation_model(dlrm, component):
    model, inputs, labels = dlrm
    where = f"{component}.*"
    faults = joined(
        [
            uniform_faults(model, 300, seed=3, where=where),
            uniform_faults(model, 150, seed=4, where=where, bits=[30]),
        ]
    )
    _, _, fast = compare(model, inputs, faults, labels)
    assert all(fast.is_fast(name) for name in faults["param"].unique())


@pytest.mark.slow
@pytest.mark.parametrize("where", ["0.*", "3.*", "6.*", "8.*"])
def test_counts_hold_in_every_layer_of_convolutions(lenet, where):
    model, inputs, labels = lenet
    faults = joined(
        [
            uniform_faults(model, 200, seed=3, where=where),
            uniform_faults(model, 100, seed=4, where=where, bits=[28, 29, 30, 31]),
        ]
    )
    _, _, fast = compare(model, inputs, faults, labels)
    assert all(fast.is_fast(name) for name in faults["param"].unique())


@pytest.mark.slow
def test_word_embeddings_and_the_head_of_a_transformer_are_fast(transformer):
    model, inputs, _ = transformer
    where = ["words.*", "pooler.*", "classifier.*"]
    faults = uniform_faults(model, 300, seed=3, where=where, bits=[22, 25, 28, 29, 30, 31])
    _, _, fast = compare(model, inputs, faults)
    assert all(fast.is_fast(name) for name in faults["param"].unique())
    assert not fast.is_fast("positions.weight")


@pytest.mark.slow
def test_pruned_and_unpruned_counts_are_equal(dlrm, lenet):
    for model, inputs, labels in (dlrm, lenet):
        faults = drawn(model, 200, seed=9)
        pruned, _, _ = compare(model, inputs, faults, labels)
        plain, _, _ = compare(model, inputs, faults, labels, is_pruned=False)
        assert (pruned.sdc == plain.sdc).all()
        assert (pruned.due == plain.due).all()


@pytest.mark.slow
def test_rounding_stays_well_below_what_is_taken_as_too_close(torch_here, monkeypatch, dlrm, lenet):
    seen = []
    plain, judged = _bounds.Bounds.is_close, _units.judge_pairs

    def is_close(self, margins, rows, change, units):
        level = self.size[rows] + change * self.at(self.peak, units, rows)
        seen.append([rows, margins, self.factor * _bounds.EPSILON * level])
        return plain(self, margins, rows, change, units)

    def judge_pairs(golden, pairs, built, close, tally, *, rows_per_chunk):
        del rows_per_chunk
        judged(golden, pairs, built, close, tally, rows_per_chunk=len(pairs[0]))

    monkeypatch.setattr(_bounds.Bounds, "is_close", is_close)
    monkeypatch.setattr(_units, "judge_pairs", judge_pairs)
    worst = 0.0
    for model, inputs, labels in (dlrm, lenet):
        golden = measure(model, inputs, labels)
        fast = FastEngine(model, inputs, golden, is_pruned=False)
        for fault in range(40):
            where = ["top.*", "bottom.*"] if model is dlrm[0] else "*"
            faults = uniform_faults(model, 1, seed=fault, where=where, bits=range(20, 30))
            work, param = changes(model, faults), str(faults["param"].iloc[0])
            seen.clear()
            fast.counts(work)
            with _reexecution.changed(
                dict(model.named_parameters())[param], torch_here.tensor(work.elem), work.after
            ):
                exact = golden.margins(model(*inputs).detach(), slice(None))
            ((rows, margins, unit),) = seen
            worst = max(worst, float(((margins - exact[rows]).abs() / unit).max()))
    assert 0 < worst < _bounds.ROUNDING / 4


def test_what_runs_exactly_counts_masked_inputs_as_flip_and_run_does(odd, branching):
    for model, inputs, _ in (odd, branching):
        faults = uniform_faults(model, 60, seed=5)
        fast_counts, plain_counts, fast = compare(model, inputs, faults)
        exact = np.array([not fast.is_fast(name) for name in faults["param"]])
        assert exact.any()
        assert (fast_counts.masked == plain_counts.masked)[exact].all()
        assert np.allclose(
            fast_counts.max_abs_delta[exact], plain_counts.max_abs_delta[exact], equal_nan=True
        )


def test_a_part_that_the_output_does_not_need_masks_everything(odd):
    model, inputs, _ = odd
    fast_counts, _, _ = compare(model, inputs, uniform_faults(model, 20, seed=1, where="unused.*"))
    assert (fast_counts.masked == len(inputs[0])).all()


def test_rows_of_a_table_that_no_input_looks_up_mask_everything(dlrm):
    model, inputs, labels = dlrm
    faults = exhaustive_faults(model, where="tables.0.weight", bits=[30])
    fast_counts, _, _ = compare(model, inputs, faults[faults["elem"] >= 30 * 4], labels)
    assert (fast_counts.masked == 150).all()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e38, -3e38, 0.0])
def test_weights_that_are_not_finite_or_huge_count_the_same(torch_here, dlrm, lenet, value):
    for model, inputs, labels in (dlrm, lenet):
        faults = uniform_faults(model, 24, seed=2).assign(exp_id=range(24))
        work = changes(model, faults)
        work.after[:] = value
        golden = measure(model, inputs, labels)
        fast_counts = FastEngine(model, inputs, golden).counts(work)
        plain_counts = FlipAndRun(model, inputs, golden).counts(work)
        assert (fast_counts.sdc == plain_counts.sdc).all()
        assert (fast_counts.due == plain_counts.due).all()


def test_several_flips_of_one_experiment_act_together(dlrm):
    model, inputs, labels = dlrm
    faults = uniform_faults(model, 40, seed=6, bits=[24, 28, 29, 30])
    faults = FAULTS.cast(faults.assign(exp_id=np.arange(40) // 4, flip=np.arange(40) % 4))
    golden = measure(model, inputs, labels)
    work = changes(model, faults)
    fast_counts = FastEngine(model, inputs, golden).counts(work)
    plain_counts = FlipAndRun(model, inputs, golden).counts(work)
    assert (fast_counts.masked == plain_counts.masked).all()
    assert (fast_counts.sdc == plain_counts.sdc).all()


@pytest.mark.slow
def test_exhausted_counts_are_those_of_single_faults(dlrm):
    model, inputs, labels = dlrm
    golden = measure(model, inputs, labels)
    fast, bits = FastEngine(model, inputs, golden), [23, 30, 31]
    for param in ("tables.2.weight", "top.2.bias"):
        sdc, due = fast.exhausted(param, bits)
        faults = exhaustive_faults(model, where=param, bits=bits)
        faults = faults.sort_values(["elem", "bit"]).assign(exp_id=range(len(faults)))
        plain_counts = FlipAndRun(model, inputs, golden).counts(changes(model, faults))
        assert (sdc == plain_counts.sdc.reshape(-1, 3)).all()
        assert (due == plain_counts.due.reshape(-1, 3)).all()


def test_the_judge_of_differences_is_served_exactly(dlrm):
    model, inputs, _ = dlrm
    golden = Judge("difference", tolerance=1e-3).golden(model(*inputs).detach())
    work = changes(model, uniform_faults(model, 30, seed=1).assign(exp_id=range(30)))
    fast = FastEngine(model, inputs, golden)
    fast_counts, plain_counts = fast.counts(work), FlipAndRun(model, inputs, golden).counts(work)
    assert not fast.is_fast("top.0.weight")
    assert (fast_counts.sdc == plain_counts.sdc).all()
    assert (fast_counts.masked == plain_counts.masked).all()


def test_half_precision_models_are_served_exactly(torch_here, lenet):
    model = torch_here.nn.Sequential(*lenet[0][6:]).to(torch_here.bfloat16)
    inputs = (torch_here.rand(40, 20).to(torch_here.bfloat16),)
    compare(model, inputs, uniform_faults(model, 40, seed=1, bits=[5, 12, 13, 14]))


def test_activations_are_left_to_flip_and_run(dlrm):
    model, inputs, labels = dlrm
    faults = activation_faults(model, inputs, 3, seed=1, where="bottom.1")
    fast = FastEngine(model, inputs, measure(model, inputs, labels))
    with pytest.raises(InjectionError, match=r"no parameter 'bottom\.1:output'"):
        fast.counts(changes(model, faults))


def test_a_model_that_mixes_its_inputs_is_run_whole(torch_here):
    class Centred(torch_here.nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.leave = torch_here.nn.Linear(4, 5), torch_here.nn.Linear(5, 3)

        def forward(self, x):
            y = torch_here.relu(self.enter(x))
            return self.leave(y - y.mean(0))

    torch_here.manual_seed(3)
    model, inputs = Centred().eval(), (torch_here.randn(30, 4),)
    _, _, fast = compare(model, inputs, drawn(model, 40))
    assert not fast.is_fast("enter.weight")


def test_a_value_read_after_it_was_changed_in_place_is_never_mistaken(torch_here):
    class InPlace(torch_here.nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.leave = torch_here.nn.Linear(4, 5), torch_here.nn.Linear(5, 3)

        def forward(self, x):
            y = self.enter(x)
            z = torch_here.relu_(y)
            y += 1
            return self.leave(z * y)

    torch_here.manual_seed(3)
    model, inputs = InPlace().eval(), (torch_here.randn(30, 4),)
    compare(model, inputs, drawn(model, 40))


def test_weights_used_behind_the_back_of_their_module_are_never_missed(torch_here):
    class Sly(torch_here.nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.leave = torch_here.nn.Linear(4, 5), torch_here.nn.Linear(5, 3)

        def forward(self, x):
            y = torch_here.relu(self.enter(x)) * self._modules["enter"]._parameters["bias"].sum()
            return self.leave(y)

    torch_here.manual_seed(3)
    model, inputs = Sly().eval(), (torch_here.randn(30, 4),)
    compare(model, inputs, drawn(model, 60))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    widths=st.lists(st.integers(1, 9), min_size=2, max_size=4),
    classes=st.integers(1, 4),
    count=st.integers(1, 12),
    seed=st.integers(0, 10_000),
    bits=st.sampled_from([[30], [29, 30, 31], list(range(20, 32)), list(range(32))]),
)
def test_any_small_network_counts_the_same(torch_here, widths, classes, count, seed, bits):
    nn = torch_here.nn
    torch_here.manual_seed(seed)
    layers = []
    for width, next_width in pairwise(widths):
        layers += [nn.Linear(width, next_width), [nn.ReLU(), nn.Tanh(), nn.GELU()][seed % 3]]
    layers += [nn.Linear(widths[-1], classes)]
    layers += [nn.Flatten(0)] if classes == 1 else []
    model = nn.Sequential(*layers).eval()
    inputs = (torch_here.randn(count, widths[0]),)
    compare(model, inputs, uniform_faults(model, 25, seed=seed, bits=bits))


def test_an_interrupted_run_leaves_the_model_as_it_was(torch_here, odd):
    model, inputs, _ = odd
    before = {name: value.clone() for name, value in model.state_dict().items()}
    golden = measure(model, inputs, None)
    fast = FastEngine(model, inputs, golden)
    work = changes(model, uniform_faults(model, 5, seed=1, where="scale").assign(exp_id=range(5)))
    fast.is_fast("scale")
    fast._runs.outputs = lambda _: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        fast.counts(work)
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())


def test_a_parameter_the_model_does_not_have_is_named(odd):
    model, inputs, _ = odd
    fast = FastEngine(model, inputs, measure(model, inputs, None))
    with pytest.raises(InjectionError, match=r"no parameter 'nowhere\.weight'"):
        fast.exhausted("nowhere.weight", [30])


@pytest.mark.parametrize("is_short", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_the_whole_model_and_a_part_of_it_give_the_same_counts(torch_here, is_short, seed):
    """Which is faster decides how a fault is run, never what comes of it."""
    nn = torch_here.nn
    torch_here.manual_seed(seed)
    layers = [
        nn.Linear(6, 8),
        nn.GELU(),
        nn.LayerNorm(8),
        nn.Linear(8, 8),
        nn.GELU(),
        nn.LayerNorm(8),
    ]
    model = nn.Sequential(*layers, nn.Linear(8, 4)).eval()
    inputs = (torch_here.randn(20, 6),)
    golden = measure(model, inputs, None)
    work = changes(model, uniform_faults(model, 300, seed=seed, bits=HEAVY))
    fast = FastEngine(model, inputs, golden)
    fast._runs._is_short = is_short
    counts, plain = fast.counts(work), FlipAndRun(model, inputs, golden).counts(work)
    assert (counts.sdc == plain.sdc).all()
    assert (counts.due == plain.due).all()
    assert counts.due.sum() + counts.sdc.sum() > 0
    # What was run, rather than computed, is exact in every count.
    was_run = ~np.isnan(counts.max_abs_delta)
    assert was_run.any()
    assert (counts.masked == plain.masked)[was_run].all()
    assert (counts.max_abs_delta == plain.max_abs_delta)[was_run].all()
