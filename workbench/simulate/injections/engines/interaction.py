"""The short way through the dot products of a recommendation model."""

from __future__ import annotations

from typing import Any

from workbench.simulate.injections._torch import torch
from workbench.simulate.injections.engines.amplitudes import function_name
from workbench.simulate.injections.engines.graph import OWN_LEAVES, Program
from workbench.simulate.injections.engines.row_folding import RowFolding

_ALIKE = 1e-4
# Sizes of the changes that both ways must agree on: a clip would show in the large ones.
_PROBES = (1.0, 1e6)
_KEPT_BYTES = 256 << 20


class DotShortcut:
    """Takes changes of one vector straight to the linear layer behind the dot products.

    Notes
    -----
    Each dot product is linear in either vector, so the linear layer behind them is affine in
    each vector while the others stand still: its output changes by
    ``(v' - v) @ A[n]`` with ``A[n] = sum over pairs of (other vector) x (weights of the
    pair)``, and the direct weights for the first vector.

    Attributes
    ----------
    nodes
        The operation that gives each vector; the first is the output of the bottom MLP.
    entry
        The linear layer behind the dot products.
    """

    def __init__(self, folding: RowFolding, node: Any, nodes: list[Any], entry: Any) -> None:
        program = folding.program
        self.folding, self.nodes, self.entry = folding, nodes, entry
        x, embedded = (program.golden[each] for each in node.args)
        self._vectors = torch().cat([x.unsqueeze(1), embedded], 1)
        self._weight = program.modules[entry.target].weight
        self._golden = program.golden[entry]
        count = self._vectors.shape[1]
        self._pairs = torch().tril_indices(count, count, -1)
        self._kept: dict[int, Any] = {}
        self._room = _KEPT_BYTES // (4 * x.numel() * self._weight.shape[0])
        self._sound: dict[int, bool] = {}

    def slopes(self, vector: int, *, absolute: bool = False) -> Any:
        """Give A[n] of a vector, [inputs x its length x outputs of the layer].

        ``absolute`` gives the sums of magnitudes instead.
        """
        if vector in self._kept and not absolute:
            return self._kept[vector]
        first, second = self._pairs
        places = torch().nonzero((first == vector) | (second == vector)).flatten()
        others = torch().where(first[places] == vector, second[places], first[places])
        dim = self._vectors.shape[2]
        weight, near = self._weight[:, dim + places], self._vectors[:, others]
        direct = self._weight[:, :dim]
        if absolute:
            weight, near, direct = weight.abs(), near.abs(), direct.abs()
        slopes = near.transpose(1, 2) @ weight.T
        if vector == 0:
            slopes = slopes + direct.T
        if not absolute:
            if len(self._kept) >= max(1, self._room):
                self._kept.clear()
            self._kept[vector] = slopes.contiguous()
        return slopes

    def is_sound(self, vector: int) -> bool:
        """Say whether the short way agrees with the long one for a vector, within rounding."""
        if vector not in self._sound:
            node = self.nodes[vector]
            folding, golden = self.folding, self.folding.program.golden[node]
            rows = torch().arange(min(8, folding.count)).repeat(len(_PROBES))
            draws = torch().Generator().manual_seed(vector)
            sizes = torch().tensor(_PROBES).repeat_interleave(len(rows) // len(_PROBES))
            noise = torch().randn(golden[rows].shape, generator=draws) * sizes[:, None]
            moved = golden[rows] + noise
            there = folding.run(node, moved, rows, until=self.entry)
            here = self.through(vector, moved, rows)
            scale = there.abs().amax(1).clamp_min(1e-30)
            off = (here - there).abs().amax(1) / scale
            self._sound[vector] = bool((off <= _ALIKE).all())
        return self._sound[vector]

    def through(self, vector: int, value: Any, rows: Any) -> Any:
        """Give the output of the linear layer where a vector has another value."""
        change = value - self.folding.golden(self.nodes[vector], rows)
        added = torch().bmm(change.unsqueeze(1), self.slopes(vector)[rows]).squeeze(1)
        return self._golden[rows] + added

    def component(self, vector: int, change: Any, place: Any, rows: Any) -> Any:
        """Give the same where one component ``place`` of the vector changes by ``change``."""
        return self._golden[rows] + change[:, None] * self.slopes(vector)[rows, place]

    def passes(self, start: Any) -> bool:
        """Say whether all that follows an operation comes through the first vector."""
        program, end = self.folding.program, self.nodes[0]
        if start is end:
            return self.is_sound(0)
        after, behind = set(program.following(start)), set(program.following(end))
        if end not in after or end is program.output:
            return False
        before = program.before(end)
        ways = (
            all(each in behind for each in node.all_input_nodes if each in after)
            for node in after
            if node in behind and node is not end
        )
        aside = any(node not in behind and node not in before for node in after)
        return not aside and all(ways) and self.is_sound(0)


def dot_shortcut(program: Program, folding: RowFolding) -> DotShortcut | None:
    """Find the dot products in a model; None if it has none of the known form."""
    found = [
        node
        for node in program.nodes
        if node.op == "call_module"
        and type(program.modules[node.target]).__name__ in OWN_LEAVES
        and node in program.needed
    ]
    if len(found) != 1 or len(found[0].args) != 2 or found[0].kwargs:
        return None
    node = found[0]
    bottom, stacked = node.args
    users = program.users(node)
    if len(users) != 1 or not _is_linear(program, users[0]):
        return None
    tables = _stacked(stacked)
    firsts = [bottom, stacked, *tables]
    if any(len(program.users(each)) != 1 or each not in folding.factor for each in firsts):
        return None
    if not folding.foldable(bottom) or not folding.foldable(stacked):
        return None
    x, embedded = program.golden[bottom], program.golden[stacked]
    vectors = embedded.shape[1] + 1 if embedded.ndim == 3 else 0
    wanted = x.shape[-1] + vectors * (vectors - 1) // 2
    if vectors != len(tables) + 1 or program.modules[users[0].target].in_features != wanted:
        return None
    return DotShortcut(folding, node, [bottom, *tables], users[0])


def _is_linear(program: Program, node: Any) -> bool:
    if node.op != "call_module" or len(node.args) != 1 or node.kwargs:
        return False
    return type(program.modules[node.target]) is torch().nn.Linear


def _stacked(node: Any) -> list[Any]:
    """Give what a stack over the second dimension was made of."""
    if function_name(node) != "stack":
        return []
    dim = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else 0)
    return list(node.args[0]) if dim == 1 else []
