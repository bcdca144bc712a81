"""Message of a page without data of a kind: one line that names the files to add."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.load.kinds import NAMES

_FILES = {
    "traces": "PyTorch profiler traces of one or more ranks",
    "traces of several ranks": "the profiler traces of the other ranks of the job",
    "power logs": "logs of nvidia-smi, DCGM, IPMI or Redfish, or what `workbench record` writes",
    "power limits": "GPU power logs with limits and throttle reasons, as `workbench record` writes",
    "power sweeps": "a CSV file with limit_w, time_s and power_w or energy_j, named by sweeps",
    "job logs": "a log of the job's steps with their times",
    "failure logs": "kernel logs (dmesg, journal), Slurm accounting, torchelastic or NCCL output",
    "job sizes": "Slurm accounting or goodput events, which tell the GPUs of a job",
    "memory snapshots": "snapshots of GPU memory (torch.cuda.memory._dump_snapshot)",
    "flight-recorder dumps": "dumps of NCCL's flight recorder (TORCH_NCCL_DUMP_ON_TIMEOUT=1)",
    "job operations": "a table with step, rank, stage, kind, start and duration of operations",
    "document lengths": "the lengths of the documents that the job trains on",
    "parameter tables": "the table of the model's parameters that the campaign wrote",
    "injections": "results of a fault-injection tool, or a CSV file of faults and outcomes",
}


@dataclass(frozen=True)
class Missing:
    """A kind of data that is not there; a notebook shows one line in place of a figure."""

    kind: str
    place: str = ""

    def _repr_markdown_(self) -> str:
        return f"**No {self.kind}{self._where}.** {self._remedy}"

    def __repr__(self) -> str:
        """Return the line without marks."""
        return f"No {self.kind}{self._where}. {self._remedy}"

    @property
    def _where(self) -> str:
        # A name of a folder is somebody's text: no mark of Markdown in it may count.
        name = "".join(f"&#{ord(c)};" if c in "<>&*_`[]\\|#" else c for c in self.place)
        return f" in {name}" if name else ""

    @property
    def _remedy(self) -> str:
        return f"To fill this section, add {_FILES[self.kind]}."


def missing(path: str | Path | None, kind: str) -> Missing:
    """Report in one line that a path has no data of a kind, and which files would be.

    Parameters
    ----------
    path
        The user's own data.
    kind
        A kind of data as in :func:`by_kind`, or a part of one: ``"traces of several ranks"``,
        ``"power limits"``, ``"power sweeps"``, ``"job sizes"`` or ``"parameter tables"``.

    Returns
    -------
    Missing
        Shown by a notebook as one line.

    Raises
    ------
    ValueError
        If there is no such kind.

    Examples
    --------
    >>> missing("runs/monday", "job logs")
    No job logs in monday. To fill this section, add a log of the job's steps with their times.
    """
    if kind not in _FILES:
        known = ", ".join(dict.fromkeys([*_FILES, *NAMES]))
        msg = f"no files are named for {kind!r}; kinds are {known}"
        raise ValueError(msg)
    return Missing(kind, "" if path is None else Path(path).name)
