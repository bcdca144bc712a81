"""The model under test: torch, the batches it is called with, golden outputs, hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from workbench._shared import numbers
from workbench.errors import InjectionError, MissingExtraError, WorkbenchError


def torch() -> Any:
    """Return the torch module, or say how to get it."""
    try:
        import torch as module
    except ImportError as error:
        msg = (
            "injecting faults needs PyTorch, which is not installed; "
            "pip install 'ai-infra-workbench[inject]' (results load and plot without it)"
        )
        raise MissingExtraError(msg) from error
    return module


def refuse_if(bad: object, msg: str) -> None:
    """Raise :class:`InjectionError` if something is wrong."""
    if bad:
        raise InjectionError(msg)


@contextmanager
def _injection_errors() -> Iterator[None]:
    try:
        yield
    except WorkbenchError as error:
        raise InjectionError(str(error)) from None


# The checks that the whole package shares, with the error of this folder.
whole_number = _injection_errors()(numbers.whole_number)
in_range = _injection_errors()(numbers.in_range)


def refuse_compiled(model: Any) -> None:
    """Refuse models that torch.compile made, whole or in part.

    Hooks do not see into compiled code, and its kernels may hold copies of weights, so faults
    would be reported that never reached the result.
    """
    for name, module in model.named_modules():
        is_compiled = getattr(module, "_compiled_call_impl", None) is not None
        refuse_if(
            is_compiled or type(module).__name__ == "OptimizedModule",
            f"model: {f'its module {name!r}' if name else 'it'} was compiled with torch.compile, "
            "and faults may not reach compiled code; pass the model as it was before "
            "(model._orig_mod)",
        )


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
    calls = tuple(_batch(batch) for batch in (inputs if isinstance(inputs, list) else [inputs]))
    for number, batch in enumerate(calls):
        first: Any = next(batch.tensors(), None)
        refuse_if(first is None, f"inputs: batch {number} holds no tensor")
        is_empty = first.ndim and len(first) == 0
        refuse_if(is_empty, f"inputs: batch {number} is empty; there is nothing to judge")
    refuse_if(not calls, "inputs: the list of batches is empty; there is nothing to judge")
    return calls


def _batch(inputs: Any) -> Batch:
    if isinstance(inputs, torch().Tensor):
        return Batch(inputs, (inputs,), {})
    if isinstance(inputs, tuple):
        return Batch(inputs, inputs, {})
    refuse_if(
        not isinstance(inputs, Mapping),
        f"inputs: {type(inputs).__name__} is not a batch; pass a tensor, a tuple or dict of "
        "tensors (the arguments of the model), or a list of such batches",
    )
    return Batch(inputs, (), dict(inputs))


def refuse_other_device(model: Any, calls: tuple[Batch, ...]) -> None:
    """Refuse inputs on another device than the model."""
    devices = {str(parameter.device) for parameter in model.parameters()}
    foreign = {str(tensor.device) for batch in calls for tensor in batch.tensors()} - devices
    refuse_if(
        foreign,
        f"inputs: they are on {sorted(foreign)}, the model on {sorted(devices)}; "
        "move one to the other with .to(device)",
    )


@contextmanager
def in_evaluation(model: Any) -> Iterator[None]:
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
    """Refuse runs that write over weights, buffers or inputs: no later run is like the first."""
    tensors = {
        **{f"parameter {name!r}": tensor for name, tensor in model.named_parameters()},
        **{f"buffer {name!r}": tensor for name, tensor in model.named_buffers()},
        **{
            f"tensor {argument} of batch {number} of the inputs": tensor
            for number, batch in enumerate(calls)
            for argument, tensor in enumerate(batch.tensors())
        },
    }
    # torch counts writes in place; tensors of inference mode keep no count.
    counted = {name: tensor for name, tensor in tensors.items() if not tensor.is_inference()}
    before = {name: tensor._version for name, tensor in counted.items()}
    yield
    if written := [name for name, tensor in counted.items() if tensor._version != before[name]]:
        msg = (
            f"model: a run writes over {written[0]}, so experiments would not be independent; "
            "let forward work on a copy (an embedding: without max_norm)"
        )
        raise InjectionError(msg)


def golden_outputs(model: Any, calls: tuple[Batch, ...]) -> Any:
    """Run without faults, twice; give the outputs of all inputs."""
    with in_evaluation(model), _unwritten(model, calls):
        first, second = ([model(*batch.args, **batch.kwargs) for batch in calls] for _ in range(2))
    for number, (outputs, again) in enumerate(zip(first, second, strict=True)):
        if not isinstance(outputs, torch().Tensor):
            return outputs  # the judge says what is wrong with it
        refuse_if(
            outputs.ndim == 0 or outputs.shape[1:] != first[0].shape[1:],
            f"inputs: batch {number} gives an output of shape {tuple(outputs.shape)}, the first "
            f"{tuple(first[0].shape)}; outputs must have one row per input, all of one shape",
        )
        refuse_if(
            not torch().equal(outputs.nan_to_num(), again.nan_to_num()),
            f"model: two runs without faults differ on batch {number}, so a difference would "
            "not be the fault's; turn off what is random in evaluation mode",
        )
    return torch().cat(first)


def sha_of(tensors: Iterable[tuple[str, Any]]) -> str:
    """Return the sha256 of named tensors: names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name, tensor in tensors:
        flat = tensor.detach().cpu().contiguous().flatten()
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        # numpy has no bfloat16, so the bytes are read through a view.
        digest.update(flat.view(torch().uint8).numpy().tobytes())
    return digest.hexdigest()


def inputs_sha(calls: tuple[Batch, ...]) -> str:
    """Return the sha256 of the inputs."""
    return sha_of(
        (f"{number}.{argument}", tensor)
        for number, batch in enumerate(calls)
        for argument, tensor in enumerate(batch.tensors())
    )
