"""Run every benchmark."""

import sys

from benchmarks import failures, goodput, imbalance, traces

if __name__ == "__main__":
    sys.exit(failures.main([]) or goodput.main([]) or imbalance.main([]) or traces.main())
