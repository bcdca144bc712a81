"""Turn tables into tables: pure functions, no files, no figures."""
