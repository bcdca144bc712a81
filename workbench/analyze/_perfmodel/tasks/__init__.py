"""Graphs of tasks: execution traces, Chakra nodes and measured times."""
