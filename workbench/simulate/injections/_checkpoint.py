"""Where chunks that are done are kept, so that a campaign can be stopped at any moment."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.errors import InjectionError
from workbench.simulate.injections._settings import CampaignSettings
from workbench.tables import OUTCOMES, TRIALS

_HEAD = "campaign.json"
_FORMAT = 1
# Follows from the rest; it alone differs where the code of a model has changed.
_FOLLOWS = "decisions_sha"


@dataclass(frozen=True)
class Checkpoint:
    """A folder of chunks; without a folder it keeps nothing.

    Every file is written under another name and then renamed, trials before outcomes, so a
    chunk is there as a whole or not at all.
    """

    folder: Path | None
    chunk_size: int
    created: pd.Timestamp

    @classmethod
    def of(
        cls, settings: CampaignSettings, identity: Mapping[str, Any], measured: Callable[[], int]
    ) -> Checkpoint:
        """Begin a campaign, or take up the one in the folder if it is the same.

        ``measured`` gives the experiments per chunk; it is not asked where a folder tells.
        """
        now = pd.Timestamp.now("UTC").floor("s")
        if settings.folder is None:
            return cls(None, measured(), now)
        folder = Path(settings.folder)
        head = folder / _HEAD
        if head.exists():
            told = _same_campaign(head, identity)
            for left in folder.glob("*.tmp"):
                left.unlink()
            return cls(folder, int(told["chunk_size"]), pd.Timestamp(told["created"]))
        folder.mkdir(parents=True, exist_ok=True)
        chunk_size = measured()
        told = {
            "format": _FORMAT,
            "created": now.isoformat(),
            "chunk_size": chunk_size,
            **identity,
        }
        text = json.dumps(told, indent=1)
        _written(head, lambda file: file.write(text.encode()))
        return cls(folder, chunk_size, now)

    def ranges(self, count: int) -> Iterator[tuple[int, int]]:
        """Give the chunks: the first experiment, and the one after the last."""
        for start in range(0, count, self.chunk_size):
            yield start, min(start + self.chunk_size, count)

    def read(self, start: int, stop: int) -> tuple[pd.DataFrame, pd.DataFrame] | None:
        """Give a chunk that is done, or None."""
        if self.folder is None or not (path := self._path("outcomes", start, stop)).exists():
            return None
        outcomes = _parquet(path)
        detected = outcomes[[name for name in outcomes if name not in OUTCOMES.columns]]
        trials = self._path("trials", start, stop)
        return (
            pd.concat([OUTCOMES.cast(outcomes), detected.astype("Int64")], axis=1),
            TRIALS.cast(_parquet(trials)) if trials.exists() else TRIALS.empty(),
        )

    def write(self, start: int, stop: int, outcomes: pd.DataFrame, trials: pd.DataFrame) -> None:
        """Keep a chunk."""
        if self.folder is None:
            return
        if len(trials):
            _written(self._path("trials", start, stop), trials.to_parquet)
        _written(self._path("outcomes", start, stop), outcomes.to_parquet)

    def _path(self, what: str, start: int, stop: int) -> Path:
        assert self.folder is not None
        return self.folder / f"{what}-{start:010d}-{stop:010d}.parquet"


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
