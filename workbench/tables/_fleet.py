"""Everything one folder tells about a job: power, steps, failures and traces."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from workbench.tables._failures import FailureLog
from workbench.tables._power import JobLog, PowerLog
from workbench.tables._traces import flagged_text


@dataclass(frozen=True, eq=False)
class Fleet:
    """What was loaded of one job, kind by kind; a plain bundle without methods.

    A kind of which nothing was found has empty tables, and a row in ``quality``. ``ranks`` is
    table ``ranks`` of the traces.
    """

    power: PowerLog
    job: JobLog
    failures: FailureLog
    ranks: pd.DataFrame
    quality: pd.DataFrame

    @property
    def is_synthetic(self) -> bool:
        """Whether any of the files says that it was simulated; figures should say so too."""
        return any(each.is_synthetic for each in (self.power, self.job, self.failures))

    def __repr__(self) -> str:
        """Say what was loaded and what was not there."""
        counts = {
            "power": (len(self.power.power), "readings"),
            "job log": (len(self.job.steps), "steps"),
            "failures": (len(self.failures.failures), "incidents"),
            "traces": (len(self.ranks), "ranks"),
        }
        said = [f"{name}: {count:,} {noun}" for name, (count, noun) in counts.items() if count]
        absent = [name for name, (count, _) in counts.items() if not count]
        told = "; ".join(said) or "nothing"
        without = f"; not there: {', '.join(absent)}" if absent else ""
        return f"Fleet: {told}{without}; {flagged_text(self.quality)}"
