"""Plot: profiler and execution traces."""
