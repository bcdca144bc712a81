"""Analyze: communication at scale."""
