"""ROCm profiler files: JSON of rocprofv3 and the rocpd database."""
