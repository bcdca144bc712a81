"""No damage to any bundled or shared file gives anything but tables, findings and our errors."""

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pandas as pd
import pytest

from tests.fuzz import trial
from tests.fuzz.corpus import DOORS, Door, Seed, flagged, made_files
from tests.fuzz.mutations import PLAIN, mutated
from tests.fuzz.structures import STRUCTURES, parquet_folder, sqlite
from workbench.errors import LoadError

ROOT = Path(__file__).parents[2]
COUNT = 500
TEXT = b"".join(b"%d,%d,70.5 W\n" % (at, at % 8) for at in range(500))


@pytest.mark.slow
@pytest.mark.parametrize(("only", "least"), [("*", 200), ("made/*", 13)])
def test_hundreds_of_damaged_files_give_tables_findings_or_our_errors(
    record_property, real_data, only, least
):
    real_data("flight-recorder")
    command = [sys.executable, "-m", "tests.fuzz", "--workers", "2", "--count", str(COUNT)]
    done = subprocess.run(
        [*command, "--only", only],
        cwd=ROOT, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    counts = json.loads(done.stdout.splitlines()[-1])
    record_property("fuzz", json.dumps(counts))
    assert counts["mutations"] == COUNT
    assert counts["inputs"] >= least


@pytest.mark.parametrize("number", range(0, 200, 7))
def test_a_number_always_draws_the_same_damage(number):
    seeds = [Seed("a.csv", TEXT, "power")]
    assert trial.drawn(number, seeds) == trial.drawn(number, seeds)


@pytest.mark.parametrize("name", PLAIN)
def test_every_way_of_damage_takes_any_content(name):
    for data in (TEXT, b'{"traceEvents": [{"ph": "X", "ts": 1}]}', b"x" * 20, b"\x80\x02]q\x00."):
        for number in range(20):
            assert isinstance(PLAIN[name](Random(number), data), bytes)


@pytest.mark.parametrize("ending", STRUCTURES)
def test_every_structure_of_the_made_files_is_damaged_and_stays_a_container(ending):
    seeds = [seed for seed in made_files() if seed.name.endswith(ending)]
    for seed in seeds:
        damaged = {STRUCTURES[ending](Random(number), seed.data) for number in range(8)}
        assert len(damaged - {seed.data}) > 2
        if STRUCTURES[ending] in (sqlite, parquet_folder):
            assert all(data[:4] == seed.data[:4] for data in damaged)
    assert seeds


def judged(load, number=0):
    """Run trials of one made loader until one is not refused, and give what was said."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DOORS, "made", Door(load, lambda result: {"rows": float(result)}))
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            seeds = [Seed("a.csv", TEXT, "made")]
            known = {"a.csv": trial.Before({"rows": float(len(TEXT))}, {})}
            return trial.run(number, seeds, known, Path(folder))


def test_errors_of_libraries_are_defects_and_ours_are_not():
    def stumbles(path):
        raise KeyError(path)

    def refuses(path):
        raise LoadError(path)

    assert judged(stumbles).kind == "! KeyError"
    assert judged(refuses).kind == "refused"


def test_a_loader_that_never_ends_is_a_defect(monkeypatch):
    def spins(_path):
        while True:
            pass

    monkeypatch.setattr(trial, "MOST_CPU_S", 0.2)
    assert judged(spins).kind == "! no end after 0.2 s"


def test_a_loss_that_a_line_without_an_end_tells_is_a_defect_if_nothing_says_so():
    cuts = [
        number for number in range(400)
        if (damage := mutated(Random(number), TEXT, is_json=False)).is_told and not damage.ending
    ]  # fmt: skip
    assert cuts

    class Silent(int):
        quality = pd.DataFrame()

    outcome = judged(lambda path: Silent(path.stat().st_size), cuts[0])
    assert outcome.kind == "! changed, untold"
    assert outcome.detail.startswith("rows: ")


def test_what_a_table_left_out_counts_as_told():
    table = pd.DataFrame({"length_tokens": [1]})
    assert flagged(table) == {}
    table.attrs["left_out"] = {"a last line": 1}
    assert flagged(table) == {("dropped", "a last line"): 1}


@pytest.mark.long
def test_a_cut_is_to_be_told_unless_the_line_is_whole():
    text = b'{"a": 1}\n' * 20
    made = [mutated(Random(number), text, is_json=False) for number in range(4000)]
    told = {damage.data[-8:]: damage.is_told for damage in made if damage.name == "cut"}
    assert told.pop(b'{"a": 1}') is False
    assert {last for last, is_told in told.items() if not is_told} == {
        last for last in told if last.endswith(b"\n") or not last
    }
