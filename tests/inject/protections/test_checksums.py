"""Checksums against soft errors: every single flip of a product, the tolerance of sums."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import datasets, inject
from workbench.errors import InjectionError
from workbench.inject.protections import gemm_checksum
from workbench.inject.protections.gemm_checksum import ChecksumBags, ChecksumGemm
from workbench.tables import DETECTOR_TRIALS


@pytest.fixture(scope="module")
def bags(torch_here):
    return inject.embedding_bag_checksum_trials(count=2000, seed=0)


def alarmed(trials, hit, tolerance):
    return (trials.loc[trials["place"] == hit, "residual"] > tolerance).mean()


@pytest.mark.oracle
@pytest.mark.slow
def test_every_flip_in_a_product_is_noticed_and_nothing_else(torch_here):
    trials = inject.gemm_checksum_trials((32, 256, 128), count=2000, seed=0)
    DETECTOR_TRIALS.check(trials)
    assert trials["place"].value_counts().to_dict() == {
        "nothing": 2000,
        "operand B": 2000,
        "output C": 2000,
    }
    assert alarmed(trials, "nothing", 0) == 0
    hit = trials[trials["is_faulty"]]
    assert hit["is_effective"].all()
    assert (hit["residual"] > 0).all()
    assert set(trials.loc[trials["place"] == "output C", "bit"]) == set(range(32))


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("place", "tolerance", "low", "high"),
    [
        ("nothing", 1e-7, 0.08, 0.17),
        ("nothing", 1e-6, 0, 0),
        ("table row, high nibble", 1e-6, 0.99, 1),
        ("table row, low nibble", 1e-6, 0.99, 1),
        ("table row, low nibble", 1e-5, 0.34, 0.48),
        ("table row, high nibble", 1e-4, 0.57, 0.67),
        ("table row, low nibble", 1e-4, 0, 0),
    ],
)
def test_sums_of_bags_need_a_tolerance_of_one_in_a_million(bags, place, tolerance, low, high):
    assert low <= alarmed(bags, place, tolerance) <= high


@pytest.mark.oracle
def test_a_tolerance_of_one_in_a_million_does_what_the_paper_promises(bags):
    published = pd.read_csv(datasets.path("published") / "injection_detectors.csv")
    paper = published[published["source"].str.contains("2103.00130")]
    promised = paper[paper["operator"] == "EmbeddingBag"].set_index("measure")
    share = alarmed(bags, "table row, high nibble", 1e-6)
    assert share >= promised.loc["detected significant bit flips", "low"]
    assert alarmed(bags, "nothing", 1e-6) < promised.loc["false positives", "high"]


def int8(torch, array):
    return torch.from_numpy(np.asarray(array, dtype=np.int8))


def test_a_checked_product_is_the_product(torch_here):
    draws = np.random.default_rng(1)
    for m, k, n in [(1, 3, 2), (5, 1500, 7), (33, 64, 64)]:
        a, b = draws.integers(-128, 128, (m, k)), draws.integers(-128, 128, (k, n))
        c, failed = ChecksumGemm(int8(torch_here, b)).run(int8(torch_here, a))
        np.testing.assert_array_equal(c.numpy(), a @ b)
        assert not failed.any()


@pytest.mark.parametrize("is_there", [True, False])
def test_the_product_is_exact_with_and_without_the_private_kernel(
    torch_here, monkeypatch, is_there
):
    monkeypatch.setattr(gemm_checksum, "_has_byte_products", lambda _: is_there)
    if not is_there:
        monkeypatch.delattr(torch_here, "_int_mm", raising=False)
    worst = int8(torch_here, np.full((3, 5000), -128))
    assert (gemm_checksum.int8_product(worst, worst.T.contiguous()) == 5000 * 128**2).all()


def test_a_kernel_that_refuses_is_replaced(torch_here, monkeypatch):
    def refuse(a, b):
        msg = "only for more than 16 rows"
        raise RuntimeError(msg)

    monkeypatch.setattr(torch_here, "_int_mm", refuse, raising=False)
    monkeypatch.setattr(gemm_checksum, "_has_byte_products", lambda _: True)
    a = int8(torch_here, [[1, 2]])
    assert gemm_checksum.int8_product(a, int8(torch_here, [[3], [4]])).tolist() == [[11]]


@given(bit=st.integers(0, 7), value=st.integers(-128, 127), activation=st.integers(-128, 127))
def test_a_flip_in_b_hides_only_behind_multiples_of_the_modulus(torch_here, bit, value, activation):
    gemm = ChecksumGemm(int8(torch_here, [[value, 5], [7, -3]]))
    gemm_checksum._flip(gemm.encoded, (0, 0), bit)
    _, failed = gemm.run(int8(torch_here, [[activation, 9]]))
    assert bool(failed[0]) == (activation % 127 != 0)


@pytest.mark.parametrize("bit", range(32))
def test_every_bit_of_a_result_is_noticed(torch_here, bit):
    gemm = ChecksumGemm(int8(torch_here, [[1, 2], [3, 4]]))
    product = gemm.product(int8(torch_here, [[5, -6]]))
    gemm_checksum._flip(product, (0, 1), bit)
    assert gemm.residuals(product).tolist() != [0]


def test_faults_in_the_other_operand_cannot_be_noticed(torch_here):
    gemm = ChecksumGemm(int8(torch_here, [[1, 2], [3, 4]]))
    _, failed = gemm.run(int8(torch_here, [[5 ^ 64, -6]]))
    assert not failed.any()


def test_bags_add_up_and_notice_a_changed_row(torch_here):
    codes = torch_here.arange(24, dtype=torch_here.uint8).reshape(6, 4)
    bags = ChecksumBags(codes, torch_here.full((6,), 0.5), torch_here.full((6,), 0.1))
    rows = torch_here.tensor([[0, 5], [2, 2]])
    sums, failed = bags.run(rows)
    torch_here.testing.assert_close(sums[0], (codes[0] + codes[5]) * 0.5 + 0.2)
    assert failed.tolist() == [False, False]
    bags.codes[5, 1] ^= 1
    assert bags.run(rows)[1].tolist() == [True, False]


def as_int8(model):
    """Round the weights of a model to their int8 grid, one scale per tensor."""
    for weight in model.parameters():
        scale = weight.abs().max() / 127
        weight.copy_((weight / scale).round() * scale)
    return model


@pytest.fixture
def dlrm_int8(torch_here):
    return as_int8(inject.shipped_model("dlrm"))


def watched(model, inputs, **options):
    """Run a model with a detector on it, healthy, and give both the detector and its way off."""
    detector = inject.checksum_detector(model, **options)
    undo = detector.attach(model)
    model(*inputs)
    return detector, undo


def test_a_healthy_model_raises_no_alarm(torch_here, dlrm_int8):
    inputs, _ = inject.shipped_inputs("dlrm")
    detector, undo = watched(dlrm_int8, inputs)
    assert len(detector.protected) == 26 + 2 + 3
    assert (detector.verdicts().shape, detector.verdicts().any()) == ((1000,), False)
    undo()


def test_a_hit_table_row_alarms_exactly_the_inputs_that_look_it_up(torch_here, dlrm_int8):
    inputs, _ = inject.shipped_inputs("dlrm", 300)
    detector, undo = watched(dlrm_int8, inputs)
    table = dlrm_int8.tables[3].weight
    table[1, 4] += 8 * table.abs().max() / 127
    dlrm_int8(*inputs)
    assert torch_here.equal(detector.verdicts(), inputs[1][:, 3] == 1)
    undo()
    detector.verdicts().zero_()
    dlrm_int8(*inputs)
    assert not detector.verdicts().any()


def test_a_hit_linear_layer_alarms_inputs_whose_activation_is_not_zero(torch_here, dlrm_int8):
    inputs, _ = inject.shipped_inputs("dlrm", 300)
    detector, undo = watched(dlrm_int8, inputs)
    weight = dlrm_int8.top[2].weight
    weight[0, 5] += 4 * weight.abs().max() / 127
    seen = []
    dlrm_int8.top[1].register_forward_hook(lambda _m, _a, output: seen.append(output))
    dlrm_int8(*inputs)
    share = seen[0][:, 5] / seen[0].amax(1)
    assert torch_here.equal(detector.verdicts(), (share * 126).round() != 0)
    undo()


def test_a_row_that_all_inputs_share_alarms_them_all(torch_here):
    model = as_int8(inject.shipped_model("tickets"))
    inputs, _ = inject.shipped_inputs("tickets", 20)
    detector, _ = watched(model, inputs)
    model.positions.weight[0, 0] += 64 * model.positions.weight.abs().max() / 127
    model(*inputs)
    assert detector.verdicts().all()


def test_bags_with_offsets_and_weights_are_checked(torch_here):
    bag = as_int8(torch_here.nn.EmbeddingBag(9, 4, mode="sum").requires_grad_(False))
    rows, offsets = torch_here.tensor([0, 1, 2, 8, 8]), torch_here.tensor([0, 2])
    model = torch_here.nn.ModuleDict({"bag": bag})
    model.forward = lambda starts, rows, weights: bag(rows, starts, per_sample_weights=weights)
    weights = torch_here.tensor([0.5, 1, 2, -1, 0.3])
    detector, _ = watched(model, (offsets, rows, weights))
    assert detector.verdicts().tolist() == [False, False]
    bag.weight[8, 0] += 32 * bag.weight.abs().max() / 127
    model(offsets, rows, weights)
    assert detector.verdicts().tolist() == [False, True]


def test_only_what_is_asked_for_is_protected(torch_here, dlrm_int8):
    detector = inject.checksum_detector(dlrm_int8, protect=("top", "tables.1"))
    names = ["tables.1.weight", "top.0.weight", "top.2.weight", "top.4.weight"]
    assert sorted(detector.protected) == names


def test_refuses_weights_that_are_not_stored_as_int8(torch_here):
    with pytest.raises(InjectionError, match=r"tables\.0\.weight is not stored as int8"):
        inject.checksum_detector(inject.shipped_model("dlrm"))


def test_refuses_to_protect_nothing(torch_here, dlrm_int8):
    with pytest.raises(InjectionError, match=r"under \['head'\]; nothing can be checked"):
        inject.checksum_detector(dlrm_int8, protect=("head",))


def test_verdicts_need_a_run(torch_here, dlrm_int8):
    with pytest.raises(InjectionError, match="has seen no batch"):
        inject.checksum_detector(dlrm_int8).verdicts()


def test_refuses_a_call_without_tensors(torch_here, dlrm_int8):
    inject.checksum_detector(dlrm_int8).attach(dlrm_int8)
    with pytest.raises(InjectionError, match="called with tensors"):
        dlrm_int8([1.0])


def test_refuses_layers_that_run_on_other_rows_than_inputs(torch_here):
    nn = torch_here.nn
    layer = nn.Linear(4, 2).requires_grad_(False)
    layer.weight.copy_(torch_here.arange(-4.0, 4.0).reshape(2, 4))
    model = nn.Sequential(nn.Flatten(0, 1), as_int8(layer))
    inputs = torch_here.ones(3, 2, 4)
    detector = inject.checksum_detector(model)
    detector.attach(model)
    layer.weight[1, 0] += layer.weight.abs().max() / 127
    with pytest.raises(InjectionError, match="'1' runs on 6 rows for 3 inputs"):
        model(inputs)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda t: ChecksumGemm(t.ones(2, 2)), "B is torch.float32"),
        (lambda t: ChecksumGemm(t.ones(2, dtype=t.int8)), r"shape \(2,\)"),
        (lambda t: ChecksumGemm(t.ones(2**17, 1, dtype=t.int8)), "131,072 rows"),
        (lambda t: ChecksumBags(t.ones(2, 2), t.ones(2), t.ones(2)), "codes is"),
        (
            lambda t: ChecksumBags(t.ones(2, 2, dtype=t.uint8), t.ones(3), t.ones(2)),
            r"scale has shape \(3,\) for 2 rows",
        ),
        (lambda t: inject.gemm_checksum_trials((0, 1, 1)), "must be 1 or more"),
        (lambda t: inject.gemm_checksum_trials((2, 2)), "shape must be 3 whole numbers"),
        (lambda t: inject.gemm_checksum_trials(count=1.5), "count must be a whole number"),
        (lambda t: inject.embedding_bag_checksum_trials(count=0), "must be 1 or more"),
        (
            lambda t: inject.embedding_bag_checksum_trials((2, 2.5)),
            r"shape\[1\] must be a whole number from 1, not 2.5",
        ),
    ],
)
def test_refuses_operands_that_do_not_fit(torch_here, make, match):
    with pytest.raises(InjectionError, match=match):
        make(torch_here)
