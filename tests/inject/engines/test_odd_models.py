"""The fast engine on models that short cuts could mistake for others."""

import math

import numpy as np
import pytest

from workbench.errors import InjectionError
from workbench.inject import (
    CampaignSettings,
    Judge,
    campaign,
    exhaustive,
    stored_as,
    uniform_faults,
    weight_clamp,
)

N = 24
HEAVY = [31, 30, 29, 28, 25]


@pytest.fixture
def make_model(torch_here):
    """Give the function that makes a module of a forward function and parts."""
    nn = torch_here.nn

    def make(forward, **parts):
        class Made(nn.Module):
            def __init__(self):
                super().__init__()
                for name, module in parts.items():
                    setattr(self, name, module)

        Made.forward = forward
        torch_here.manual_seed(3)
        model = Made()
        for parameter in model.parameters():
            nn.init.normal_(parameter, 0, 0.4)
        return model

    return make


@pytest.fixture
def numbers(torch_here):
    """Give inputs of six numbers."""
    return torch_here.randn(N, 6, generator=torch_here.Generator().manual_seed(1))


def _ids(torch_here, *shape):
    return torch_here.randint(0, 12, shape, generator=torch_here.Generator().manual_seed(2))


def _both(model, inputs, faults, judge=Judge()):  # noqa: B008
    plain, fast = (
        campaign(
            model,
            inputs,
            faults,
            judge=judge,
            settings=CampaignSettings(engine=engine, progress=False),
        ).outcomes
        for engine in ("flip_and_run", "fast")
    )
    return plain, fast


def _agrees(model, inputs, *, count=150, judge=Judge(), bits=None):  # noqa: B008
    faults = uniform_faults(model, count, seed=3, bits=bits)
    plain, fast = _both(model, inputs, faults, judge)
    for column in ("sdc_count", "due_count"):
        np.testing.assert_array_equal(plain[column], fast[column])
    assert (fast["masked_count"] <= plain["masked_count"]).all()
    return plain, fast


@pytest.mark.parametrize("shape", [(N,), (N, 3), (N, 3, 2), (5, 5, 5)])
def test_ids_of_any_shape_are_looked_up(torch_here, make_model, shape):
    nn = torch_here.nn

    summed = tuple(range(1, len(shape)))

    def forward(self, ids):
        rows = self.table(ids)
        return self.head(rows.sum(summed) if summed else rows)

    model = make_model(forward, table=nn.Embedding(12, 6), head=nn.Linear(6, 3))
    _, fast = _agrees(model, _ids(torch_here, *shape), bits=HEAVY)
    assert fast["masked_count"].sum()


def test_a_mean_that_overflows_as_a_sum_is_a_detected_error(torch_here):
    nn = torch_here.nn
    torch_here.manual_seed(0)
    model = nn.Sequential(nn.EmbeddingBag(6, 4, mode="mean"), nn.ReLU(), nn.Linear(4, 3))
    ids = torch_here.zeros(N, 5, dtype=torch_here.int64)
    ids[:, 3:] = _ids(torch_here, N, 2) // 2
    plain, _ = _agrees(model, ids, bits=30)
    assert plain["due_count"].sum()


@pytest.mark.parametrize("count", [1, 2, N])
def test_a_scale_by_the_largest_of_the_batch_is_never_folded(torch_here, make_model, count):
    nn = torch_here.nn

    def forward(self, ids):
        hidden = nn.functional.normalize(self.table(ids).sum(1), math.inf, 0)
        return self.head(hidden.relu())

    model = make_model(forward, table=nn.Embedding(12, 6), head=nn.Linear(6, 3))
    _agrees(model, _ids(torch_here, N, 4)[:count], count=300, bits=HEAVY)


def test_a_branch_that_writes_in_place_does_not_spoil_later_experiments(
    torch_here, make_model, numbers
):
    nn = torch_here.nn

    def forward(self, x):
        first, second = self.enter(x), self.other(x)
        if second.max() > 4:
            first.mul_(0.5)
        return self.head(first.relu() + second)

    model = make_model(forward, enter=nn.Linear(6, 6), other=nn.Linear(6, 6), head=nn.Linear(6, 3))
    assert not bool((model.other(numbers) > 4).any())
    plain, fast = _agrees(model, numbers, count=300)
    np.testing.assert_array_equal(plain["masked_count"], fast["masked_count"])


def test_an_activation_with_a_jump_has_no_slope(torch_here, numbers):
    nn = torch_here.nn
    torch_here.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Softplus(1, 0.5), nn.Linear(8, 1))
    with torch_here.no_grad():  # golden values just below the jump
        model[0].weight.mul_(1e-3)
        model[0].bias.fill_(0.499)
        model[2].weight.fill_(1.0)
        golden = float(model(numbers).mean())
    judge = Judge("threshold", threshold=golden - 0.2)
    plain, _ = _agrees(model, numbers, judge=judge, bits=[18, 19, 20, 21, 22, 23])
    assert plain["sdc_count"].sum()


def test_dot_products_that_are_clipped_are_not_taken_for_plain_ones(torch_here):
    from workbench.inject.models import DLRM
    from workbench.inject.models.networks import DotInteraction as Plain

    class DotInteraction(Plain):
        def forward(self, *vectors):
            return super().forward(*vectors).clamp(-50, 50)

    torch_here.manual_seed(0)
    model = DLRM(5, (40,) * 6, 4, bottom=(12,), top=(16, 8))
    for module in model.modules():
        if type(module) is Plain:
            module.__class__ = DotInteraction
    inputs = torch_here.randn(60, 5), torch_here.randint(0, 30, (60, 6))
    faults = uniform_faults(model, 150, seed=1, bits=[30, 29], where="bottom")
    plain, fast = _both(model, inputs, faults, Judge("threshold"))
    np.testing.assert_array_equal(plain["sdc_count"], fast["sdc_count"])
    np.testing.assert_array_equal(plain["due_count"], fast["due_count"])


@pytest.mark.parametrize("first", [3, None, "scalar"])
def test_a_first_argument_without_rows_is_run_exactly(torch_here, make_model, numbers, first):
    nn = torch_here.nn
    first = torch_here.tensor(2.0) if first == "scalar" else first

    def forward(self, scale, x):
        return self.head(self.enter(x).relu() * (1 if scale is None else scale))

    model = make_model(forward, enter=nn.Linear(6, 6), head=nn.Linear(6, 3))
    plain, fast = _agrees(model, (first, numbers))
    np.testing.assert_array_equal(plain["masked_count"], fast["masked_count"])


def test_inputs_of_zero_mask_a_finite_weight_and_nothing_more(torch_here, numbers):
    nn = torch_here.nn
    torch_here.manual_seed(0)
    model = nn.Sequential(nn.ReLU(), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    _, fast = _agrees(model, numbers, count=300)
    assert fast["masked_count"].sum() > 0.2 * fast["input_count"].sum()
    assert (fast["masked_count"] < N).any()


def test_exhausting_a_model_stored_in_another_type_is_refused(torch_here, numbers):
    model = stored_as(torch_here.nn.Linear(6, 3), "int8")
    with pytest.raises(InjectionError, match=r"stored as int8.*use campaign"):
        exhaustive(model, numbers)


def test_exhausting_under_a_protection_is_refused(torch_here, numbers):
    model = torch_here.nn.Linear(6, 3)
    settings = CampaignSettings(mitigation=weight_clamp(model), progress=False)
    with pytest.raises(InjectionError, match=r"no mitigation.*weight_clamp"):
        exhaustive(model, numbers, settings=settings)
