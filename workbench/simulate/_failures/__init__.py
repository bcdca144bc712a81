"""Simulate: failures and goodput."""
