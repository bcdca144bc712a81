"""Data sets by name: bundled ones, and public ones downloaded or mirrored.

Notebooks, tests and examples say ``datasets.path("kineto-dlrm-8rank")`` and get
a folder whose files have the expected checksums. Where they come from is looked
for in this order: the sets bundled with the package, the mirror folder named by
the environment variable :data:`MIRROR_ENV` (``<mirror>/<dataset>/<file>``), the
cache folder (:data:`CACHE_ENV`, by default the user's own), the network.
"""

from workbench.datasets._catalogue import (
    CACHE_ENV,
    MIRROR_ENV,
    best,
    choose,
    describe,
    names,
    verify,
)
from workbench.datasets._fetch import fetch, path

__all__ = [
    "CACHE_ENV",
    "MIRROR_ENV",
    "best",
    "choose",
    "describe",
    "fetch",
    "names",
    "path",
    "verify",
]
