"""What Slurm's words mean: states of jobs, exit codes and counts of GPUs."""

from __future__ import annotations

import re
from typing import NamedTuple


class Meaning(NamedTuple):
    """What a state says of the job that ended in it."""

    category: str
    severity: str
    cause: str


# https://slurm.schedmd.com/job_state_codes.html; FAILED is any exit code but 0, whatever the
# reason, so nothing is said of its category.
FAILURE_STATES = {
    "BOOT_FAIL": Meaning("host", "fatal", "node did not boot"),
    "CANCELLED": Meaning("planned", "info", "cancelled"),
    "DEADLINE": Meaning("scheduler", "fatal", "deadline passed"),
    "FAILED": Meaning("unknown", "fatal", "job failed"),
    "LAUNCH_FAILED": Meaning("host", "fatal", "job could not be launched"),
    "NODE_FAIL": Meaning("host", "fatal", "node failed"),
    "OUT_OF_MEMORY": Meaning("software", "fatal", "out of host memory"),
    "PREEMPTED": Meaning("scheduler", "fatal", "preempted"),
    "RECONFIG_FAIL": Meaning("host", "fatal", "node could not be reconfigured"),
    "REQUEUED": Meaning("scheduler", "fatal", "requeued"),
    "REVOKED": Meaning("scheduler", "info", "revoked: it started in another cluster"),
    "TIMEOUT": Meaning("scheduler", "fatal", "time limit reached"),
}
ENDED_STATES = frozenset({"COMPLETED", *FAILURE_STATES})
OTHER_STATES = frozenset(
    {"COMPLETING", "CONFIGURING", "EXPEDITING", "PENDING", "POWER_UP_NODE", "REQUEUE_FED"}
    | {"REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD", "RUNNING", "SIGNALING", "SPECIAL_EXIT"}
    | {"STAGE_OUT", "STOPPED", "SUSPENDED", "UPDATE_DB"}
)
_GPU = re.compile(r"(?:PER_NODE:)?(?:gres[/:])?gpu(?::([^=:,(]*[A-Za-z][^=:,(]*))?[=:](\d{1,9})")
_PER_NODE = re.compile(r"(?:^|,)PER_NODE:(?:gres[/:])?gpu[:=]")


def cause_of(state: str, exit_code: str) -> str:
    """Say in words how a job ended; ``state`` as written, with who cancelled it."""
    word = state.split(" ", 1)[0].rstrip("+")
    cause = FAILURE_STATES[word].cause
    if word == "CANCELLED" and " by " in state:
        who = state.split(" by ", 1)[1].strip()
        return f"{cause} by {'root' if who == '0' else f'user {who}'}"
    match = re.fullmatch(r"(\d+):(\d+)", exit_code)
    if word != "FAILED" or match is None:
        return cause
    if match[2] != "0":
        return f"{cause}, killed by signal {match[2]}"
    return f"{cause} with exit code {match[1]}"


def gpu_count(text: str) -> int | None:
    """Count the GPUs of a resource list; None if it does not say.

    ``gres/gpu=8,gres/gpu:h100=8`` names the same GPUs twice: counts by type are added up
    only where there is none of all types.
    """
    untyped: list[int] = []
    typed: list[int] = []
    for entry in re.sub(r"\([^)]*\)", "", text).split(","):
        if match := _GPU.fullmatch(entry.strip()):
            (typed if match[1] else untyped).append(int(match[2]))
    if untyped:
        return max(untyped)
    return sum(typed) if typed else None


def is_per_node(text: str) -> bool:
    """Whether a resource list counts the GPUs of one node."""
    return _PER_NODE.search(text) is not None
