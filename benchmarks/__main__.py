"""Run every benchmark."""

import sys

from benchmarks import imbalance, traces

if __name__ == "__main__":
    sys.exit(imbalance.main([]) or traces.main())
