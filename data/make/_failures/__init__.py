"""Make: jobs that fail or hang."""
