"""Analyze: loads that are unequal."""
