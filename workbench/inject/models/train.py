"""Train a shipped model again, for those who change it.

``python -m workbench.inject.models.train dlrm data/pvf-models/dlrm.npz`` writes
the weights, the inputs to judge them on (``dlrm_inputs.npz``) and how they were made
(``models.json``) into that folder. LeNet needs scikit-learn for the digits.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from workbench.errors import MissingExtraError
from workbench.inject.models import _data
from workbench.inject.models.networks import DLRM, LeNet, TicketClassifier

Array = npt.NDArray[Any]
Loss = Callable[[Tensor, Tensor], Tensor]
_CLICKS_TRAINED, _CLICKS_JUDGED = 120_000, 1000
_DIGITS_TRAINED = 1297
_TICKETS_TRAINED, _TICKETS_JUDGED = 20_000, 500
_MEASURED_ON = 20_000


@dataclass(frozen=True)
class Plan:
    """How a model is trained: Adam, in batches redrawn in every pass."""

    passes: int
    batch: int
    learning_rate: float = 1e-3
    seed: int = 0
    cools_down: bool = False


@dataclass(frozen=True, eq=False)
class Trained:
    """A model, inputs and labels to judge it on, and what is known about it."""

    model: nn.Module
    inputs: Mapping[str, Array]
    metric_name: str
    metric_value: float
    judged_metric_value: float
    about: Mapping[str, Any]
    plan: Plan


def dlrm(plan: Plan | None = None) -> Trained:
    """Train the recommendation model on generated clicks."""
    plan = plan or Plan(passes=2, batch=512)
    torch.manual_seed(plan.seed)
    model = DLRM()
    *inputs, labels = _tensors(_data.clicks(_CLICKS_TRAINED, seed=1))
    _fit(model, tuple(inputs), labels, plan, functional.binary_cross_entropy_with_logits)

    def quality(dense: Array, sparse: Array, labels: Array) -> float:
        return _data.area_under_curve(_outputs(model, dense, sparse), labels)

    dense, sparse, clicked = _data.clicks(_CLICKS_JUDGED, seed=2)
    return Trained(
        model,
        {"dense": dense, "sparse": sparse.astype(np.int16), "labels": clicked.astype(np.uint8)},
        "auc",
        quality(*_data.clicks(_MEASURED_ON, seed=3)),
        quality(dense, sparse, clicked),
        {
            "data": "generated clicks, no real user",
            "generator": {"train_count": _CLICKS_TRAINED, "train_seed": 1, "judged_seed": 2},
        },
        plan,
    )


def lenet(plan: Plan | None = None) -> Trained:
    """Train LeNet on the digits that scikit-learn brings along."""
    plan = plan or Plan(passes=25, batch=64)
    torch.manual_seed(plan.seed)
    model = LeNet()
    digits, labels = _scikit_digits()
    # The digits come writer by writer; in that order the held-out ones would be of others.
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(0)).numpy()
    digits = digits[order].reshape(-1, 8, 8).astype(np.uint8)
    labels = labels[order].astype(np.int64)
    images = _data.enlarged(digits)
    train = slice(_DIGITS_TRAINED)
    _fit(model, _tensors((images[train],)), torch.as_tensor(labels[train]), plan)
    held = slice(_DIGITS_TRAINED, None)
    right = float((_outputs(model, images[held]).argmax(1) == labels[held]).mean())
    return Trained(
        model,
        {"digits": digits[held], "labels": labels[held].astype(np.uint8)},
        "accuracy",
        right,
        right,
        {
            "data": "handwritten digits of 8 x 8 pixels, enlarged to 28 x 28; held out",
            "generator": {"train_count": _DIGITS_TRAINED, "split_seed": 0},
        },
        plan,
    )


def _scikit_digits() -> tuple[Array, Array]:
    """Return 1797 digits of 64 pixels and what they are."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        msg = "training LeNet needs the digits of scikit-learn; pip install scikit-learn"
        raise MissingExtraError(msg) from error
    digits, labels = load_digits(return_X_y=True)
    return digits, labels


def tickets(plan: Plan | None = None) -> Trained:
    """Train the classifier on generated tickets."""
    plan = plan or Plan(passes=6, batch=64, cools_down=True)
    torch.manual_seed(plan.seed)
    words = _data.vocabulary()
    model = TicketClassifier(len(words), len(_data.CAUSES), _data.TICKET_WORDS)

    def drawn(count: int, seed: int) -> tuple[Array, Array]:
        texts, causes = _data.tickets(count, seed)
        return _data.numbered(texts, words), causes

    inputs, causes = _tensors(drawn(_TICKETS_TRAINED, seed=1))
    _fit(model, (inputs,), causes, plan)

    def quality(inputs: Array, causes: Array) -> float:
        return float((_outputs(model, inputs).argmax(1) == causes).mean())

    judged, labels = drawn(_TICKETS_JUDGED, seed=2)
    return Trained(
        model,
        {"words": judged.astype(np.int16), "labels": labels.astype(np.uint8)},
        "accuracy",
        quality(*drawn(_MEASURED_ON // 4, seed=3)),
        quality(judged, labels),
        {
            "data": "generated tickets from a small grammar, no real incident",
            "generator": {
                "train_count": _TICKETS_TRAINED,
                "train_seed": 1,
                "judged_seed": 2,
                "shares": _data.SHARES,
            },
            "sizes": {
                "word_count": len(words),
                "class_count": len(_data.CAUSES),
                "places": _data.TICKET_WORDS,
            },
            "causes": _data.CAUSES,
            "vocabulary": words,
        },
        plan,
    )


def _fit(
    model: nn.Module,
    inputs: tuple[Tensor, ...],
    labels: Tensor,
    plan: Plan,
    loss: Loss = functional.cross_entropy,
) -> None:
    optimizer = torch.optim.Adam(model.parameters(), plan.learning_rate)
    starts = range(0, len(labels), plan.batch)
    total = plan.passes * len(starts)
    falling = torch.optim.lr_scheduler.LambdaLR(
        # Linearly to 0; without cooling down the factor stays 1.
        optimizer,
        lambda step: 1 - step / total if plan.cools_down else 1.0,
    )
    for _ in range(plan.passes):
        order = torch.randperm(len(labels))
        for start in starts:
            rows = order[start : start + plan.batch]
            value = loss(model(*(tensor[rows] for tensor in inputs)), labels[rows])
            optimizer.zero_grad()
            value.backward()  # type: ignore[no-untyped-call,unused-ignore]
            optimizer.step()
            falling.step()
    model.eval()


def _tensors(arrays: tuple[Array, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.as_tensor(array) for array in arrays)


def _outputs(model: nn.Module, *inputs: Array) -> Array:
    with torch.no_grad():
        outputs: Array = model(*_tensors(inputs)).numpy()
    return outputs


def write(path: Path, trained: Trained) -> dict[str, Any]:
    """Write weights, inputs and the model's entry in ``models.json``; return the entry."""
    weights = {name: array.numpy() for name, array in trained.model.state_dict().items()}
    np.savez_compressed(path, allow_pickle=False, **weights)
    np.savez_compressed(
        path.with_name(f"{path.stem}_inputs.npz"), allow_pickle=False, **trained.inputs
    )
    digest = hashlib.sha256()
    for name, array in weights.items():
        # Not over the file, whose compression may differ between versions of zlib.
        digest.update(f"{name} {array.shape} {array.dtype}\n".encode() + array.tobytes())
    entry = {
        "parameter_count": sum(array.size for array in weights.values()),
        "weights_sha256": digest.hexdigest(),
        "metric_name": trained.metric_name,
        "metric_value": round(trained.metric_value, 4),
        "judged_count": len(trained.inputs["labels"]),
        "judged_metric_value": round(trained.judged_metric_value, 4),
        **trained.about,
        "training": asdict(trained.plan) | {"optimizer": "Adam", "threads": 1},
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
    facts = path.with_name("models.json")
    entries = json.loads(facts.read_text(encoding="utf-8")) if facts.is_file() else {}
    entries[path.stem] = entry
    text = json.dumps(dict(sorted(entries.items())), indent=1)
    facts.write_text(text + "\n", encoding="utf-8")
    return entry


_MODELS = {"dlrm": dlrm, "lenet": lenet, "tickets": tickets}

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    # Sums in several threads differ in their last digits from run to run.
    torch.set_num_threads(1)
    began = time.perf_counter()
    made = write(Path(sys.argv[2]), _MODELS[sys.argv[1]]())
    logging.getLogger("train").info(
        "%s: %s %.4f, on the shipped inputs %.4f, %d parameters, %.0f s",
        sys.argv[1],
        made["metric_name"],
        made["metric_value"],
        made["judged_metric_value"],
        made["parameter_count"],
        time.perf_counter() - began,
    )
