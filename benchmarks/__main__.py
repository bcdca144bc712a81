"""Run every benchmark."""

import sys

from benchmarks import checksums, failures, goodput, imbalance, low_precision, traces

if __name__ == "__main__":
    mains = (failures.main, goodput.main, imbalance.main, checksums.main, low_precision.main)
    sys.exit(max(main([]) for main in mains) or traces.main())
