"""Models of an iteration by layout, shape and kind of GPU."""
