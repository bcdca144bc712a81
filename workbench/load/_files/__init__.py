"""What every reader shares: archives, streams, times, tables and findings."""
