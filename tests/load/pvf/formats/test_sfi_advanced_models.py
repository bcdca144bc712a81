"""SFIadvancedmodels: its own totals, and the traps of its files."""

import pytest

from workbench import load
from workbench.errors import LoadError

LIST = (
    "Injection,Layer,TensorIndex,Bit\r\n"
    '0,features.0,"(3, 0, 2, 1)",15\r\n'
    '1,features.0,"(14, 2, 2, 0)",30\r\n'
    '2,classifier,"(9, 4)",31\r\n'
)
SUMMARY = (
    "Injection,Layer,TensorIndex,Bit,n_injections,masked,non_critical,critical\n"
    '0,conv1,"(7, 0, 2, 1)",15,10000,10000,0,0\n'
    '1,conv1,"(14, 0, 2, 0)",5,10000,0,0,0\n'
    '2,conv1,"(27, 0, 0, 0)",13,10000,701,9298,1\n'
)
HEADER = "fault,batch,image,output\r\n"
# Two faults on two batches, of 2 and 1 images: 3 masked, 1 non-critical, 2 critical.
ANALYSIS = HEADER + "0,0,0,0\r\n0,0,1,0\r\n0,1,0,1\r\n1,0,0,2\r\n1,0,1,0\r\n1,1,0,2\r\n"
PREDICTIONS = (
    "Fault_ID,Fault_Layer,Fault_Index_0,Fault_Index_1,Fault_Index_2,Fault_Index_3,Fault_Bit,"
    "Fault_Value,Batch_ID,Image_ID,Top_1,Top_Score\n"
)


@pytest.fixture
def written(tmp_path):
    def write(**texts):
        for name, text in texts.items():
            (tmp_path / f"{name}.csv").write_bytes(text.encode())
        return tmp_path

    return write


def totals(result):
    return result.outcomes.filter(regex="^(masked|benign|sdc)_count").sum().tolist()


def test_a_fault_list_is_a_campaign_without_outcomes(written):
    faults = load.injections(written(list=LIST))
    assert faults.faults["index"].tolist() == ["(3, 0, 2, 1)", "(14, 2, 2, 0)", "(9, 4)"]
    assert faults.faults["bit"].tolist() == [15, 30, 31]
    head = faults.campaign.iloc[0]
    assert (head["fault_model"], head["nan_policy"], head["dtype"]) == ("sbf", "as_is", "fp32")
    assert faults.faults["param"].tolist() == ["features.0.weight"] * 2 + ["classifier.weight"]
    assert faults.faults["bit_role"].tolist() == ["mant", "exp", "sign"]
    assert faults.faults["elem"].isna().all()  # shapes are not in the list
    assert len(faults.outcomes) == 0


def test_a_summary_keeps_its_totals(written, found):
    result = load.injections(written(summary=SUMMARY))
    assert totals(result) == [10_701, 9_298, 1]
    assert result.outcomes["exp_id"].tolist() == [0, 2]  # fault 1 was never run
    assert result.outcomes["input_count"].tolist() == [10_000, 10_000]
    assert result.outcomes["due_count"].isna().all()
    by = found(result)
    assert by["skipped by design", "faults whose counts sum to 0: never run"] == 1


def test_inputs_are_the_sum_of_the_counts_whatever_the_constant_says(written, found):
    short = SUMMARY.replace("701,9298,1", "7,92,1").replace("10000,10000,0,0", "10000,20000,0,0")
    result = load.injections(written(summary=short))
    assert result.outcomes["input_count"].tolist() == [20_000, 100]
    by = found(result)
    assert by["noted", "n_injections that are not the sum of the counts; the sum is taken"] == 2
    assert sum("appended to twice" in what for _, what in by) == 1


def test_an_analysis_is_counted_and_joined_to_its_list(written):
    result = load.injections(written(list=LIST, output_analysis=ANALYSIS))
    assert totals(result) == [3, 1, 2]
    assert result.outcomes["sdc_count"].tolist() == [0, 2]
    assert result.outcomes["input_count"].tolist() == [3, 3]
    assert result.trials["input_id"].tolist() == [0, 1, 2, 0, 1, 2]
    assert result.trials["outcome"].tolist() == [
        "masked",
        "masked",
        "benign",
        "sdc",
        "masked",
        "sdc",
    ]
    assert result.faults["bit"].tolist() == [15, 30, 31]
    assert set(result.faults["campaign_id"]) == set(result.campaign["campaign_id"])


def test_a_file_that_was_appended_to_is_counted_once(written, found):
    result = load.injections(written(output_analysis=ANALYSIS + ANALYSIS))
    assert totals(result) == [3, 1, 2]
    by = found(result)
    assert by["repaired", "repeated header lines"] == 1
    assert by["repaired", "rows that are there already, from a file appended to twice"] == 6


def test_an_appended_run_that_ends_otherwise_is_refused(written):
    with pytest.raises(LoadError, match=r"fault 0, input 1 ends as 0 in row 2 and as 2 in row 7"):
        load.injections(written(output_analysis=ANALYSIS + "0,0,1,2\r\n"))


def test_a_summary_beside_its_analysis_is_not_counted_twice(written, found):
    summary = (
        "Injection,Layer,TensorIndex,Bit,n_injections,masked,non_critical,critical\n"
        '0,features.0,"(3, 0, 2, 1)",15,10000,2,1,0\n1,features.0,"(14, 2, 2, 0)",30,10000,1,0,2\n'
    )
    result = load.injections(written(list=LIST, output_analysis=ANALYSIS, m_summary=summary))
    assert totals(result) == [3, 1, 2]
    assert any("taken once" in what for _, what in found(result))


def test_an_analysis_with_several_lists_asks_for_one(written, tmp_path):
    written(output_analysis=ANALYSIS, a=LIST, b=LIST)
    with pytest.raises(LoadError, match="several fault lists may be its own"):
        load.injections(tmp_path)
    result = load.injections([tmp_path / "output_analysis.csv", tmp_path / "a.csv"])
    assert totals(result) == [3, 1, 2]


def test_predictions_of_batches_are_one_campaign_without_outcomes(written):
    rows = (
        "0,conv1,3,0,2,1,15,,0,0,7,0.9\n0,conv1,3,0,2,1,15,,0,1,7,0.9\n1,fc,9,4,,,30,,0,0,1,0.1\n"
    )
    later = "0,conv1,3,0,2,1,15,,1,0,7,0.9\n1,fc,9,4,,,30,,1,0,1,0.1\n"
    result = load.injections(
        written(
            fault_injection_batch_0=PREDICTIONS + rows, fault_injection_batch_1=PREDICTIONS + later
        )
    )
    assert result.faults["index"].tolist() == ["(3, 0, 2, 1)", "(9, 4)"]
    assert result.outcomes["input_count"].tolist() == [3, 2]
    assert result.outcomes["sdc_count"].isna().all()
    assert result.trials["input_id"].tolist() == [0, 1, 0, 2, 2]
    assert result.campaign["fault_model"].tolist() == ["sbf"]


def test_a_place_that_is_not_told_is_missing(written):
    result = load.injections(written(p=PREDICTIONS + "0,fc,,,,,30,,0,0,1,0.1\n"))
    assert result.faults["index"].isna().tolist() == [True]


@pytest.mark.parametrize(("value", "model"), [("1", "stuck1"), ("0", "stuck0"), ("7", "other")])
def test_a_value_that_is_forced_is_no_flip(written, value, model):
    result = load.injections(written(p=PREDICTIONS + f"0,fc,9,4,,,30,{value},0,0,1,0.1\n"))
    assert result.campaign["fault_model"].tolist() == [model]


def test_accuracies_per_fault_have_no_header_and_the_mean_stands_for_its_batches(written, found):
    result = load.injections(
        written(batch_0="0,0.5\r\n1,1.0\r\n2,0.25\r\n", batch_1="0,1.0\r\n1,1.0\r\n2,0.75\r\n",
                all_batches="0,0.75\r\n1,1.0\r\n2,0.5\r\n")
    )  # fmt: skip
    assert result.campaign["campaign_id"].tolist() == ["all_batches"]
    assert result.outcomes["metric_value"].tolist() == [0.75, 1.0, 0.5]
    assert sum("is their mean" in what for _, what in found(result)) == 1
    assert result.outcomes["metric_name"].tolist() == ["accuracy"] * 3


def test_extra_columns_of_derivatives_are_set_aside(written, found):
    derived = SUMMARY.replace("critical\n", "critical,Frame,mIoU\n").replace("0\n", "0,1,0.5\n")
    derived = derived.replace(",1\n", ",1,1,0.5\n")
    result = load.injections(written(summary=derived))
    assert totals(result) == [10_701, 9_298, 1]
    assert found(result)["skipped by design", "columns that have no place in the tables"] == 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(3, 0, 2, 1)", "__import__('os')", r"'TensorIndex': .* not places in a tensor"),
        (",15", ",32", r"'Bit': 1 values are not bits of a float32 \(0 to 31\)"),
        ("0,features.0,", "nan,features.0,", r"'Injection': .* the first is 'nan' in row 1"),
        ("0,features.0,", "1,features.0,", r"faults has 1 rows whose key"),
        ("0,features.0,", "0,,", r"'Layer': 1 values are not names of layers"),
    ],
)
def test_rows_that_cannot_be_read_are_named(written, old, new, message):
    with pytest.raises(LoadError, match=message):
        load.injections(written(list=LIST.replace(old, new, 1)))


def test_an_outcome_of_another_kind_is_refused(written):
    with pytest.raises(LoadError, match=r"'output': 1 values are not 0 \(masked\), 1 .* is '3'"):
        load.injections(written(output_analysis=ANALYSIS.replace("1,1,0,2", "1,1,0,3")))
