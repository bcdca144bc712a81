"""Load: the joined view of steps, incidents, power and traces."""

from workbench.load._fleet.job_log import job_log
from workbench.load._fleet.reader import fleet

__all__ = [
    "fleet",
    "job_log",
]
