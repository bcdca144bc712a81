"""Logs of nvidia-smi that lose a GPU and do not say which."""

import pytest

from tests.load.power.power_files import found, loaded


@pytest.mark.parametrize("lost_at", [20, 40])
def test_a_gpu_that_is_lost_from_the_polls_renames_no_other(tmp_path, lost_at):
    rows = [
        f"2026/03/02 10:00:{poll:02d}.00{gpu}, {100 * (gpu + 1)}.00 W"
        for poll in range(60)
        for gpu in range(4)
        if gpu != 1 or poll < lost_at
    ]
    path = tmp_path / "gpu.csv"
    path.write_text("\n".join(["timestamp, power.draw [W]", *rows, ""]))
    read = loaded(path, tz="UTC")
    drawn = read.power.groupby("entity", observed=True)["power_w"].unique()
    assert [each.tolist() for each in drawn] == [[100.0], [200.0], [300.0], [400.0]]
    missing = found(read, "polls in which a GPU is missing")
    assert missing["count"] == 3 * (60 - lost_at)
