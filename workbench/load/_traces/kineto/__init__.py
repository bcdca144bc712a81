"""Kineto traces: the scanner, and the tables of one rank."""
