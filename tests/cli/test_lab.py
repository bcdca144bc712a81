"""The command that opens JupyterLab."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry


@pytest.mark.slow
def test_lab_really_starts_jupyterlab(tmp_path):
    folders = {f"JUPYTER_{kind}_DIR": str(tmp_path) for kind in ("CONFIG", "DATA", "RUNTIME")}
    lab = subprocess.Popen(
        [sys.executable, "-m", "workbench.cli", "lab", "--no-browser", "--port", "18888"],
        env={**os.environ, **folders},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        text=True,
        start_new_session=True,
    )
    try:
        assert any("copy and paste one of these URLs" in line for line in lab.stderr)
        place, token = re.search(r"(\S+:\d+)/lab\S*\?(token=\S+)", lab.stderr.readline()).groups()
        with requests.Session() as session:
            # The address is printed a moment before the port is open.
            patient = HTTPAdapter(max_retries=Retry(connect=8, backoff_factor=0.1))
            session.mount("http://", patient)
            page = session.get(f"{place}/api/contents?{token}", timeout=60).json()
            lab_page = session.get(f"{place}/lab?{token}", timeout=60).text
            first = session.get(f"{place}/api/contents/00_start_here.ipynb?{token}", timeout=60)
    finally:
        os.killpg(lab.pid, signal.SIGTERM)
        lab.wait(timeout=30)
        lab.stderr.close()
    assert "01_traces.ipynb" in {each["name"] for each in page["content"]}
    cells = first.json()["content"]["cells"]
    assert all(cell["metadata"]["trusted"] for cell in cells if cell["cell_type"] == "code")
    disabled = re.search(r'"disabledExtensions": (\[.*?\])', lab_page, re.DOTALL)[1]
    assert "@jupyterlab/apputils-extension:announcements" in json.loads(disabled)
