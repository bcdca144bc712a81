"""Make: loads that are unequal."""
