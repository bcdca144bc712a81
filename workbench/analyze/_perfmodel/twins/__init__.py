"""Statistical twins: the profile of a trace, and how like it another trace is."""
