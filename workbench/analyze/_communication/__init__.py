"""Analyze: communication between GPUs, nodes and regions."""
