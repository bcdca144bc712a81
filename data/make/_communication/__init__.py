"""Make: embedding outputs."""
