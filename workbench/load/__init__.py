"""Read files into tables: one module per format behind a few front doors."""
