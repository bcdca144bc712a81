"""Plot: power and energy."""
