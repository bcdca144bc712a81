"""Make: one job in traces, power, failure and step logs."""
