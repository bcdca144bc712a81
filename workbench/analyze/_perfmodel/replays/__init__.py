"""Questions put to a replay: what if, critical path, fidelity."""
