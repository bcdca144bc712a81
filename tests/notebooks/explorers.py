"""Moves every control of the explorers that a notebook shows; runs as the last cell of it."""

import time

from workbench.explore import Explorer


def move(control):
    """Set a control to its next value, as a hand would."""
    if not hasattr(control, "options"):
        control.value = not control.value
    elif isinstance(control.index, tuple):
        start, end = control.index
        # A window moves its nearer end, and the other one where there is no room.
        control.index = (
            (start, end - 1) if start < end else (start, (end + 1) % len(control.options))
        )
    else:
        control.index = (control.index + 1) % len(control.options)


def screen(explorer):
    """Give what a reader sees besides the controls."""
    return explorer.message.value, explorer.figure().to_json()


def answers(explorer):
    """Move the controls one after the other, then back; say which of them changed the screen."""
    changed, start = {}, {name: control.value for name, control in explorer.controls.items()}
    for name, control in explorer.controls.items():
        before = screen(explorer)
        move(control)
        changed[name] = screen(explorer) != before
    # The outputs of the notebook follow, and are compared with the published ones.
    for name, value in start.items():
        explorer.controls[name].value = value
    return changed


def report(shown):
    """Report the kinds of controls, the answer of each control, and the seconds that took."""
    start = time.monotonic()
    explorers = [value for value in shown if isinstance(value, Explorer)]
    kinds = {type(c).__name__ for explorer in explorers for c in explorer.controls.values()}
    changed = [answers(explorer) for explorer in explorers]
    return {"kinds": sorted(kinds), "changed": changed, "seconds": time.monotonic() - start}
