"""The documentation site as its reader meets it: wide and narrow, light and dark, without network."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

WIDTHS = (1280, 390)


def addresses(site):
    return sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)


def test_every_page_opens_without_error_and_fits_its_window(docs_site, opened):
    # Pages of notebooks are as in the report, which has tests of its own.
    paths = [path for path in addresses(docs_site) if path.parent.name != "notebooks"]
    troubles = []

    def note(said):
        if said.type == "error":
            troubles.append((page.url, said.text))

    with opened("about:blank") as page:
        page.on("console", note)
        for path in paths:
            page.goto(path.as_uri())
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                if page.evaluate("document.documentElement.scrollWidth") > width:
                    troubles.append((path.name, f"is wider than {width} px"))
    assert troubles == []


def test_every_figure_of_the_gallery_is_drawn(docs_site, opened):
    pages = [path for path in addresses(docs_site) if path.parent.name == "gallery"]
    for path in pages:
        with opened(path.as_uri()) as page:
            for figure in page.locator(".wb-figure").all():
                figure.scroll_into_view_if_needed()
                figure.locator(".main-svg").first.wait_for(timeout=20_000)
            assert page.locator(".wb-figure:not(.wb-drawn)").count() == 0


def test_search_finds_a_word_of_the_glossary(docs_site, opened):
    with opened((docs_site / "search.html").as_uri() + "?q=ETTR") as page:
        # Results come one after the other.
        glossary = page.locator("#search-results li a", has_text="Glossary")
        glossary.first.wait_for(timeout=20_000)
