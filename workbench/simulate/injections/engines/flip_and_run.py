"""The plain engine: change the model in place, run it on all inputs, change it back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from workbench.errors import InjectionError
from workbench.simulate.injections._inputs import (
    Batch,
    at_rest,
    batches,
    refuse_other_device,
)
from workbench.simulate.injections._judge import BENIGN, DUE, MASKED, SDC, Golden
from workbench.simulate.injections._torch import torch
from workbench.simulate.injections.designs.bits import corrupted
from workbench.simulate.injections.designs.changes import Changes, Counts
from workbench.simulate.injections.designs.verify import OUTPUT, is_output

# What a model raises that a fault has crashed; such a run is a detected error.
CRASHES = (RuntimeError, IndexError, ArithmeticError, ValueError)


@dataclass(frozen=True, eq=False)
class Run:
    """One experiment on all inputs.

    ``outputs`` are None where the model crashed on some batch; ``codes`` say how every
    input ended.
    """

    experiment: int
    outputs: Any
    codes: Any
    is_beneficial: Any
    delta: Any


Watcher: TypeAlias = "Callable[[Batch, Any], None]"


class FlipAndRun:
    """Judges experiments by running the faulty model on all inputs.

    It takes any model and any fault, and is exact: an input counts as masked where its
    output is equal to the golden one. The model is changed in place and put back after
    every experiment, also when it is interrupted.

    Parameters
    ----------
    model
        A ``torch.nn.Module``.
    inputs
        A tensor, a tuple or dict of tensors (the arguments of the model), or a list of
        such batches.
    golden
        The fault-free outputs, from ``Judge.golden``.
    watch
        Called after every batch with the batch and its outputs (None after a crash),
        while the fault is still in place.

    Attributes
    ----------
    masked_rule
        ``bit_equal``: an input is masked where no bit of its output differs.
    chunk_most
        Experiments that a campaign gives it at once, at most.
    """

    masked_rule = "bit_equal"
    chunk_most: ClassVar = 500

    def __init__(
        self, model: Any, inputs: Any, golden: Golden, *, watch: Watcher | None = None
    ) -> None:
        self.model = model
        self.golden = golden
        self._batches = batches(inputs)
        self._watch = watch
        self._parameters = dict(model.named_parameters())
        refuse_other_device(model, self._batches)

    def counts(self, changes: Changes) -> Counts:
        """Inject every experiment by itself and count how the inputs end."""
        codes = np.zeros((changes.experiment_count, DUE + 1), dtype=np.int64)
        beneficial = np.zeros(changes.experiment_count, dtype=np.int64)
        delta = np.full(changes.experiment_count, np.nan)
        for run in self.runs(changes):
            codes[run.experiment] = torch().bincount(run.codes.int(), minlength=DUE + 1).cpu()
            beneficial[run.experiment] = int(run.is_beneficial.sum())
            delta[run.experiment] = largest(run.delta)
        masked, benign, sdc, due = (codes[:, code] for code in (MASKED, BENIGN, SDC, DUE))
        return Counts(masked, benign, sdc, due, beneficial, delta)

    def runs(self, changes: Changes) -> Iterator[Run]:
        """Give the experiments one after another, each put back before the next."""
        bounds = np.searchsorted(changes.experiment, np.arange(changes.experiment_count + 1))
        with at_rest(self.model):
            for number in range(changes.experiment_count):
                entries = slice(int(bounds[number]), int(bounds[number + 1]))
                with self._injected(changes, entries):
                    outputs = [self._outputs(batch) for batch in self._batches]
                yield self._judged(number, outputs)

    def _outputs(self, batch: Batch) -> Any:
        """Run one batch; None where the fault crashes the model."""
        try:
            outputs = self.model(*batch.args, **batch.kwargs)
        except (torch().OutOfMemoryError, InjectionError):
            raise
        except CRASHES:
            outputs = None
        if self._watch is not None:
            self._watch(batch, outputs)
        return outputs

    def _judged(self, number: int, outputs: list[Any]) -> Run:
        """Compare the outputs of an experiment with the golden ones."""
        golden = self.golden
        if all(each is not None for each in outputs):
            whole = torch().cat(outputs)
            rows = slice(None)
            codes = golden.outcomes(whole, rows)
            better = golden.beneficial(whole, rows, codes)
            return Run(number, whole, codes, better, _delta(whole, golden.outputs))
        size = len(golden)
        codes = golden.decisions.new_full((size,), DUE, dtype=torch().uint8)
        none = torch().zeros_like(codes, dtype=torch().bool)
        return Run(number, None, codes, none, torch().full((size,), float("nan")))

    @contextmanager
    def _injected(self, changes: Changes, entries: slice) -> Iterator[None]:
        """Put one experiment into the model, and take it out again whatever happens."""
        with ExitStack() as undo:
            hit = changes.target[entries]
            for target in np.unique(hit):
                name = changes.targets[target]
                mine = np.flatnonzero(hit == target) + entries.start
                if is_output(name):
                    module = self.model.get_submodule(name.removesuffix(OUTPUT))
                    hook = _Corruption(name, changes, mine)
                    undo.callback(module.register_forward_hook(hook).remove)
                    undo.callback(self.model.register_forward_pre_hook(hook.rearm).remove)
                    continue
                parameter = self._parameters[name]
                places = _places(parameter, changes.elem[mine])
                undo.callback(_put, parameter, places, parameter.detach()[places].clone())
                _put(parameter, places, changes.after[torch().from_numpy(mine)])
            yield


def _places(parameter: Any, elem: Any) -> tuple[Any, ...]:
    """Give the places of flat elements, per axis, whatever the memory layout."""
    axes = np.unravel_index(elem, tuple(parameter.shape)) if parameter.ndim else ()
    return tuple(torch().from_numpy(np.asarray(axis)).to(parameter.device) for axis in axes)


def _put(parameter: Any, places: tuple[Any, ...], values: Any) -> None:
    target = parameter.detach()
    values = values.to(device=target.device, dtype=target.dtype)
    target[places] = values if places else values.reshape(())


def _delta(outputs: Any, golden: Any) -> Any:
    """Give the largest finite change of every input's output; NaN where none is finite."""
    delta = (outputs - golden).abs().reshape(len(outputs), -1).float()
    finite = torch().isfinite(delta)
    most = torch().where(finite, delta, -1.0).amax(1)
    return torch().where(most >= 0, most, float("nan"))


def largest(delta: Any) -> float:
    """Give the largest of numbers that can be NaN."""
    known = delta[~torch().isnan(delta)]
    return float(known.max()) if len(known) else float("nan")


class _Corruption:
    """Changes bits of what a module gives, in its first call of a run."""

    def __init__(self, name: str, changes: Changes, entries: Any) -> None:
        self._name = name
        self._elem = changes.elem[entries]
        self._cleared, self._flips = changes.cleared[entries], changes.flips[entries]
        self._is_armed = True

    def rearm(self, *_: Any) -> None:
        """Hit again, as a new run begins."""
        self._is_armed = True

    def __call__(self, _module: Any, _args: Any, output: Any) -> Any:
        """Give the output with the fault in every input's part."""
        if not self._is_armed:
            return output
        self._is_armed = False
        return corrupted(output, self._name, self._elem, self._cleared, self._flips)
