"""Exports of NVIDIA Nsight Systems."""
