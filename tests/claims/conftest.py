"""Fixtures that tests of analyses have, too."""

from tests.analyze.conftest import make_events, real_events
from tests.analyze.perfmodel.conftest import task_ends, traces

__all__ = ["make_events", "real_events", "task_ends", "traces"]
