"""Load: fault injection and vulnerability factors."""
