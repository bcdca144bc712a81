"""The picture of a figure as SVG, the same bytes on every run."""

from __future__ import annotations

import atexit
import copy
import functools
import hashlib
import logging
import os
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

from workbench.share._execute import LoopThread
from workbench.share.bundle import figure_json, key_of

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_PLACES = (
    "/usr/bin/chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "C:/Program Files/Google/Chrome/Application/chrome.exe",
)
_WIDTH_PX, _HEIGHT_PX = 900, 450
_TIMEOUT_S = 90.0


def svg_of(figure: Any) -> str | None:
    """Draw a figure as SVG.

    One browser is started for the first figure and serves all others until the
    process ends. Equal figures give equal bytes: the random names that plotly.js
    puts into a picture are replaced by ones derived from the figure.

    Parameters
    ----------
    figure
        A plotly figure, or its JSON as a dictionary; it is not changed.

    Returns
    -------
    str or None
        The picture, or None where none can be drawn because kaleido or a
        browser is missing; one warning says which and what to install.

    Raises
    ------
    RuntimeError
        If the browser refuses this figure.

    Notes
    -----
    plotly.js uses two kinds of random names, six hexadecimal digits each: one
    for the page and one for every trace. Trace names are set before drawing,
    the page name is replaced afterwards.
    """
    # The caller's figure stays as it is: names are set below.
    plain = copy.deepcopy(figure_json(figure))
    key = key_of(plain)
    for number, trace in enumerate(plain.get("data") or []):
        name = hashlib.sha1(f"{key}{number}".encode(), usedforsecurity=False)
        trace["uid"] = name.hexdigest()[:6]
    browser = _browser()
    if browser is None:
        return None
    return _with_fixed_names(browser.draw(plain, _size(plain)), key)


def find_chrome() -> str | None:
    """Find a Chrome or Chromium: ``BROWSER_PATH``, the search path, the usual places."""
    if chosen := os.environ.get("BROWSER_PATH"):
        return chosen if os.access(chosen, os.X_OK) else None
    for name in _BROWSERS:
        if program := shutil.which(name):
            return program
    return next((candidate for candidate in _PLACES if os.access(candidate, os.X_OK)), None)


def why_no_pictures() -> str:
    """Describe what is missing for pictures and how to get it; empty if nothing is."""
    try:
        import kaleido  # noqa: F401
    except ImportError:
        return "kaleido is not installed; run: pip install 'ai-infra-workbench[snapshot]'"
    if find_chrome():
        return ""
    if chosen := os.environ.get("BROWSER_PATH"):
        return f"BROWSER_PATH names {chosen}, which is not a program; correct it or unset it"
    return (
        "no Chrome or Chromium was found; install one (Debian: apt install chromium), "
        "run kaleido_get_chrome, or set BROWSER_PATH to its program"
    )


class _Browser:
    def __init__(self, program: str) -> None:
        import kaleido

        # A message that the end of the browser cuts in two is logged with a traceback and ignored;
        # an answer that really lacks ends in a timeout of ours.
        logging.getLogger("choreographer.channels").setLevel(logging.CRITICAL)
        # Without mathjax=False every page would ask a public server for it.
        page = kaleido.PageGenerator(mathjax=False)
        self._kaleido = kaleido.Kaleido(path=program, page_generator=page)
        self._loop = LoopThread()
        try:
            self._loop.wait(self._kaleido.open(), _TIMEOUT_S)
        except BaseException:
            self._loop.close()
            raise
        atexit.register(self.close)

    def draw(self, figure: dict[str, Any], size: dict[str, int]) -> str:
        work = self._kaleido.calc_fig(figure, opts={"format": "svg", **size})
        picture: bytes = self._loop.wait(work, _TIMEOUT_S)
        return picture.decode()

    def close(self) -> None:
        atexit.unregister(self.close)
        self._loop.wait(self._kaleido.close(), _TIMEOUT_S)
        self._loop.close()


@functools.cache
def _browser() -> _Browser | None:
    """Start the browser once; a failure is reported once and remembered."""
    missing = why_no_pictures()
    if not missing:
        program = str(find_chrome())
        try:
            return _Browser(program)
        except (OSError, RuntimeError, TimeoutError, ValueError) as error:
            reason = str(error) or type(error).__name__
            missing = f"{Path(program).name} does not start ({reason})"
    warnings.warn(f"figures get no pictures: {missing}", UserWarning, stacklevel=3)
    return None


def _size(figure: dict[str, Any]) -> dict[str, int]:
    layout = figure.get("layout") or {}
    return {
        "width": int(layout.get("width") or _WIDTH_PX),
        "height": int(layout.get("height") or _HEIGHT_PX),
    }


def _with_fixed_names(svg: str, key: str) -> str:
    page = re.search(r'id="(?:top)?defs-([0-9a-f]{6})"', svg)
    if page is None:
        return svg
    return re.sub(rf"\b((?:top)?defs-|clip|legend|g|p){page[1]}", rf"\g<1>{key[:6]}", svg)
