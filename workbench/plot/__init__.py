"""Turn tables into plotly figures: one function per picture, nothing is computed here.

Every function takes ``source``, the origin of the data, which is printed under the figure, and
``synthetic``, whether the data were generated, which the figure says. Each is shown in the gallery.
"""

import lazy_loader

from workbench._shared.extras import need

need("plotly", extra="plot", purpose="drawing figures")
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
