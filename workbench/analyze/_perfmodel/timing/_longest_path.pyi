from typing import Any

from numpy.typing import NDArray

SOURCE_DIGEST: str

# Bounds, targets, weights and waiting counts; the order and the times are written.
def first_pass(*arrays: NDArray[Any]) -> int: ...
def next_pass(*arrays: NDArray[Any]) -> int: ...
