"""Ground floor: small rules and helpers that several verbs share, below all of them."""
