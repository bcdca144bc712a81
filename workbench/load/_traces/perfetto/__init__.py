"""Perfetto traces in protobuf (``.pftrace``)."""
