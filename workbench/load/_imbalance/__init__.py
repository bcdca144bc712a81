"""Load: loads that are unequal."""
