from typing import Any

from numpy.typing import NDArray

SOURCE_DIGEST: str

# level (int8), begin and lasting of rows, start and end of windows, and what is written (int64).
def cover(*arrays: NDArray[Any]) -> bool: ...
