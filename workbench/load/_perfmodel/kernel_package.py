"""Where the measured kernel times of NVIDIA's aiconfigurator lie, if it is installed."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

from workbench.errors import LoadError, MissingExtraError

PACKAGE = "aiconfigurator-core"
_FOLDER = "aiconfigurator_core/systems/data"
_MISSING = (
    f"measured kernel times come with {PACKAGE}, which is not installed; "
    "pip install 'ai-infra-workbench[kernels]' (or pass a file of your own)"
)


def gpus() -> dict[str, Path]:
    """Give the folder of every GPU in the installed package, by the name of the GPU."""
    try:
        found = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError as error:
        raise MissingExtraError(_MISSING) from error
    # Never imported: its import loads an engine that only its own predictions need.
    folder = Path(str(found.locate_file(_FOLDER)))
    if not folder.is_dir():
        msg = f"{PACKAGE} {found.version} has no folder {_FOLDER}; install 0.12 or a later 0.x"
        raise LoadError(msg)
    return {gpu_name(each.name): each for each in sorted(folder.iterdir()) if each.is_dir()}


def gpu_name(folder: str) -> str:
    """Call a GPU as the hardware table does: h100_sxm is the H100."""
    short = folder.removesuffix("_sxm")
    return short.upper() if re.fullmatch(r"[a-z]{1,2}\d+[a-z]?", short) else folder


def newest(folder: Path, version: str | None, file: str) -> Path:
    """Give the file of one version under a folder; the newest version if none is named."""
    versions = sorted(
        (each.name for each in folder.iterdir() if (each / file).is_file())
        if folder.is_dir()
        else (),
        key=_order,
    )
    if not versions or (version is not None and version not in versions):
        msg = f"{folder}: no version {version or ''} with {file}; there are {versions or 'none'}"
        raise LoadError(msg)
    return folder / (version or versions[-1]) / file


def _order(version: str) -> list[tuple[int, str]]:
    parts = re.findall(r"\d+|[a-z]+", version)
    # A release stands above its candidates and below what was mended after it.
    numbers = [(int(each), "") if each.isdigit() else (-(each != "post"), each) for each in parts]
    return [*numbers, (0, "")]


def described(file: Path) -> str:
    """Name a file of the package, with the package's version."""
    inside = file.as_posix().partition("aiconfigurator_core/")[2]
    return f"{PACKAGE} {metadata.version(PACKAGE)}, {inside}"
