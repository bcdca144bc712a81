"""Make: memory snapshots."""
