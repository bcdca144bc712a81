"""``python -m claims``: what it prints and what it exits with."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import claims
from claims import Reading, registry
from claims.__main__ import main

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def one_claim(monkeypatch):
    def with_numbers(printed, here):
        monkeypatch.setattr(registry, "_CLAIMS", [])
        claims.claim(noun="things", name="size", source="a paper")(
            lambda: [Reading("width", printed, here, "mm")]
        )

    return with_numbers


def test_it_exits_with_0_when_every_claim_passes(one_claim, capsys):
    one_claim(7, 7)
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("things: size - 1 pass\nsource: a paper\n")
    assert printed.splitlines()[-1] == "1 pass, 0 FAIL, 0 absent"


def test_it_exits_with_1_when_a_claim_fails_and_says_so_in_json(one_claim, capsys):
    one_claim(7, 8)
    assert main(["things", "--json"]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["printed"], row["here"], row["verdict"]) == (7, 8, "FAIL")


def test_a_terminal_is_told_which_claim_is_computed(one_claim, capsys, monkeypatch):
    one_claim(7, 7)
    main([])
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    main([])
    assert capsys.readouterr().err == "things: size\n"


def test_it_exits_with_2_for_an_unknown_noun():
    done = subprocess.run(
        [sys.executable, "-m", "claims", "nonsense"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "there are claims about" in done.stderr


def test_a_reader_that_has_enough_ends_it_without_an_error():
    """Such as head, which closes the pipe."""
    program = "import sys; from claims.__main__ import main; sys.exit(main(['regions']))"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    ) as done:
        done.stdout.close()
        assert done.stderr.read() == b""
    assert done.returncode == 141
