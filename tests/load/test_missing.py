"""A section without data is one line that names the files to add."""

import pytest

from workbench import load
from workbench.load.kinds import KINDS


def test_the_line_names_the_kind_the_folder_and_the_files_to_add():
    line = repr(load.missing("runs/monday", "flight-recorder dumps"))
    assert line.startswith("No flight-recorder dumps in monday. To fill this section, add dumps of")
    assert "\n" not in line


@pytest.mark.parametrize("kind", [kind.name for kind in KINDS if kind.notebooks])
def test_every_kind_that_a_notebook_shows_has_files_to_name(kind):
    if kind != "failure tables":  # a table in place of failure logs
        assert f"No {kind} in x." in repr(load.missing("x", kind))


def test_a_name_of_a_folder_is_text_in_markdown():
    line = load.missing("<b>*_x_*</b>", "job logs")._repr_markdown_()
    assert "<b>" not in line
    assert "*_x" not in line


def test_an_unknown_kind_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="no files are named for 'tea'; kinds are traces"):
        load.missing(None, "tea")
