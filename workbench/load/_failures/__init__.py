"""Load: failures and goodput."""
