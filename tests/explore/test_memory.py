"""The explorer of memory: move a control, read the screen."""

from data import make
from workbench import explore, load


def test_what_the_peak_is_summed_by_can_be_chosen(tmp_path, title):
    path = make.memory_snapshot(tmp_path / "rank0.pickle", seed=1)
    explorer = explore.memory_peak(load.memory(path), source="made", synthetic=True)
    assert explorer.message.value == ""
    assert "model.py:41" in title(explorer)
    explorer.controls["by"].value = "phase"
    assert title(explorer).startswith("forward holds")
    explorer.controls["by"].value = "size"
    assert "B each" in title(explorer)
