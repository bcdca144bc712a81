"""Partial re-execution of models that cannot be traced: calls before the fault are not made again.

Every call of a torch function is counted. Up to the first that sees a changed parameter, a
run with a fault is the golden run, whatever its control flow, so the golden results are given
back; from there on the model runs by itself.
"""

from __future__ import annotations

from typing import Any

from workbench.simulate.injections._torch import torch


class CallReplay:
    """The calls of a golden run, and which of them first sees each parameter."""

    def __init__(self, model: Any, inputs: tuple[Any, ...]) -> None:
        self.model, self.inputs = model, inputs
        self._results: list[Any] = []
        self._versions: list[int] = []
        self._first: dict[int, int] = {}
        self.outputs = self._run(None)

    def _run(self, skipped: int | None) -> Any:
        record = self

        class Mode(torch().overrides.TorchFunctionMode):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.at = -1

            def __torch_function__(
                self, function: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                del types
                self.at += 1
                if skipped is not None and self.at < skipped:
                    return record._results[self.at]
                if skipped is None:
                    record._note(self.at, args, kwargs or {})
                result = function(*args, **(kwargs or {}))
                if skipped is None:
                    record._results.append(result)
                    record._versions.append(_version(result))
                return result

        with Mode():
            return self.model(*self.inputs)

    def _note(self, at: int, args: Any, kwargs: Any) -> None:
        for each in torch().utils._pytree.tree_leaves((args, kwargs)):
            if isinstance(each, torch().Tensor):
                self._first.setdefault(each.untyped_storage().data_ptr(), at)

    def is_replayable(self) -> bool:
        """Say whether no result was overwritten after it was recorded."""
        return [_version(each) for each in self._results] == self._versions

    def replay(self, tensors: list[Any]) -> Any:
        """Run the model from the first call that sees one of some changed parameters."""
        places = [each.untyped_storage().data_ptr() for each in tensors]
        first = min((self._first.get(each, len(self._results)) for each in places), default=0)
        if first == len(self._results):
            return self.outputs
        return self._run(first)


def _version(value: Any) -> int:
    leaves = torch().utils._pytree.tree_leaves(value)
    return sum(each._version for each in leaves if isinstance(each, torch().Tensor))
