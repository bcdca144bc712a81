"""How well the steps of a recorded job are predicted from others of its steps."""

from __future__ import annotations

import numpy as np
import pandas as pd

from claims._tables import JOB_HELD_OUT
from workbench.analyze._imbalance.jobs.arranged import arranged
from workbench.analyze._imbalance.packers import is_whole
from workbench.errors import PerformanceModelError


def job_held_out(operations: pd.DataFrame, *, splits: int = 100, seed: int = 0) -> pd.DataFrame:
    """Measure how well the mean step of a job is predicted from half of its steps.

    Parameters
    ----------
    operations
        Table :data:`workbench.tables.JOB_OPERATIONS`.
    splits
        Random halves to predict from; the other half is the truth.
    seed
        Seed of the halves.

    Returns
    -------
    pandas.DataFrame
        Table :data:`claims._tables.JOB_HELD_OUT`: ``method``, ``split_count``,
        ``error_ratio``, ``absolute_error_ratio`` and ``largest_error_ratio``.

    Raises
    ------
    WorkbenchError
        As :func:`workbench.analyze.job_slowdown`.
    PerformanceModelError
        If there are fewer than 2 steps or splits below 1.

    Notes
    -----
    *own step*: the replay of every step by itself, without launch delays. *joint steps*: the
    mean replay of whole steps of one half beside the recorded mean of the other. *joint steps
    with delays*: the same with their launch delays.
    *mean durations*: the baseline, one replay with each operation's mean over the half.
    """
    job = arranged(operations)
    if len(job.steps) < 2 or not is_whole(splits):
        msg = (
            f"{len(job.steps)} steps in {splits} splits: there must be 2 steps or more, one for "
            "each half, and at least 1 split"
        )
        raise PerformanceModelError(msg)
    replay, actual = job.replay(job.own), job.actual
    predicted: list[tuple[float, ...]] = []
    rng = np.random.default_rng(seed)
    for _ in range(splits):
        # Both from one permutation: no step may be in the half that predicts and in the other.
        half, held_out = np.array_split(rng.permutation(len(actual)), 2)
        mean = job.replay(job.own[:, half].mean(axis=1, keepdims=True))[0]
        means = (replay[half].mean(), actual[half].mean(), mean)
        predicted.append(tuple(float(value / actual[held_out].mean() - 1) for value in means))
    names = ("joint steps", "joint steps with delays", "mean durations")
    errors = {"own step": replay / actual - 1} | dict(
        zip(names, np.array(predicted).T, strict=True)
    )
    return JOB_HELD_OUT.of(
        {
            "method": pd.Categorical(list(errors)),
            "split_count": [len(error) for error in errors.values()],
            "error_ratio": [np.mean(error) for error in errors.values()],
            "absolute_error_ratio": [np.abs(error).mean() for error in errors.values()],
            "largest_error_ratio": [np.abs(error).max() for error in errors.values()],
        }
    )
