"""Power as Prometheus keeps it and exporters serve it."""
