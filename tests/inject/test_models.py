"""The shipped models: as good as they say, frozen, traceable, and nothing is unpickled."""

import hashlib
import importlib.util
import json
import subprocess
import sys

import numpy as np
import pytest

from workbench import datasets, inject
from workbench.errors import InjectionError, MissingExtraError
from workbench.inject import models
from workbench.inject.models import _data
from workbench.inject.models.shipped import shipped_facts

# Every truth about faults in these models holds for exactly these weights.
WEIGHTS_SHA256 = {
    "dlrm": "b5aa639700091779516a70b57d27dad7cc059fc8dda7bb1c45ad5e66112e2a3d",
    "lenet": "d47da0d0837479a5c3f86f37ddcf017e150f3b86c613a6126a86b28a463ad456",
    "tickets": "8514df346463fd86ee5b8126148eac1595052a2bc9977a516c5569c6005c5f96",
}
SIZES = {"dlrm": 443_601, "lenet": 61_706, "tickets": 457_990}
PARTS = {
    "dlrm": {"top", "bottom", "embeddings"},
    "lenet": {"conv1", "conv2", "fc1", "fc2", "fc3"},
    "tickets": {
        *("token embeddings", "position embeddings", "norms", "pooler", "classifier"),
        *(f"block{n}.{part}" for n in (0, 1) for part in ("attention", "feed_forward")),
    },
}
every_model = pytest.mark.parametrize("name", inject.SHIPPED)


def quality(name, inputs, labels):
    outputs = inject.shipped_model(name)(*inputs)
    if name == "dlrm":
        return _data.area_under_curve(outputs.numpy(), labels.numpy())
    return float((outputs.argmax(1) == labels).double().mean())


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "published", "count", "seed", "tolerance"),
    [("dlrm", 0.809, 20_000, 3, 0.01), ("lenet", 0.982, None, None, 0.005)],
)
def test_shipped_models_are_as_good_as_the_ones_they_follow(
    torch_here, name, published, count, seed, tolerance
):
    measured = quality(name, *inject.shipped_inputs(name, count, seed=seed))
    assert measured == pytest.approx(published, abs=tolerance)


@every_model
def test_quality_on_the_shipped_inputs_is_the_stated_one(torch_here, name):
    facts = shipped_facts(name)
    measured = quality(name, *inject.shipped_inputs(name))
    assert measured == pytest.approx(facts["judged_metric_value"], abs=2e-3)


def test_tickets_are_neither_trivial_nor_hopeless(torch_here):
    inputs, labels = inject.shipped_inputs("tickets", 600, seed=11)
    assert 0.90 <= quality("tickets", inputs, labels) <= 0.97


@every_model
def test_weights_are_frozen(torch_here, name):
    digest = hashlib.sha256()
    state = inject.shipped_model(name).state_dict()
    for key, tensor in state.items():
        array = tensor.numpy()
        digest.update(f"{key} {array.shape} {array.dtype}\n".encode() + array.tobytes())
    assert digest.hexdigest() == WEIGHTS_SHA256[name]
    assert shipped_facts(name)["weights_sha256"] == WEIGHTS_SHA256[name]


@every_model
def test_a_shipped_model_has_the_stated_size_and_is_ready_to_judge(torch_here, name):
    model = inject.shipped_model(name)
    assert sum(array.numel() for array in model.parameters()) == SIZES[name]
    assert shipped_facts(name)["parameter_count"] == SIZES[name]
    assert not model.training
    assert not any(array.requires_grad for array in model.parameters())
    assert {str(array.dtype) for array in model.parameters()} == {"torch.float32"}
    assert set(model.components.values()) == PARTS[name]


@every_model
def test_shipped_models_can_be_traced(torch_here, name):
    from torch import fx

    model = inject.shipped_model(name)
    inputs, _ = inject.shipped_inputs(name, 20)
    assert torch_here.equal(fx.symbolic_trace(model)(*inputs), model(*inputs))


@every_model
def test_the_first_inputs_are_the_same_however_many_are_taken(torch_here, name):
    every_input, labels = inject.shipped_inputs(name)
    first, few_labels = inject.shipped_inputs(name, 7)
    assert all(torch_here.equal(a[:7], b) for a, b in zip(every_input, first, strict=True))
    assert torch_here.equal(labels[:7], few_labels)
    again, _ = inject.shipped_inputs(name, 7, seed=5)
    same, _ = inject.shipped_inputs(name, 7, seed=5)
    assert all(torch_here.equal(a, b) for a, b in zip(again, same, strict=True))
    assert not torch_here.equal(again[0], first[0])


@every_model
def test_shipped_inputs_fit_the_judge(torch_here, name):
    inputs, labels = inject.shipped_inputs(name, 30)
    golden = inject.shipped_judge(name).golden(inject.shipped_model(name)(*inputs), labels)
    assert len(golden) == 30


def test_shipped_clicks_and_tickets_are_what_the_generators_draw():
    folder = datasets.path("pvf-models")
    with np.load(folder / "dlrm_inputs.npz", allow_pickle=False) as stored:
        dense, sparse, clicked = _data.clicks(len(stored["labels"]), seed=2)
        np.testing.assert_allclose(stored["dense"], dense, rtol=1e-6)
        np.testing.assert_array_equal(stored["sparse"], sparse)
        np.testing.assert_array_equal(stored["labels"], clicked)
    with np.load(folder / "tickets_inputs.npz", allow_pickle=False) as stored:
        texts, causes = _data.tickets(len(stored["labels"]), seed=2)
        words = _data.numbered(texts, _data.vocabulary())
        np.testing.assert_array_equal(stored["words"], words)
        np.testing.assert_array_equal(stored["labels"], causes)
    facts = json.loads((folder / "models.json").read_text())
    assert facts["tickets"]["vocabulary"] == list(_data.vocabulary())


def test_files_of_the_models_are_small_plain_arrays():
    files = sorted(datasets.path("pvf-models").glob("*.npz"))
    assert len(files) == 2 * len(inject.SHIPPED)
    assert sum(file.stat().st_size for file in files) < 4_000_000
    for file in files:
        with np.load(file, allow_pickle=False) as stored:
            assert {stored[key].dtype.kind for key in stored} <= set("fiu")


def test_no_shipped_input_was_trained_on():
    seen = {row.tobytes() for row in _data.clicks(5000, seed=1)[1]}
    assert not seen & {row.tobytes() for row in _data.clicks(1000, seed=2)[1]}


def test_enlarged_digits_keep_range_and_mean():
    digits = np.random.default_rng(0).integers(0, 17, (20, 8, 8)).astype(np.uint8)
    images = _data.enlarged(digits)
    assert (images.shape, images.dtype) == ((20, 1, 28, 28), np.float32)
    assert 0 <= images.min() <= images.max() <= 1
    flat = _data.enlarged(np.full((1, 8, 8), 16, dtype=np.uint8))
    np.testing.assert_allclose(flat, 1, rtol=1e-6)


def test_enlarging_digits_agrees_with_torch(torch_here):
    digits = np.random.default_rng(0).integers(0, 17, (5, 8, 8)).astype(np.uint8)
    small = torch_here.as_tensor(digits[:, None].astype(np.float32) / 16)
    expected = torch_here.nn.functional.interpolate(
        small, size=(28, 28), mode="bilinear", align_corners=False
    )
    np.testing.assert_allclose(_data.enlarged(digits), expected.numpy(), atol=1e-6)


def test_the_interaction_is_the_lower_triangle_of_all_dot_products(torch_here):
    x, embedded = torch_here.randn(4, 3), torch_here.randn(4, 2, 3)
    out = models.DotInteraction(3)(x, embedded)
    first, second = embedded[:, 0], embedded[:, 1]
    pairs = [(first * x).sum(1), (second * x).sum(1), (second * first).sum(1)]
    torch_here.testing.assert_close(out, torch_here.cat([x, torch_here.stack(pairs, 1)], 1))


def test_padding_does_not_change_what_a_ticket_says(torch_here):
    model = inject.shipped_model("tickets")
    (words,), _ = inject.shipped_inputs("tickets", 40)
    changed = model.words.weight.clone()
    before = model(words)
    changed[0] += 100
    model.words.weight.copy_(changed)
    torch_here.testing.assert_close(model(words), before)


def test_loading_a_model_leaves_the_random_numbers_of_the_caller_alone(torch_here):
    torch_here.manual_seed(3)
    wanted = torch_here.rand(3)
    torch_here.manual_seed(3)
    inject.shipped_model("lenet")
    assert torch_here.equal(torch_here.rand(3), wanted)


@pytest.fixture
def digits_here(absent):
    """Need the digits of scikit-learn."""
    if importlib.util.find_spec("sklearn") is None:
        absent("scikit-learn, which holds the digits LeNet is trained on, is not installed")


def test_models_can_be_trained_anew(torch_here, digits_here, tmp_path):
    from workbench.inject.models import train

    trained = train.lenet(train.Plan(passes=1, batch=64))
    entry = train.write(tmp_path / "lenet.npz", trained)
    assert entry["parameter_count"] == SIZES["lenet"]
    assert entry["metric_value"] > 0.3
    facts = json.loads((tmp_path / "models.json").read_text())
    assert facts["lenet"]["training"]["passes"] == 1


def test_importing_fault_injection_does_not_import_torch():
    program = (
        "import sys; from workbench import inject; "
        "from workbench.inject import models; "
        "print('torch' in sys.modules, 'sklearn' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(
    "give",
    [inject.shipped_model, inject.shipped_inputs, inject.shipped_judge],
)
def test_refuses_a_model_that_is_not_shipped(give):
    with pytest.raises(InjectionError, match="no shipped model 'bert'; there are dlrm, lenet"):
        give("bert")


@pytest.mark.parametrize(("name", "count"), [("lenet", 501), ("dlrm", 1001), ("tickets", 0)])
def test_refuses_more_inputs_than_there_are(torch_here, name, count):
    with pytest.raises(InjectionError, match=f"{name}: {count} inputs requested, 1 to"):
        inject.shipped_inputs(name, count)


def test_training_without_scikit_learn_says_what_is_missing(torch_here, monkeypatch):
    from workbench.inject.models import train

    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingExtraError, match="pip install scikit-learn"):
        train.lenet()


def test_models_names_what_it_has():
    with pytest.raises(AttributeError, match="no attribute 'ResNet'"):
        _ = models.ResNet
