"""Models of the time of kernels and collectives."""
