"""The workbench's own results: what is written comes back, and contradictions are refused."""

import gzip
import json
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import load
from workbench.errors import LoadError, TableError
from workbench.load._pvf.exhaustive import write_injections
from workbench.load._pvf.reader import assembled
from workbench.tables import CAMPAIGN, FAULTS, OUTCOMES, PARAMETERS, QUALITY, TRIALS, Injections

NAMES = ("campaign", "faults", "outcomes", "trials", "parameters")
CAMPAIGN_CSV = "campaign_id,tool,input_count\nc,mytool,10\n"
FAULTS_CSV = "campaign_id,exp_id,flip,param,elem,bit\nc,0,0,w,1,30\nc,1,0,w,2,3\n"
OUTCOMES_CSV = "campaign_id,exp_id,input_count,masked_count,benign_count,sdc_count,due_count\n"


@pytest.fixture
def folder(tmp_path):
    """Write tables as CSV and return their folder."""

    def write(rows="c,0,10,7,1,1,1\nc,1,10,10,0,0,0\n", **more):
        texts = {"campaign": CAMPAIGN_CSV, "faults": FAULTS_CSV, "outcomes": OUTCOMES_CSV + rows}
        for name, text in {**texts, **more}.items():
            if text is not None:
                path = tmp_path / "run" / (name if "." in name else f"{name}.csv")
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return tmp_path / "run"

    return write


def same(first, second):
    for name in NAMES:
        pd.testing.assert_frame_equal(getattr(first, name), getattr(second, name))


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_what_is_written_comes_back_with_types_categories_and_times(tiny, tmp_path, form):
    place = write_injections(tiny, tmp_path / "run", format=form)
    assert sorted(file.name for file in place.iterdir()) == [f"{n}.{form}" for n in sorted(NAMES)]
    loaded = load.injections(place)
    same(tiny, loaded)
    assert loaded.campaign["created"].dtype == "datetime64[ns, UTC]"
    assert loaded.outcomes["detected_gemm_count"].tolist() == [1, pd.NA]
    assert loaded.is_synthetic


def test_parquet_keeps_categories_that_do_not_occur_and_their_order(tiny, tmp_path):
    kinds = pd.CategoricalDtype(["top.0", "unused", "bottom.0"])
    faults = tiny.faults.assign(layer=tiny.faults["layer"].astype(str).astype(kinds))
    given = Injections(
        tiny.campaign, faults, tiny.outcomes, tiny.trials, tiny.parameters, tiny.quality
    )
    loaded = load.injections(load.write(given, tmp_path / "run"))
    assert loaded.faults["layer"].cat.categories.tolist() == ["top.0", "unused", "bottom.0"]
    assert loaded.faults["layer"].tolist()[:2] == ["top.0", "bottom.0"]


@pytest.mark.long
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**53),
            st.one_of(st.none(), st.floats()),
            st.one_of(st.none(), st.text(st.characters(codec="utf-8", exclude_characters="\0"))),
        ),
        max_size=20,
        unique_by=lambda row: row[0],
    ),
    st.sampled_from(["parquet", "csv"]),
)
def test_numbers_and_texts_survive_to_the_last_bit(tmp_path_factory, rows, form):
    campaign = CAMPAIGN.cast(
        pd.DataFrame({n: ["c" if n in {"campaign_id", "tool"} else None] for n in CAMPAIGN.columns})
    )
    values = {
        "campaign_id": ["c"] * len(rows),
        "exp_id": [row[0] for row in rows],
        "max_abs_delta": [row[1] for row in rows],
        "error": [row[2] for row in rows],
    }
    columns = {n: values.get(n, [None] * len(rows)) for n in OUTCOMES.columns}
    outcomes = OUTCOMES.cast(pd.DataFrame(columns, dtype=object)) if rows else OUTCOMES.empty()
    made = Injections(
        campaign, FAULTS.empty(), outcomes, TRIALS.empty(), PARAMETERS.empty(), QUALITY.empty()
    )
    place = write_injections(made, tmp_path_factory.mktemp("law") / "run", format=form)
    loaded = load.injections(place).outcomes
    pd.testing.assert_frame_equal(loaded, outcomes)


def test_an_earlier_campaign_in_the_folder_is_replaced_whole(tiny, tmp_path):
    place = write_injections(tiny, tmp_path / "run", format="csv")
    (place / "notes.txt").write_text("mine")
    without = Injections(
        tiny.campaign, tiny.faults, tiny.outcomes, TRIALS.empty(), tiny.parameters, tiny.quality
    )
    load.write(without, place)
    assert {file.name for file in place.iterdir()} == {
        "campaign.parquet", "faults.parquet", "outcomes.parquet", "parameters.parquet", "notes.txt",
    }  # fmt: skip
    assert len(load.injections(place).trials) == 0


def test_nothing_is_left_behind_when_writing_fails(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(pq, "write_table", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        load.write(tiny, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_writing_checks_the_tables_and_the_format(tiny, tmp_path):
    with pytest.raises(ValueError, match="format must be one of"):
        write_injections(tiny, tmp_path / "run", format="xlsx")
    broken = Injections(
        tiny.campaign, tiny.faults.drop(columns="bit"), tiny.outcomes, tiny.trials,
        tiny.parameters, tiny.quality,
    )  # fmt: skip
    with pytest.raises(TableError, match="'bit' is missing"):
        load.write(broken, tmp_path / "run")


def test_tables_are_found_in_archives_and_in_gzip(tiny, tmp_path):
    place = load.write(tiny, tmp_path / "run")
    with zipfile.ZipFile(tmp_path / "run.zip", "w") as archive:
        for file in place.iterdir():
            archive.write(file, f"results/{file.name}")
        archive.writestr("../escape.csv", "campaign_id,tool\nx,y\n")
    loaded = load.injections(tmp_path / "run.zip")
    same(tiny, loaded)
    assert "leads out of the archive" in " ".join(loaded.quality["what"])
    texts = write_injections(tiny, tmp_path / "texts", format="csv")
    for file in list(texts.iterdir()):
        file.with_suffix(".csv.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    assert len(load.injections(texts).faults) == 3


def test_the_names_of_other_writers_are_understood(folder):
    place = folder(
        **{"campaign": None, "campaign.json": '{"campaign_id": "c", "tool": "t", "mask_tol": 0, "n_inputs": 10}'},
        faults="exp_id,flip_no,param,elem,bit\n0,0,w,1,30\n",
        outcomes="exp_id,n_inputs,n_masked,n_benign,n_sdc,n_due,n_beneficial\n0,10,7,1,1,1,1\n",
    )  # fmt: skip
    loaded = load.injections(place)
    assert loaded.campaign["masked_rule"].tolist() == ["bit_equal"]
    assert loaded.campaign["input_count"].tolist() == [10]
    assert loaded.outcomes["campaign_id"].tolist() == ["c"]
    assert loaded.outcomes.filter(like="_count").iloc[0].tolist() == [10, 7, 1, 1, 1, 1]
    assert loaded.faults[["flip", "bit"]].to_numpy().tolist() == [[0, 30]]


def test_unknown_columns_are_set_aside_and_detectors_kept(folder, found):
    place = folder(
        outcomes=OUTCOMES_CSV.strip() + ",colour,detected_abft_count\nc,0,10,7,1,1,1,red,2\n",
        faults="campaign_id,exp_id,param\nc,0,w\n",
    )
    loaded = load.injections(place)
    assert "colour" not in loaded.outcomes
    assert loaded.outcomes["detected_abft_count"].tolist() == [2]
    assert found(loaded)["skipped by design", "columns that have no place in the tables"] == 1
    assert loaded.faults["flip"].tolist() == [0]


def test_two_folders_with_one_name_are_told_apart(folder, tmp_path, found):
    folder()
    place = tmp_path / "run"
    place.rename(tmp_path / "first")
    folder().rename(tmp_path / "second")
    loaded = load.injections([tmp_path / "first", tmp_path / "second"])
    assert loaded.campaign["campaign_id"].tolist() == ["c", "c (2)"]
    assert loaded.outcomes["campaign_id"].tolist() == ["c", "c", "c (2)", "c (2)"]
    assert any("numbered" in what for _, what in found(loaded))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("c,0,10,7,1,1,1\nc,0,10,7,1,1,1\n", r"key .* is there already, the first is row 2"),
        ("c,0,10,7,1,1,0\n", r"row 1 \(campaign c, experiment 0\): .* is 9 of 10 inputs"),
        ("c,0,10,9,1,1,\n", r"is 11 of 10 inputs; the counts contradict each other"),
        ("c,0,10,9,1,-1,1\n", r"column 'sdc_count': 1 values are not whole numbers from 0"),
        ("c,0,10,9,x,0,1\n", r"column 'benign_count': .* the first is 'x' in row 1"),
        ("c,0,10,9,0.5,0,1\n", r"not whole numbers from 0, the first is '0.5' in row 1"),
        ("c,nan,10,9,0,0,1\n", r"column 'exp_id': .* the first is 'nan' in row 1"),
        ("c,,10,9,0,0,1\n", r"column 'exp_id': 1 values are not whole numbers"),
        ("c,0,99999999999999999999,9,0,0,1\n", r"the first is '99999999999999999999' in row 1"),
        ("d,0,10,9,0,0,1\n", r"results without a campaign header: .* no campaign_id \['d'\]"),
        (",0,10,9,0,0,1\n", r"column 'campaign_id': 1 values are not there"),
    ],
)  # fmt: skip
def test_results_that_cannot_be_true_are_refused(folder, rows, message):
    with pytest.raises(LoadError, match=message):
        load.injections(folder(rows))


def test_a_campaign_without_rows_is_refused_and_other_tables_without_rows_are_noted(folder, found):
    assert found(load.injections(folder("")))["noted", "a header without rows"] == 1
    with pytest.raises(LoadError, match="has a header and no rows"):
        load.injections(folder(campaign="campaign_id,tool\n"))


def test_more_beneficial_than_sdc_is_refused(folder):
    text = OUTCOMES_CSV.strip() + ",beneficial_count\nc,0,10,7,1,1,1,2\n"
    with pytest.raises(LoadError, match="2 beneficial of 1 SDC"):
        load.injections(folder(outcomes=text))


def test_a_bit_that_is_hit_twice_is_refused(folder):
    with pytest.raises(LoadError, match=r"faults has 1 rows whose key .* flip"):
        load.injections(folder(faults="campaign_id,exp_id,flip,bit\nc,0,0,1\nc,0,0,2\n"))


def test_trials_that_contradict_the_counts_are_refused(folder):
    trials = "campaign_id,exp_id,input_id,outcome\n" + "".join(
        f"c,0,{n},{'sdc' if n < 2 else 'masked'}\n" for n in range(10)
    )
    with pytest.raises(LoadError, match="experiment 0 has 8 masked among its trials and 7"):
        load.injections(folder("c,0,10,7,1,1,1\n", trials=trials))
    some = "\n".join(trials.splitlines()[:4])
    loaded = load.injections(folder("c,0,10,7,1,1,1\n", trials=some))
    assert "experiments with trials of some inputs only" in set(loaded.quality["what"])


def test_results_without_a_campaign_header_name_the_missing_table(folder):
    with pytest.raises(LoadError, match=r"without a campaign header.*campaign.parquet, .csv or"):
        load.injections(folder(campaign=None))


def test_a_table_that_is_there_twice_is_refused(folder):
    with pytest.raises(LoadError, match="holds the table 'faults' twice"):
        load.injections(folder(more=FAULTS_CSV))


def test_a_missing_column_is_named(folder):
    with pytest.raises(LoadError, match=r"table 'parameters' has no column \['component', 'layer'"):
        load.injections(folder(parameters="campaign_id,param,element_count,bit_count\nc,w,1,32\n"))


def test_a_doubled_column_is_named(folder):
    with pytest.raises(LoadError, match=r"columns \['bit'\] are there twice"):
        load.injections(folder(faults="campaign_id,exp_id,bit,bit\nc,0,1,1\n"))
    with pytest.raises(LoadError, match=r"columns \['sdc_count'\] are there twice"):
        load.injections(folder(outcomes="campaign_id,exp_id,sdc_count,n_sdc\nc,0,1,1\n"))


def test_times_without_a_zone_are_refused(folder):
    campaign = "campaign_id,tool,created\nc,t,2025-01-31T08:00:00\n"
    with pytest.raises(LoadError, match="not times with a zone such as"):
        load.injections(folder(campaign=campaign))


def test_odd_truth_values_are_refused(folder):
    campaign = "campaign_id,tool,is_synthetic\nc,t,perhaps\n"
    with pytest.raises(LoadError, match="not true or false, the first is 'perhaps'"):
        load.injections(folder(campaign=campaign))


def test_experiments_that_only_one_table_knows_are_counted(folder, found):
    by = found(load.injections(folder("c,0,10,7,1,1,1\nc,5,10,10,0,0,0\n")))
    assert by["noted", "experiments with faults and no outcome: never run"] == 1
    assert by["suspicious", "experiments with an outcome and no fault"] == 1


def test_mixed_line_ends_and_bytes_that_are_no_utf8_are_mended(folder, found):
    rows = b"c,0,0,w\xff,1,30\nc,1,0,w,2,3\r\nc,2,0,w,2,3"
    loaded = load.injections(folder(faults=b"campaign_id,exp_id,flip,param,elem,bit\r\n" + rows))
    assert len(loaded.faults) == 3
    assert any(finding == "repaired" and "UTF-8" in what for finding, what in found(loaded))


def test_a_row_that_is_cut_off_is_left_out_and_counted(folder, found):
    loaded = load.injections(folder(faults=FAULTS_CSV + "c,2,0,w"))
    assert len(loaded.faults) == 2
    assert found(loaded)["dropped", "rows with more or fewer cells than the header"] == 1


@pytest.mark.parametrize("cut", [10, 200, -20])
def test_damaged_parquet_is_refused_or_left_out(tiny, tmp_path, cut):
    place = load.write(tiny, tmp_path / "run")
    file = place / "outcomes.parquet"
    file.write_bytes(file.read_bytes()[:cut])
    loaded = load.injections(place)
    assert len(loaded.outcomes) == 0
    left = loaded.quality[loaded.quality["finding"] == "dropped"]
    assert left["source"].tolist() == [str(file)]


def test_parquet_of_a_later_layout_is_refused(tiny, tmp_path):
    place = load.write(tiny, tmp_path / "run")
    table = pq.read_table(place / "faults.parquet")
    header = {b"workbench-injections": json.dumps({"version": 2}).encode()}
    pq.write_table(table.replace_schema_metadata(header), place / "faults.parquet")
    with pytest.raises(LoadError, match="layout version 2, this reads 1"):
        load.injections(place)


def test_parquet_of_others_is_read_by_its_columns(folder):
    place = folder(faults=None, outcomes=None)
    pq.write_table(
        pa.table({"exp_id": pa.array([0, 1], pa.int32()), "param": pa.array(["w", "w"]).dictionary_encode(),
                  "bit": pa.array([1, 2], pa.uint8()), "value_before": pa.array([1.0, None], pa.float32())}),
        place / "f.parquet",
    )  # fmt: skip
    pq.write_table(
        pa.table({"exp_id": [0, 1], "sdc_count": pa.array([1.0, None]), "input_count": [10, 10]}),
        place / "o.parquet",
    )
    loaded = load.injections(place)
    assert loaded.faults["bit"].tolist() == [1, 2]
    assert loaded.outcomes["sdc_count"].tolist() == [1, pd.NA]


@pytest.mark.parametrize(
    ("content", "appearance"),
    [
        (b"hello\n", "begins with 'hello'"),
        (bytes(range(256)), "binary data"),
        ("campaign_id,tool\nc,t\n".encode("utf-16"), "is UTF-16"),
        (b'{"a": 1}', "begins with"),
        (b"[" * 100_000, "begins with"),
        (b"PAR1" + b"\0" * 100, "is a Parquet table|that is damaged"),
    ],
)
def test_what_nobody_knows_is_listed(tmp_path, content, appearance):
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(LoadError, match=rf"(?s)no readable injection results found.*{appearance}"):
        load.injections(tmp_path)


def test_an_empty_file_and_an_empty_folder_are_refused(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"")
    with pytest.raises(LoadError, match="is empty"):
        load.injections(tmp_path / "x.csv")
    with pytest.raises(LoadError, match="no injection result found"):
        load.injections(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such file"):
        load.injections(tmp_path / "absent")


def test_an_unknown_tool_is_refused_and_a_known_one_reads_its_own_files_only(folder):
    with pytest.raises(ValueError, match="tool must be one of"):
        load.injections(folder(), tool="nobody")
    assert len(load.injections(folder(), tool="workbench").outcomes) == 2


def test_nothing_loaded_is_still_a_set_of_tables():
    assert repr(assembled([])).startswith("Injections by nobody")


def test_counts_of_wide_numbers_do_not_wrap(folder):
    with pytest.raises(
        LoadError, match="column 'bit': 1 values are not whole numbers from 0 of 16"
    ):
        load.injections(folder(faults="campaign_id,exp_id,bit\nc,0,70000\n"))
    assert np.iinfo(np.int16).max < 70000


def test_numbers_that_need_all_64_bits_do_not_wrap(folder):
    place = folder(faults=None)
    ids = pa.array([0, 2**64 - 1], pa.uint64())
    pq.write_table(
        pa.table({"exp_id": ids, "param": ["w", "w"], "bit": [1, 2]}), place / "f.parquet"
    )
    with pytest.raises(LoadError, match="not whole numbers, the first is '18446744073709551615'"):
        load.injections(place)
