"""Exact runs of faulty models, each as short as it can be while the outputs keep every bit."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from workbench.errors import InjectionError
from workbench.simulate.injections._torch import torch
from workbench.simulate.injections.engines.call_replay import CallReplay
from workbench.simulate.injections.engines.graph import UNTRACEABLE, same


class Reexecution:
    """Runs a model with changed parameters on all inputs, in one batch.

    Three ways, the first that is proven for a parameter: only the operations of the graph
    that depend on it; the calls from the first that sees it; the whole model. Proven means
    that with noise on all its elements the output is that of the whole model, bit by bit.
    """

    def __init__(self, model: Any, inputs: tuple[Any, ...], program: Any) -> None:
        self.model, self.inputs, self.program = model, inputs, program
        self.tensors = {
            **dict(model.named_buffers(remove_duplicate=False)),
            **dict(model.named_parameters(remove_duplicate=False)),
        }
        self._ways: dict[str, str] = {}
        self._sources: dict[str, set[Any]] = {}
        self._calls: CallReplay | None = None
        self._calls_are_known = False

    def way(self, target: str) -> str:
        """Give how faults in a parameter are run: ``graph``, ``calls`` or ``model``.

        To be asked while the model is without faults: what a faulty run wrote over is
        recorded anew.
        """
        if self._calls is not None and not self._calls.is_replayable():
            self._calls = CallReplay(self.model, self.inputs)
        if target not in self._ways:
            self._ways[target] = self._proven(target)
        return self._ways[target]

    def tensor(self, target: str) -> Any:
        """Give a parameter by its name."""
        if target not in self.tensors:
            msg = (
                f"the model has no parameter {target!r}; it has {len(self.tensors)}, "
                f"first {list(self.tensors)[:3]}"
            )
            raise InjectionError(msg)
        return self.tensors[target]

    def _proven(self, target: str) -> str:
        tensor = self.tensor(target)
        if not tensor.dtype.is_floating_point or not tensor.numel():
            return "model"
        if self.program is not None and self._agrees(target, self._by_graph):
            return "graph"
        if self._recorded() is not None and self._agrees(target, self._by_calls):
            return "calls"
        return "model"

    def _agrees(self, target: str, way: Callable[[Sequence[str]], Any]) -> bool:
        """Say whether a way gives the outputs of the whole model, with noise on a parameter."""
        tensor = self.tensor(target).detach()
        draws = torch().Generator().manual_seed(0)
        noise = torch().randn(tensor.shape, generator=draws).to(tensor)
        golden = tensor.clone()
        try:
            tensor.copy_(golden + noise * (golden.abs().mean() + 1e-3))
            return same(way((target,)), self.model(*self.inputs))
        except UNTRACEABLE:
            return False
        finally:
            tensor.copy_(golden)

    def _by_graph(self, targets: Sequence[str]) -> Any:
        sources: set[Any] = set()
        for target in targets:
            if target not in self._sources:
                self._sources[target] = self.program.sources(self.tensors[target])
            sources |= self._sources[target]
        return self.program.replay(sources)

    def _by_calls(self, targets: Sequence[str]) -> Any:
        return self._recorded().replay([self.tensors[each] for each in targets])

    def _recorded(self) -> Any:
        """Give the calls of the golden run, None if they cannot be given back."""
        if not self._calls_are_known:
            calls = CallReplay(self.model, self.inputs)
            self._calls = calls if calls.is_replayable() else None
            self._calls_are_known = True
        return self._calls

    def outputs(self, targets: Sequence[str]) -> Any:
        """Give the outputs with the parameters as they now are; ``targets`` were changed."""
        ways = {self._ways[target] for target in targets}
        if ways <= {"graph"}:
            return self._by_graph(targets)
        # A fault can make a model write over what was recorded.
        if ways <= {"calls"} and self._recorded().is_replayable():
            return self._by_calls(targets)
        return self.model(*self.inputs)


@contextlib.contextmanager
def changed(tensor: Any, elems: Any, values: Any) -> Iterator[None]:
    """Change elements of a parameter in place, and give them back whatever happens."""
    whole = tensor.detach()
    axes = np.unravel_index(elems.numpy(), tuple(whole.shape)) if whole.ndim else ()
    places = tuple(torch().from_numpy(np.asarray(axis)) for axis in axes)
    before = whole[places].clone()
    try:
        whole[places] = values.to(whole)
        yield
    finally:
        whole[places] = before
