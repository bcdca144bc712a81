"""Plot: failures and goodput."""
