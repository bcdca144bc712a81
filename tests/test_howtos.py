"""How-to pages: their code runs on somebody's files, and every function of a domain is shown."""

import json
import re
from pathlib import Path

import pytest

from data import make
from tests import test_pages as pages
from tests.load.conftest import event

ROOT = Path(__file__).resolve().parents[1]
HOWTOS = {name: ROOT / "docs" / f"{name}.md" for name in ("traces", "imbalance")}
LAYERS = 12
HISTOGRAM = """
tiny_t3_bs8.pt
Locality stats after processing 2 batches of size 8
Avg # of indices: 40
Avg # of unique cols: 10
Avg col size: 4.0
Histogram of col sizes:
(0, 4]: 0.800
(4+: 0.200
Ratio of index distribution at different column sizes:
(0, 4]: 0.400
(4+: 0.600
"""


def made_files(folder):
    """Lay files beside the bundled ones of which no set is bundled; their numbers are made."""
    attention = [f"{length},1,1,{length**2}.5" for length in (1024, 4096, 8192, 16384, 32768)]
    head = "length_tokens,tensor_parallel,context_parallel,dur_ns"
    (folder / "attention.csv").write_text("\n".join([head, *attention]) + "\n")
    linear = [f"{count},1,{count * 10_000}.5" for count in (1024, 2048, 4096)]
    (folder / "mlp.csv").write_text(
        "\n".join(["token_count,tensor_parallel,dur_ns", *linear]) + "\n"
    )
    rows = [f"{layer},{place},{5 + layer * place}" for layer in range(LAYERS) for place in range(3)]
    (folder / "experts.csv").write_text("\n".join(["layer,expert,load_count", *rows]) + "\n")
    make.embedding_tables(6).to_csv(folder / "tables.csv", index=False)
    (folder / "locality_stats.txt").write_text(HISTOGRAM)
    (folder / "runs" / "shapes.json").write_text(json.dumps(shaped_trace()))


def shaped_trace():
    """Make a profile with shapes: one matrix product on an H100."""
    inputs = {"Input Dims": [[64, 32], [32, 16]], "Input type": ["c10::BFloat16"] * 2}
    events = [
        event("aten::mm", 0, 30, **inputs),
        event("cudaLaunchKernel", 5, cat="cuda_runtime", correlation=1),
        event("gemm", 50, 9, cat="kernel", tid=7, stream=7, device=0, correlation=1),
    ]
    return {"traceEvents": events, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}


@pytest.mark.long
@pytest.mark.parametrize("domain", HOWTOS)
def test_code_of_a_how_to_runs_from_top_to_bottom(domain, tmp_path, monkeypatch):
    pages.own_files(tmp_path)
    made_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in pages.python_of(HOWTOS[domain].read_text()):
        exec(compile(block, f"{domain}.md", "exec"), names)


def code_to_read():
    """Return the code of notebooks and pages: what shows a function to somebody."""
    cells = [
        "".join(cell["source"])
        for notebook in ROOT.glob("notebooks/*.ipynb")
        for cell in json.loads(notebook.read_text())["cells"]
        if cell["cell_type"] == "code"
    ]
    texts = (path.read_text() for path in (ROOT / "README.md", *ROOT.glob("docs/*.md")))
    return "\n".join([*cells, *(block for text in texts for block in pages.python_of(text))])


@pytest.mark.parametrize("domain", HOWTOS)
def test_every_function_of_a_domain_with_a_how_to_is_shown_in_code(domain):
    section = re.search(rf"^## `{domain}`.*\n\n((?:\|.*\n)+)", pages.FUNCTIONS, re.MULTILINE)[1]
    named = {
        f"{verb}.{name}"
        for row in pages.rows_of(section)
        for verb, cell in zip(pages.VERBS, row[1:], strict=False)
        for name in pages.code_names(cell)
    }
    shown = set(re.findall(r"\b\w+\.\w+", code_to_read()))
    assert sorted(named - shown) == []
