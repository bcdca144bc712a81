"""Put ``_site/`` beside the sites of other versions: ``python docs/versions.py FOLDER VERSION``.

The folder, which is published as it is, then holds each version in a folder of its own, the list
that the sites show (``switcher.json``), and a page that leads to the newest release.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from pathlib import Path

from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
# What a branch or tag may be called that becomes a folder.
NAME = re.compile(r"main|v\d+(?:\.\d+)*(?:(?:a|b|rc)\d+)?")


def put(site: Path, folder: Path, version: str, *, base: str) -> None:
    """Replace one version in the folder, and list all of them.

    Parameters
    ----------
    site
        The site of this version.
    folder
        The sites of all versions; made if it is absent.
    version
        ``main``, or a tag such as ``v1.2.0``.
    base
        Path of the folder on its host, such as ``/workbench/``.
    """
    if not NAME.fullmatch(version):
        msg = f"{version!r} is no version; expected main, or a tag such as v1.2.0"
        raise SystemExit(msg)
    if not (site / "searchindex.js").is_file():
        msg = f"{site} holds no site; build it with: python docs/build.py --version {version}"
        raise SystemExit(msg)
    shutil.rmtree(folder / version, ignore_errors=True)
    # What Sphinx keeps for a next build is hidden, and no page.
    shutil.copytree(site, folder / version, ignore=shutil.ignore_patterns(".*"))
    names = [path.name for path in folder.iterdir() if NAME.fullmatch(path.name)]
    (folder / "switcher.json").write_text(json.dumps(listed(names, base), indent=1) + "\n")
    (folder / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>workbench</title>'
        f'<meta http-equiv="refresh" content="0; url={preferred(names)}/">'
        f'<a href="{preferred(names)}/">Documentation of the workbench</a>\n'
    )
    # GitHub would leave out folders such as _static.
    (folder / ".nojekyll").touch()


def listed(names: list[str], base: str) -> list[dict[str, object]]:
    """List versions for the theme: what is in development, then releases from the newest on."""
    names = sorted(names, key=_order, reverse=True)
    return [
        {
            "version": name,
            "url": f"{base.rstrip('/')}/{name}/",
            "preferred": name == preferred(names),
        }
        for name in names
    ]


def preferred(names: list[str]) -> str:
    """Choose the newest release; without one, whatever is newest."""
    releases = [name for name in names if name != "main" and not Version(name).is_prerelease]
    return max(releases or names, key=_order)


def _order(name: str) -> Version:
    return Version("9999") if name == "main" else Version(name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("version")
    parser.add_argument("--base", default="/", help="path of the folder on its host")
    given = parser.parse_args()
    put(ROOT / "_site", given.folder, given.version, base=given.base)
