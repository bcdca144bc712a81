"""Published training runs: which share of the peak their GPU-hours come to."""

from __future__ import annotations

import pandas as pd

from workbench import datasets
from workbench.analyze._perfmodel.layouts.model_shape import gpu_type, model_shape
from workbench.tables import TRAINING_RUNS


def training_runs() -> pd.DataFrame:
    """Work out how fast published models were trained, from their tokens and GPU-hours.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.TRAINING_RUNS`, one row per run of the bundled
        ``published/training_runs.csv``, which names the model cards.

    Notes
    -----
    FLOPs are ``6 x active parameters x tokens``: without attention scores, with the input
    embedding, which is not a product. GPU-hours hold restarts, evaluations and waits, so the share
    is a lower bound of the MFU while the model trained, and not the effective training time either.

    Examples
    --------
    >>> runs = training_runs().set_index("model")
    >>> round(runs.loc["Llama 3 405B", "tflops_per_gpu"])
    342
    """
    table = pd.read_csv(datasets.path("published") / "training_runs.csv")
    shapes = [model_shape(name) for name in table["model"]]
    table["parameter_count"] = [shape.parameter_count for shape in shapes]
    table["active_parameter_count"] = [shape.active_parameter_count for shape in shapes]
    # In floats: 6 x parameters x tokens is beyond what 64 bits count.
    table["flops_count"] = 6.0 * table["active_parameter_count"] * table["token_count"]
    table["tflops_per_gpu"] = table["flops_count"] / (table["gpu_time_h"] * 3600) / 1e12
    peaks = table["gpu"].map(lambda name: gpu_type(name).peak_tflops)
    table["peak_share"] = table["tflops_per_gpu"] / peaks
    table["remark"] = table["remark"].fillna("")
    return TRAINING_RUNS.of(table)
