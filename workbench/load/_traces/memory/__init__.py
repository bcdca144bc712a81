"""What the memory allocator did: PyTorch memory snapshots, and memory events of profiles."""
