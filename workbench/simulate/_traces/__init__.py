"""Simulate: traces of GPU work."""
