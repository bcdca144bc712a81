"""Progress: late, gone when done, silent where nobody looks."""

import sys

import pytest

from workbench._shared.progress import progress


@pytest.fixture
def terminal(monkeypatch, capsys):
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda _self: True, raising=False)
    return capsys


def slow(count, **options):
    bar = progress(range(count), label="reading", **options)
    rewind(bar)
    assert list(bar) == list(range(count))
    bar.close()


def rewind(bar):
    """Make a bar believe that it has been at work for two seconds."""
    if not bar.disable:
        bar.start_t -= 2
        bar.last_print_t -= 2


def test_slow_work_shows_a_bar_that_is_wiped(terminal):
    slow(3, unit="files")
    text = terminal.readouterr().err
    assert "reading" in text
    assert "/3" in text
    assert text.endswith("\r")
    assert text.split("\r")[-2].strip() == ""


def test_fast_work_shows_nothing(terminal):
    assert list(progress(range(3))) == [0, 1, 2]
    assert terminal.readouterr() == ("", "")


@pytest.mark.parametrize("why", ["unwanted", "environment", "no terminal"])
def test_it_is_silent_when_not_wanted(why, terminal, monkeypatch):
    if why == "environment":
        monkeypatch.setenv("TQDM_DISABLE", "1")
    if why == "no terminal":
        monkeypatch.setattr(type(sys.stderr), "isatty", lambda _self: False, raising=False)
    slow(3, enabled=why != "unwanted")
    assert terminal.readouterr() == ("", "")


def test_bytes_are_counted_by_hand(terminal):
    with progress(total=2_000_000, unit="B", label="fetching") as bar:
        rewind(bar)
        bar.update(1_000_000)
    assert "1.00M/2.00M" in terminal.readouterr().err
