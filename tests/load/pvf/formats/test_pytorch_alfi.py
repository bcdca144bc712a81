"""pytorchALFI: rows joined by order, bits counted from the other end, DUE kept apart."""

from pathlib import Path

import pytest

from workbench import load
from workbench.errors import LoadError

GOLDEN = (
    "file_path,gnd_label,orig output index - top5,orig output prob - top5,time - orig model\n"
    "a.png,3,[3 5 1 0 2],[90.5 5.25 2. 1. 1.],0.1\n"
    "b.png,4,[3 4 1 0 2],[60. 30. 5. 3. 2.],0.1\n"
)
HEADER = (
    "file_path,gnd_label,corr output index - top5,corr output prob - top5,layer,channel_in,"
    "channel_out,3D channel,height,width,bit,time - corr model,nan_flag_corr_model,"
    "nan_or_inf_flag_corr_model\n"
)
# Two runs of two images: unchanged, now right; not finite, changed.
WEIGHTS = HEADER + (
    "a.png,3,[3 5 1 0 2],[1. 1. 1. 1. 1.],[2],[7],[0],[None],[1],[2],[1],0.2,False,False\n"
    "b.png,4,[4 3 1 0 2],[1. 1. 1. 1. 1.],[2],[7],[0],[None],[1],[2],[1],0.2,False,False\n"
    "a.png,3,[0 1 2 3 4],[nan nan nan nan nan],[0],[1],[4],[None],[0],[0],[0],0.2,True,True\n"
    "b.png,4,[1 3 4 0 2],[1. 1. 1. 1. 1.],[0],[1],[4],[None],[0],[0],[0],0.2,False,False\n"
)


@pytest.fixture
def pair(tmp_path):
    def write(corr, golden=GOLDEN):
        (tmp_path / "run_corr.csv").write_text(corr)
        if golden is not None:
            (tmp_path / "run_golden.csv").write_text(golden)
        (tmp_path / "run_fault_locs.bin").write_bytes(b"\x80\x04never opened")
        return tmp_path

    return write


def test_weights_are_numbered_run_by_run_and_totals_kept(pair, found):
    result = load.injections(pair(WEIGHTS))
    # 4 rows: 1 not finite, 2 of another class than the golden model, 1 of the same.
    columns = ["exp_id", "input_count", "sdc_count", "due_count", "beneficial_count"]
    assert result.outcomes[columns].to_numpy().tolist() == [[0, 2, 1, 0, 1], [1, 2, 1, 1, 0]]
    assert result.outcomes["masked_count"].isna().all()  # rounded probabilities do not state
    assert result.trials["input_id"].tolist() == [0, 1, 0, 1]
    assert result.trials["outcome"].astype(object).fillna("").tolist() == ["", "sdc", "due", "sdc"]
    assert result.campaign["golden_metric"].tolist() == [0.5]
    assert any(
        "a pickle" in what for finding, what in found(result) if finding == "skipped by design"
    )


def test_bits_count_from_the_least_significant_and_places_keep_their_order(pair, found):
    result = load.injections(pair(WEIGHTS))
    assert result.faults["bit"].tolist() == [30, 31]
    assert result.faults["bit_role"].tolist() == ["exp", "sign"]
    assert result.faults["index"].tolist() == ["(7, 0, 1, 2)", "(1, 4, 0, 0)"]
    assert result.faults["layer"].tolist() == ["2", "0"]
    assert set(result.faults["kind"]) == {"weight"}
    assert result.faults["param"].isna().all()
    assert (
        found(result)[
            "assumed", "bits counted from the most significant, of a float32: bit = 31 - value"
        ]
        == 2
    )


def test_probabilities_are_percent(pair):
    result = load.injections(pair(WEIGHTS))
    assert result.trials["golden_margin"].tolist() == pytest.approx([0.8525, 0.3, 0.8525, 0.3])


def test_neurons_have_no_filter(pair):
    neurons = HEADER + (
        '"a.png",3,[3 5],[1. 1.],2,,5,-1,1,2,1,0.2,False,False\n'
        '"b.png",4,[3 5],[1. 1.],1,,6,-1,0,0,31,0.2,False,False\n'
    )
    result = load.injections(pair(neurons))
    assert set(result.faults["kind"]) == {"activation"}
    assert result.faults["index"].tolist() == ["(5, 1, 2)", "(6, 0, 0)"]
    assert result.faults["bit"].tolist() == [30, 0]
    assert result.campaign["fault_model"].tolist() == ["sbf"]
    assert result.outcomes["input_count"].tolist() == [1, 1]  # a fault per image


def test_several_flips_are_rows_of_one_experiment(pair):
    two = HEADER + (
        'a.png,3,[3 5],[1. 1.],"[2, 3]","[7, 8]","[0, 0]","[None, None]","[1, 1]","[2, 2]","[1, 30]",0.2,False,False\n'
        'b.png,4,[3 5],[1. 1.],"[2, 3]","[7, 8]","[0, 0]","[None, None]","[1, 1]","[2, 2]","[1, 30]",0.2,False,False\n'
    )
    result = load.injections(pair(two))
    assert result.faults[["exp_id", "flip", "bit"]].to_numpy().tolist() == [[0, 0, 30], [0, 1, 1]]
    assert result.campaign["fault_model"].tolist() == ["mbf"]
    assert result.campaign["flip_count"].tolist() == [2]
    broken = two.replace('"[7, 8]"', '"[7, 8, 9]"')
    with pytest.raises(LoadError, match="lists of different lengths tell one fault"):
        load.injections(pair(broken))


def test_values_that_are_set_are_no_bits(pair, found):
    result = load.injections(pair(WEIGHTS.replace("[1],0.2", "[0.75],0.2")))
    assert result.faults["bit"].isna().all()
    assert result.campaign["fault_model"].tolist() == ["value"]
    assert ("noted", "faults that set a value: their column 'bit' holds no bit") in found(result)


def test_without_watching_for_nan_nothing_is_said_of_due(pair):
    plain = "\n".join(line.rsplit(",", 2)[0] for line in WEIGHTS.splitlines())
    result = load.injections(pair(plain))
    assert result.outcomes["due_count"].isna().all()
    assert result.outcomes["sdc_count"].tolist() == [1, 2]
    assert result.campaign["nan_policy"].tolist() == ["as_is"]


def with_mitigated_model():
    """Give faulty and golden outputs of two models, the second with a mitigation."""
    golden = GOLDEN.replace("orig output prob", "resil output index - top5,orig output prob")
    golden = golden.replace("[3 5 1 0 2],", "[3 5 1 0 2],[3 5 1 0 2],")
    golden = golden.replace("[3 4 1 0 2],", "[3 4 1 0 2],[4 3 1 0 2],")
    corr = WEIGHTS.replace("corr output prob", "resil corr output index - top5,corr output prob")
    corr = corr.replace("],[1. 1.", "],[3 0 0 0 0],[1. 1.").replace("],[nan", "],[3 0 0 0 0],[nan")
    corr = corr.replace(
        "nan_or_inf_flag_corr_model", "nan_or_inf_flag_corr_model,nan_or_inf_flag_resil_corr_model"
    )
    corr = "\n".join(line + ",False" * (n > 0) for n, line in enumerate(corr.splitlines()))
    return corr, golden


def test_a_mitigated_model_is_a_second_campaign(pair):
    corr, golden = with_mitigated_model()
    result = load.injections(pair(corr, golden))
    assert result.campaign["campaign_id"].tolist() == ["run_corr", "run_corr (mitigated)"]
    assert result.campaign["golden_metric"].tolist() == [0.5, 1.0]
    second = result.outcomes[result.outcomes["campaign_id"] == "run_corr (mitigated)"]
    assert second["sdc_count"].tolist() == [1, 1]
    assert second["due_count"].tolist() == [0, 0]
    assert len(result.faults) == 4


def test_a_mitigated_model_is_told_by_its_own_file(tmp_path):
    corr, golden = with_mitigated_model()
    for run in ("a", "b"):
        (tmp_path / run).mkdir()
        (tmp_path / run / "x_corr.csv").write_text(corr)
        (tmp_path / run / "x_golden.csv").write_text(golden)
    result = load.injections(tmp_path)
    assert result.campaign["campaign_id"].tolist()[2:] == ["x_corr (2)", "x_corr (mitigated) (2)"]
    numbered = result.quality[result.quality["what"].str.contains("the later one is numbered")]
    assert [Path(each).parent.name for each in numbered["source"]] == ["b", "b"]


def test_faulty_outputs_need_the_golden_ones_of_the_same_images(pair, tmp_path):
    with pytest.raises(LoadError, match="need the golden ones of the same run"):
        load.injections(pair(WEIGHTS, None))
    with pytest.raises(
        LoadError, match=r"row 2 is of file_path 'b.png', the golden row is of 'c.png'"
    ):
        load.injections(pair(WEIGHTS, GOLDEN.replace("b.png", "c.png")))
    (tmp_path / "run_corr.csv").unlink()
    with pytest.raises(LoadError, match="golden outputs of pytorchALFI without faulty ones"):
        load.injections(tmp_path)


def test_several_pairs_in_a_folder_are_told_by_their_names(pair, tmp_path):
    pair(WEIGHTS)
    (tmp_path / "other_corr.csv").write_text(WEIGHTS)
    (tmp_path / "x_golden.csv").write_text(GOLDEN)
    with pytest.raises(LoadError, match="and 2 files may be them"):
        load.injections(tmp_path)
    (tmp_path / "x_golden.csv").rename(tmp_path / "other_golden.csv")
    assert len(load.injections(tmp_path).campaign) == 2


def test_a_run_that_was_stopped_is_told(pair, found):
    result = load.injections(pair("".join(WEIGHTS.splitlines(keepends=True)[:-1])))
    assert found(result)["truncated", "rows of a last run that does not cover all images"] == 1


def test_a_cell_without_classes_is_refused(pair):
    with pytest.raises(LoadError, match=r"not lists of classes such as \[3 5 1 0 2\].* row 2"):
        load.injections(pair(WEIGHTS.replace("[4 3 1 0 2]", "[]")))


def test_columns_of_the_place_are_needed(pair):
    with pytest.raises(LoadError, match=r"no column \['bit'\] of the place that was hit"):
        load.injections(pair(WEIGHTS.replace("width,bit", "width,other")))
