"""Files as they are found years later: saved by a spreadsheet, cut, copied, put together."""

import gzip

import pytest

from workbench import load
from workbench.errors import LoadError

SUMMARY = (
    "Injection,Layer,TensorIndex,Bit,n_injections,masked,non_critical,critical\n"
    '0,conv1,"(7, 0, 2, 1)",15,10,8,2,0\n'
    '1,conv1,"(14, 0, 2, 0)",5,10,0,1,9\n'
)
LIST = 'Injection,Layer,TensorIndex,Bit\n4,fc,"(1, 7)",31\n5,fc,"(2, 7)",30\n'
GOLDEN = (
    "file_path,gnd_label,orig output index - top5,orig output prob - top5,time - orig model\n"
    "a.png,3,[3 5],[90. 5.],0.1\nb.png,4,[3 4],[60. 30.],0.1\n"
)
FAULTY = (
    "file_path,gnd_label,corr output index - top5,layer,channel_in,channel_out,3D channel,height,"
    "width,bit,nan_or_inf_flag_corr_model\n"
    "a.png,3,[0 5],[2],[7],[0],[None],[1],[2],[1],True\n"
    "b.png,4,[4 3],[2],[7],[0],[None],[1],[2],[1],False\n"
)
DETAIL = (
    "Injection, ImgID, GoldConf, GoldTop2Diff, GoldLabel, InjLabel, GoldLoss, InjLoss, DeltaLoss\n"
    "0, 17, 0.91, 0.85, 3, 3, 0.10, 0.11, 0.01\n1, 4, 0.55, 0.15, 2, 7, 0.60, 2.60, 2.00\n"
)
LAYERS = "fmap_id, Mismatches, Loss, Sample_Size, Proportion\n0, 1, 0.67, 3, 0.3\n"
LINES = (
    "0;add;0;26605;0.5;0.56:0x90:FADD:77:0x5:0.75:16::\n"
    "1;add;0;26605;0.5;0.56:0x90:FADD:77:0x10:0.75:1::\n"
)
AGAIN = "rows that are there already, cell for cell: files of two runs put together"


def from_spreadsheet(text, separator=";", head=""):
    """Save as a spreadsheet does: with a mark in front, its own separator and line ends."""
    quoted = text.split('"')
    plain = [p if n % 2 else p.replace(",", separator) for n, p in enumerate(quoted)]
    return b"\xef\xbb\xbf" + (head + '"'.join(plain)).replace("\n", "\r\n").encode()


def counts(result):
    return result.outcomes.filter(regex="^(masked|benign|sdc|due)_count").sum().tolist()


@pytest.mark.parametrize(
    "saved",
    [
        from_spreadsheet(SUMMARY),
        from_spreadsheet(SUMMARY, head="sep=;\n"),
        from_spreadsheet(SUMMARY, "\t"),
        gzip.compress(from_spreadsheet(SUMMARY, ",")),
    ],
    ids=["semicolons", "told", "tabs", "gzip"],
)
def test_a_spreadsheet_may_have_saved_a_file(written, saved):
    result = load.injections(written({"s.csv": saved}))
    assert counts(result) == [8, 3, 9, 0]
    assert result.faults["index"].tolist() == ["(7, 0, 2, 1)", "(14, 0, 2, 0)"]
    assert result.faults["bit"].tolist() == [15, 5]


def test_own_tables_come_back_from_a_spreadsheet(tiny, tmp_path):
    folder = load.write_injections(tiny, tmp_path / "own", format="csv")
    outcomes = folder / "outcomes.csv"
    text = outcomes.read_text().replace(",", ";")
    outcomes.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    result = load.injections(folder)
    assert result.outcomes["sdc_count"].tolist() == tiny.outcomes["sdc_count"].tolist()


def test_decimal_commas_are_named(written):
    place = written({"r.csv": "run;wrong;t\n0;3;3,5\n"})
    columns = {"exp_id": "run", "sdc_count": "wrong", "time_s": "t"}
    with pytest.raises(LoadError, match=r"'3,5' in row 1; write decimals with a point"):
        load.injection_records(place / "r.csv", columns=columns)


def test_a_line_that_breaks_off_is_left_out_and_told(written, found):
    result = load.injections(written({"s.csv": SUMMARY + '2,fc,"(1, 7)",31,10,5,5,'}))
    assert counts(result) == [8, 3, 9, 0]
    assert found(result)["truncated", "a last line that breaks off"] == 1


def test_a_last_number_that_may_be_cut_is_suspicious(written, found):
    result = load.injections(written({"s.csv": SUMMARY + '2,fc,"(1, 7)",31,10,0,0,1'}))
    what = "no line end after the last line: the file may be cut, and its last cell too short"
    assert found(result)["suspicious", what] == 1


def test_lines_that_an_open_quote_takes_along_are_counted(written, found):
    more = SUMMARY.replace("\n0,", "\n7,").replace("\n1,", "\n8,")
    result = load.injections(written({"s.csv": SUMMARY + '2,fc,"(1, ' + more}))
    assert result.outcomes["exp_id"].tolist() == [0, 1, 8]
    assert found(result)["dropped", "rows with more or fewer cells than the header"] == 2


def test_an_empty_cell_is_called_so(written):
    place = written({"s.csv": SUMMARY.replace("8,2,0", "8,2,")})
    with pytest.raises(LoadError, match=r"column 'critical'.*the first is an empty cell in row 1"):
        load.injections(place)


@pytest.mark.parametrize(
    ("files", "total"),
    [
        ({"s.csv": SUMMARY + SUMMARY}, [8, 3, 9, 0]),
        ({"s.csv": LIST + LIST}, [0, 0, 0, 0]),
        ({"layer0_detailed.csv": DETAIL + DETAIL, "post/all.csv": LAYERS + LAYERS}, [0, 0, 1, 1]),
        ({"r.bfm0.txt": LINES + LINES.replace("\n", "\r\n")}, [1, 0, 1, 0]),
    ],
    ids=["summary", "list", "GoldenEye", "NVBitFI"],
)
def test_a_file_that_was_put_together_twice_counts_once(written, found, files, total):
    result = load.injections(written(files))
    assert counts(result) == total
    assert found(result)["repaired", AGAIN] > 0


def test_two_files_of_one_layer_are_refused(written):
    place = written({"layer0_detailed.csv": DETAIL, "layer0_detailed (1).csv": DETAIL})
    with pytest.raises(LoadError, match=r"injections into layer 0, as in .*keep one of them"):
        load.injections(place)


def test_two_rows_of_one_layer_that_differ_are_refused(written):
    other = LAYERS + "0, 2, 0.5, 3, 0.6\n"
    place = written({"layer0_detailed.csv": DETAIL, "post/all.csv": other})
    with pytest.raises(LoadError, match=r"'fmap_id'.*layers of one run, each once"):
        load.injections(place)


def test_a_fault_list_beside_the_summary_of_another_is_kept(written, found):
    result = load.injections(written({"a/list.csv": LIST, "b/summary.csv": SUMMARY}))
    assert sorted(result.campaign["campaign_id"]) == ["list", "summary"]
    repeated = 'Injection,Layer,TensorIndex,Bit\n1,conv1,"(14, 0, 2, 0)",5\n'
    result = load.injections(written({"a/list.csv": repeated, "b/summary.csv": SUMMARY}))
    assert result.campaign["campaign_id"].tolist() == ["summary"]
    assert (
        found(result)["skipped by design", "a fault list that a summary repeats; taken once"] == 1
    )


def test_accuracies_of_several_runs_are_no_mean_of_each_other(written):
    batch = "0,0.9\n1,0.8\n"
    result = load.injections(written({"a/batch_0.csv": batch, "b/batch_0.csv": batch}))
    assert len(result.campaign) == 2


def test_decisions_alone_keep_the_full_name_of_the_tensor(written):
    text = (
        "Fault_ID,Fault_Layer,Fault_Index_0,Fault_Bit,Batch_ID,Image_ID,Top_1\n"
        "0,conv1.weight,3,30,0,0,5\n1,fc,3,30,0,0,5\n"
    )
    result = load.injections(written({"a_fault_injection_batch_0.csv": text}))
    assert result.faults["param"].tolist() == ["conv1.weight", "fc.weight"]


@pytest.mark.parametrize("words", [("TRUE", "FALSE"), ("true", "false"), ("1", "0")])
def test_flags_that_a_spreadsheet_wrote_are_due_as_well(written, words):
    faulty = FAULTY.replace("True", words[0]).replace("False", words[1])
    result = load.injections(written({"r_golden.csv": GOLDEN, "r_corr.csv": faulty}))
    assert counts(result) == [0, 0, 1, 1]


def test_a_missing_flag_is_refused_not_taken_for_finite(written):
    place = written({"r_golden.csv": GOLDEN, "r_corr.csv": FAULTY.replace("True", "")})
    with pytest.raises(LoadError, match=r"r_corr.csv.*nan_or_inf.*an empty cell in row 1"):
        load.injections(place)


def test_runs_appended_to_one_list_are_campaigns_of_their_own(written, found):
    run = "[1.0, 2]\nTime for 10 injections: 5.0 seconds\n"
    other = "[nan, 4]\r\nTime for 10 injections: 6.0 seconds\r\n7.0\n"
    result = load.injections(written({"res.csv": run + other}))
    assert result.campaign["campaign_id"].tolist() == ["res", "res, run 2", "res, run 3"]
    values = result.outcomes["metric_value"]
    assert values.dropna().tolist() == [1.0, 2.0, 4.0, 7.0]
    assert found(result)["truncated", "a last run without its time: it was stopped"] == 1


@pytest.mark.parametrize("model", [2, 3])
def test_the_mask_of_a_value_that_was_set_tells_no_bits(written, model):
    result = load.injections(written({f"r.bfm{model}.txt": LINES}))
    assert len(result.faults) == 2
    assert result.faults["bit"].isna().all()


def test_classes_are_the_same_with_and_without_a_decimal_point(written):
    place = written({"r.csv": "run,g,f\n0,3,3.0\n0,4,5.0\n0,dog,dog\n"})
    columns = {"exp_id": "run", "golden": "g", "faulty": "f"}
    result = load.injection_records(place / "r.csv", columns=columns)
    assert result.outcomes["sdc_count"].tolist() == [1]


def test_a_decision_that_is_not_there_is_no_changed_one(written):
    place = written({"r.csv": "run,g,f,bad\n0,3,,True\n0,4,4,False\n"})
    columns = {"exp_id": "run", "golden": "g", "faulty": "f"}
    with pytest.raises(LoadError, match=r"row 1 has an empty cell as 'faulty' \(1 rows do\)"):
        load.injection_records(place / "r.csv", columns=columns)
    result = load.injection_records(place / "r.csv", columns={**columns, "is_due": "bad"})
    assert result.outcomes[["sdc_count", "due_count"]].to_numpy().tolist() == [[0, 1]]


def test_what_is_said_of_a_campaign_has_to_fit(written):
    place = written({"r.csv": "run,wrong\n0,3\n"})
    with pytest.raises(ValueError, match=r"'input_count': 'ten'.*inputs per experiment"):
        load.injection_records(
            place / "r.csv",
            columns={"exp_id": "run", "sdc_count": "wrong"},
            campaign={"input_count": "ten"},
        )
