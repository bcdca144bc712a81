"""Predictions from execution graphs, kernel times and configurations."""
