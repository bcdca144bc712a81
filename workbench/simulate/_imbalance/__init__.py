"""Simulate: loads that are unequal."""
