"""What the operations of communication libraries are called, and how big they are."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from workbench.analyze._lib.rows import Ints, codes, taken

UNKNOWN = "unknown"
# Names as PyTorch records them and as kernels are called, without anything but letters,
# in lower case. The first that a name contains decides.
_SPELLINGS = (
    ("barrier", "barrier"),
    ("coalesced", "^coalesced|^endcoalescing|^startcoalescing"),
    ("wait", "^wait"),
    ("all-reduce", "allreduce|crossdevicereduce"),
    ("all-gather", "allgather"),
    ("reduce-scatter", "reducescatter"),
    ("all-to-all", "alltoall|all2all"),
    ("send-receive", "sendrecv"),
    ("broadcast", "broadcast"),
    ("scatter", "scatter"),
    ("gather", "gather"),
    ("reduce", "reduce"),
    ("receive", "recv"),
    ("send", "send"),
)
OPERATIONS = (*(operation for operation, _ in _SPELLINGS), UNKNOWN)
# Such rows move no data of their own, or their partner cannot be told.
NOT_MATCHED = {
    "barrier": "moves no data",
    "wait": "moves no data",
    "coalesced": "stands for several collectives",
    "send": "its partner is not recorded",
    "receive": "its partner is not recorded",
}
# The bytes on the busiest link are a fixed multiple of size, by number of ranks n.
_PER_RANK = ("all-gather", "reduce-scatter", "all-to-all")
_ELEMENT_BYTES = {
    1: ("char", "byte", "bool", "int8", "uint8", "qint8", "quint8"),
    2: ("half", "bfloat16", "float16", "short", "int16", "uint16"),
    4: ("float", "float32", "int", "int32", "uint32", "complexhalf"),
    8: ("double", "float64", "long", "int64", "uint64", "complexfloat"),
    16: ("complexdouble",),
}


def operation_of(name: str) -> str:
    """Tell from a recorded name which operation is meant.

    Examples
    --------
    >>> operation_of("_allgather_base"), operation_of("ncclDevKernel_SendRecv(ncclDevKernelArg)")
    ('all-gather', 'send-receive')
    """
    letters = re.sub("[^a-z0-9]", "", name.split("(", maxsplit=1)[0].lower())
    letters = re.sub("^(?:nccl|rccl|c10d)", "", letters)
    return next((known for known, spelling in _SPELLINGS if re.search(spelling, letters)), UNKNOWN)


def operations(events: pd.DataFrame, row: Ints) -> Ints:
    """Give the operation of some rows as positions in OPERATIONS.

    What was recorded as the collective decides, else the name of the kernel.
    """
    place = {operation: number for number, operation in enumerate(OPERATIONS)}
    told = {}
    for column in ("collective", "name"):
        used, value = np.unique(codes(events[column])[row], return_inverse=True)
        names = [str(name) for name in events[column].cat.categories]
        known = [place[operation_of(names[code]) if code >= 0 else UNKNOWN] for code in used]
        told[column] = np.array(known, dtype=np.int64)[value]
    return np.where(told["collective"] == place[UNKNOWN], told["name"], told["collective"])


def sizes(events: pd.DataFrame, row: Ints, operation: Ints) -> Ints:
    """Return the size of some collectives as nccl-tests counts it [bytes], -1 if missing.

    Notes
    -----
    The size is what a rank holds on the larger side: for all-gather all it receives, for
    reduce-scatter and all-to-all all it sends, for the others the one buffer. That is
    elements times the size of one element.

    References
    ----------
    NVIDIA/nccl-tests, ``doc/PERFORMANCE.md``.
    """
    sent, received = taken(events["in_count"], row), taken(events["out_count"], row)
    gathers = np.isin(operation, [OPERATIONS.index("all-gather"), OPERATIONS.index("gather")])
    return _bytes_of(events, row, np.where(gathers, received, sent))


def input_sizes(events: pd.DataFrame, row: Ints, operation: Ints) -> Ints:
    """Return the bytes of the tensors that a rank puts into some collectives, -1 if missing.

    Notes
    -----
    Chakra's converter counts so: for all-gather it is the share of one rank, where nccl-tests
    (:func:`sizes`) counts all shares.

    References
    ----------
    mlcommons/chakra: src/converter/pytorch_converter.py.
    """
    sent, received = taken(events["in_count"], row), taken(events["out_count"], row)
    ranks = taken(events["group_size"], row)
    is_derived = (operation == OPERATIONS.index("all-gather")) & (sent < 0) & (ranks > 0)
    is_derived &= received >= 0
    elements = np.where(is_derived, received // np.maximum(ranks, 1), sent)
    return _bytes_of(events, row, elements)


def _bytes_of(events: pd.DataFrame, row: Ints, elements: Ints) -> Ints:
    """Multiply elements by the bytes of one, -1 if either is missing."""
    used, value = np.unique(codes(events["dtype"])[row], return_inverse=True)
    names = [str(name) for name in events["dtype"].cat.categories]
    bytes_each = np.array(
        [_element_bytes(names[c]) if c >= 0 else -1 for c in used], dtype=np.int64
    )
    each = bytes_each[value] if len(used) else np.zeros(0, dtype=np.int64)
    return np.where((elements >= 0) & (each > 0), elements * each, -1)


def _element_bytes(dtype: str) -> int:
    """Return the bytes of one element, -1 if the type is not known."""
    name = dtype.removeprefix("c10::").lower()
    if name.startswith("float8"):
        return 1
    return next((size for size, names in _ELEMENT_BYTES.items() if name in names), -1)


def bus_factor(operation: str, ranks: int) -> float | None:
    """Return by what the algorithm bandwidth is multiplied to get the bus bandwidth.

    Notes
    -----
    With n ranks: all-reduce 2 (n - 1) / n; all-gather, reduce-scatter and all-to-all
    (n - 1) / n; broadcast and reduce 1. None for operations without an agreed factor.

    References
    ----------
    NVIDIA/nccl-tests, ``doc/PERFORMANCE.md``.

    Examples
    --------
    >>> bus_factor("all-reduce", 8)
    1.75
    """
    if operation == "all-reduce":
        return 2 * (ranks - 1) / ranks
    if operation in _PER_RANK:
        return (ranks - 1) / ranks
    return 1.0 if operation in ("broadcast", "reduce") else None
