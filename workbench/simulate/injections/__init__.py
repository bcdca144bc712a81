"""Fault injection into PyTorch models; the only folder that knows torch."""
