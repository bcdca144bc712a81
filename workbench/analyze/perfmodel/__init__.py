"""What a training iteration would take: kernels, collectives, graphs and configurations."""
