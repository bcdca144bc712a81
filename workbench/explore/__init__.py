"""Widgets around one analysis and one figure each; the only code that knows ipywidgets."""

import lazy_loader

from workbench._shared.extras import need

need("ipywidgets", extra="lab", purpose="moving controls")
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
