"""PyTorch execution traces: nodes, tensors and calls of operators."""
