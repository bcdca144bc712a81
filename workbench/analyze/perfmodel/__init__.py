"""Performance models: how long a training iteration takes, and would take."""
