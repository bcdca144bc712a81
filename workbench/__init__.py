"""Load, analyse, plot and explore how large AI training jobs behave.

The package is used in this order in every notebook::

    from workbench import load, analyze, plot, explore
"""

from typing import TYPE_CHECKING

# Metadata of packages take as long to import as all that is needed for a small load.
if TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name: str) -> str:
        if name != "__version__":
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("ai-infra-workbench")
        except PackageNotFoundError:  # a plain checkout, not installed
            return "0+unknown"
