"""Designs: which bits are hit, and what becomes of them."""
