"""No page shows a number of other data, or of a paper, as that of whoever runs it."""

import copy

import nbformat
import pytest

from tests.notebooks.conftest import NOTEBOOKS
from tests.notebooks.own_data import MAKERS
from tests.notebooks.shown import committed_text, marks, sections, text_of, values_on
from workbench import datasets
from workbench.load.kinds import KINDS
from workbench.share import _prose

# Numbers of a method in titles and notes: they are the same whatever the data is.
METHOD = {
    "03_goodput_under_failures": {("1,000", "node")},
    "05_performance_model": {("99.9", "%")},
    "06_power": {("99.9", "%")},  # "> 99.9 %", which is how a share that is nearly all is written
    # What was chosen: GPUs, batch and tokens of the plan, samples per batch, rows in the cache.
    "09_planning": {
        ("1,024", "H100"),
        ("1,024", "x"),
        ("8,192", "tokens"),
        ("512,", "GPU"),
        ("1024,", "tokens"),
        ("1024", "samples"),
        # A release of software, whose public jobs the doubt of the model names.
        ("26.06", "took"),
        ("26.06", ""),
        ("0.502", "0"),
        ("0.676", "0"),
        ("0.838", "0"),
    },
}
# The shape of somebody's own model, as it is released with its weights.
CONFIG = """{"model_type": "mistral", "hidden_size": 3072, "intermediate_size": 8192,
"num_hidden_layers": 26, "num_attention_heads": 24, "num_key_value_heads": 8, "head_dim": 128,
"vocab_size": 65536, "sliding_window": null, "tie_word_embeddings": false,
"max_position_embeddings": 32768}"""
# Real and made data of other people for each page, besides the small files of MAKERS.
FOREIGN = {
    "00_start_here": ("fleet-demo/traces", "kineto-resnet"),
    "01_traces": ("fleet-demo/traces", "kineto-resnet"),
    "02_workload_imbalance": ("imbalance-demo/synthetic_job.parquet",),
    "03_goodput_under_failures": ("fleet-demo/failures", "hang-demo"),
    "04_pvf_fault_injection": ("pvf-demo/lenet-weights",),
    "05_performance_model": ("kineto-resnet",),
    "06_power": ("fleet-demo/power",),
    "07_fleet_timeline": ("power-nvidia-smi",),
    "08_communication": ("kineto-dlrm-8rank",),
    "09_planning": ("config.json",),
    "10_model": ("fleet-demo/traces", "kineto-resnet"),
}
ROUTES = [
    (path, name)
    for path in NOTEBOOKS
    for name in dict.fromkeys(kind.name for kind in KINDS if path.stem in kind.notebooks)
    if name in MAKERS
]
ROUTES += [(path, name) for path in NOTEBOOKS for name in FOREIGN[path.stem]]


def test_every_page_is_tried_with_data_of_others():
    assert {path.stem for path, _ in ROUTES} == {path.stem for path in NOTEBOOKS}


def test_a_number_is_marked_with_its_word_and_paths_and_versions_are_none():
    text = "438 kW on 1,024 GPUs, 0.0440 %; arXiv:2602.00277, v1.2.345, 12 min, run-4567, 10:15:30"
    assert marks(text) == {("438", "kW"), ("1,024", "GPUs")}
    assert marks("12.75 MW, 100 times") == {("12.75", "MW")}


@pytest.fixture
def place(tmp_path, real_data):
    """Give a path with data of a kind, or a data set, and the options that it needs."""

    def give(name):
        if name == "config.json":
            (tmp_path / name).write_text(CONFIG)
            return tmp_path / name, {}
        if name in MAKERS:
            (tmp_path / "own").mkdir()
            return MAKERS[name](tmp_path / "own")
        dataset, _, file = name.partition("/")
        if dataset not in {"fleet-demo", "hang-demo", "imbalance-demo", "pvf-demo"}:
            real_data(dataset)
        return datasets.path(dataset) / file if file else datasets.path(dataset), {"tz": "UTC"}

    return give


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "name"), ROUTES, ids=[f"{path.stem[:2]} {name}" for path, name in ROUTES]
)
def test_no_number_of_other_data_is_shown_as_ones_own(path, name, place):
    notebook = nbformat.read(path, as_version=4)
    foreign = marks("\n".join(committed_text(notebook))) - METHOD.get(path.stem, set())
    fitted = copy.deepcopy(notebook)
    _prose.drop_answer(fitted)
    written = [
        cell.source
        for cell, is_case in sections(fitted)
        if cell.cell_type == "markdown" and not is_case
    ]
    where, options = place(name)
    taken = {key: value for key, value in options.items() if f"{key} = None" in _parameters(fitted)}
    shown = [text_of(value) for value in values_on(fitted, where, taken)]
    assert len(foreign) >= 3
    said = {mark: text for text in (*written, *shown) for mark in marks(text) & foreign}
    assert said == {}


def _parameters(notebook):
    return next(
        cell.source for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])
    )
