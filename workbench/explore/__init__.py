"""Widgets around one analysis and one figure each; the only code that knows ipywidgets.

Every explorer takes ``source``, the origin of the data, which is printed under its figure, and
``synthetic``, whether the data were generated, which the figure says.
"""

import lazy_loader

from workbench._shared.extras import need

need("ipywidgets", extra="lab", purpose="moving controls")
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
