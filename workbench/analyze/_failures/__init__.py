"""Analyze: failures and goodput."""
