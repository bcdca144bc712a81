"""Load, analyse, plot and explore how large AI training jobs behave.

The package is used in this order in every notebook::

    from workbench import load, analyze, plot, explore
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("ai-infra-workbench")
except PackageNotFoundError:  # a plain checkout, not installed
    __version__ = "0+unknown"
