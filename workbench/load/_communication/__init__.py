"""Load: communication between GPUs, nodes and regions."""
