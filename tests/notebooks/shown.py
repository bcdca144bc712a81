"""What a page shows to its reader as text, and the numbers in it that belong to one data set."""

import ast
import html
import re

from workbench.errors import WorkbenchError
from workbench.share import _prose
from workbench.share.bundle import PLOTLY_MIME

# A number of three digits or more, with the word after it: two data sets share one by rare chance.
_MARK = re.compile(r"(?<![\w.,:/-])(\d[\d,]*(?:\.\d+)?)(?![\w:/-]|\.\d)\s*([%\w]+)?")
_TAG = re.compile(r"<style.*?</style>|<[^>]*>", re.DOTALL)


def sections(notebook):
    """Go through the cells, with whether each lies in a section that no data changes."""
    is_case = False
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            is_case = _prose.PUBLISHED_CASE in tags
        yield cell, is_case or _prose.PUBLISHED_CASE in tags


def values_on(notebook, place, options):
    """Run the cells that take one's own data as a report does; give the values they show."""
    names = {}
    for cell, is_case in sections(notebook):
        if cell.cell_type != "code" or is_case:
            continue
        *before, last = ast.parse(cell.source).body
        if "parameters" in cell.metadata.get("tags", []):
            exec(cell.source, names)
            names |= {"data": str(place), **options}
            continue
        try:
            exec(compile(ast.Module(before, []), "cell", "exec"), names)
            yield eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        except (WorkbenchError, NameError) as error:
            # The page says why this step could not be computed, and goes on.
            yield error


def figure_of(value):
    """Give the figure that a value shows as JSON, None if it shows none."""
    figure = value.figure() if hasattr(value, "controls") else value
    return figure.to_plotly_json() if hasattr(figure, "to_plotly_json") else None


def text_of_figure(figure):
    """Give title, subtitle and notes of a figure."""
    layout = figure.get("layout", {})
    title = layout.get("title") or {}
    parts = [title.get("text"), (title.get("subtitle") or {}).get("text")]
    parts += [note.get("text") for note in layout.get("annotations") or ()]
    return plain(" \n ".join(filter(None, map(str, filter(None, parts)))))


def plain(markup):
    return html.unescape(_TAG.sub(" ", markup))


def text_of(value):
    """Give the text that a reader meets in a value."""
    if value is None:
        return ""
    if (figure := figure_of(value)) is not None:
        state = value.state() if hasattr(value, "controls") else ""
        return f"{text_of_figure(figure)} \n {state}"
    for name in ("_repr_markdown_", "_repr_html_"):
        if hasattr(value, name):
            return plain(getattr(value, name)())
    return str(value)


def committed_text(notebook):
    """Give the text of the outputs of a notebook as it is committed, section by section."""
    for cell, _ in sections(notebook):
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if PLOTLY_MIME in data:
                yield text_of_figure(data[PLOTLY_MIME])
            yield plain(str(data.get("text/html", data.get("text/markdown", ""))))
            yield str(data.get("text/plain", output.get("text", "")))


def marks(text):
    """Give the numbers of three digits or more, each with the word after it."""
    return {
        (number, word)
        for number, word in _MARK.findall(text)
        if len(re.sub(r"\D", "", number).strip("0")) >= 3
    }
