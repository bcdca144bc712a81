"""Analyze: fault injection and vulnerability factors."""
