"""What a launch usually takes from its call to the work."""

from __future__ import annotations

import numpy as np

from workbench.analyze._rows import Ints


def usual_latency(delay: Ints, *, fewest: int, longest_ns: int, default_ns: int) -> int:
    """Give the median of some delays [ns].

    Longer ones than `longest_ns` have another cause than the launch, and fewer than `fewest`
    tell nothing: then it is `default_ns`.
    """
    told = delay[(delay >= 0) & (delay <= longest_ns)]
    return int(np.median(told)) if len(told) >= max(fewest, 1) else default_ns
