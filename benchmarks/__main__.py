"""Run every benchmark."""

import sys

from benchmarks import failures, imbalance, traces

if __name__ == "__main__":
    sys.exit(failures.main([]) or imbalance.main([]) or traces.main())
