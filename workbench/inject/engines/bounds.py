"""Which changes cannot change a decision, and which decisions are too close to tell.

Two kinds of bounds. *Reach*: a change of one unit (a column or channel) moves the margin by
no more than ``reach`` times its size; what cannot bridge the margin is not run at all.
*Rounding*: sums in another order differ by a few units in the last place of the magnitudes
summed; decisions that close are left to an exact run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workbench.inject._judge import Golden
from workbench.inject._model import torch
from workbench.inject.engines.reexecution import OWN_LEAVES, UNTRACEABLE, Program
from workbench.inject.engines.row_folding import RowFolding

EPSILON = 2.0**-23
# Units in the last place of the magnitudes summed; what is seen is a small part of it.
ROUNDING = 4.0
_SHRUNK = 1 - 1e-3
# Sums of magnitudes below this cannot overflow in any order, with room for rounding.
LARGEST = 3e38


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds of the changes of one operation's units."""

    # [units x inputs] or [units x 1]: how far a change of 1 moves the margin at most, and the
    # largest number on the way that it makes, all magnitudes summed up.
    reach: Any
    peak: Any
    # [inputs]: magnitudes summed on the way to the output in the golden run, and what a change
    # may move the margin by for sure; at most 0 where the decision is a matter of rounding.
    size: Any
    room: Any
    factor: float  # 2 where a margin is the difference of two outputs

    def is_close(self, margins: Any, rows: Any, change: Any, units: Any) -> Any:
        """Return which margins are at the level of rounding."""
        level = self.size[rows] + change * self.at(self.peak, units, rows)
        return ~(margins > self.factor * ROUNDING * EPSILON * level)

    def is_huge(self, change: Any, units: Any, rows: Any) -> Any:
        """Return which changes may overflow on the way, or may not."""
        return ~(change * self.at(self.peak, units, rows) + self.size[rows] < LARGEST)

    def closeness(
        self, golden: Golden, pairs: tuple[Any, Any], change: Any, huge: Any
    ) -> Callable[[Any, slice], Any]:
        """Return the test which outputs of pairs of unit and input are a matter of rounding."""
        units, rows = pairs

        def close(outputs: Any, span: slice) -> Any:
            margins = golden.margins(outputs, rows[span])
            near = self.is_close(margins, rows[span], change[span], units[span])
            return (near & torch().isfinite(margins)) | huge[span]

        return close

    @staticmethod
    def at(bound: Any, units: Any, rows: Any) -> Any:
        """Return a bound for pairs of unit and input."""
        return bound[units, 0] if bound.shape[1] == 1 else bound[units, rows]


def head_of(program: Program, golden: Golden) -> Any:
    """Return the linear operation that gives the classes; None if the output is not that."""
    node = program.output
    if golden.judge.criterion != "argmax" or node.op != "call_module":
        return None
    return node if type(program.modules[node.target]) is torch().nn.Linear else None


def bounds(
    program: Program,
    golden: Golden,
    start: Any,
    size_from: tuple[Any, Any],
    shortcut: DotShortcut | None,
) -> Bounds | None:
    """Return the bounds for changes of the units of ``start``, or None if there are none.

    ``size_from`` is the operation that is hit and the magnitudes it sums; ``shortcut`` the way
    through dot products, if it is to be taken.
    """
    try:
        size = AbsoluteRun(program, is_change=False)(*size_from)
        if shortcut is None:
            reach, peak = _reach(program, golden, start)
            reach, peak = reach[:, None], peak[:, None]
        else:
            reach, peak = _reach_through(program, golden, start, shortcut)
    except UnboundedError:
        return None
    return _bounds(golden, reach, peak, size)


def vector_bounds(
    program: Program, golden: Golden, shortcut: DotShortcut, vector: int
) -> Bounds | None:
    """Return the same for changes of the components of a vector of the dot products."""
    node = shortcut.nodes[vector]
    try:
        size = AbsoluteRun(program, is_change=False)(node, program.golden[node].abs())
        reach, peak = _vector_reach(program, golden, shortcut, vector)
    except UnboundedError:
        return None
    return _bounds(golden, reach, peak, size)


def _bounds(golden: Golden, reach: Any, peak: Any, size: Any) -> Bounds:
    # An argmax compares two outputs, both off by rounding; a threshold looks at one.
    factor = 1.0 if golden.judge.criterion == "threshold" else 2.0
    size = size.reshape(len(size), -1).amax(1)
    margins = golden.margins(golden.outputs, torch().arange(len(golden)))
    room = margins * _SHRUNK - factor * ROUNDING * EPSILON * size
    return Bounds(reach, peak, size, room, factor)


def _reach(program: Program, golden: Golden, start: Any) -> tuple[Any, Any]:
    """Return how far changes of single units carry: to the margin, and at most on the way."""
    shape = program.golden[start].shape[1:]
    ones = torch().zeros(shape[0], *shape)
    ones[torch().arange(shape[0]), torch().arange(shape[0])] = 1
    plain = AbsoluteRun(program, is_change=True)
    reach = plain(start, ones).reshape(shape[0], -1).amax(1)
    peak = plain.peak
    if golden.judge.criterion != "argmax":
        return reach, peak
    head = head_of(program, golden)
    if start is head:
        return torch().ones(shape[0]), peak
    if head is None:
        # Two outputs may move towards each other, each by the reach.
        return 2 * reach, peak
    return AbsoluteRun(program, is_change=True)(start, ones, head=head).flatten(), peak


def _reach_through(
    program: Program, golden: Golden, start: Any, shortcut: DotShortcut
) -> tuple[Any, Any]:
    """Return the same where changes pass the dot products in the first vector."""
    first = shortcut.nodes[0]
    units = program.golden[start].shape[1]
    run = AbsoluteRun(program, is_change=True)
    to_vector = run(start, torch().eye(units), until=first)
    reach, _ = _reach(program, golden, shortcut.entry)
    own_reach = to_vector @ (shortcut.slopes(0).abs() @ reach).T
    behind = _peaks(program, shortcut, 0, to_vector)
    return own_reach.contiguous(), torch().maximum(run.peak[:, None], behind)


def _vector_reach(
    program: Program, golden: Golden, shortcut: DotShortcut, vector: int
) -> tuple[Any, Any]:
    """Return for the components of a vector how far they carry, and the peak."""
    reach, _ = _reach(program, golden, shortcut.entry)
    slopes = shortcut.slopes(vector)
    components = torch().eye(slopes.shape[1])
    own_reach = (slopes.abs() @ reach).T.contiguous()
    return own_reach, _peaks(program, shortcut, vector, components).clamp_min(1.0)


def _peaks(program: Program, shortcut: DotShortcut, vector: int, ways: Any) -> Any:
    """Return the largest numbers behind the dot products, [ways x inputs].

    ``ways`` [ways x length of the vector] says how far changes of 1 move its components.
    """
    slopes = shortcut.slopes(vector, absolute=True)
    run = AbsoluteRun(program, is_change=True)
    peaks = []
    for way in ways:
        run(shortcut.entry, (way[:, None] * slopes).sum(1))
        peaks.append(run.peak)
    return torch().stack(peaks)


# Interval arithmetic with absolute weights: activations such as ReLU never enlarge a
# difference by more than a factor, so what comes out bounds how far a change can carry.

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
    """A later operation has no known bound."""


def slope(program: Program, node: Any) -> float | None:
    """Return by how much an elementwise operation can enlarge a difference; None for others."""
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
    """Return the bare name of the function or method an operation calls."""
    if node.op == "call_method":
        return str(node.target)
    return str(getattr(node.target, "__name__", "")) if node.op == "call_function" else ""


class AbsoluteRun:
    """Runs what follows an operation on magnitudes.

    With ``is_change`` they are magnitudes of changes, so what does not change counts as 0;
    without, of the values themselves, with biases and everything else that is added.
    """

    def __init__(self, program: Program, *, is_change: bool) -> None:
        self.program, self.is_change = program, is_change
        self.peak: Any = None
        self._start: Any = None
        self._fresh: dict[Any, Any] = {}

    def __call__(self, start: Any, value: Any, *, until: Any = None, head: Any = None) -> Any:
        """Return the magnitude of the output, or of the value ``until``; raise if it has no bound.

        ``start`` is the operation that gives ``value``. The outputs of ``head``, the last
        linear operation, are replaced by one, the largest difference of two.
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
        """Return whether no tensor tells an operation where to look."""
        if name in _JOINING:
            return True
        golden = self.program.golden
        indexing = node.all_input_nodes[1:]
        return not any(isinstance(golden[argument], torch().Tensor) for argument in indexing)

    def _sum(self, terms: Any) -> Any:
        total: Any = 0.0
        for term in terms:
            if isinstance(term, (int, float)):
                total = total + (0.0 if self.is_change else abs(term))
            else:
                total = total + self._fetch(term)
        return total

    def _module(self, node: Any, head: Any) -> Any:
        module = self.program.modules[node.target]
        kind = type(module).__name__
        if kind in OWN_LEAVES and not self.is_change:
            return module(*(self._fetch(argument) for argument in node.args))
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
    """Return the output of a linear module with absolute weights for given magnitudes."""
    weight = module.weight.abs()
    if isinstance(module, torch().nn.Conv2d):
        return module._conv_forward(value, weight, bias)
    return torch().nn.functional.linear(value, weight, bias)


def layer_magnitude(module: Any, value: Any) -> Any:
    """Return how large the numbers are that a linear module sums up for an input."""
    return _absolute(module, value.abs(), None if module.bias is None else module.bias.abs())


def spread(weight: Any) -> Any:
    """Return per input the largest difference of two rows of a weight."""
    return weight.amax(0) - weight.amin(0)


def _largest(value: Any) -> Any:
    return value.reshape(len(value), -1).amax(1)


_ALIKE = 1e-4
# Sizes of the changes that both ways must agree on: a clip would show in the large ones.
_PROBES = (1.0, 1e6)
_KEPT_BYTES = 256 << 20


class DotShortcut:
    """Takes changes of one vector straight to ``entry``, the linear layer behind the dot products.

    Each dot product is linear in either vector, so the linear layer behind them is affine in
    each vector while the others stand still: its output changes by
    ``(v' - v) @ A[n]`` with ``A[n] = sum over pairs of (other vector) x (weights of the
    pair)``, and the direct weights for the first vector, the output of the bottom MLP.
    ``nodes`` are the operations that give the vectors.
    """

    def __init__(self, folding: RowFolding, node: Any, nodes: list[Any], entry: Any) -> None:
        program = folding.program
        self.folding, self.nodes, self.entry = folding, nodes, entry
        x, embedded = (program.golden[argument] for argument in node.args)
        self._vectors = torch().cat([x.unsqueeze(1), embedded], 1)
        self._weight = program.modules[entry.target].weight
        self._golden = program.golden[entry]
        count = self._vectors.shape[1]
        # The usual order of the pairs; is_sound compares the result with the model itself.
        self._pairs = torch().tril_indices(count, count, -1)
        self._kept: dict[int, Any] = {}
        self._room = _KEPT_BYTES // (4 * x.numel() * self._weight.shape[0])
        self._sound: dict[int, bool] = {}

    def slopes(self, vector: int, *, absolute: bool = False) -> Any:
        """Return A[n] of a vector, [inputs x its length x outputs of the layer].

        ``absolute`` gives the sums of magnitudes instead.
        """
        if vector in self._kept and not absolute:
            return self._kept[vector]
        first, second = self._pairs
        pairs = torch().nonzero((first == vector) | (second == vector)).flatten()
        partners = torch().where(first[pairs] == vector, second[pairs], first[pairs])
        dim = self._vectors.shape[2]
        weight, near = self._weight[:, dim + pairs], self._vectors[:, partners]
        direct = self._weight[:, :dim]
        if absolute:
            weight, near, direct = weight.abs(), near.abs(), direct.abs()
        slopes = near.transpose(1, 2) @ weight.T
        if vector == 0:
            slopes = slopes + direct.T
        if not absolute:
            # A[n] has inputs x length x outputs numbers, so only some vectors are kept.
            if len(self._kept) >= max(1, self._room):
                self._kept.clear()
            self._kept[vector] = slopes.contiguous()
        return slopes

    def is_sound(self, vector: int) -> bool:
        """Return whether the short way agrees with the long one for a vector, within rounding."""
        if vector not in self._sound:
            node = self.nodes[vector]
            folding, golden = self.folding, self.folding.program.golden[node]
            rows = torch().arange(min(8, folding.count)).repeat(len(_PROBES))
            draws = torch().Generator().manual_seed(vector)
            sizes = torch().tensor(_PROBES).repeat_interleave(len(rows) // len(_PROBES))
            noise = torch().randn(golden[rows].shape, generator=draws) * sizes[:, None]
            moved = golden[rows] + noise
            long_way = folding.run(node, moved, rows, until=self.entry)
            short_way = self.through(vector, moved, rows)
            scale = long_way.abs().amax(1).clamp_min(1e-30)
            off = (short_way - long_way).abs().amax(1) / scale
            self._sound[vector] = bool((off <= _ALIKE).all())
        return self._sound[vector]

    def through(self, vector: int, value: Any, rows: Any) -> Any:
        """Return the output of the linear layer where a vector has another value."""
        change = value - self.folding.golden(self.nodes[vector], rows)
        added = torch().bmm(change.unsqueeze(1), self.slopes(vector)[rows]).squeeze(1)
        return self._golden[rows] + added

    def component(self, vector: int, change: Any, unit: Any, rows: Any) -> Any:
        """Return the same where one component ``place`` of the vector changes by ``change``."""
        return self._golden[rows] + change[:, None] * self.slopes(vector)[rows, unit]

    def passes(self, start: Any) -> bool:
        """Return whether all that follows an operation comes through the first vector."""
        program, end = self.folding.program, self.nodes[0]
        if start is end:
            return self.is_sound(0)
        after, behind = set(program.following(start)), set(program.following(end))
        if end not in after or end is program.output:
            return False
        before = program.before(end)
        ways = (
            all(source in behind for source in node.all_input_nodes if source in after)
            for node in after
            if node in behind and node is not end
        )
        aside = any(node not in behind and node not in before for node in after)
        return not aside and all(ways) and self.is_sound(0)


def dot_shortcut(program: Program, folding: RowFolding) -> DotShortcut | None:
    """Find the dot products in a model; None if it has none of the known form."""
    interactions = [
        node
        for node in program.nodes
        if node.op == "call_module"
        and type(program.modules[node.target]).__name__ in OWN_LEAVES
        and node in program.needed
    ]
    if len(interactions) != 1 or len(interactions[0].args) != 2 or interactions[0].kwargs:
        return None
    node = interactions[0]
    bottom, stacked = node.args
    users = program.users(node)
    if len(users) != 1 or users[0].op != "call_module" or len(users[0].args) != 1:
        return None
    entry = program.modules[users[0].target]
    if users[0].kwargs or type(entry) is not torch().nn.Linear:
        return None
    # What a stack over the second dimension was made of.
    dim = stacked.kwargs.get("dim", stacked.args[1] if len(stacked.args) > 1 else 0)
    tables = list(stacked.args[0]) if function_name(stacked) == "stack" and dim == 1 else []
    firsts = [bottom, stacked, *tables]
    if any(len(program.users(vector)) != 1 or vector not in folding.factor for vector in firsts):
        return None
    if not folding.foldable(bottom) or not folding.foldable(stacked):
        return None
    x, embedded = program.golden[bottom], program.golden[stacked]
    vectors = embedded.shape[1] + 1 if embedded.ndim == 3 else 0
    wanted = x.shape[-1] + vectors * (vectors - 1) // 2
    if vectors != len(tables) + 1 or entry.in_features != wanted:
        return None
    return DotShortcut(folding, node, [bottom, *tables], users[0])
