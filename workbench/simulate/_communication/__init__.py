"""Simulate: communication at scale."""
