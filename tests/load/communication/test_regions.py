"""Regions: a matrix and speeds as users write them; every bad cell is named."""

import pandas as pd
import pytest

from workbench import datasets, load
from workbench.errors import LoadError

GOOD = "region,us,eu\nus,100,0.5\neu,0.4,80\n"


def written(folder, text, speeds=("1 0.5", "0.8")):
    lines = text.strip().splitlines()
    rows = [lines[0] + ",speeds", *map("{},{}".format, lines[1:], speeds)]
    path = folder / "regions.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.oracle
def test_the_regions_of_the_examples_are_those_of_the_paper():
    regions = load.regions(datasets.path("local-training") / "regions.csv")
    assert regions.names == [f"region {number}" for number in range(4)]
    assert regions.workers.groupby("region").size().tolist() == [4] * 4
    assert regions.workers["speed_ratio"].max() == 1
    assert regions.workers["speed_ratio"].min() == pytest.approx(0.107 / 0.907)
    assert not regions.is_asymmetric


def test_bandwidth_goes_from_the_row_to_the_column_and_says_when_directions_differ(tmp_path):
    regions = load.regions(written(tmp_path, GOOD))
    assert regions.matrix.loc["us", "eu"] == 0.5
    assert regions.matrix.loc["eu", "us"] == 0.4
    assert regions.workers["speed_ratio"].tolist() == [1, 0.5, 0.8]
    assert repr(regions) == (
        "Regions: 2 regions, 3 workers, 0.4 to 0.5 Gbit/s between regions, links differ by direction"
    )


def test_speeds_are_relative_whatever_their_unit(tmp_path):
    first = load.regions(written(tmp_path, GOOD)).workers
    second = load.regions(written(tmp_path, GOOD, ("20000 10000", "16000"))).workers
    pd.testing.assert_frame_equal(first, second)


def test_one_region_has_no_links_to_others(tmp_path):
    regions = load.regions(written(tmp_path, "region,us\nus,100", ["1 1"]))
    assert repr(regions) == "Regions: 1 region, 2 workers"


@pytest.mark.parametrize(
    ("text", "speeds", "message"),
    [
        ("us,eu\n1,2", ["1"], r"no column \['region'\]; found .* write a row per region"),
        ("region,us,eu\nus,1,2", ["1"], r"no row for columns \['eu'\]"),
        ("region,us\nus,1\neu,1", ["1", "1"], r"no column for regions \['eu'\]"),
        ("region,us\nus,1\nus,1", ["1", "1"], r"regions \['us'\] occur twice"),
        ("region,us\n,1", ["1"], "row 0: the region has no name"),
        ("region,us,eu\nus,1,\neu,0,-2", ["1", "x"],
         "bandwidth from 'us' to 'eu'; bandwidth from 'eu' to 'us'; bandwidth from 'eu' to 'eu'; "
         "speed 'x' in 'eu'. Numbers above 0"),
        ("region,us,eu\nus,1,2\neu,1,1", ["1 0", ""], "speed '0' in 'us'"),
        ("region,us\nus,1", [""], "speeds of no worker at all"),
    ],
)  # fmt: skip
def test_every_misfit_is_named(tmp_path, text, speeds, message):
    with pytest.raises(LoadError, match=message):
        load.regions(written(tmp_path, text, speeds))


def test_a_cut_file_is_refused(tmp_path):
    path = written(tmp_path, GOOD)
    path.write_text(path.read_text()[:-3])
    with pytest.raises(LoadError, match="may be cut"):
        load.regions(path)


def test_losses_of_other_runs_are_read_from_csv_too(tmp_path):
    losses = load.local_training_losses(datasets.path("local-training") / "losses.parquet")
    losses.head(9).to_csv(tmp_path / "own.csv", index=False)
    again = load.local_training_losses(tmp_path / "own.csv")
    pd.testing.assert_frame_equal(again, losses.head(9), check_categorical=False)
    (tmp_path / "own.csv").write_text(
        "scheme,seed,step_count,loss,staleness_count,model\na,0,1,x,1,b\n"
    )
    with pytest.raises(LoadError, match=r"'loss'.*not a finite number"):
        load.local_training_losses(tmp_path / "own.csv")
