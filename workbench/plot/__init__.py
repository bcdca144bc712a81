"""Turn tables into plotly figures: one function per picture, nothing is computed here."""

import lazy_loader

from workbench._shared.extras import need

need("plotly", extra="plot", purpose="drawing figures")
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
