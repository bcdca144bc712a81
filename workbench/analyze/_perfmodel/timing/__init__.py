"""When every point of a graph comes: longest paths and replay."""
