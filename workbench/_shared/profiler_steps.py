"""Which rows of a trace mark the steps of training; one rule for loaders, analyses and figures."""

from __future__ import annotations

import re

# Categories of the host: profilers of 2021 wrote steps as operators. What repeats a step on the
# GPU (gpu_user_annotation) is not a step of the host.
STEP_CATEGORIES = frozenset({"user_annotation", "cpu_op"})
_NAME = re.compile(r"ProfilerStep\s*#\s*(\d+)$")
_MOST_DIGITS = 9


def is_step_name(name: str) -> bool:
    return name.startswith("ProfilerStep") and _NAME.match(name) is not None


def step_number(name: str) -> int | None:
    """Return the number of the step that rows of this name mark; None if none that is usable."""
    match = _NAME.match(name) if name.startswith("ProfilerStep") else None
    return int(match[1]) if match and len(match[1]) <= _MOST_DIGITS else None
