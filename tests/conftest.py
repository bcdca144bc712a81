"""Real data for the tests: from a mirror next to the clone, or the download cache."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench import datasets
from workbench.share.svg import find_chrome, why_no_pictures

_MIRROR = Path(__file__).resolve().parents[2] / "shared" / "data"
if _MIRROR.is_dir():
    os.environ.setdefault(datasets.MIRROR_ENV, str(_MIRROR))
_CHROME_FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """Give the folder of a public data set; skip the test where it is not at hand.

    Under continuous integration (the variable ``CI`` is set) an absent set fails
    the test instead, so that a missing download can never look like a success.
    """

    def folder(name: str) -> Path:
        if datasets.describe().set_index("dataset").loc[name, "place"] != "not at hand":
            return datasets.path(name)
        reason = (
            f"the public data set {name!r} is not at hand; get it with "
            f"`workbench datasets fetch {name}` or point {datasets.MIRROR_ENV} at a copy"
        )
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)

    return folder


@pytest.fixture(scope="session")
def dlrm(real_data: Callable[[str], Path]) -> Path:
    """Give the Kineto traces of a real 8-rank DLRM job (one archive)."""
    return real_data("kineto-dlrm-8rank") / "dlrm_kineto.tar.gz"


@pytest.fixture(scope="session")
def fleet_demo() -> Path:
    """Give the bundled synthetic job."""
    return datasets.path("fleet-demo")


@pytest.fixture(scope="session")
def failures_demo() -> Path:
    """Give the bundled synthetic logs of a job whose nodes fail."""
    return datasets.path("failures-demo")


@pytest.fixture(scope="session")
def imbalance_demo() -> Path:
    """Give the bundled synthetic data on imbalance."""
    return datasets.path("imbalance-demo")


@pytest.fixture(scope="session")
def browser():
    """Start Chromium, once: a process can hold one Playwright only.

    Under continuous integration its absence is a failure.
    """
    if reason := why_no_pictures():
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = _CHROME_FLAGS.split()
        started = playwright.chromium.launch(executable_path=find_chrome(), args=flags)
        yield started
        started.close()
