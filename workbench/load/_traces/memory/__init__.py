"""Actions of the memory allocator: PyTorch snapshots, and memory events of profiles."""
