"""Simulate: communication between GPUs, nodes and regions."""
