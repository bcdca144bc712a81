"""One way to show progress: late, on one line, and gone when done."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from tqdm import std


def tell(line: str, *, enabled: bool = True) -> None:
    """Write a line to the error stream, a log file too, above the bars that stand there."""
    if enabled and not os.environ.get("TQDM_DISABLE"):
        std.tqdm.write(line, file=sys.stderr)


def progress(
    iterable: Iterable[Any] | None = None,
    *,
    total: float | None = None,
    unit: str = "it",
    label: str = "",
    enabled: bool = True,
) -> Any:
    """Make a progress bar that only slow work ever shows.

    It appears after one second and is wiped when the work ends. It stays silent with
    ``enabled=False``, with the environment variable ``TQDM_DISABLE``, or where the error stream is
    neither a terminal nor a notebook (a log file, a batch job, a test). The unit ``"B"`` (bytes) is
    shown with metric prefixes.

    Examples
    --------
    >>> sum(progress([1, 2, 3], unit="files", label="adding"))
    6
    """
    if not enabled or os.environ.get("TQDM_DISABLE"):
        return std.tqdm(iterable, total=total, disable=True)
    from tqdm import auto, autonotebook

    # Outside a notebook kernel autonotebook is the plain bar.
    in_notebook = autonotebook.tqdm is not std.tqdm
    silent = not (in_notebook or sys.stderr.isatty())
    return auto.tqdm(
        iterable,
        total=total,
        unit=unit,
        desc=label or None,
        unit_scale=unit == "B",
        delay=1,
        leave=False,
        disable=silent,
    )
