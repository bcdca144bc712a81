"""Sample power and clocks while a command runs, and keep how they were sampled."""

from workbench.record.recording import Recording, record

__all__ = ["Recording", "record"]
