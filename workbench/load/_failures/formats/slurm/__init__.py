"""Slurm's accounting: records, jobs and states."""
