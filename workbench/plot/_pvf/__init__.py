"""Plot: fault injection and vulnerability factors."""
