"""Code shared by all figures: colours, words, bars, lanes and sampling."""

from workbench.plot._style import style

__all__ = ["style"]
