"""Mathematics that several domains share."""
