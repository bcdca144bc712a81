"""Analyze: power and energy."""
