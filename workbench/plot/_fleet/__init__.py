"""Plot: the joined view of steps, incidents, power and traces."""
