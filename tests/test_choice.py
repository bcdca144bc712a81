"""Notebooks say which data they run on."""

import pytest

from workbench import datasets
from workbench.errors import DatasetError


def test_own_data_go_before_any_set(tmp_path):
    chosen = datasets.choose(tmp_path, "fleet-demo")
    assert (chosen.path, chosen.name, chosen.is_synthetic) == (tmp_path, tmp_path.name, False)


def test_own_data_that_are_not_there_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent: there is no such file or folder"):
        datasets.choose(tmp_path / "absent", "fleet-demo")


def test_the_first_set_at_hand_is_taken_and_credited(monkeypatch, tmp_path):
    monkeypatch.delenv(datasets.MIRROR_ENV, raising=False)
    monkeypatch.setenv(datasets.CACHE_ENV, str(tmp_path))
    chosen = datasets.choose(None, "kineto-dlrm-8rank", "fleet-demo")
    assert chosen.name == "fleet-demo"
    assert "synthetic data" in chosen._repr_markdown_()
    assert chosen.source.startswith("fleet-demo (")


def test_a_synthetic_set_stays_synthetic_when_it_is_named_by_path():
    assert datasets.choose(datasets.path("fleet-demo") / "traces", "fleet-demo").is_synthetic


def test_one_file_of_a_set_can_be_chosen():
    chosen = datasets.choose(None, "fleet-demo/truth.csv")
    assert (chosen.path.name, chosen.name) == ("truth.csv", "fleet-demo")
    with pytest.raises(DatasetError, match="has no file"):
        datasets.choose(None, "fleet-demo/lies.csv")


def test_names_cannot_smuggle_markup_into_the_page(tmp_path):
    folder = tmp_path / "<img src=x>*b*"
    folder.mkdir()
    assert "<img" not in datasets.choose(folder, "fleet-demo")._repr_markdown_()


def test_nothing_at_hand_is_an_error(monkeypatch, tmp_path):
    monkeypatch.delenv(datasets.MIRROR_ENV, raising=False)
    monkeypatch.setenv(datasets.CACHE_ENV, str(tmp_path))
    with pytest.raises(DatasetError, match="workbench datasets fetch"):
        datasets.choose(None, "kineto-hta")
