"""Campaigns: what is injected, how it runs, what is kept."""
