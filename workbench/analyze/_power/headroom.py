"""Headroom that all limits allow to be used, in a delivery tree."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workbench.analyze._lib.power_signal import Numbers
from workbench.analyze._power.feeds import Feeds


def usable_headroom(headroom_w: Numbers, *, has_limit: NDArray[np.bool_], fed: Feeds) -> Numbers:
    """Give the largest power that could be added at the leaves below each thing.

    Parameters
    ----------
    headroom_w
        Limit minus peak; missing where either is.
    has_limit
        Whether the topology states a limit; if so, and the headroom is missing, the peak is
        what is unknown.
    fed
        The delivery tree.

    Returns
    -------
    numpy.ndarray
        Power in W, 0 or more; missing where nothing limits it, or where it depends on a peak
        that is unknown.
    """
    unknown = has_limit & np.isnan(headroom_w)
    room = np.where(has_limit, np.maximum(headroom_w, 0), np.inf)
    # Whatever the unknown peaks are, the answer lies between that of full and that of empty.
    least = _within_limits(np.where(unknown, 0.0, room), fed)
    most = _within_limits(np.where(unknown, np.inf, room), fed)
    return np.where(np.isfinite(most) & (least == most), most, np.nan)


def _within_limits(room: Numbers, fed: Feeds) -> Numbers:
    """Narrow room from the leaves up by what is below, then from the root down by what is above."""
    children = fed.children()
    usable = room.copy()
    for at in range(len(room) - 1, -1, -1):
        if children[at]:
            usable[at] = min(room[at], usable[children[at]].sum())
    above = np.full(len(room), np.inf)
    for at, parent in enumerate(fed.parent):
        if parent >= 0:
            above[at] = min(above[parent], room[parent])
    return np.asarray(np.minimum(usable, above))
