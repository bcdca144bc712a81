"""Mathematics that several domains share."""

from workbench.analyze._lib import intervals

__all__ = ["intervals"]
