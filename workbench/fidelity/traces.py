"""Claims about traces."""
