"""A real browser that reaches nothing outside this machine, and real notebooks to show it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page

from workbench import share

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
_LOCAL = ("file:", "data:", "blob:", "about:", "http://127.0.0.1:", "ws://127.0.0.1:")


@pytest.fixture(scope="session")
def opened(browser):
    """Give a context manager that opens a page and fails on whatever a reader would suffer from.

    That is: a request to another machine, an error in a script, a dialog.
    """

    @contextmanager
    def open_page(address: str, *, scripts: bool = True, policy: bool = True) -> Iterator[Page]:
        context = browser.new_context(
            viewport={"width": 1280, "height": 900}, java_script_enabled=scripts
        )
        outside, troubles = [], []

        def watch(route):
            if route.request.url.startswith(_LOCAL):
                route.continue_()
            else:
                outside.append(route.request.url)
                route.abort()

        context.route("**/*", watch)
        page = context.new_page()
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: (troubles.append(dialog.message), dialog.dismiss()))
        page.goto(address)
        yield page
        context.close()
        assert troubles == []
        if policy:
            assert outside == []

    return open_page


@pytest.fixture(scope="session")
def notebooks():
    """Give the notebooks of the product."""
    found = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
    assert found, f"no notebooks in {NOTEBOOKS}"
    return found


@pytest.fixture(scope="session")
def site(notebooks, tmp_path_factory, browser):
    """Write the report of all notebooks, on the best data available.

    The whole check may have written one already, and says so: a minute less to wait.
    """
    written = Path(os.environ.get("WORKBENCH_REPORT", "absent"))
    if all((written / f"{notebook.stem}.html").is_file() for notebook in notebooks):
        return written.absolute()
    out = tmp_path_factory.mktemp("report") / "site"
    return share.report(notebooks, out=out, progress=False).parent
