"""Where chunks that are done are kept, so that a campaign can be stopped at any moment."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench.errors import InjectionError
from workbench.simulate.injections.campaigns.settings import CampaignSettings
from workbench.tables import OUTCOME_NAMES, OUTCOMES, TRIALS

_HEAD = "campaign.json"
_FORMAT = 1
# Follows from the rest; it alone differs where the code of a model has changed.
_FOLLOWS = "decisions_sha"


@dataclass(frozen=True)
class Checkpoint:
    """A folder of chunks; without a folder it keeps nothing.

    Every file is written under another name and then renamed, trials before outcomes, and the
    check sums of both last, so a chunk is there as a whole or not at all.
    """

    folder: Path | None
    chunk_size: int
    created: pd.Timestamp
    exp_ids: Any
    keep_trials: bool
    has_sums: bool = True
    """Whether every chunk has check sums; folders of earlier versions have none."""
    unproven: list[int] = field(default_factory=list)
    """Chunks that were read without a check sum."""

    @classmethod
    def of(
        cls,
        settings: CampaignSettings,
        identity: Mapping[str, Any],
        exp_ids: Any,
        measured: Callable[[], int],
    ) -> Checkpoint:
        """Begin a campaign, or take up the one in the folder if it is the same.

        ``exp_ids`` are the experiments in the order they are run. ``measured`` gives the
        experiments per chunk; it is not asked where a folder tells.
        """
        now = pd.Timestamp.now("UTC").floor("s")
        rest = (exp_ids, settings.keep_trials)
        if settings.folder is None:
            return cls(None, measured(), now, *rest)
        folder = Path(settings.folder)
        head = folder / _HEAD
        if head.exists():
            told = _same_campaign(head, identity)
            for left in folder.glob("*.tmp"):
                left.unlink()
            return cls(
                folder, int(told["chunk_size"]), pd.Timestamp(told["created"]), *rest,
                has_sums=bool(told.get("has_sums", False)),
            )  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        chunk_size = measured()
        told = {
            "format": _FORMAT,
            "created": now.isoformat(),
            "chunk_size": chunk_size,
            "has_sums": True,
            **identity,
        }
        text = json.dumps(told, indent=1)
        _written(head, lambda file: file.write(text.encode()))
        return cls(folder, chunk_size, now, *rest)

    def ranges(self, count: int) -> Iterator[tuple[int, int]]:
        """Give the chunks: the first experiment, and the one after the last."""
        for start in range(0, count, self.chunk_size):
            yield start, min(start + self.chunk_size, count)

    def read(self, start: int, stop: int) -> tuple[pd.DataFrame, pd.DataFrame] | None:
        """Give a chunk that is done, or None.

        Raises
        ------
        InjectionError
            If its files are damaged, or are not what was written for these experiments.
        """
        if self.folder is None or not (path := self._path("outcomes", start, stop)).exists():
            return None
        sums = self._path("sums", start, stop, ending="json")
        if self.has_sums and not sums.exists():
            return None
        trials_path = self._path("trials", start, stop)
        if sums.exists():
            self._refuse_other_bytes(sums, (start, stop))
        else:
            self.unproven.append(start)
        told = _parquet(path)
        detected = told[[name for name in told if name not in OUTCOMES.columns]]
        trials = _parquet(trials_path) if trials_path.exists() else TRIALS.empty()
        if why := _misfit(told, trials, self.exp_ids[start:stop], keep_trials=self.keep_trials):
            raise _unusable(path, why)
        outcomes = pd.concat([OUTCOMES.cast(told), detected.astype("Int64")], axis=1)
        return outcomes, TRIALS.cast(trials)

    def _refuse_other_bytes(self, sums: Path, span: tuple[int, int]) -> None:
        """Compare the files of a chunk with the check sums that were written with them."""
        path = self._path("outcomes", *span)
        try:
            told = json.loads(sums.read_text())
            wanted = {name: told[name] for name in ("start", "stop", "outcomes", "trials")}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _unusable(path, f"its check sums, {sums.name}, are damaged") from error
        for name, place in zip(("start", "stop"), span, strict=True):
            if wanted[name] != place:
                raise _unusable(path, f"{sums.name} is of another chunk")
        for name in ("outcomes", "trials"):
            file = self._path(name, *span)
            if wanted[name] != _sum_of(file):
                what = "is missing" if not file.exists() else "is not the file that was written"
                raise _unusable(path, f"{file.name} {what}")

    def write(self, start: int, stop: int, outcomes: pd.DataFrame, trials: pd.DataFrame) -> None:
        """Keep a chunk."""
        if self.folder is None:
            return
        if len(trials):
            _written(self._path("trials", start, stop), trials.to_parquet)
        _written(self._path("outcomes", start, stop), outcomes.to_parquet)
        sums = {name: _sum_of(self._path(name, start, stop)) for name in ("outcomes", "trials")}
        text = json.dumps({"start": start, "stop": stop, **sums})
        _written(
            self._path("sums", start, stop, ending="json"), lambda file: file.write(text.encode())
        )

    def _path(self, what: str, start: int, stop: int, *, ending: str = "parquet") -> Path:
        assert self.folder is not None
        return self.folder / f"{what}-{start:010d}-{stop:010d}.{ending}"


def _same_campaign(head: Path, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Read the head of a folder and refuse another campaign's."""
    try:
        told: dict[str, Any] = json.loads(head.read_text())
        wanted = json.loads(json.dumps(identity))
        apart = [name for name in wanted if told.get(name) != wanted[name]]
        if apart != [_FOLLOWS]:
            apart = [name for name in apart if name != _FOLLOWS]
        if told["format"] != _FORMAT:
            apart = ["format"]
        pd.Timestamp(told["created"]), int(told["chunk_size"])
    except (ValueError, KeyError, TypeError) as error:
        msg = f"folder: {head} is not the head of a campaign ({error}); use an empty folder"
        raise InjectionError(msg) from error
    if apart:
        name = apart[0]
        msg = (
            f"folder: {head.parent} holds another campaign, which differs in {', '.join(apart)} "
            f"({name} there: {str(told.get(name))[:60]}, here: {str(identity.get(name))[:60]}); "
            "use another folder, or the same arguments"
        )
        raise InjectionError(msg)
    return told


def _misfit(
    outcomes: pd.DataFrame, trials: pd.DataFrame, exp_ids: Any, *, keep_trials: bool
) -> str:
    """Say why a chunk is not that of these experiments; empty if it is."""
    if "exp_id" not in outcomes or not np.array_equal(outcomes["exp_id"], exp_ids):
        return f"it does not hold experiments {exp_ids[0]} to {exp_ids[-1]} once each"
    if not keep_trials:
        return ""
    if not {"exp_id", "input_id", "outcome"} <= set(trials.columns):
        return "its trials lack their columns"
    if set(trials["exp_id"]) != set(exp_ids.tolist()):
        return "its trials are missing, or of other experiments"
    sizes = trials.groupby("exp_id").size()
    if trials.duplicated(["exp_id", "input_id"]).any() or sizes.nunique() > 1:
        return "its trials are not one per experiment and input"
    told = outcomes.set_index("exp_id").sort_index()
    for name in OUTCOME_NAMES:
        counted = (trials["outcome"] == name).groupby(trials["exp_id"]).sum()
        # A metric judges all inputs of an experiment together.
        alike = told["input_count"].eq(sizes).fillna(value=False)
        if (alike & told[f"{name}_count"].ne(counted).fillna(value=False)).any():
            return "its trials count other outcomes than its experiments"
    return ""


def _sum_of(path: Path) -> str | None:
    """Give the sha256 of a file; None if it is not there."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


def _unusable(path: Path, why: str) -> InjectionError:
    return InjectionError(
        f"folder: the chunk of {path} cannot be used: {why}; delete {path.name}, and its chunk is "
        "run again"
    )


def _parquet(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        msg = f"folder: {path} cannot be read ({error}); delete it, and its chunk is run again"
        raise InjectionError(msg) from error


def _written(path: Path, write: Callable[[Any], Any]) -> None:
    """Write a file so that it is there as a whole or not at all."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with unfinished.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
