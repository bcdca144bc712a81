"""A model as a list of operations, with the fault-free value of each: what faults are run through.

Only a graph that gives the golden outputs bit by bit is used; where a model cannot be traced,
or is no longer itself once traced, the answer is None and the caller takes a slower way.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any

from workbench.simulate.injections._torch import torch
from workbench.simulate.injections.designs.bits import as_integers

# Modules of this name are one operation, so that the shortcut for them can be found.
OWN_LEAVES = ("DotInteraction",)
# What tracing, or running what was traced, raises for code that has no graph.
UNTRACEABLE = (
    TypeError, ValueError, RuntimeError, AttributeError, LookupError, AssertionError, NameError,
)  # fmt: skip


def same(one: Any, other: Any) -> bool:
    """Say whether two values are equal bit by bit, NaN and the sign of 0 included."""
    if isinstance(one, torch().Tensor):
        if not isinstance(other, torch().Tensor) or one.dtype != other.dtype:
            return False
        if one.shape != other.shape:
            return False
        if one.dtype.is_floating_point:
            one, other = as_integers(one), as_integers(other)
        return bool(torch().equal(one, other))
    if isinstance(one, (tuple, list)):
        alike = type(one) is type(other) and len(one) == len(other)
        return alike and all(same(a, b) for a, b in zip(one, other, strict=True))
    return type(one) is type(other) and isinstance(one, (int, float, str, bool)) and one == other


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
    parts = torch().fx

    class Tracer(parts.Tracer):  # type: ignore[misc, name-defined]
        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            own = type(m).__name__ in OWN_LEAVES
            return own or bool(super().is_leaf_module(m, module_qualified_name))

    further = list(inspect.signature(model.forward).parameters.values())[input_count:]
    defaults = {
        each.name: each.default for each in further if each.default is not inspect.Parameter.empty
    }
    with cleaned(model) as constants:
        graph = Tracer().trace(model, concrete_args=defaults or None)
    return graph, constants, list(defaults.values())


class Program:
    """The operations of a model in their order, and the golden value of each.

    Attributes
    ----------
    nodes
        Operations, each after what it needs.
    output
        The operation whose value the model gives.
    golden
        Value of each operation in the fault-free run.
    takes
        Operations that stand for the inputs.
    varying
        Operations that depend on them.
    needed
        Operations that the output depends on.
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
        given = iter([*inputs, *self._defaults])
        values: dict[Any, Any] = {}
        for node in self.nodes:
            if node.op == "placeholder":
                value = next(given)
            else:
                value = self.value(node, values.__getitem__)
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
            given = fetch

            def fetch(each: Any) -> Any:
                value = given(each)
                return value.clone() if isinstance(value, torch().Tensor) else value

        args = self._map(node.args, fetch)
        kwargs = self._map(node.kwargs, fetch) if node.kwargs else {}
        if node.op == "call_module":
            return self.modules[node.target](*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], node.target)(*args[1:], **kwargs)
        return node.target(*args, **kwargs)

    def attribute(self, name: str) -> Any:
        """Give a parameter, buffer or constant by its dotted name."""
        if name in self.constants:
            return self.constants[name]
        return reduce(getattr, name.split("."), self.model)

    def _find_mutations(self, inputs: tuple[Any, ...]) -> None:
        """Find operations in place; they get copies, if nobody reads what they wrote over."""
        own = [*self.model.parameters(), *self.model.buffers()]
        before = [each._version for each in own]
        versions: dict[Any, int] = {}

        def watch(node: Any, values: dict[Any, Any]) -> None:
            for other, value in values.items():
                if not isinstance(value, torch().Tensor):
                    continue
                was = versions.setdefault(other, value._version)
                versions[other] = value._version
                if was == value._version or other is node:
                    continue
                if any(self.rank.get(user, 0) > self.rank[node] for user in other.users):
                    msg = f"{node} changes {other} in place, which is read later"
                    raise TypeError(msg)
                self._mutating.add(node)

        self.run(tuple(each.clone() for each in inputs), watch=watch)
        if before != [each._version for each in own]:
            msg = "a run changes the model"
            raise TypeError(msg)

    def after(self, starts: Iterable[Any]) -> set[Any]:
        """Give the operations that depend on some, those included."""
        reached = set(starts)
        for node in self.nodes:
            if node not in reached and any(each in reached for each in node.all_input_nodes):
                reached.add(node)
        return reached

    def following(self, *starts: Any) -> list[Any]:
        """Give in their order the operations that depend on some and that the output needs."""
        key = frozenset(starts)
        if key not in self._after:
            reached = self.after(starts)
            self._after[key] = [
                node for node in self.nodes if node in reached and node in self.needed
            ]
        return self._after[key]

    def before(self, last: Any) -> set[Any]:
        """Give the operations that one depends on, that one included."""
        if last not in self._before:
            found = {last}
            for node in reversed(self.nodes):
                if node in found:
                    found.update(node.all_input_nodes)
            self._before[last] = found
        return self._before[last]

    def users(self, node: Any) -> list[Any]:
        """Give the operations that read a value and matter for the output."""
        return [user for user in node.users if user in self.needed]

    def sources(self, tensor: Any) -> set[Any]:
        """Give the operations that read a parameter themselves, also where it is shared."""
        place = tensor.untyped_storage().data_ptr()

        def holds(node: Any) -> bool:
            if node.op == "call_module":
                mine: Iterable[Any] = self.modules[node.target].parameters()
            elif node.op == "get_attr":
                mine = [self.attribute(node.target)]
            else:
                return False
            tensors = (each for each in mine if isinstance(each, torch().Tensor))
            return any(each.untyped_storage().data_ptr() == place for each in tensors)

        return {node for node in self.nodes if holds(node)}

    def replay(self, sources: set[Any]) -> Any:
        """Run again what depends on the parameters that ``sources`` read: the very bits."""
        fresh: dict[Any, Any] = {}

        def fetch(node: Any) -> Any:
            return fresh[node] if node in fresh else self.golden[node]

        for node in self.following(*sources):
            is_source = node in sources
            if not is_source and not any(each in fresh for each in node.all_input_nodes):
                continue
            value = self.value(node, fetch)
            if not same(value, self.golden[node]):
                fresh[node] = value
        return fetch(self.output)


def program(model: Any, inputs: tuple[Any, ...], outputs: Any) -> Program | None:
    """Give the graph of a model if it has one that gives the golden outputs, else None."""
    try:
        found = Program(model, inputs)
    except (*UNTRACEABLE, torch().fx.proxy.TraceError):
        return None
    return found if same(found.golden[found.output], outputs) else None
