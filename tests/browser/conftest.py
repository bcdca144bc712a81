"""A real browser that reaches nothing outside this machine, and real notebooks to show it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page

from workbench import share
from workbench.share import _execute

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
_LOCAL = ("file:", "data:", "blob:", "about:", "http://127.0.0.1:", "ws://127.0.0.1:")


@pytest.fixture(scope="session")
def opened(browser):
    """Give a context manager that opens a page and fails on whatever a reader would suffer from.

    That is: a request to another machine, an error in a script, a dialog.
    """

    @contextmanager
    def open_page(
        address: str, *, scripts: bool = True, policy: bool = True, known: str = "nothing"
    ) -> Iterator[Page]:
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
        assert [trouble for trouble in troubles if known not in trouble] == []
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
def site(notebooks, runs, tmp_path_factory, browser):
    """Write the report of all notebooks, on the best data available."""

    def run(notebook, path, **_):
        notebook.update(runs.published(path))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_execute, "execute", run)
        out = tmp_path_factory.mktemp("report") / "site"
        return share.report(notebooks, out=out, progress=False).parent
