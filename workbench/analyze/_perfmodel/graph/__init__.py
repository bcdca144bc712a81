"""Execution graphs: points, edges and the rules they follow."""
