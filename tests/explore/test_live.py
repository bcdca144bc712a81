"""An explorer at work in the background: it grows, stops, goes on, and tells what went wrong."""

import threading

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go
import pytest

from workbench.errors import MissingExtraError
from workbench.explore.live import LiveExplorer
from workbench.explore.static import static_html


def picture(*, found, wanted):
    return go.Figure(layout_title_text=f"{sum(map(len, found))} sites, wanted {wanted}")


def chunk(rows=10):
    return pd.DataFrame({"exp_id": range(rows)})


@pytest.fixture
def explore_live():
    """Make explorers that are closed at the end, whatever happens."""
    made = []

    def make(chunks, **options):
        control = widgets.Dropdown(options=[5, 10], description="wanted")
        made.append(LiveExplorer(picture, chunks, wanted=control, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def clicked(explorer):
    explorer.inject.click()
    explorer.thread.join()
    return explorer


def test_nothing_is_injected_before_the_button_is_pressed(explore_live, title):
    asked = []
    explorer = explore_live(lambda: asked.append(1) or iter([]))
    assert title(explorer) == "0 sites, wanted 5"
    assert explorer.progress.value == "nothing injected yet"
    assert not asked
    assert explorer.thread is None


def test_the_figure_grows_with_every_chunk(explore_live, title):
    seen = []

    def chunks():
        for _ in range(3):
            seen.append(title(explorer))
            yield chunk()

    explorer = explore_live(chunks, total_count=30)
    clicked(explorer)
    assert seen == [f"{n} sites, wanted 5" for n in (0, 10, 20)]
    assert title(explorer) == "30 sites, wanted 5"
    assert explorer.progress.value == "all of 30 sites"
    assert not explorer.inject.disabled
    assert explorer.stop.disabled


def test_stop_ends_it_within_one_chunk_and_inject_goes_on(explore_live, title):
    given = []

    def chunks():
        for number in range(4):
            given.append(number)
            if number == 1:
                explorer.stop.click()
            yield chunk()

    explorer = explore_live(chunks, total_count=40)
    clicked(explorer)
    assert given == [0, 1]
    assert explorer.progress.value == "stopped at 20 of 40 sites"
    assert title(explorer) == "20 sites, wanted 5"
    clicked(explorer)
    assert given == [0, 1, 2, 3]
    assert title(explorer) == "40 sites, wanted 5"


def test_after_the_end_inject_begins_anew(explore_live, title):
    explorer = explore_live(lambda: iter([chunk(), chunk()]))
    clicked(explorer)
    clicked(explorer)
    assert title(explorer) == "20 sites, wanted 5"


def test_a_second_click_changes_nothing_while_it_runs(explore_live):
    go_on, arrived = threading.Event(), threading.Event()

    def chunks():
        arrived.set()
        go_on.wait()
        yield chunk()

    explorer = explore_live(chunks)
    explorer.inject.click()
    thread = explorer.thread
    arrived.wait()
    assert explorer.is_running()
    assert explorer.inject.disabled
    explorer.inject.click()
    assert explorer.thread is thread
    explorer.controls["wanted"].value = 10
    go_on.set()
    thread.join()
    assert explorer.figure().layout.title.text == "10 sites, wanted 10"


def test_closing_leaves_no_thread(explore_live):
    def chunks():
        while True:
            yield chunk()

    explorer = explore_live(chunks)
    explorer.inject.click()
    explorer.close()
    assert not explorer.is_running()
    assert "injecting" not in {thread.name for thread in threading.enumerate()}


def test_only_one_explorer_injects_at_a_time(explore_live):
    def chunks():
        while True:
            yield chunk()

    first, second = explore_live(chunks), explore_live(lambda: iter([chunk()]))
    first.inject.click()
    clicked(second)
    assert not first.is_running()
    assert first.progress.value.startswith("stopped at")


def test_without_the_package_the_first_picture_stays_and_the_way_to_get_it_is_told(
    explore_live, title
):
    def chunks():
        msg = "injecting faults needs PyTorch; pip install 'package[inject]'"
        raise MissingExtraError(msg)
        yield

    explorer = clicked(explore_live(chunks))
    assert "pip install" in explorer.message.value
    assert title(explorer) == "0 sites, wanted 5"
    assert not explorer.inject.disabled


def test_a_mistake_in_the_thread_is_shown_and_what_was_found_stays(explore_live, title):
    def chunks():
        yield chunk()
        msg = "<oops>"
        raise KeyError(msg)

    explorer = clicked(explore_live(chunks))
    assert explorer.message.value == "<b>Not possible:</b> KeyError: &#x27;&lt;oops&gt;&#x27;"
    assert explorer.progress.value == "ended by an error after 10 sites"
    assert title(explorer) == "10 sites, wanted 5"


def test_a_page_without_a_kernel_has_the_picture_and_no_buttons(explore_live):
    page = static_html(explore_live(lambda: iter([])))
    assert "0 sites, wanted 10" in page
    assert "<button" not in page
