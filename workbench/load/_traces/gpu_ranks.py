"""Ranks of GPUs: a process with one is a rank, each GPU of a process with several is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from workbench.load._files.findings import Finding
from workbench.load._files.rank_names import Ranked
from workbench.load._traces.kineto.gpus import Gpu
from workbench.load._traces.kineto.rank import RankTables, RawRank

Process = RankTables | RawRank
_LARGEST_RANK = (1 << 31) - 1  # what int32, the type of the column, can hold


@dataclass(frozen=True)
class Numbering:
    """How ranks of GPUs follow from those of processes."""

    most: int  # GPUs of a process
    firsts: Mapping[int, int] | None  # rank of the first GPU, where processes have unlike many

    @classmethod
    def of(cls, processes: Sequence[int], counts: Sequence[int]) -> Numbering:
        most = max(counts)
        is_whole = list(processes) == list(range(len(processes)))
        is_even = min(counts) == most
        # Ranks that are not loaded would have places between the others.
        if (is_whole and not is_even) or (processes[-1] + 1) * most > _LARGEST_RANK:
            return cls(most, dict(zip(processes, accumulate(counts, initial=0), strict=False)))
        return cls(most, None)

    def rank(self, process: int, place: int) -> int:
        """Return the rank of a GPU, given its place among those of its process."""
        return (process * self.most if self.firsts is None else self.firsts[process]) + place

    def members(self, processes: Sequence[int], place: int) -> list[int]:
        """Return the ranks of a group of processes, whose GPUs of one place make a group."""
        if self.most == 1:
            return list(processes)
        if self.firsts is None:
            return [self.rank(process, place) for process in processes]
        # Which GPU takes part is not known; those of a process are never in a collective together.
        return [self.firsts[process] for process in processes if process in self.firsts]


@dataclass(frozen=True)
class GpuRank:
    """A rank with its GPU, and the process that used it."""

    rank: int
    source: str
    file: Process
    gpu: Gpu
    place: int
    world_size: int | None
    numbering: Numbering

    @property
    def label(self) -> str:
        part = "" if self.gpu.device is None else f"!GPU {self.gpu.device}"
        return self.file.label + part


def by_gpu(processes: Sequence[Ranked[Process]], gpus_of: Sequence[Sequence[Gpu]]) -> list[GpuRank]:
    """Give every GPU a rank, in order of processes and devices."""
    counts = [len(gpus) for gpus in gpus_of]
    numbering = Numbering.of([process.rank for process in processes], counts)
    world = _WorldSize(processes, counts)
    return [
        GpuRank(numbering.rank(rank, place), source, file, gpu, place, world.of(file), numbering)
        for (rank, source, file), gpus in zip(processes, gpus_of, strict=True)
        for place, gpu in enumerate(gpus)
    ]


class _WorldSize:
    """Ranks of the whole job, where files state how many processes it has."""

    def __init__(self, processes: Sequence[Ranked[Process]], counts: Sequence[int]) -> None:
        self._loaded, self._counts = len(processes), counts

    def of(self, file: Process) -> int | None:
        most, stated = max(self._counts), file.world_size
        if stated is None or most == 1:
            return stated
        if min(self._counts) == most:
            return stated * most
        return sum(self._counts) if stated == self._loaded else None


def told(ranks: Sequence[GpuRank]) -> list[Finding]:
    """Say which ranks the GPUs of a process became."""
    findings: list[Finding] = []
    for at, one in enumerate(ranks):
        if one.gpu.device is None or one.place:
            continue
        own = [other for other in ranks[at : at + one.numbering.most] if other.file is one.file]
        what = f"{len(own)} GPUs of one process, each read as a rank with the events of the host"
        # A process that states its rank is not the rank of its GPUs any more.
        finding = "noted" if one.source == "assumed" else "assumed"
        listed = ", ".join(f"GPU {gpu.gpu.device} is rank {gpu.rank}" for gpu in own)
        findings.append((one.file.label, finding, what, len(own), listed))
    return findings
