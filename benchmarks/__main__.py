"""Run every benchmark."""

import sys

from benchmarks import failures, goodput, imbalance, injections, traces

if __name__ == "__main__":
    sys.exit(
        failures.main([])
        or goodput.main([])
        or imbalance.main([])
        or injections.main([])
        or traces.main()
    )
