"""Load: power and energy."""
