"""How far a change can carry, and how large the numbers are that are summed on the way.

Both come from running the rest of a model with absolute weights: activations such as ReLU
never enlarge a difference by more than a factor, so what comes out bounds what can.
"""

from __future__ import annotations

from typing import Any

from workbench.simulate.injections._torch import torch
from workbench.simulate.injections.engines.graph import OWN_LEAVES, UNTRACEABLE, Program

# Largest slope of activations, by class or function name; for GELU and SiLU rounded up.
SLOPES = {
    "ReLU": 1.0, "ReLU6": 1.0, "Hardtanh": 1.0, "Tanh": 1.0, "Sigmoid": 0.25, "Softplus": 1.0,
    "Identity": 1.0, "GELU": 1.13, "SiLU": 1.1, "Softsign": 1.0, "LogSigmoid": 1.0,
    "relu": 1.0, "relu_": 1.0, "relu6": 1.0, "hardtanh": 1.0, "tanh": 1.0, "sigmoid": 0.25,
    "gelu": 1.13, "silu": 1.1,
}  # fmt: skip
# From this threshold on, Softplus is the identity within rounding.
_SMOOTH = 20
_MONOTONE = {"MaxPool2d", "AvgPool2d", "AdaptiveAvgPool2d", "MaxPool1d", "AvgPool1d"}
_MONOTONE |= {"Flatten", "Unflatten"}
_RESHAPING = {"flatten", "reshape", "view", "squeeze", "unsqueeze", "getitem", "transpose"}
_RESHAPING |= {"permute", "contiguous", "mean", "sum", "max_pool2d", "avg_pool2d"}
_RESHAPING |= {"size", "getattr", "dim", "unflatten", "clone"}
_JOINING = {"cat", "stack"}
_ADDING = {"add", "iadd", "sub", "isub", "add_", "sub_"}


class UnboundedError(Exception):
    """What follows holds an operation for which no bound is known."""


def slope(program: Program, node: Any) -> float | None:
    """Give by how much an elementwise operation can enlarge a difference; None for others."""
    if node.op == "call_module":
        module = program.modules[node.target]
        name = type(module).__name__
        if name.startswith("Dropout"):
            return None if module.training else 1.0
        if name == "Softplus" and module.threshold < _SMOOTH:
            return None  # it jumps where it becomes the identity
        return SLOPES.get(name) if len(node.args) == 1 else None
    return SLOPES.get(function_name(node)) if len(node.all_input_nodes) == 1 else None


def function_name(node: Any) -> str:
    """Give the bare name of the function or method an operation calls."""
    if node.op == "call_method":
        return str(node.target)
    return str(getattr(node.target, "__name__", "")) if node.op == "call_function" else ""


class AbsoluteRun:
    """Runs what follows an operation on magnitudes.

    Parameters
    ----------
    program
        The model.
    is_change
        True: of changes, so what does not change counts as 0. False: of the values
        themselves, with biases and everything else that is added.
    """

    def __init__(self, program: Program, *, is_change: bool) -> None:
        self.program, self.is_change = program, is_change
        self.peak: Any = None
        self._start: Any = None
        self._fresh: dict[Any, Any] = {}

    def __call__(self, start: Any, value: Any, *, until: Any = None, head: Any = None) -> Any:
        """Give the magnitude of the output, or of one value on the way.

        Parameters
        ----------
        start, value
            Operation, and the magnitudes it gives.
        until
            Value asked for; None is the output.
        head
            The last linear operation: its outputs are replaced by one, the largest
            difference of two. None for none.

        Raises
        ------
        UnboundedError
            If an operation on the way has no known bound.
        """
        last = until or self.program.output
        self._fresh = {start: value}
        self.peak = _largest(value)
        wanted = self.program.before(last)
        try:
            for node in self.program.following(start):
                if node is start or node not in wanted:
                    continue
                self._fresh[node] = self._value(node, head)
                if isinstance(self._fresh[node], torch().Tensor) and node is not head:
                    self.peak = torch().maximum(self.peak, _largest(self._fresh[node]))
        except UNTRACEABLE as error:
            raise UnboundedError(str(error)) from error
        return self._fresh[last]

    def _fetch(self, node: Any) -> Any:
        if node in self._fresh:
            return self._fresh[node]
        golden = self.program.golden[node]
        if not isinstance(golden, torch().Tensor):
            if self.is_change and node in self.program.varying:
                msg = f"{node} depends on the number of inputs"
                raise UnboundedError(msg)
            return golden
        return torch().zeros(()) if self.is_change else golden.abs()

    def _value(self, node: Any, head: Any) -> Any:
        steepness = slope(self.program, node)
        if steepness is not None:
            value = steepness * self._fetch(node.all_input_nodes[0])
            return value if self.is_change else value + self.program.golden[node].abs()
        if node.op == "call_module":
            return self._module(node, head)
        name = function_name(node)
        if name in _ADDING and not node.kwargs:
            return self._sum(node.args)
        if name in _RESHAPING | _JOINING and self._is_plain(node, name):
            return self.program.value(node, self._fetch)
        msg = f"no bound is known for {node}"
        raise UnboundedError(msg)

    def _is_plain(self, node: Any, name: str) -> bool:
        """Say whether no tensor tells an operation where to look."""
        if name in _JOINING:
            return True
        golden = self.program.golden
        others = node.all_input_nodes[1:]
        return not any(isinstance(golden[each], torch().Tensor) for each in others)

    def _sum(self, parts: Any) -> Any:
        whole: Any = 0.0
        for part in parts:
            if isinstance(part, (int, float)):
                whole = whole + (0.0 if self.is_change else abs(part))
            else:
                whole = whole + self._fetch(part)
        return whole

    def _module(self, node: Any, head: Any) -> Any:
        module = self.program.modules[node.target]
        kind = type(module).__name__
        if kind in OWN_LEAVES and not self.is_change:
            return module(*(self._fetch(each) for each in node.args))
        if len(node.args) != 1 or node.kwargs:
            msg = f"{node} takes several arguments"
            raise UnboundedError(msg)
        value = self._fetch(node.args[0])
        if kind in _MONOTONE:
            return module(value)
        if type(module) is torch().nn.Linear or type(module) is torch().nn.Conv2d:
            if node is head:
                return value @ spread(module.weight)[:, None]
            bias = None if self.is_change or module.bias is None else module.bias.abs()
            return _absolute(module, value, bias)
        msg = f"no bound is known for {kind}"
        raise UnboundedError(msg)


def _absolute(module: Any, value: Any, bias: Any) -> Any:
    """Give what a linear module with absolute weights makes of magnitudes."""
    weight = module.weight.abs()
    if isinstance(module, torch().nn.Conv2d):
        return module._conv_forward(value, weight, bias)
    return torch().nn.functional.linear(value, weight, bias)


def layer_magnitude(module: Any, value: Any) -> Any:
    """Give how large the numbers are that a linear module sums up for an input."""
    return _absolute(module, value.abs(), None if module.bias is None else module.bias.abs())


def spread(weight: Any) -> Any:
    """Give per input the largest difference of two rows of a weight."""
    return weight.amax(0) - weight.amin(0)


def _largest(value: Any) -> Any:
    return value.reshape(len(value), -1).amax(1)
