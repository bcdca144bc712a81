"""GoldenEye, enpheeph, GoldenTransformer, TensorFI2 and NVBitFI: totals by hand, and traps."""

import json
from pathlib import Path

import pytest

from workbench import load
from workbench.errors import LoadError

DETAIL = (
    "Injection, ImgID, GoldConf, GoldTop2Diff, GoldLabel, InjLabel, GoldLoss, InjLoss, DeltaLoss\n"
    "0, 17, 0.91, 0.85, 3, 3, 0.10, 0.11, 0.01\n"
    "1, 4, 0.55, 0.15, 2, 7, 0.60, 2.60, 2.00\n"
    "2, 9, 0.80, 0.70, 1, 1, 0.20, 0.20, 0.00\n"
)
LAYERS = (
    "fmap_id, Mismatches, Loss, Sample_Size, STD_Loss, Error_Loss, Proportion, "
    "error_mismatches_proportion,error_mismatches\n"
    "0, 1, 0.670000, 5, 0.9, 1.0, 0.2, 0.4, 2.3\n"
    "1, 0, 0.000000, 5, 0.0, 0.0, 0.0, 0.0, 0.0\n"
)
ENPHEEPH = (
    "randomness,layer_name,execution_time,test_accuracy,test_cross_entropy\n"
    "0,-,18.5,0.925,0.228\n0,conv1,14.9,0.925,0.228\n"
    "1e-07,conv1,18.0,0.9,0.3\n1e-07,head.0,17.0,0.1,nan\n"
)
TRANSFORMER = {
    "baseline": {"LatencyMetric": {"latency_ms": 3.5}, "Accuracy": {"accuracy": 0.75}},
    "fault_results": [
        {
            "fault_info": "LayerFault(layers=[0], type=attention_mask, severity=0.2)",
            "metrics": {"LatencyMetric": {"latency_ms": 3.3}, "Accuracy": {"accuracy": 0.5}},
        },
        {"fault_info": "BadFault(layers=[1, 2])", "metrics": {}, "error": "no such layer"},
        {"fault_info": "WeightCorruption(severity=1e-43)", "metrics": {"Accuracy": {"Accuracy": 0.25}}},
    ],
}  # fmt: skip
LINE = "{n};_Z3addPf;0;26605;0.5;0.56:0x90:FADD:773546:{mask}:0.75:{category}:{dmesg}:{values}\n"
NAMES = [f"Masked: {n}" for n in range(3)] + [f"DUE: {n}" for n in range(2)]
NAMES += [f"Pot DUE: {n}" for n in range(10)] + [f"SDC: {n}" for n in range(3)] + ["Uncategorized"]


# GoldenEye -----------------------------------------------------------------------------------


def test_injections_that_the_details_lost_are_due_not_correct(written, found):
    place = written({"inj/layer0_detailed.csv": DETAIL, "post/loss_and_mismatches_5.csv": LAYERS})
    result = load.injections(place)
    assert result.outcomes["input_count"].sum() == 5  # Sample_Size
    assert result.outcomes["sdc_count"].sum() == 1  # Mismatches
    assert result.outcomes["due_count"].sum() == 2  # 5 injections, 3 rows
    assert result.faults["layer"].tolist() == ["0"] * 5
    assert result.trials["input_id"].tolist() == [17, 4, 9]
    assert result.trials["golden_margin"].tolist() == [0.85, 0.15, 0.7]
    assert sum(count for (_, what), count in found(result).items() if "counted as DUE" in what) == 2


def test_details_alone_say_nothing_of_due(written):
    result = load.injections(written({"layer12_detailed.csv": DETAIL}))
    assert result.outcomes["due_count"].isna().all()
    assert result.outcomes["sdc_count"].tolist() == [0, 1, 0]
    assert result.faults["layer"].tolist() == ["12"] * 3


def test_layers_alone_are_one_experiment_each(written):
    result = load.injections(written({"loss_and_mismatches_5.csv": LAYERS}))
    columns = ["exp_id", "input_count", "sdc_count"]
    assert result.outcomes[columns].to_numpy().tolist() == [[0, 5, 1], [1, 5, 0]]


def test_details_and_layers_of_different_runs_are_refused(written):
    place = written(
        {"layer0_detailed.csv": DETAIL, "l.csv": LAYERS.replace("0, 1, 0.67", "0, 2, 0.67")}
    )
    with pytest.raises(LoadError, match=r"1 mismatches in 3 injections, .* has 2 in 5"):
        load.injections(place)
    written({"layer0_detailed.csv": "x", "layer7_detailed.csv": DETAIL})
    with pytest.raises(LoadError, match="layer 7 is not in"):
        load.injections(place)


def test_more_mismatches_than_injections_are_refused(written):
    with pytest.raises(LoadError, match="not mismatches within the sample"):
        load.injections(written({"l.csv": LAYERS.replace("0, 1, 0.67", "0, 9, 0.67")}))


def test_several_runs_at_once_are_refused(written):
    texts = {"a/layer0_detailed.csv": DETAIL, "b/l1.csv": LAYERS, "b/l2.csv": LAYERS}
    with pytest.raises(LoadError, match="load one run at a time"):
        load.injections(written(texts))


# enpheeph ------------------------------------------------------------------------------------


def test_every_rate_is_a_campaign_and_the_golden_row_is_its_measure(written):
    result = load.injections(written({"r.csv": ENPHEEPH}))
    assert result.campaign["campaign_id"].tolist() == ["r, rate 0", "r, rate 1e-07"]
    assert result.campaign["bit_error_ratio"].tolist() == [0, 1e-07]
    assert set(result.campaign["golden_metric"]) == {0.925}
    assert len(result.outcomes) == 3
    assert result.outcomes["metric_value"].sum() == pytest.approx(0.925 + 0.9 + 0.1)
    assert result.outcomes["time_s"].sum() == pytest.approx(14.9 + 18 + 17)
    assert result.faults["layer"].tolist() == ["conv1", "conv1", "head.0"]
    assert result.outcomes["sdc_count"].isna().all()


def test_stray_lines_headers_again_and_words_for_rates_are_told(written, found):
    more = ENPHEEPH.splitlines()[0] + "\ncustom,custom,11.8,0.8,0.2\n0,-,16.6,0.925,0.228\n"
    stray = 'Using "cuda"\nGPU available: True, used: True\n'
    result = load.injections(written({"r.csv": stray + ENPHEEPH + more}))
    by = found(result)
    assert by["skipped by design", "lines before the header"] == 2
    assert by["repaired", "repeated header lines"] == 1
    assert by["noted", "rows whose rate of injection is a word"] == 1
    assert by["skipped by design", "rows without faults: the golden run"] == 2
    assert result.campaign["campaign_id"].tolist()[-1] == "r, rate custom"
    assert result.campaign["bit_error_ratio"].isna().tolist() == [False, False, True]


def test_variants_of_the_header_are_known(written):
    texts = {
        "iou.csv": ENPHEEPH.replace("test_accuracy", "test_iou"),
        "acc.csv": ",randomness,layer_name,execution_time,test_acc,test_acc_epoch,test_loss\n"
        "0,0.0,-,18.5,0.9,0.9,0.2\n61,1e-07,conv1,18.0,0.8,0.8,0.3\n",
    }
    result = load.injections(written(texts))
    assert set(result.outcomes["metric_name"]) == {"iou", "accuracy"}


def test_a_golden_run_needs_no_rate(written, found):
    result = load.injections(written({"r.csv": ENPHEEPH.replace("0,-,", ",-,")}))
    assert set(result.campaign["golden_metric"]) == {0.925}
    assert ("noted", "rows whose rate of injection is a word") not in found(result)


def test_golden_runs_that_differ_are_suspicious(written, found):
    text = ENPHEEPH + "0,-,16.0,0.5,0.2\n"
    by = found(load.injections(written({"r.csv": text})))
    assert by["suspicious", "golden runs of different quality; the first is taken"] == 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("1e-07,conv1", "2,conv1", "not rates of injection from 0 to 1, the first is '2' in row 3"),
        ("1e-07,conv1", "1e-07,", "'layer_name': 1 values are not names of layers"),
        ("1e-07,conv1", ",conv1", "1 values are not rates .* the first is an empty cell in row 3"),
        ("1e-07,conv1", '" ",conv1', "1 values are not rates of injection, the first is ' '"),
        ("test_accuracy", "accuracy", "none of the columns"),
        (",0.9,", ",good,", r"'test_accuracy': 1 values are not numbers, the first is 'good'"),
    ],
)
def test_odd_cells_of_enpheeph_are_named(written, old, new, message):
    with pytest.raises(LoadError, match=message):
        load.injections(written({"r.csv": ENPHEEPH.replace(old, new, 1)}))


# GoldenTransformer ---------------------------------------------------------------------------


def test_an_error_of_the_tool_is_no_outcome(written, found):
    result = load.injections(written({"results.json": json.dumps(TRANSFORMER, indent=2)}))
    assert result.outcomes["metric_value"].fillna(-1).tolist() == [0.5, -1, 0.25]
    assert result.outcomes["error"].fillna("").tolist() == ["", "no such layer", ""]
    assert result.outcomes["due_count"].isna().all()
    assert result.campaign["golden_metric"].tolist() == [0.75]
    assert result.campaign["metric_name"].tolist() == ["Accuracy"]
    assert result.faults["layer"].astype(object).fillna("").tolist() == ["0", "1,2", ""]
    assert result.faults["index"].tolist()[0].startswith("LayerFault(layers=[0]")
    by = found(result)
    assert by["noted", "experiments in which the tool itself failed"] == 1
    assert by["skipped by design", "measures besides the first one"] == 1


def test_the_other_layout_of_its_examples_is_known(written):
    text = {
        "baseline": {"Accuracy": 0.89},
        "faults": {"WeightCorruption(severity=0.1)": {"Accuracy": 0.8}},
    }
    result = load.injections(written({"r.json": json.dumps(text)}))
    assert result.outcomes["metric_value"].tolist() == [0.8]
    assert result.campaign["golden_metric"].tolist() == [0.89]


def test_a_document_that_is_cut_or_lacks_its_faults_is_refused(written):
    with pytest.raises(LoadError, match=r"damaged JSON .* cut off, or two"):
        load.injections(written({"results.json": json.dumps(TRANSFORMER)[:-40]}))
    with pytest.raises(LoadError, match="has no list 'fault_results'"):
        load.injections(written({"results.json": '{"baseline": {}, "fault_results": 3}'}))
    nested = '{"baseline": {' + '"a": {' * 100_000
    with pytest.raises(LoadError, match="damaged JSON"):
        load.injections(written({"results.json": nested}))


# TensorFI2 -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["[24.5, 25.0, 1e1]\nTime for 1000 injections: 82253.1 seconds",
             "24.5\n25.0\n\n10\nTime for 1000 injections: 9.09 seconds\n"],
)  # fmt: skip
def test_aggregates_are_kept_as_they_are(written, text, found):
    result = load.injections(written({"res.csv": text}))
    assert result.outcomes["metric_value"].tolist() == [24.5, 25.0, 10.0]
    assert result.outcomes["input_count"].isna().all()
    assert len(result.faults) == 0
    assert any("aggregates only" in what for _, what in found(result))


def test_later_runs_of_a_file_are_told_by_that_file(tmp_path):
    run = "[24.5, 25.0]\nTime for 10 injections: 9.09 seconds\n"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "res.csv").write_text(run + run)
    result = load.injections(tmp_path)
    assert result.campaign["campaign_id"].tolist()[2:] == ["res (2)", "res, run 2 (2)"]
    numbered = result.quality[result.quality["what"].str.contains("the later one is numbered")]
    assert [Path(each).parent.name for each in numbered["source"]] == ["b", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1.0, __import__('os').system('x')]\n", "is not a list of numbers"),
        ("[1.0, 'a']\n", "something else than a list of numbers"),
        ("[1.0, 2\n", "probably cut off"),
        ("1.0\nabc\n", r"line 2: 'abc' is not a number"),
    ],
)
def test_a_list_is_parsed_and_never_run(written, text, message):
    end = "Time for 10 injections: 1.0 seconds\n"
    with pytest.raises(LoadError, match=message):
        load.injections(written({"res.csv": text + end}))


def test_a_list_has_a_size(written):
    text = "[1.0]\nTime for 10 injections: 1.0 seconds\n" + " " * (1 << 20)
    with pytest.raises(LoadError, match="a list of TensorFI2 has at most 1 MiB"):
        load.injections(written({"res.csv": text}))


# NVBitFI -------------------------------------------------------------------------------------


def line(
    n, category, mask="0x40000000", dmesg="", values="value_before0x3f800000:value_after0x7f800000"
):
    return LINE.format(n=n, mask=mask, category=category, dmesg=dmesg, values=values)


def test_categories_are_counted_by_their_kind(written, found):
    text = "".join(line(n, n) for n in range(1, 20))
    result = load.injections(written({"results-modeinst_value-igid7.bfm0.1000.txt": text}))
    sums = result.outcomes.filter(regex="(masked|benign|sdc|due|input)_count").sum()
    assert sums.to_dict() == {
        "input_count": 18, "masked_count": 3, "benign_count": 0, "sdc_count": 3, "due_count": 12,
    }  # fmt: skip
    assert result.outcomes["error"].notna().tolist() == [False] * 18 + [True]
    assert result.campaign["fault_model"].tolist() == ["sbf"]
    assert set(result.faults["kind"]) == {"activation"}
    assert result.faults["param"].isna().all()
    assert result.faults["bit"].unique().tolist() == [30]
    assert result.faults["value_before"].tolist()[0] == 0x3F800000
    assert sum(count for (_, what), count in found(result).items() if "potential DUE" in what) == 10


def test_a_mask_of_two_bits_is_two_flips_and_other_masks_tell_no_bit(written):
    text = (
        line(1, 3, mask="0x5")
        + line(2, 3, mask="17")
        + line(3, 4, mask="-1", values="", dmesg="NVRM- Xid; x")
    )
    result = load.injections(written({"r.bfm1.txt": text}))
    assert result.faults[["exp_id", "flip"]].to_numpy().tolist() == [[0, 0], [0, 1], [1, 0], [2, 0]]
    assert result.faults["bit"].fillna(-1).tolist() == [0, 2, -1, -1]
    assert result.campaign["flip_count"].tolist() == [2]
    assert result.faults["value_before"].isna().tolist() == [False, False, False, True]


def test_a_name_without_a_model_says_so_and_damaged_lines_are_left_out(written, found):
    result = load.injections(
        written({"r.txt": line(1, 3) + "2;cut off\n" + line(3, 77) + line(1, 5)})
    )
    by = found(result)
    assert result.campaign["fault_model"].isna().all()
    assert by["noted", "the fault model is not known: the file name has no .bfm"] == 1
    assert by["dropped", "rows with more or fewer cells than the header"] == 2
    assert by["noted", "injection numbers that are there twice; all are kept"] == 1
    with pytest.raises(LoadError, match="no line reports an injection"):
        load.injections(written({"r.txt": line(1, 77)}))


def test_details_have_18_counts_under_19_names_and_carry_forward(written, found):
    counts = [str(n) for n in range(1, 19)]
    rows = "\t".join(["simple_add", "gp", "FLIP_SINGLE_BIT", *counts]) + "\n"
    rows += "\t".join(["FLIP_TWO_BITS", *["0"] * 18])  # never run, and no end of line
    rows += "\t".join(["fp32", "RANDOM_VALUE", *["1"] * 18]) + "\n"
    rows += "\t".join(["other", "ld", "ZERO_VALUE", *["2"] * 18]) + "\n"
    header = "\t".join(["App", "IGID", "Injection Model", *NAMES]) + "\n"
    result = load.injections(written({"x_NVBitFI_details.tsv": header + rows}))
    assert result.campaign["campaign_id"].tolist() == [
        "simple_add, gp, FLIP_SINGLE_BIT", "simple_add, fp32, RANDOM_VALUE", "other, ld, ZERO_VALUE",
    ]  # fmt: skip
    first = result.outcomes.iloc[0]
    assert first["input_count"] == sum(range(1, 19))
    assert first["masked_count"] == 1 + 2 + 3
    assert first["due_count"] == sum(range(4, 16))
    assert first["sdc_count"] == 16 + 17 + 18
    assert found(result)["skipped by design", "rows whose counts sum to 0: never run"] == 1
    short = header + "a\tgp\tFLIP_SINGLE_BIT\t1\t2\n"
    with pytest.raises(LoadError, match="no row of 18 counts"):
        load.injections(written({"x_NVBitFI_details.tsv": short}))


def test_a_summary_beside_its_lines_is_not_counted_twice(written, found):
    header = "\t".join(["App", "IGID", "Injection Model", *NAMES]) + "\n"
    row = "\t".join(["a", "gp", "FLIP_SINGLE_BIT", *["1"] * 18]) + "\n"
    result = load.injections(written({"d.tsv": header + row, "r.bfm0.txt": line(1, 3)}))
    assert len(result.outcomes) == 1
    assert found(result)["skipped by design", "a summary beside its single injections"] == 1


def test_tools_can_be_mixed_in_one_folder(written):
    result = load.injections(written({"a.csv": ENPHEEPH, "b.json": json.dumps(TRANSFORMER)}))
    assert set(result.campaign["tool"]) == {"enpheeph", "GoldenTransformer"}
    assert repr(result).startswith("Injections by GoldenTransformer, enpheeph: 3 campaigns")
    only = load.injections(written({}), tool="enpheeph")
    assert set(only.campaign["tool"]) == {"enpheeph"}
