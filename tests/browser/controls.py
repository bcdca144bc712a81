"""A notebook with an explorer for each kind of control that the explorers of the package use."""

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

OPTIONS = "options=[('0 %', 0), ('50 %', 50), ('100 %', 100)], description='choice'"
KINDS_OF_CONTROLS = {
    "Checkbox": "widgets.Checkbox(description='choice')",
    "Dropdown": f"widgets.Dropdown({OPTIONS})",
    "SelectionRangeSlider": f"widgets.SelectionRangeSlider({OPTIONS}, index=(0, 1))",
    "SelectionSlider": f"widgets.SelectionSlider({OPTIONS})",
    "ToggleButtons": f"widgets.ToggleButtons({OPTIONS})",
}
DRAW = """import ipywidgets as widgets
import plotly.graph_objects as go

from workbench.explore import Explorer


def draw(choice):
    return go.Figure(go.Bar(x=[1], y=[2]), layout_title_text=f"{choice} is chosen")"""


KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}


def write_notebook(path):
    """Write a notebook whose cells show one control above one figure each."""
    cells = [new_code_cell(f"Explorer(draw, choice={make})") for make in KINDS_OF_CONTROLS.values()]
    cells = [new_code_cell(DRAW), *cells]
    nbformat.write(new_notebook(cells=cells, metadata=KERNEL), path)
