"""Turn figures and notebooks into pages that others can read.

==============================  ==========================================
:func:`bundle`, :func:`show`    what a figure carries for every reader
:func:`svg_of`                  the picture of a figure
:func:`publish`                 a notebook as committed, byte-stable
:func:`report`                  an offline static site from notebooks
==============================  ==========================================
"""

from workbench.share.bundle import bundle, show
from workbench.share.publish import publish
from workbench.share.report import report
from workbench.share.svg import svg_of

__all__ = ["bundle", "publish", "report", "show", "svg_of"]
