"""Hangs: where every rank stands, and whom the others wait for."""
