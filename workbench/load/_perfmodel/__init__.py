"""Load: execution graphs, replay and models of time."""
