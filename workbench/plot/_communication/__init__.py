"""Plot: communication between GPUs, nodes and regions."""
