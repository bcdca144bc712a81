"""Analyze: profiler and execution traces."""
