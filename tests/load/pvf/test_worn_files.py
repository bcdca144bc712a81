"""Files as they are found years later: saved by a spreadsheet, cut, copied, put together."""

import gzip
from pathlib import Path

import pytest

from workbench import load
from workbench.errors import LoadError
from workbench.load._pvf.exhaustive import write_injections

SUMMARY = (
    "Injection,Layer,TensorIndex,Bit,n_injections,masked,non_critical,critical\n"
    '0,conv1,"(7, 0, 2, 1)",15,10,8,2,0\n'
    '1,conv1,"(14, 0, 2, 0)",5,10,0,1,9\n'
)
# What is in it, by the names of the tables.
COLUMNS = {
    "exp_id": "Injection", "layer": "Layer", "index": "TensorIndex", "bit": "Bit",
    "masked_count": "masked", "benign_count": "non_critical", "sdc_count": "critical",
}  # fmt: skip
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


def summary(folder):
    return load.injection_records(folder / "s.csv", columns=COLUMNS)


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
    result = summary(written({"s.csv": saved}))
    assert counts(result) == [8, 3, 9, 0]
    assert result.faults["index"].tolist() == ["(7, 0, 2, 1)", "(14, 0, 2, 0)"]
    assert result.faults["bit"].tolist() == [15, 5]


def test_own_tables_come_back_from_a_spreadsheet(tiny, tmp_path):
    folder = write_injections(tiny, tmp_path / "own", format="csv")
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
    result = summary(written({"s.csv": SUMMARY + '2,fc,"(1, 7)",31,10,5,5,'}))
    assert counts(result) == [8, 3, 9, 0]
    assert found(result)["truncated", "a last line that breaks off"] == 1


def test_a_last_number_that_may_be_cut_is_suspicious(written, found):
    result = summary(written({"s.csv": SUMMARY + '2,fc,"(1, 7)",31,10,0,0,1'}))
    what = "no line end after the last line: the file may be cut, and its last cell too short"
    assert found(result)["suspicious", what] == 1


def test_lines_that_an_open_quote_takes_along_are_counted(written, found):
    more = SUMMARY.replace("\n0,", "\n7,").replace("\n1,", "\n8,")
    result = summary(written({"s.csv": SUMMARY + '2,fc,"(1, ' + more}))
    assert result.outcomes["exp_id"].tolist() == [0, 1, 8]
    assert found(result)["dropped", "rows with more or fewer cells than the header"] == 2


def test_an_empty_cell_is_called_so(written):
    place = written({"s.csv": SUMMARY.replace("\n0,conv1", "\n,conv1")})
    with pytest.raises(LoadError, match=r"column 'Injection'.*the first is an empty cell in row 1"):
        summary(place)


def test_a_file_that_was_put_together_twice_counts_once(written, found):
    result = load.injections(written({"r.bfm0.txt": LINES + LINES.replace("\n", "\r\n")}))
    assert counts(result) == [1, 0, 1, 0]
    assert found(result)["repaired", AGAIN] > 0


@pytest.mark.parametrize("words", [("TRUE", "FALSE"), ("true", "false"), ("1", "0")])
def test_flags_that_a_spreadsheet_wrote_are_due_as_well(written, words):
    faulty = FAULTY.replace("True", words[0]).replace("False", words[1])
    result = load.injections(written({"r_golden.csv": GOLDEN, "r_corr.csv": faulty}))
    assert counts(result) == [0, 0, 1, 1]


def test_a_missing_flag_is_refused_not_taken_for_finite(written):
    place = written({"r_golden.csv": GOLDEN, "r_corr.csv": FAULTY.replace("True", "")})
    with pytest.raises(LoadError, match=r"r_corr.csv.*nan_or_inf.*an empty cell in row 1"):
        load.injections(place)


def test_tools_can_be_mixed_in_one_folder(written):
    texts = {"r_golden.csv": GOLDEN, "r_corr.csv": FAULTY, "r.bfm0.txt": LINES}
    result = load.injections(written(texts))
    assert set(result.campaign["tool"]) == {"NVBitFI", "pytorchALFI"}
    assert repr(result).startswith("Injections by NVBitFI, pytorchALFI: 2 campaigns")
    only = load.injections(written({}), tool="NVBitFI")
    assert set(only.campaign["tool"]) == {"NVBitFI"}


def test_later_campaigns_of_a_name_are_told_by_their_file(written):
    texts = {"a/r.bfm0.txt": LINES, "b/r.bfm0.txt": LINES.replace("add", "mul")}
    result = load.injections(written(texts))
    assert sorted(result.campaign["campaign_id"]) == ["r.bfm0", "r.bfm0 (2)"]
    numbered = result.quality[result.quality["what"].str.contains("the later one is numbered")]
    assert [Path(each).parent.name for each in numbered["source"]] == ["b"]


def test_of_another_tool_the_names_of_its_columns_are_asked_for(written):
    with pytest.raises(LoadError, match=r"other tools: load.injection_records\(path, columns="):
        load.injections(written({"s.csv": SUMMARY}))


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
