"""Chakra execution traces: JSON and protobuf, read and written."""
