"""NVBitFI: totals by hand, and traps."""

import pytest

from workbench import load
from workbench.errors import LoadError

LINE = "{n};_Z3addPf;0;26605;0.5;0.56:0x90:FADD:773546:{mask}:0.75:{category}:{dmesg}:{values}\n"
NAMES = [f"Masked: {n}" for n in range(3)] + [f"DUE: {n}" for n in range(2)]
NAMES += [f"Pot DUE: {n}" for n in range(10)] + [f"SDC: {n}" for n in range(3)] + ["Uncategorized"]


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
