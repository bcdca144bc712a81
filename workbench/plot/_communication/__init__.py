"""Plot: communication at scale."""
