"""The performance model: replay a training step, ask it what if, predict what was never run."""
