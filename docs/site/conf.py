"""Sphinx settings of the documentation site; ``docs/build.py`` copies this beside the pages."""

import os
import re

from workbench import __version__

project = "workbench"
version_name = os.environ.get("WORKBENCH_DOCS_VERSION")
release = version = version_name or __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
exclude_patterns = ["site"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
# The pages are written for a repository too, where some sections begin below the first level,
# and where some languages of code blocks are names that only a reader knows.
suppress_warnings = ["myst.header", "misc.highlighting_failure"]

add_module_names = False
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

highlight_language = "none"

html_theme = "pydata_sphinx_theme"
html_title = "workbench"
html_static_path = ["_static"]
html_extra_path = ["_extra"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sourcelink = False
# Summaries are fetched from other pages, which browsers refuse where pages are files.
html_show_search_summary = False
html_theme_options = {
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_toc_level": 1,
    "header_links_before_dropdown": 9,
    "navigation_with_keys": False,
}
# Beside the sites of other versions, which docs/versions.py lists. A site alone is read as files,
# where a browser refuses to fetch the list.
if version_name:
    html_theme_options |= {
        "switcher": {"json_url": "../switcher.json", "version_match": version_name},
        "check_switcher": False,
        "navbar_start": ["navbar-logo", "version-switcher"],
        "show_version_warning_banner": True,
    }
# These pages belong to no section whose pages a sidebar could list.
html_sidebars = {name: [] for name in ("tutorial", "how_to", "notebooks", "glossary", "search")}
html_context = {"default_mode": "auto"}
copyright = "the workbench authors, MIT license"  # noqa: A001


def _without_lists(app, page, template, context, doctree):  # noqa: ARG001
    """Write parameters of long signatures as lines: Sphinx makes lists of terms without a term."""

    def lines(signature):
        text = re.sub(r"<d[ld]>", '<span class="wb-line">', signature[0])
        return re.sub(r"</d[ld]>", "</span>", text)

    context["body"] = re.sub(
        r"<dl>\s*<dd><em class=\"sig-param.*?</dl>", lines, context.get("body", ""), flags=re.DOTALL
    )


def setup(app):
    """Connect what mends pages to the events of Sphinx."""
    app.connect("html-page-context", _without_lists)
