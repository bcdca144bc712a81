"""Which collective a recorded name or the name of a kernel means."""

from __future__ import annotations

import re

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


def operation_of(name: str) -> str:
    """Tell from a recorded name which operation is meant.

    Examples
    --------
    >>> operation_of("_allgather_base"), operation_of("ncclDevKernel_SendRecv(ncclDevKernelArg)")
    ('all-gather', 'send-receive')
    """
    letters = re.sub("[^a-z0-9]", "", name.split("(", maxsplit=1)[0].lower())
    letters = re.sub("^(?:nccl|rccl|c10d)", "", letters)
    return next(
        (operation for operation, spelling in _SPELLINGS if re.search(spelling, letters)), UNKNOWN
    )
