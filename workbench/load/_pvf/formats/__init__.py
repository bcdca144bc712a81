"""Formats: one file, or one folder, per tool or log."""
