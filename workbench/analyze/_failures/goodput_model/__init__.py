"""Goodput: the model, its replay, checkpoints and spare nodes."""
