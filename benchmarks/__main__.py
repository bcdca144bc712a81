"""Run every benchmark."""

import sys

from benchmarks.traces import main

if __name__ == "__main__":
    sys.exit(main())
