"""Power of made clusters."""
