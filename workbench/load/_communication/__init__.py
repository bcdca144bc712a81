"""Load: communication at scale."""
