"""The models that come with the workbench: weights, inputs and the rule to judge them by."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench import datasets
from workbench.errors import InjectionError
from workbench.inject import models
from workbench.inject._judge import Judge
from workbench.inject._model import torch
from workbench.inject.campaigns.campaign import running
from workbench.inject.campaigns.work import CampaignSettings
from workbench.inject.designs.faults import fault_list
from workbench.inject.models import _data

Array = npt.NDArray[Any]
SHIPPED = ("dlrm", "lenet", "tickets")
_SET = "pvf-models"


def shipped_model(name: str) -> Any:
    """Load a small trained model, ready to be injected into.

    ``"dlrm"`` predicts clicks (443,601 parameters), ``"lenet"`` reads digits (61,706),
    ``"tickets"`` names the cause of an incident ticket (457,990; a transformer encoder of
    BERT-Tiny's shape). Clicks and tickets are generated; no real user or incident is in them.

    Parameters
    ----------
    name
        One of ``inject.SHIPPED``.

    Returns
    -------
    torch.nn.Module
        In evaluation mode, float32, on the CPU, without gradients; its attribute
        ``components`` says which part of the model a parameter belongs to.

    Raises
    ------
    InjectionError
        If there is no such model.
    MissingExtraError
        If PyTorch is not installed.
    """
    facts = shipped_facts(name)
    # Making layers draws random weights; the caller's generator must not notice.
    with torch().random.fork_rng(devices=[]):
        if name == "tickets":
            model: Any = models.TicketClassifier(**facts["sizes"])
        else:
            model = models.DLRM() if name == "dlrm" else models.LeNet()
    weights = {key: torch().from_numpy(array) for key, array in _arrays(f"{name}.npz").items()}
    model.load_state_dict(weights)
    return model.eval().requires_grad_(requires_grad=False)


def shipped_inputs(
    name: str, count: int | None = None, *, seed: int | None = None
) -> tuple[tuple[Any, ...], Any]:
    """Return inputs that a shipped model was not trained on, and what is right for them.

    Parameters
    ----------
    name
        One of ``inject.SHIPPED``.
    count
        Inputs; all that are shipped if None: 1000 for ``dlrm``, 500 for the others.
    seed
        None takes the first of the shipped inputs, which are the same everywhere. A number
        draws others: newly generated ones, or, for ``lenet``, some of the 500 digits held out.

    Returns
    -------
    tuple
        The model's arguments as a tuple of tensors, and a tensor of labels.

    Raises
    ------
    InjectionError
        If there is no such model, or there are not so many inputs.
    MissingExtraError
        If PyTorch is not installed.

    Notes
    -----
    Seeds 1 to 3 are those of training, of the shipped inputs and of the stated quality.
    """
    shipped_facts(name)
    arrays = _arrays(f"{name}_inputs.npz")
    held = len(arrays["labels"])
    wanted = held if count is None else count
    # Clicks and tickets come from generators, digits from a data set.
    drawn_anew = seed is not None and name != "lenet"
    if wanted < 1 or (wanted > held and not drawn_anew):
        more = "; a seed draws as many as you like" if name != "lenet" else ""
        msg = f"{name}: {wanted} inputs requested, 1 to {held} are shipped{more}"
        raise InjectionError(msg)
    if seed is not None and name != "lenet":
        arrays = _drawn(name, wanted, seed)
    elif seed is not None:
        rows = np.random.default_rng(seed).permutation(held)[:wanted]
        arrays = {key: array[rows] for key, array in arrays.items()}
    chosen = {key: array[:wanted] for key, array in arrays.items()}
    *inputs, labels = (torch().as_tensor(array) for array in _ARGUMENTS[name](chosen))
    return tuple(inputs), labels


def shipped_judge(name: str) -> Judge:
    """Return the rule by which a shipped model is judged.

    Parameters
    ----------
    name
        One of ``inject.SHIPPED``.

    Returns
    -------
    Judge
        ``dlrm``: a click is predicted where the logit is above 0, a probability of 0.5; the
        others: the largest logit.

    Raises
    ------
    InjectionError
        If there is no such model.
    """
    shipped_facts(name)
    return Judge("threshold") if name == "dlrm" else Judge("argmax")


def shipped_facts(name: str) -> dict[str, Any]:
    """Describe how a shipped model was made and how good it is.

    Parameters
    ----------
    name
        One of ``inject.SHIPPED``.

    Returns
    -------
    dict
        ``parameter_count``, ``weights_sha256``, ``metric_name``, ``metric_value`` (on data
        not trained on), ``judged_metric_value`` (on the shipped inputs), ``data``,
        ``generator``, ``training``, the versions of torch and numpy, and what the model needs.

    Raises
    ------
    InjectionError
        If there is no such model.
    """
    if name not in SHIPPED:
        msg = f"no shipped model {name!r}; there are {', '.join(SHIPPED)}"
        raise InjectionError(msg)
    path = datasets.path(_SET) / "models.json"
    facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))[name]
    return facts


def _arrays(file: str) -> dict[str, Array]:
    """Read a file of arrays; nothing in it can run code."""
    with np.load(datasets.path(_SET) / file, allow_pickle=False) as stored:
        return dict(stored)


def _drawn(name: str, count: int, seed: int) -> dict[str, Array]:
    if name == "dlrm":
        return dict(zip(("dense", "sparse", "labels"), _data.clicks(count, seed), strict=True))
    texts, causes = _data.tickets(count, seed)
    words = tuple(shipped_facts(name)["vocabulary"])
    return {"words": _data.numbered(texts, words), "labels": causes}


#: What a model is called with, and the labels behind it.
_ARGUMENTS: dict[str, Callable[[dict[str, Array]], tuple[Array, ...]]] = {
    "dlrm": lambda of: (of["dense"], of["sparse"].astype("int64"), of["labels"].astype("int64")),
    "lenet": lambda of: (_data.enlarged(of["digits"]), of["labels"].astype("int64")),
    "tickets": lambda of: (of["words"].astype("int64"), of["labels"].astype("int64")),
}


def shipped_running(
    name: str, faults: pd.DataFrame, *, chunk_size: int = 200
) -> Iterator[pd.DataFrame]:
    """Inject faults into a shipped model, and give the outcomes chunk by chunk.

    Nothing happens, and PyTorch is not needed, before the first chunk is requested.

    Parameters
    ----------
    name
        One of ``inject.SHIPPED``.
    faults
        Table :data:`workbench.tables.FAULTS`, e.g. those of a campaign that is done.
    chunk_size
        Experiments per chunk.

    Yields
    ------
    pandas.DataFrame
        Table :data:`workbench.tables.OUTCOMES`.

    Raises
    ------
    InjectionError
        If there is no such model, or it does not have what the faults hit.
    MissingExtraError
        If PyTorch is not installed.
    """
    model = shipped_model(name)
    inputs, labels = shipped_inputs(name)
    settings = CampaignSettings(labels=labels, chunk_size=chunk_size)
    yield from running(
        model, inputs, fault_list(model, faults), judge=shipped_judge(name), settings=settings
    )
