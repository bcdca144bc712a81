"""Exact runs of faulty models, each as short as it can be while the outputs keep every bit."""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np

from workbench.errors import InjectionError
from workbench.inject._model import torch
from workbench.inject.designs.bits import as_integers

# Taking apart a model that runs in less costs more than it saves.
_SHORT_S = 1e-3


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
        # Where the whole model runs as fast as a part of it; the bits are equal.
        self._slower: set[str] = set()
        began = time.process_time()
        model(*inputs)
        self._is_short = time.process_time() - began < _SHORT_S
        self._sources: dict[str, set[Any]] = {}
        self._calls: CallReplay | None = None
        self._calls_are_known = False

    def way(self, target: str) -> str:
        """Return how faults in a parameter are run: ``graph``, ``calls`` or ``model``.

        To be asked while the model is without faults: what a faulty run wrote over is
        recorded again.
        """
        # A fault that made the model write over recorded results has spoilt them.
        if self._calls is not None and not self._calls.is_replayable():
            self._calls = CallReplay(self.model, self.inputs)
        if target not in self._ways:
            self._ways[target] = self._proven(target)
        return self._ways[target]

    def prepare(self, targets: Sequence[str]) -> None:
        """Find the way of some parameters, if a way is worth its proof."""
        if not self._is_short:
            for target in targets:
                self.way(target)

    def tensor(self, target: str) -> Any:
        """Return a parameter by its name."""
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
        """Return whether a way gives the outputs of the whole model, with noise on a parameter."""
        tensor = self.tensor(target).detach()
        # A fixed seed, so that the same way is taken in every run.
        draws = torch().Generator().manual_seed(0)
        noise = torch().randn(tensor.shape, generator=draws).to(tensor)
        golden = tensor.clone()
        try:
            # Noise in every element: a way that misses one use of the tensor gives other outputs.
            tensor.copy_(golden + noise * (golden.abs().mean() + 1e-3))
            began = time.process_time()
            outputs = way((target,))
            middle = time.process_time()
            whole = self.model(*self.inputs)
            is_slower = middle - began > time.process_time() - middle
            (self._slower.add if is_slower else self._slower.discard)(target)
            return same(outputs, whole)
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
        return self._recorded().replay([self.tensors[target] for target in targets])

    def _recorded(self) -> Any:
        """Return the calls of the golden run, None if they cannot be given back."""
        if not self._calls_are_known:
            calls = CallReplay(self.model, self.inputs)
            self._calls = calls if calls.is_replayable() else None
            self._calls_are_known = True
        return self._calls

    def outputs(self, targets: Sequence[str]) -> Any:
        """Return the outputs with the parameters as they now are; ``targets`` were changed."""
        if self._is_short or not self._slower.isdisjoint(targets):
            return self.model(*self.inputs)
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
    own = tensor.detach()
    positions: Any
    # A flat view of weights that are not contiguous would be a copy.
    if own.is_contiguous() and len(elems) == 1:
        own, positions = own.view(-1), int(elems[0])
    else:
        axes = np.unravel_index(np.asarray(elems), tuple(own.shape)) if own.ndim else ()
        positions = tuple(torch().from_numpy(np.asarray(axis)).to(own.device) for axis in axes)
    before = own[positions].clone()
    try:
        own[positions] = values.to(own).reshape(before.shape)
        yield
    finally:
        own[positions] = before


# Partial re-execution of models that cannot be traced: calls before the fault are not made
# again.
# Every call of a torch function is counted. Up to the first that sees a changed parameter, a run
# with a fault is the golden run, whatever its control flow, so the golden results are given
# back; from there on the model runs by itself.


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
        for leaf in torch().utils._pytree.tree_leaves((args, kwargs)):
            if isinstance(leaf, torch().Tensor):
                # By storage: views and tied weights are other tensors over the same memory.
                self._first.setdefault(leaf.untyped_storage().data_ptr(), at)

    def is_replayable(self) -> bool:
        """Return whether no result was overwritten after it was recorded."""
        return [_version(result) for result in self._results] == self._versions

    def replay(self, tensors: list[Any]) -> Any:
        """Run the model from the first call that sees one of some changed parameters."""
        addresses = [address.untyped_storage().data_ptr() for address in tensors]
        first = min(
            (self._first.get(address, len(self._results)) for address in addresses), default=0
        )
        if first == len(self._results):
            return self.outputs
        return self._run(first)


def _version(value: Any) -> int:
    leaves = torch().utils._pytree.tree_leaves(value)
    return sum(leaf._version for leaf in leaves if isinstance(leaf, torch().Tensor))


# A model as a list of operations, with the fault-free value of each: what faults are run
# through.
# Only a graph that gives the golden outputs bit by bit is used; where a model cannot be traced,
# or is no longer itself once traced, the answer is None and the caller takes a slower way.

# Modules of this name are one operation, so that the shortcut for them can be found.
OWN_LEAVES = ("DotInteraction",)
# What tracing, or running what was traced, raises for code that has no graph.
UNTRACEABLE = (
    TypeError, ValueError, RuntimeError, AttributeError, LookupError, AssertionError, NameError,
)  # fmt: skip


def same(value: Any, expected: Any) -> bool:
    """Return whether two values are equal bit by bit, NaN and the sign of 0 included."""
    if isinstance(value, torch().Tensor):
        if not isinstance(expected, torch().Tensor) or value.dtype != expected.dtype:
            return False
        if value.shape != expected.shape:
            return False
        # As integers, for NaN differs from itself, and -0.0 equals 0.0.
        if value.dtype.is_floating_point:
            value, expected = as_integers(value), as_integers(expected)
        return bool(torch().equal(value, expected))
    if isinstance(value, (tuple, list)):
        alike = type(value) is type(expected) and len(value) == len(expected)
        return alike and all(same(a, b) for a, b in zip(value, expected, strict=True))
    return (
        type(value) is type(expected)
        and isinstance(value, (int, float, str, bool))
        and value == expected
    )


@contextlib.contextmanager
def cleaned(model: Any) -> Iterator[dict[str, Any]]:
    """Take off the model what tracing leaves on it: the constants it met, given by name."""
    before = set(vars(model))
    constants: dict[str, Any] = {}
    try:
        yield constants
    finally:
        for name in set(vars(model)) - before:
            constants[name] = vars(model)[name]
            delattr(model, name)


def _drawn(model: Any, input_count: int) -> tuple[Any, dict[str, Any], list[Any]]:
    """Trace a model; give its graph, its constants and the values of further arguments."""
    fx = torch().fx

    class Tracer(fx.Tracer):  # type: ignore[misc, name-defined]
        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            own = type(m).__name__ in OWN_LEAVES
            return own or bool(super().is_leaf_module(m, module_qualified_name))

    # Arguments with defaults become constants, since tracing knows no default values.
    further = list(inspect.signature(model.forward).parameters.values())[input_count:]
    defaults = {
        argument.name: argument.default
        for argument in further
        if argument.default is not inspect.Parameter.empty
    }
    with cleaned(model) as constants:
        graph = Tracer().trace(model, concrete_args=defaults or None)
    return graph, constants, list(defaults.values())


class Program:
    """The operations of a model in their order, and the golden value of each.

    Of the ``nodes``, ``takes`` stand for the inputs, ``varying`` depend on them, and ``output``
    gives what the model gives, which depends on those that are ``needed``.
    """

    def __init__(self, model: Any, inputs: tuple[Any, ...]) -> None:
        graph, self.constants, self._defaults = _drawn(model, len(inputs))
        self.model = model
        self.nodes = [node for node in graph.nodes if node.op != "output"]
        (output,) = next(node for node in graph.nodes if node.op == "output").args
        if output not in self.nodes:
            msg = "the model gives no single tensor"
            raise TypeError(msg)
        self.graph, self.output = graph, output
        self.rank = {node: i for i, node in enumerate(self.nodes)}
        self.modules = dict(model.named_modules(remove_duplicate=False))
        self._map = torch().fx.node.map_arg
        self._mutating: set[Any] = set()
        self._find_mutations(inputs)
        self.golden = self.run(inputs)
        takes = [node for node in self.nodes if node.op == "placeholder"]
        self.takes = takes[: len(inputs)]
        self.varying = self.after(self.takes)
        self._after: dict[Any, list[Any]] = {}
        self._before: dict[Any, set[Any]] = {}
        self.needed = self.before(output)

    def run(self, inputs: tuple[Any, ...], *, watch: Any = None) -> dict[Any, Any]:
        """Run everything on inputs; give the value of every operation."""
        arguments = iter([*inputs, *self._defaults])
        values: dict[Any, Any] = {}
        for node in self.nodes:
            if node.op == "placeholder":
                value = next(arguments)
            else:
                value = self.value(node, values.__getitem__)
            # A copy: the attribute itself will hold the fault.
            if node.op == "get_attr" and isinstance(value, torch().Tensor):
                value = value.detach().clone()
            values[node] = value
            if watch is not None:
                watch(node, values)
        return values

    def value(self, node: Any, fetch: Callable[[Any], Any]) -> Any:
        """Carry out one operation on what ``fetch`` gives for its arguments."""
        if node.op == "get_attr":
            return self.attribute(node.target)
        if node in self._mutating:
            fetch_golden = fetch

            def fetch(argument: Any) -> Any:
                value = fetch_golden(argument)
                return value.clone() if isinstance(value, torch().Tensor) else value

        args = self._map(node.args, fetch)
        kwargs = self._map(node.kwargs, fetch) if node.kwargs else {}
        if node.op == "call_module":
            return self.modules[node.target](*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], node.target)(*args[1:], **kwargs)
        return node.target(*args, **kwargs)

    def attribute(self, name: str) -> Any:
        """Return a parameter, buffer or constant by its dotted name."""
        if name in self.constants:
            return self.constants[name]
        return reduce(getattr, name.split("."), self.model)

    def _find_mutations(self, inputs: tuple[Any, ...]) -> None:
        """Find operations in place; they get copies, if nobody reads what they wrote over."""
        own = [*self.model.parameters(), *self.model.buffers()]
        before = [tensor._version for tensor in own]
        versions: dict[Any, int] = {}

        def watch(node: Any, values: dict[Any, Any]) -> None:
            for earlier, value in values.items():
                if not isinstance(value, torch().Tensor):
                    continue
                was = versions.setdefault(earlier, value._version)
                versions[earlier] = value._version
                if was == value._version or earlier is node:
                    continue
                if any(self.rank.get(user, 0) > self.rank[node] for user in earlier.users):
                    msg = f"{node} changes {earlier} in place, which is read later"
                    raise TypeError(msg)
                self._mutating.add(node)

        self.run(tuple(tensor.clone() for tensor in inputs), watch=watch)
        if before != [tensor._version for tensor in own]:
            msg = "a run changes the model"
            raise TypeError(msg)

    def after(self, starts: Iterable[Any]) -> set[Any]:
        """Return the operations that depend on some, those included."""
        reached = set(starts)
        for node in self.nodes:
            if node not in reached and any(source in reached for source in node.all_input_nodes):
                reached.add(node)
        return reached

    def following(self, *starts: Any) -> list[Any]:
        """Return in their order the operations that depend on some and that the output needs."""
        key = frozenset(starts)
        if key not in self._after:
            reached = self.after(starts)
            self._after[key] = [
                node for node in self.nodes if node in reached and node in self.needed
            ]
        return self._after[key]

    def before(self, last: Any) -> set[Any]:
        """Return the operations that one depends on, that one included."""
        if last not in self._before:
            ancestors = {last}
            for node in reversed(self.nodes):
                if node in ancestors:
                    ancestors.update(node.all_input_nodes)
            self._before[last] = ancestors
        return self._before[last]

    def users(self, node: Any) -> list[Any]:
        """Return the operations that read a value and matter for the output."""
        return [user for user in node.users if user in self.needed]

    def sources(self, tensor: Any) -> set[Any]:
        """Return the operations that read a parameter themselves, also where it is shared."""
        address = tensor.untyped_storage().data_ptr()

        def holds(node: Any) -> bool:
            if node.op == "call_module":
                owned: Iterable[Any] = self.modules[node.target].parameters()
            elif node.op == "get_attr":
                owned = [self.attribute(node.target)]
            else:
                return False
            tensors = (tensor for tensor in owned if isinstance(tensor, torch().Tensor))
            return any(tensor.untyped_storage().data_ptr() == address for tensor in tensors)

        return {node for node in self.nodes if holds(node)}

    def replay(self, sources: set[Any]) -> Any:
        """Run again what depends on the parameters that ``sources`` read: the very bits."""
        fresh: dict[Any, Any] = {}

        def fetch(node: Any) -> Any:
            return fresh[node] if node in fresh else self.golden[node]

        for node in self.following(*sources):
            is_source = node in sources
            if not is_source and not any(address in fresh for address in node.all_input_nodes):
                continue
            value = self.value(node, fetch)
            # What comes out as it was changes nothing behind it, so the replay stops there.
            if not same(value, self.golden[node]):
                fresh[node] = value
        return fetch(self.output)


def program(model: Any, inputs: tuple[Any, ...], outputs: Any) -> Program | None:
    """Return the graph of a model if it has one that gives the golden outputs, else None."""
    try:
        traced = Program(model, inputs)
    except (*UNTRACEABLE, torch().fx.proxy.TraceError):
        return None
    return traced if same(traced.golden[traced.output], outputs) else None
