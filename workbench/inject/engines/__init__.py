"""Engines: faulty runs, each as short as it can be."""
