"""Tables of power that people keep themselves."""
