"""Sweeps of power limits: the public ones, tables of one's own, and what is refused."""

import json

import pytest

from workbench import load
from workbench.errors import LoadError
from workbench.tables import POWER_SWEEPS


@pytest.fixture
def sweeps(tmp_path):
    """Write a sweep and load it."""

    def read(text, name="mine.csv"):
        path = tmp_path / name
        path.write_text(text)
        return POWER_SWEEPS.check(load.power_sweeps(path))

    return read


@pytest.fixture(scope="module")
def public(real_data):
    """Give the public sweeps of Zeus."""
    return load.power_sweeps(real_data("power-zeus-sweeps"))


@pytest.mark.oracle
def test_the_public_traces_hold_as_many_configurations_as_published(public):
    traces = public[public["source"].str.contains("summary_power")]
    jobs = traces.groupby("gpu")["job"].nunique().to_dict()
    assert jobs == {"A40": 53, "P100": 45, "RTX6000": 52, "V100": 58}
    assert traces["run_count"].sum() == 476 + 453 + 410 + 270
    assert not traces.duplicated(["gpu", "job", "limit_w"]).any()


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("gpu", "network", "limit_w", "saving"),
    [
        ("V100", "resnet50", 137.5, 0.238),
        ("V100", "bert_base_uncased", 150, 0.216),
        ("A40", "resnet50", 175, 0.216),
        ("A40", "bert_base_uncased", 200, 0.214),
        ("RTX6000", "resnet50", 125, 0.266),
        ("P100", "resnet50", 125, 0.214),
    ],
)
def test_the_limit_of_least_energy_is_the_published_one(public, gpu, network, limit_w, saving):
    wanted = public[public["source"].str.contains("summary_power") & (public["gpu"] == gpu)]
    wanted = wanted[wanted["network"] == network]
    best = wanted.loc[wanted.groupby("job")["energy_j"].idxmin()].set_index("job")
    most = wanted.loc[wanted.groupby("job")["limit_w"].idxmax()].set_index("job")
    assert best["limit_w"].median() == limit_w
    assert (1 - best["energy_j"] / most["energy_j"]).median() == pytest.approx(saving, abs=5e-4)


@pytest.mark.oracle
def test_windows_of_the_optimiser_are_a_sweep_per_gpu(public):
    four = public[public["source"].str.endswith("A40+resnet18+gpu0,1,2,3.csv")]
    assert four["limit_w"].tolist() == list(range(100, 301, 25))
    assert set(four["job"]) == {"resnet18 on 4 GPUs"}
    top = four.iloc[-1]
    energy_j = (3991.397 + 4170.070 + 4255.888 + 4102.666) / 4
    assert top["energy_j"] == pytest.approx(energy_j, rel=1e-6)
    assert top["power_w"] == pytest.approx(energy_j / 33.27751154080033, rel=1e-6)
    assert (top["gpu_count"], top["line"]) == (4, 2)


@pytest.mark.oracle
def test_other_files_of_a_folder_are_named_in_the_attributes(public):
    names = [text.split(": ")[0].rsplit("/", 1)[-1] for text in public.attrs["passed_over"]]
    assert sorted(names) == ["LICENSE", "README.md", "summary_train.csv"]


@pytest.mark.oracle
def test_power_above_the_limit_is_a_doubt_in_the_public_traces(public):
    above = public[public["doubt"] == "draws more than its limit"]
    assert len(above) == 23
    assert (above["power_w"] > 1.05 * above["limit_w"]).all()


def test_what_is_missing_of_power_time_and_energy_is_worked_out(sweeps):
    by_power = sweeps("limit_w,power_w,time_s\n300,250,10\n")
    by_energy = sweeps("limit_w,energy_j,time_s\n300,2500,10\n")
    by_both = sweeps("limit_w,energy_j,power_w\n300,2500,250\n")
    for table in (by_power, by_energy, by_both):
        row = table.iloc[0]
        assert row[["power_w", "time_s", "energy_j"]].tolist() == [250, 10, 2500]
        assert (row["job"], row["doubt"]) == ("mine", "")


def test_measurements_of_one_limit_are_one_row(sweeps):
    table = sweeps("job,limit_w,power_w,time_s,variant\na,300,200,10,x\na,300,300,30,y\n")
    row = table.iloc[0]
    assert (row["run_count"], row["variant"], row["line"]) == (2, "x, y", 2)
    assert row[["energy_j", "time_s", "power_w"]].tolist() == [5500, 20, 275]


def test_a_measurement_that_cannot_be_does_not_enter_the_mean(sweeps):
    row = sweeps("job,limit_w,power_w,time_s\na,300,200,10\na,300,-5,99\n").iloc[0]
    assert row[["power_w", "time_s", "run_count"]].tolist() == [200, 10, 1]
    assert row["doubt"] == "power_w is -5; no power"


@pytest.mark.parametrize(
    ("row", "doubt"),
    [
        ("300,0,10,", "power_w is 0; no power"),
        ("300,200,-1,", "time_s is -1; no time"),
        ("300,inf,10,", "power_w is inf; no power"),
        ("0,200,10,", "limit_w is 0; no limit"),
        ("300,200,10,9", "energy is not power x time"),
        ("300,400,10,", "draws more than its limit"),
        (",200,10,", "no limit"),
        ("300,,10,", "no power"),
    ],
)
def test_numbers_that_can_be_none_are_kept_as_a_doubt(sweeps, row, doubt):
    assert sweeps(f"limit_w,power_w,time_s,energy_j\n{row}\n")["doubt"].tolist() == [doubt]


@pytest.mark.parametrize("wrap", [list, lambda rows: {"measurements": rows}])
def test_a_profile_of_the_optimiser_is_a_sweep(sweeps, wrap):
    rows = [{"power_limit": limit, "energy": 10 * limit, "time": 12} for limit in (300, 200)]
    table = sweeps(json.dumps(wrap(rows)), name="profile.json")
    assert table["limit_w"].tolist() == [200, 300]
    assert table["energy_j"].tolist() == [2000, 3000]
    assert set(table["job"]) == {"profile"}


def test_text_where_a_number_belongs_is_refused_with_its_line(sweeps):
    with pytest.raises(LoadError, match=r"mine\.csv, line 3: power_w is 'much', not a number"):
        sweeps("limit_w,power_w,time_s\n300,250,10\n200,much,11\n")


def test_a_row_that_is_cut_off_is_refused_with_its_line(sweeps):
    with pytest.raises(LoadError, match=r"mine\.csv, line 3: rows with more or fewer cells"):
        sweeps("limit_w,power_w,time_s\n300,250,10\n200,1\n")
    with pytest.raises(LoadError, match=r"mine\.csv, line 3: a last line without a line end"):
        sweeps("limit_w,power_w,time_s\n300,250,10\n200,150,1")


def test_a_profile_that_is_cut_off_is_refused(sweeps):
    with pytest.raises(LoadError, match="a JSON document that does not end; repair it"):
        sweeps('{"power_limit": 1, "energy": 2, "time": 3}\n{"power_', name="p.json")


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,2\n",
        "limit_w,power_w,time_s\n",
        "garbage",
        "start_time,window_name,elapsed_time,gpu0_energy\n1,x,1,1\n",
    ],
)
def test_what_is_no_sweep_is_refused_with_what_is_known(sweeps, text):
    with pytest.raises(LoadError, match=r"no readable sweep of power limits found; supported:"):
        sweeps(text)
