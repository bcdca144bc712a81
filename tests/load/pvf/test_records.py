"""Any CSV, by the names of its columns; and kinds of data told before they are loaded."""

import pytest

from workbench import load
from workbench.errors import LoadError
from workbench.load._pvf.exhaustive import write_injections
from workbench.load.kinds import kinds_of

COUNTS = "run,layer,b,wrong,nan,colour\n5,conv1,30,7,1,red\n6,fc,2,0,0,blue\n"
TRIALS = (
    "run,layer,b,clean,hit,truth,bad\n"
    "5,conv1,30,3,3,3,False\n5,conv1,30,4,5,5,False\n5,conv1,30,4,4,4,True\n6,fc,2,1,2,1,False\n"
)
SITE = {"exp_id": "run", "layer": "layer", "bit": "b"}


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "r.csv"
        path.write_text(text)
        return path

    return write


def test_counts_are_taken_as_they_are_named(file, found):
    result = load.injection_records(
        file(COUNTS),
        columns={**SITE, "sdc_count": "wrong", "due_count": "nan"},
        campaign={"tool": "PyTorchFI", "dtype": "fp32", "input_count": 10},
    )
    assert result.outcomes[["exp_id", "sdc_count", "due_count"]].to_numpy().tolist() == [
        [5, 7, 1],
        [6, 0, 0],
    ]
    assert result.outcomes["input_count"].isna().all()
    assert result.faults["bit"].tolist() == [30, 2]
    assert result.campaign[["campaign_id", "tool"]].to_numpy().tolist() == [["r", "PyTorchFI"]]
    assert found(result)["skipped by design", "columns that have no place in the tables"] == 1


def test_decisions_are_compared_input_by_input(file):
    named = {**SITE, "golden": "clean", "faulty": "hit", "label": "truth", "is_due": "bad"}
    result = load.injection_records(file(TRIALS), columns=named)
    columns = ["exp_id", "input_count", "sdc_count", "due_count", "beneficial_count"]
    assert result.outcomes[columns].to_numpy().tolist() == [[5, 3, 1, 1, 1], [6, 1, 1, 0, 0]]
    assert result.outcomes["masked_count"].isna().all()
    assert result.trials["input_id"].tolist() == [0, 1, 2, 0]
    assert len(result.faults) == 2
    without = {key: name for key, name in named.items() if key != "is_due"}
    assert load.injection_records(file(TRIALS), columns=without).outcomes["due_count"].isna().all()


def test_inputs_that_are_named_are_there_once_and_not_counted_again(file):
    named = {**SITE, "input_id": "n", "golden": "clean", "faulty": "hit"}
    text = "run,layer,b,n,clean,hit\n5,conv1,30,0,3,3\n5,conv1,30,1,4,5\n"
    result = load.injection_records(file(text), columns=named)
    assert set(result.quality["what"]) == {"rows"}
    with pytest.raises(LoadError, match="trials has 1 rows whose key"):
        load.injection_records(file(text.replace("30,1,", "30,0,")), columns=named)


def test_outcomes_are_counted_by_their_words(file):
    text = "run,how\n0,ok\n0,SDC-1\n1,ok\n1,crash\n1,\n"
    result = load.injection_records(
        file(text),
        columns={"exp_id": "run", "outcome": "how"},
        outcomes={"ok": "masked", "SDC-1": "sdc", "crash": "due"},
    )
    columns = ["input_count", "masked_count", "sdc_count", "due_count"]
    assert result.outcomes[columns].to_numpy().tolist() == [[2, 1, 1, 0], [3, 1, 0, 1]]
    assert result.outcomes["benign_count"].isna().all()  # nobody said that there is such a word
    with pytest.raises(LoadError, match="row 2 ends as 'SDC-1'; say what that is"):
        load.injection_records(
            file(text), columns={"outcome": "how"}, outcomes={"ok": "masked", "crash": "due"}
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"columns": {"colour": "x"}},
            r"columns= names \['colour'\], which the tables do not have",
        ),
        ({"columns": {"sdc_count": "wrong"}, "campaign": {"x": 1}}, r"campaign= names \['x'\]"),
        ({"columns": {"outcome": "x"}, "outcomes": {"x": "odd"}}, r"outcomes= names \['odd'\]"),
        ({"columns": {"golden": "x"}}, "name both"),
        (
            {"columns": {"outcome": "x", "golden": "y", "faulty": "z"}},
            "the one that is to be believed",
        ),
        ({"columns": {"exp_id": "run"}}, "names no result"),
    ],
)
def test_names_that_the_tables_do_not_have_are_refused(file, options, message):
    with pytest.raises(ValueError, match=message):
        load.injection_records(file(COUNTS), **options)


def test_absent_columns_and_contradictions_are_refused(file, tmp_path):
    with pytest.raises(LoadError, match=r"no column \['missing'\]; it has \['run', 'layer'"):
        load.injection_records(file(COUNTS), columns={"sdc_count": "missing"})
    with pytest.raises(LoadError, match=r"column 'layer': 2 values are not whole numbers from 0"):
        load.injection_records(file(COUNTS), columns={"sdc_count": "layer"})
    moved = TRIALS.replace("5,conv1,30,4,5", "5,conv2,30,4,5")
    with pytest.raises(LoadError, match="experiment 5 is recorded as hitting different places"):
        load.injection_records(file(moved), columns={**SITE, "golden": "clean", "faulty": "hit"})
    (tmp_path / "second.csv").write_text(COUNTS)
    with pytest.raises(LoadError, match="holds 2 files"):
        load.injection_records(tmp_path, columns={"sdc_count": "wrong"})


def test_kinds_of_data_are_told_apart(tiny, tmp_path, fleet_demo):
    place = load.write(tiny, tmp_path / "run")
    assert kinds_of(place) == {"injections"}
    assert kinds_of(place / "faults.parquet") == {"injections"}
    assert kinds_of(write_injections(tiny, tmp_path / "texts", format="csv")) == {"injections"}
    assert kinds_of(fleet_demo) == {"failure logs", "job logs", "power logs", "traces"}


def test_quality_of_injections_is_told_like_that_of_traces(tiny, tmp_path):
    place = load.write(tiny, tmp_path / "run")
    told = load.quality(place)
    assert ("read", "rows") in set(zip(told["finding"], told["what"], strict=True))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" ", "the first line has 0 names of columns"),
        ("\n", "the first line has 0 names of columns"),
        (",,\n1,2,sdc\n", r"columns \[''\] are there twice"),
        ("bit,outcome,bit,bit\n1,sdc,1,1\n", r"columns \['bit'\] are there twice"),
        ("exp_id,outcome" + ",x" * 50_000 + "\n1,sdc\n", "50,002 names of columns"),
    ],
)
def test_a_header_without_names_or_with_one_twice_is_refused(tmp_path, text, message):
    path = tmp_path / "own.csv"
    path.write_text(text)
    with pytest.raises(LoadError, match=message):
        load.injection_records(path)
