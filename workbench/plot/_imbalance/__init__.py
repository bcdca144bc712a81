"""Plot: loads that are unequal."""
