"""Results of fault injection that stay as they are, and when they are enough."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from typing import Any

import pandas as pd

from workbench.tables import Injections


class FixedInjections(Injections):
    """Results that nobody changes any more: what every estimate needs of them is made once."""

    @classmethod
    def of(cls, injections: Any) -> Any:
        """Fix the results of a campaign; the truth of every fault stays what it is."""
        if type(injections) is not Injections:
            return injections
        return cls(*(getattr(injections, field.name) for field in fields(injections)))

    @cached_property
    def made(self) -> dict[str, Any]:
        """What estimates made of the results, by name."""
        return {}


def is_enough(looks: pd.DataFrame, relative_error: float) -> pd.Series:
    """Return at which looks half of the interval is less than this share of the estimate."""
    half = (looks["high"] - looks["low"]) / 2
    return (looks["pvf"] > 0) & (half < relative_error * looks["pvf"])
