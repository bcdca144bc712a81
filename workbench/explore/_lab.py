"""Imported before every explorer, so that missing widgets are reported with the remedy."""

from workbench._shared.extras import need

need("ipywidgets", extra="lab", purpose="moving controls")
