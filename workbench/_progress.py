"""One way to show progress: late, on one line, and gone when done."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from tqdm import std


def progress(
    iterable: Iterable[Any] | None = None,
    *,
    total: float | None = None,
    unit: str = "it",
    label: str = "",
    enabled: bool = True,
) -> Any:
    """Make a progress bar that only slow work ever shows.

    The bar appears after one second and is wiped when the work ends. It stays
    silent if it is not wanted: ``enabled=False``, the environment variable
    ``TQDM_DISABLE``, or an error stream that is neither a terminal nor a
    notebook (a log file, a batch job, a test).

    Parameters
    ----------
    iterable
        What to walk over; leave out to call ``update`` on the bar by hand.
    total
        Size of the work in ``unit``; taken from ``len(iterable)`` if possible.
    unit
        What is counted; ``"B"`` (bytes) is shown with metric prefixes.
    label
        What is being done, e.g. ``"loading traces"``.
    enabled
        Whether the caller wants a bar at all.

    Returns
    -------
    tqdm.auto.tqdm
        The bar: iterable, context manager, with ``update(count)``.

    Examples
    --------
    >>> sum(progress([1, 2, 3], unit="files", label="adding"))
    6
    """
    if not enabled or os.environ.get("TQDM_DISABLE"):
        return std.tqdm(iterable, total=total, disable=True)
    from tqdm import auto, autonotebook

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
