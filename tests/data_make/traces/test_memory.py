"""The bundled memory snapshot: the same bytes each time, and a failed allocation in it."""

import pytest

from data import make
from workbench import analyze, datasets, load

DEMO = datasets.path("memory-demo")


def test_the_bundled_snapshot_is_made_again_to_the_byte(tmp_path):
    make.memory(tmp_path / "again", seed=7)
    files = sorted(path.name for path in DEMO.iterdir())
    assert files == ["README.md", "synthetic_rank0.pickle"]
    for name in files:
        assert (tmp_path / "again" / name).read_bytes() == (DEMO / name).read_bytes()


def test_its_job_runs_out_of_memory_and_says_that_it_is_synthetic():
    recording = load.memory(DEMO, progress=False)
    assert recording.is_synthetic
    assert "out_of_memory" in analyze.findings(recording).findings["rule"].tolist()


def test_a_folder_with_files_is_refused(tmp_path):
    (tmp_path / "kept.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="is not empty; name a new folder"):
        make.memory(tmp_path, seed=7)
