"""Seed or model in, tables out: what analyses and notebooks draw when they run."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
