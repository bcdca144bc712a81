"""Data dependencies of PyTorch execution traces: who wrote the tensors that a node reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# Deeper than any call stack worth following; keeps made-up traces from costing time.
_MOST_STEPS = 64


def tensor_edges(
    reads: Mapping[int, Sequence[int]],
    writes: Mapping[int, Sequence[int]],
    callers: Mapping[int, int | None],
) -> list[tuple[int, int]]:
    """Derive who needs whom from the tensors that nodes read and write.

    A node needs the last node before it that wrote a tensor it reads. Callers of
    the node are no candidates (they end after it), and of nested calls that wrote
    the tensor one after the other the outermost counts.

    Parameters
    ----------
    reads
        Node id to ids of the tensors it reads.
    writes
        Node id to ids of the tensors it writes.
    callers
        Node id to id of its caller. Node ids grow with time, as PyTorch counts.

    Returns
    -------
    list of tuple
        ``(node, needs)``, each pair once, in order of ``node``.

    Notes
    -----
    Tensors are known by their own id: a view of a tensor is another tensor, so
    writing to a tensor and reading its view gives no edge.
    """
    spans = _spans(callers)
    writers: dict[int, list[int]] = {}
    outputs = {node: set(tensors) for node, tensors in writes.items()}
    edges: list[tuple[int, int]] = []
    for node in sorted(callers):
        needed = set()
        for tensor in reads.get(node, ()):
            writer = _last_writer(writers.get(tensor, ()), node, spans)
            if writer is not None:
                needed.add(_outermost(writer, node, tensor, callers, outputs, spans))
        edges.extend((node, needs) for needs in sorted(needed))
        for tensor in outputs.get(node, ()):
            writers.setdefault(tensor, []).append(node)
    return edges


def _last_writer(
    writers: Sequence[int], node: int, spans: Mapping[int, tuple[int, int]]
) -> int | None:
    """Return the latest writer that does not call ``node``."""
    for writer in writers[: -_MOST_STEPS - 1 : -1]:
        if not _calls(writer, node, spans):
            return writer
    return None


def _outermost(
    writer: int,
    node: int,
    tensor: int,
    callers: Mapping[int, int | None],
    outputs: Mapping[int, set[int]],
    spans: Mapping[int, tuple[int, int]],
) -> int:
    """Climb from ``writer`` to its outermost caller that wrote the tensor too."""
    for _ in range(_MOST_STEPS):
        caller = callers.get(writer)
        if caller is None or caller >= writer or tensor not in outputs.get(caller, ()):
            break
        if _calls(caller, node, spans):
            break
        writer = caller
    return writer


def _calls(caller: int, node: int, spans: Mapping[int, tuple[int, int]]) -> bool:
    """Tell whether ``caller`` calls ``node``, directly or not."""
    first, last = spans[caller]
    return first <= spans[node][0] <= last


def _spans(callers: Mapping[int, int | None]) -> dict[int, tuple[int, int]]:
    """Give each call a span of numbers in which those of all its callees lie."""
    callees: dict[int, list[int]] = {}
    roots = []
    for node, caller in callers.items():
        # A caller comes first; anything else is damage and would make circles.
        if caller is not None and caller < node and caller in callers:
            callees.setdefault(caller, []).append(node)
        else:
            roots.append(node)
    spans: dict[int, tuple[int, int]] = {}
    entered: dict[int, int] = {}
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, is_left = stack.pop()
        if is_left:
            spans[node] = (entered[node], len(entered) - 1)
            continue
        entered[node] = len(entered)
        stack.append((node, True))
        stack.extend((callee, False) for callee in callees.get(node, ()))
    return spans
