"""What is kept of a single run: every input, or the quality of all of them together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from workbench.simulate.injections._judge import BENIGN, DUE, MASKED, SDC, Golden, Judge
from workbench.simulate.injections.engines.flip_and_run import largest
from workbench.tables import OUTCOME_NAMES, TRIALS


class Trials:
    """Turns runs into rows of table TRIALS."""

    def __init__(self, golden: Golden, campaign_id: str) -> None:
        self._campaign_id = campaign_id
        margins = golden.margins(golden.outputs, slice(None))
        self._margin = margins.double().cpu().numpy()

    def rows(self, run: Any, exp_id: int) -> pd.DataFrame:
        """Give one row per input."""
        names = np.array(OUTCOME_NAMES, dtype=object)
        frame = pd.DataFrame(
            {
                "campaign_id": self._campaign_id,
                "exp_id": exp_id,
                "input_id": np.arange(len(run.codes)),
                "outcome": pd.Categorical(names[run.codes.cpu().numpy()], OUTCOME_NAMES),
                "is_beneficial": run.is_beneficial.cpu().numpy(),
                "golden_margin": self._margin,
                "delta": run.delta.double().cpu().numpy(),
            }
        )
        return TRIALS.cast(frame)


@dataclass(frozen=True)
class MetricDrop:
    """Judges a run once, by the quality of all its outputs together."""

    judge: Judge
    golden_metric: float | None

    def row(self, run: Any, value: float | None) -> dict[str, Any]:
        """Count the run as one input."""
        counts = dict.fromkeys([f"{name}_count" for name in OUTCOME_NAMES], 0)
        counts[f"{OUTCOME_NAMES[self._code(run, value)]}_count"] = 1
        most = largest(run.delta)
        return {"input_count": 1, **counts, "beneficial_count": 0, "max_abs_delta": most}

    def _code(self, run: Any, value: float | None) -> int:
        if value is None or bool((run.codes == DUE).any()):
            return DUE
        if bool((run.codes == MASKED).all()):
            return MASKED
        is_fine = self.golden_metric is not None and (
            value >= self.golden_metric - self.judge.tolerance
        )
        return BENIGN if is_fine else SDC
