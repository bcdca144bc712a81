"""How long from a hand on a control to the new picture, in a real JupyterLab.

    python benchmarks/lab.py [NOTEBOOK ...] [--moves N]

Every notebook runs in JupyterLab in a browser; then one control of each kind of each explorer is
moved, and the time from the event in the browser to the last change of the figure on the page is
taken. It holds the way to the kernel, the analysis, the way back and the drawing. Beside it stand
the bytes that the kernel sent per move, the pictures per second while a slider is dragged, and how
the heap of the page grew in 200 moves of the first explorer of each notebook. The table goes to
the screen and to ``benchmarks/results/lab.md`` and ``.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np

from benchmarks._measure import machine
from benchmarks._table import RESULTS, Row, publish

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
TARGET_MS = 100.0
_START_S, _RUN_S, _MOVE_S = 120, 600, 20
_DRAG_S, _HEAP_MOVES = 2.0, 200
# A control that changes nothing in the state at hand is hidden.
_KINDS = {
    "choice": ".jp-OutputArea-output select:visible",
    "slider": ".jp-OutputArea-output .noUi-handle:visible",
    "button": ".jp-OutputArea-output .widget-toggle-buttons button:not(.mod-active):visible",
    "switch": ".jp-OutputArea-output .widget-checkbox input:visible",
}
_PROMPTS = "all => all.map(prompt => prompt.textContent)"
# The clock starts at the event of the control itself and stops at the last change of a figure;
# labels and handles of controls change as well and do not count.
_WATCH = """() => {
    const watch = {begun: null, last: null};
    window.wbWatch = watch;
    const begin = event => {
        if (watch.begun === null && event.isTrusted !== undefined) watch.begun = performance.now();
    };
    for (const name of ["keydown", "change", "click"]) {
        document.addEventListener(name, begin, {capture: true, once: true});
    }
    // What lies outside of the outputs is a figure that plotly makes a picture of, and nobody sees.
    const figure = ".jupyter-widget-output, .widget-output, .js-plotly-plot";
    const observer = new MutationObserver(changes => {
        if (watch.begun === null) return;
        const isFigure = changes.some(change => {
            const node = change.target.nodeType === 1 ? change.target : change.target.parentElement;
            return node?.closest(figure)?.closest(".jp-OutputArea-output");
        });
        if (isFigure) requestAnimationFrame(() => { watch.last = performance.now(); });
    });
    observer.observe(document.body, {
        subtree: true, childList: true, attributes: true, characterData: true
    });
    watch.end = () => observer.disconnect();
}"""
_SETTLED = """quiet_ms => {
    const watch = window.wbWatch;
    if (watch.last === null || performance.now() - watch.last < quiet_ms) return null;
    watch.end();
    return watch.last - watch.begun;
}"""
# Plotly draws a figure in steps; a pause longer than this between two of them does not occur.
_QUIET_MS = 300
# Pictures that differ in their words or their first shapes, frame by frame.
_COUNT = """cell => {
    const count = {pictures: -1, goesOn: true};
    window.wbCount = count;
    let before = "";
    const look = () => {
        if (!count.goesOn) return;
        const shapes = [...cell.querySelectorAll(".js-plotly-plot .plot path")].slice(0, 40);
        const words = [...cell.querySelectorAll(".js-plotly-plot svg")].map(svg => svg.textContent);
        const now = words.join() + shapes.map(shape => shape.getAttribute("d")).join();
        if (now && now !== before) { count.pictures++; before = now; }
        requestAnimationFrame(look);
    };
    look();
}"""
_COUNTED = "() => { window.wbCount.goesOn = false; return window.wbCount.pictures; }"
# JupyterLab takes cells out of the page that are out of sight, and their controls with them.
_SETTINGS = {"@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"}}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table; return 0 even if targets are missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("notebooks", type=Path, nargs="*", help="all by default")
    parser.add_argument("--moves", type=int, default=20, help="per kind of control")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    about = machine()
    paths = options.notebooks or sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
    rows = [row for path in paths for row in _rows(path, options.moves)]
    about["load after"] = f"{os.getloadavg()[0]:.1f}"
    remarks = [
        f"One control of each kind of an explorer moved {options.moves} times in JupyterLab, "
        "one move after the other was drawn. Wall time from the event in the browser to the last "
        "change of the figure, so a busy machine makes it longer; the load of the machine stands "
        "in each row. Moves that gave the same picture are not counted. Bytes are those of all "
        f"messages of the kernel; a drag goes to and fro over the whole slider for {_DRAG_S:g} s.",
    ]
    publish("lab", rows, about, remarks, options.out)
    return 0


def _rows(path: Path, moves: int) -> Iterator[Row]:
    """Measure the explorers of a notebook, in their order."""
    from playwright.sync_api import sync_playwright

    from workbench.share.svg import find_chrome

    with _server(path) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chrome())
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        received: list[int] = []
        page.on("websocket", lambda socket: socket.on(
            "framereceived", lambda message: received.append(len(message))
        ))  # fmt: skip
        page.goto(f"{address}/lab/tree/{path.name}?reset")
        _run_all(page)
        is_first = True
        for cell in page.locator(".jp-CodeCell").all():
            controls = _controls(cell)
            if not controls:
                continue
            cell.scroll_into_view_if_needed()
            # The first pictures of a page compile plotly.
            for kind in controls:
                _times(page, cell, kind, 2)
            received.clear()
            times = {kind: _times(page, cell, kind, moves) for kind in controls}
            sent = sum(received) / max(sum(map(len, times.values())), 1)
            notes = [f"{sent / 1e3:.0f} kB per move"]
            if "slider" in controls:
                notes.append(f"{_dragged(page, cell):.1f} pictures per s of a drag")
            if is_first:
                notes.append(_grown(page, cell, controls[0]))
            is_first = False
            row = _row(f"{path.stem}: {_name(cell)}", times, notes)
            print(row.what, row.workbench, row.note, sep="; ", file=sys.stderr, flush=True)
            yield row
        browser.close()


def _row(what: str, times: dict[str, list[float]], notes: list[str]) -> Row:
    whole = [taken for each in times.values() for taken in each]
    if not whole:
        return Row(what, "no move changed the picture", "")
    by_kind = ", ".join(f"{kind} {np.median(each):.0f}" for kind, each in times.items() if each)
    median, slow = np.percentile(whole, [50, 95])
    return Row(
        what,
        f"median {median:.0f} ms ({by_kind}), p95 {slow:.0f} ms",
        "",
        float(slow),
        TARGET_MS,
        "ms",
        smaller_is_better=True,
        note=f"p95 of {len(whole)} moves, {', '.join(notes)}, load {os.getloadavg()[0]:.1f}",
    )


def _dragged(page: Any, cell: Any) -> float:
    """Drag the first slider to and fro; return the pictures per second."""
    handle = cell.locator(_KINDS["slider"]).first
    track = cell.locator(".jp-OutputArea-output .noUi-target:visible").first
    handle.scroll_into_view_if_needed()
    knob, ends = handle.bounding_box(), track.bounding_box()
    height = knob["y"] + knob["height"] / 2
    page.mouse.move(knob["x"] + knob["width"] / 2, height)
    page.mouse.down()
    page.evaluate("cell => (" + _COUNT + ")(cell)", cell.element_handle())
    begun = time.monotonic()
    while (spent := time.monotonic() - begun) < _DRAG_S:
        there = 0.5 - 0.5 * np.cos(2 * np.pi * spent)  # to the end and back in a second
        page.mouse.move(ends["x"] + there * ends["width"], height)
        page.wait_for_timeout(16)
    pictures = page.evaluate(_COUNTED)
    page.mouse.up()
    page.wait_for_timeout(1_000)
    return float(pictures / (time.monotonic() - begun - 1))


def _grown(page: Any, cell: Any, kind: str) -> str:
    """Move a control many times; say how the heap of the page and its elements grew."""
    tools = page.context.new_cdp_session(page)
    tools.send("Performance.enable")

    def held() -> dict[str, float]:
        tools.send("HeapProfiler.collectGarbage")
        metrics = tools.send("Performance.getMetrics")["metrics"]
        return {metric["name"]: metric["value"] for metric in metrics}

    before = held()
    for number in range(_HEAP_MOVES):
        _move(page, cell.locator(_KINDS[kind]).first, kind, number)
        page.wait_for_timeout(60)
    page.wait_for_timeout(2_000)
    after = held()
    heap, nodes = (after[name] / before[name] for name in ("JSHeapUsedSize", "Nodes"))
    return f"after {_HEAP_MOVES} moves heap x{heap:.2f}, nodes x{nodes:.2f}"


def _controls(cell: Any) -> list[str]:
    return [kind for kind, selector in _KINDS.items() if cell.locator(selector).count()]


def _name(cell: Any) -> str:
    """Give the explorer that a cell shows, by its code."""
    code = cell.locator(".jp-InputArea").text_content()
    named = re.search(r"\bexplore\.(\w+)\(", code)
    return named[1] if named else "controls"


def _times(page: Any, cell: Any, kind: str, moves: int) -> list[float]:
    """Move the first control of a kind back and forth; return each new picture's time in ms."""
    times = []
    for move in range(moves):
        control = cell.locator(_KINDS[kind]).first
        page.evaluate(_WATCH)
        _move(page, control, kind, move)
        taken = _drawn(page)
        if taken is not None:
            times.append(taken)
    return times


def _move(page: Any, control: Any, kind: str, move: int) -> None:
    if kind == "choice":
        count = control.locator("option").count()
        now = control.evaluate("control => control.selectedIndex")
        control.select_option(index=(now + 1) % count)
    elif kind == "slider":
        # To one end and back: each press of the key is a new value.
        lowest, highest, now = (
            float(control.get_attribute(f"aria-value{name}") or 0) for name in ("min", "max", "now")
        )
        steps = max(int(highest - lowest), 1)
        is_forward = now < highest and (move // steps) % 2 == 0
        control.focus()
        page.keyboard.press("ArrowRight" if is_forward or now <= lowest else "ArrowLeft")
    else:
        control.click()


def _drawn(page: Any) -> float | None:
    """Wait until the figure stands still; None if the move changes nothing."""
    deadline = time.monotonic() + _MOVE_S
    unchanged = time.monotonic() + 4
    while time.monotonic() < deadline:
        taken = page.evaluate(_SETTLED, _QUIET_MS)
        if taken is not None:
            return float(taken)
        if time.monotonic() > unchanged and page.evaluate("window.wbWatch.last === null"):
            page.evaluate("window.wbWatch.end()")
            return None
        page.wait_for_timeout(30)
    return None


def _run_all(page: Any) -> None:
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=_START_S * 1000)
    # Run before the kernel is there, and JupyterLab asks which one to use.
    page.wait_for_selector("text=/Python 3 .*\\| Idle/", timeout=_START_S * 1000)
    page.click(".lm-MenuBar-item:has-text('Run')")
    page.click(".lm-Menu-item:has-text('Run All Cells') >> nth=0")
    prompts = page.locator(".jp-Notebook .jp-CodeCell .jp-InputPrompt")
    _wait(lambda: "*" in "".join(prompts.evaluate_all(_PROMPTS)), _START_S, "no cell runs")
    _wait(lambda: "*" not in "".join(prompts.evaluate_all(_PROMPTS)), _RUN_S, "the cells run on")


@contextmanager
def _server(path: Path) -> Iterator[str]:
    """Start JupyterLab on a copy of a notebook, with no settings of the user."""
    with tempfile.TemporaryDirectory(prefix="workbench-lab-") as name:
        folder, root = Path(name), Path(name, "notebooks")
        root.mkdir()
        shutil.copy(path, root)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for name_of, values in _SETTINGS.items():
            settings_file = folder / "settings" / f"{name_of}.jupyterlab-settings"
            settings_file.parent.mkdir(parents=True)
            settings_file.write_text(json.dumps(values))
        command = [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
            *("--ip=127.0.0.1", f"--port={port}", f"--ServerApp.root_dir={root}"),
            *("--IdentityProvider.token=", "--ServerApp.password="),
            *("--ServerApp.disable_check_xsrf=True", "--LabApp.news_url=None"),
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
            f"--LabApp.user_settings_dir={folder / 'settings'}",
        ]
        settings = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
        environment = {**os.environ, **{each: str(folder / each.lower()) for each in settings}}
        with (folder / "lab.log").open("wb") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        address = f"http://127.0.0.1:{port}"
        try:
            _wait(lambda: _answers(address, process), _START_S, "JupyterLab did not start")
            yield address
        finally:
            process.terminate()
            process.wait(30)


def _answers(address: str, process: subprocess.Popen[bytes]) -> bool:
    if process.poll() is not None:
        msg = "JupyterLab ended before it answered"
        raise RuntimeError(msg)
    try:
        with urllib.request.urlopen(f"{address}/api/status", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def _wait(is_true: Any, limit_s: float, otherwise: str) -> None:
    deadline = time.monotonic() + limit_s
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        time.sleep(0.3)


if __name__ == "__main__":
    sys.exit(main())
