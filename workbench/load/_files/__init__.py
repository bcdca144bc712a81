"""Code shared by all readers: archives, streams, times, tables and findings."""
