"""Imported before every explorer, so that the lack of widgets is told with its remedy."""

from workbench._shared.extras import need

need("ipywidgets", extra="lab", purpose="moving controls")
