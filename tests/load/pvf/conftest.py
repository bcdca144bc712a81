"""The smallest campaigns, made by hand."""

import pandas as pd
import pytest

from workbench.tables import CAMPAIGN, FAULTS, OUTCOMES, PARAMETERS, QUALITY, TRIALS, Injections


def frame(table, rows):
    """Make a frame of dicts with some of the columns of a table; the rest is missing."""
    columns = {name: [row.get(name) for row in rows] for name in table.columns}
    made = table.cast(pd.DataFrame(columns, dtype=object))
    for name in made.select_dtypes("category"):
        text = made[name].astype(pd.Series([""]).dtype)
        made[name] = text.astype("category")
    return table.check(made)


@pytest.fixture
def tiny():
    """Two campaigns with everything a table can hold: categories, missing cells, infinities."""
    campaign = frame(
        CAMPAIGN,
        [
            {
                "campaign_id": "a", "tool": "workbench", "tool_version": "1", "model_name": "tiny",
                "is_synthetic": True, "input_count": 4, "criterion": "argmax", "tolerance": 0.1,
                "fault_model": "mbf", "flip_count": 2, "seed": 7, "dtype": "fp32",
                "created": pd.Timestamp("2025-01-31 08:00:00.123456789", tz="UTC"),
            },
            {"campaign_id": "b", "tool": "workbench", "model_name": 'a "quoted", name'},
        ],
    )  # fmt: skip
    faults = frame(
        FAULTS,
        [
            {
                "campaign_id": "a", "exp_id": 0, "flip": 0, "layer": "top.0", "elem": 5,
                "param": "top.0.weight", "bit": 30, "bit_role": "exp", "value_before": 0.1,
                "value_after": float("inf"), "inclusion_weight": 1e6 / 3,
            },
            {"campaign_id": "a", "exp_id": 0, "flip": 1, "layer": "bottom.0", "index": "(1, 2)"},
            {"campaign_id": "b", "exp_id": 9_000_000_000, "flip": 0, "index": ""},
        ],
    )  # fmt: skip
    outcomes = frame(
        OUTCOMES,
        [
            {
                "campaign_id": "a", "exp_id": 0, "input_count": 4, "masked_count": 1,
                "benign_count": 1, "sdc_count": 1, "due_count": 1, "beneficial_count": 1,
                "max_abs_delta": 3.5e38, "time_s": 0.25,
            },
            {"campaign_id": "b", "exp_id": 9_000_000_000, "sdc_count": 2, "error": "line\nbreak"},
        ],
    ).assign(detected_gemm_count=pd.array([1, None], dtype="Int64"))  # fmt: skip
    trials = frame(
        TRIALS,
        [
            {"campaign_id": "a", "exp_id": 0, "input_id": n, "outcome": each, "delta": n / 3}
            for n, each in enumerate(["masked", "benign", "sdc", "due"])
        ],
    )
    parameters = frame(
        PARAMETERS,
        [
            {
                "campaign_id": "a", "component": "top", "layer": "top.0", "param": "top.0.weight",
                "kind": "weight", "dtype": "fp32", "element_count": 10, "bit_count": 320,
            }
        ],
    )  # fmt: skip
    return Injections(campaign, faults, outcomes, trials, parameters, QUALITY.empty())


@pytest.fixture
def found():
    """Give the findings of a result as {(finding, what): count}."""

    def collect(result):
        return {(row.finding, row.what): row.count for row in result.quality.itertuples()}

    return collect


@pytest.fixture
def written(tmp_path):
    """Give a function that writes files, texts or bytes by name, and gives their folder."""

    def write(texts):
        for name, text in texts.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return tmp_path

    return write
