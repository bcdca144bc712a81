"""Turn figures and notebooks into pages that others can read.

==============================  ==========================================
:func:`bundle`, :func:`show`    what a figure carries for every reader
:func:`svg_of`                  the picture of a figure
:func:`publish`                 a notebook as committed, byte-stable
:func:`report`                  an offline static site from notebooks
:func:`pack`                    a report in one file and as a zip, with names replaced if asked
:func:`write_names`             the names in the data of a report, for :func:`pack`
:class:`Overview`               the first page of such a site, from :class:`PageFacts`
:func:`for_own_data`            a notebook without the text about other data
==============================  ==========================================
"""

from workbench.share._prose import for_own_data
from workbench.share.bundle import bundle, show
from workbench.share.pack import Packed, pack, write_names
from workbench.share.publish import publish
from workbench.share.report import Overview, PageFacts, report
from workbench.share.svg import svg_of

__all__ = [
    "Overview",
    "Packed",
    "PageFacts",
    "bundle",
    "for_own_data",
    "pack",
    "publish",
    "report",
    "show",
    "svg_of",
    "write_names",
]
