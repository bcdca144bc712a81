"""Load: profiler and execution traces."""
