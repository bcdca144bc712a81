"""Dumps of the NCCL flight recorder."""
