"""Jobs recorded operation by operation: replayed, changed and predicted."""
