"""Protections and detectors: what stands between a fault and the output."""
