"""Profiles of JAX, TensorFlow and PyTorch/XLA: XPlane, and the JSON made of it."""
