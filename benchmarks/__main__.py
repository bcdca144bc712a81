"""Run every benchmark."""

import sys

from benchmarks import (
    checksums,
    failures,
    goodput,
    imbalance,
    injections,
    low_precision,
    replay,
    traces,
)

if __name__ == "__main__":
    parts = (failures, goodput, imbalance, checksums, low_precision, injections, replay)
    sys.exit(max(part.main([]) for part in parts) or traces.main())
