"""Inputs of a model: batches that it can be called with, and what they are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from workbench.errors import InjectionError
from workbench.simulate.injections._torch import refuse_compiled, torch


@dataclass(frozen=True, eq=False)
class Batch:
    """One call of the model."""

    given: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def tensors(self) -> Iterator[Any]:
        """Walk over the tensors of the call."""
        for value in (*self.args, *self.kwargs.values()):
            if isinstance(value, torch().Tensor):
                yield value


def batches(inputs: Any) -> tuple[Batch, ...]:
    """Read inputs: a tensor, tuple or dict of tensors, or a list of such batches."""
    found = tuple(_batch(each) for each in (inputs if isinstance(inputs, list) else [inputs]))
    for number, batch in enumerate(found):
        first = next(batch.tensors(), None)
        if first is None:
            msg = f"inputs: batch {number} holds no tensor"
            raise InjectionError(msg)
        if first.ndim and len(first) == 0:
            msg = f"inputs: batch {number} is empty; there is nothing to judge"
            raise InjectionError(msg)
    if not found:
        msg = "inputs: the list of batches is empty; there is nothing to judge"
        raise InjectionError(msg)
    return found


def _batch(given: Any) -> Batch:
    if isinstance(given, torch().Tensor):
        return Batch(given, (given,), {})
    if isinstance(given, tuple):
        return Batch(given, given, {})
    if isinstance(given, Mapping):
        return Batch(given, (), dict(given))
    msg = (
        f"inputs: {type(given).__name__} is no batch; pass a tensor, a tuple or dict of tensors "
        "(the arguments of the model), or a list of such batches"
    )
    raise InjectionError(msg)


def refuse_other_device(model: Any, calls: tuple[Batch, ...]) -> None:
    """Refuse inputs that lie on another device than the model."""
    places = {str(parameter.device) for parameter in model.parameters()}
    theirs = {str(tensor.device) for batch in calls for tensor in batch.tensors()}
    if apart := theirs - places:
        msg = (
            f"inputs: they are on {sorted(apart)}, the model on {sorted(places)}; "
            "move one to the other with .to(device)"
        )
        raise InjectionError(msg)


@contextmanager
def at_rest(model: Any) -> Iterator[None]:
    """Put the model into evaluation mode without gradients, and back as it was."""
    refuse_compiled(model)
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch().no_grad():
            yield
    finally:
        for module, was_training in modes:
            module.training = was_training


@contextmanager
def _unwritten(model: Any, calls: tuple[Batch, ...]) -> Iterator[None]:
    """Refuse runs that write over weights, buffers or inputs: no run after is like the first."""
    kept = {
        **{f"parameter {name!r}": each for name, each in model.named_parameters()},
        **{f"buffer {name!r}": each for name, each in model.named_buffers()},
        **{
            f"tensor {place} of batch {number} of the inputs": each
            for number, batch in enumerate(calls)
            for place, each in enumerate(batch.tensors())
        },
    }
    before = {name: _version(each) for name, each in kept.items()}
    yield
    if written := [name for name, each in kept.items() if _version(each) != before[name]]:
        msg = (
            f"model: a run writes over {written[0]}, so experiments would not be independent; "
            "let forward work on a copy (an embedding: without max_norm)"
        )
        raise InjectionError(msg)


def _version(tensor: Any) -> int:
    return 0 if tensor.is_inference() else int(tensor._version)


def golden_outputs(model: Any, calls: tuple[Batch, ...]) -> Any:
    """Run without faults, twice; give the outputs of all inputs."""
    with at_rest(model), _unwritten(model, calls):
        first, second = ([model(*batch.args, **batch.kwargs) for batch in calls] for _ in range(2))
    for number, (once, again) in enumerate(zip(first, second, strict=True)):
        if not isinstance(once, torch().Tensor):
            return once  # the judge says what is wrong with it
        if once.ndim == 0 or once.shape[1:] != first[0].shape[1:]:
            msg = (
                f"inputs: batch {number} gives an output of shape {tuple(once.shape)}, the first "
                f"{tuple(first[0].shape)}; outputs must have one row per input, all of one shape"
            )
            raise InjectionError(msg)
        if not torch().equal(once.nan_to_num(), again.nan_to_num()):
            msg = (
                f"model: two runs without faults differ on batch {number}, so a difference would "
                "not be the fault's; turn off what is random in evaluation mode"
            )
            raise InjectionError(msg)
    return torch().cat(first)


def sha_of(parts: Iterable[tuple[str, Any]]) -> str:
    """Give the sha256 of named tensors: names, types, shapes and bytes."""
    found = hashlib.sha256()
    for name, tensor in parts:
        flat = tensor.detach().cpu().contiguous().flatten()
        found.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        found.update(flat.view(torch().uint8).numpy().tobytes())
    return found.hexdigest()


def inputs_sha(calls: tuple[Batch, ...]) -> str:
    """Give the sha256 of the inputs; how they are batched does not change it for tensors."""
    return sha_of(
        (f"{number}.{place}", tensor)
        for number, batch in enumerate(calls)
        for place, tensor in enumerate(batch.tensors())
    )


def model_sha(model: Any) -> str:
    """Give the sha256 of the parameters and buffers of a model, by name."""
    return sha_of(sorted(model.state_dict().items()))
