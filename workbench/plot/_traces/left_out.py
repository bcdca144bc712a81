"""Words for the communication kernels of which nothing is known."""

from __future__ import annotations

import pandas as pd

from workbench.plot._style.text import label, plural

_MOST = 2


def unknown_kernels(table: pd.DataFrame, attribute: str) -> list[str]:
    """Say of how many communication kernels it is not known who waited, and mostly why."""
    reasons = sorted(table.attrs.get(attribute, {}).items(), key=lambda reason: -reason[1])
    if not reasons:
        return []
    said = [
        f"{plural(count, 'communication kernel')} left out: {label(why, 200)}"
        for why, count in reasons[:_MOST]
    ]
    others = sum(count for _, count in reasons[_MOST:])
    return said + [f"{plural(others, 'communication kernel')} left out for other reasons"] * (
        others > 0
    )
