"""Campaigns: inject every fault, judge every input, keep what is done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

import workbench
from workbench._shared.cluster import on_cluster
from workbench._shared.progress import progress
from workbench._shared.writing import write_whole
from workbench.errors import InjectionError
from workbench.inject._judge import Judge, as_tensor
from workbench.inject._model import batches, inputs_sha, sha_of, torch
from workbench.inject.campaigns.work import (
    CampaignSettings,
    Work,
    metric_name,
    prepared,
)
from workbench.inject.designs.bits import storage
from workbench.tables import (
    CAMPAIGN,
    FAULTS,
    OUTCOME_NAMES,
    OUTCOMES,
    PARAMETERS,
    QUALITY,
    TRIALS,
    Injections,
)

_ARGMAX = Judge()
_Span = tuple[int, int]
_Tables = tuple[pd.DataFrame, pd.DataFrame]
_Load = tuple[Any, Any, pd.DataFrame, Judge, CampaignSettings]
_PLAIN = CampaignSettings()


def campaign(
    model: Any,
    inputs: Any,
    faults: pd.DataFrame,
    *,
    judge: Judge = _ARGMAX,
    settings: CampaignSettings = _PLAIN,
    client: Any = None,
) -> Injections:
    """Inject faults into a model, one experiment after another, and count what comes of it.

    The model is run in evaluation mode and put back as it was, whatever happens. With
    ``settings.folder`` a campaign that was stopped goes on where it was, with or without a
    cluster.

    Parameters
    ----------
    model
        A ``torch.nn.Module`` that gives one row of outputs per input.
    inputs
        A tensor, a tuple or dict of tensors (the arguments of the model), or a list of
        such batches.
    faults
        Table :data:`workbench.tables.FAULTS`, from :func:`uniform_faults` and its kin.
    judge
        When an output counts as wrong.
    settings
        Everything else.
    client
        A ``distributed.Client``: each chunk runs at some worker, on a copy of the model. What is
        done is kept by this process, so workers need no common file system. The tables are the
        same but for times.

    Returns
    -------
    Injections
        The tables ``campaign``, ``faults``, ``outcomes``, ``trials`` (empty unless
        kept), ``parameters`` and ``quality``.

    Raises
    ------
    InjectionError
        If faults, inputs, judge or settings do not fit the model, the run without faults
        is not the same twice, the folder holds another campaign, a chunk of it is not the
        one that was written, or one kills the workers that run it.
    MissingExtraError
        If a client is given and Dask is not installed.
    """
    work = prepared(model, inputs, faults, judge, settings)
    kept = Checkpoint.of(work)
    # Without a folder or a bar, as a worker runs it.
    alone = replace(settings, folder=None, progress=False)
    load = (model, inputs, faults, judge, alone)
    done = dict(progress(
        _chunks(work, kept) if client is None else _spread(client, load, work, kept),
        total=-(-len(work.exp_ids) // kept.chunk_size),
        unit="chunks",
        label=f"injecting into {work.name}",
        enabled=settings.progress,
    ))  # fmt: skip
    return gathered(work, kept, [done[span] for span in sorted(done)])


def running(
    model: Any,
    inputs: Any,
    faults: pd.DataFrame,
    *,
    judge: Judge = _ARGMAX,
    settings: CampaignSettings = _PLAIN,
) -> Iterator[pd.DataFrame]:
    """Run a campaign chunk by chunk, and give the outcomes of each when it is done.

    Between two chunks the model is as it was; close the generator to stop.

    Parameters
    ----------
    model, inputs, faults, judge, settings
        As for :func:`campaign`.

    Yields
    ------
    pandas.DataFrame
        Table :data:`workbench.tables.OUTCOMES` of the next chunk; those of a folder come
        first, without being run again.
    """
    work = prepared(model, inputs, faults, judge, settings)
    kept = Checkpoint.of(work)
    for _, (outcomes, _) in _chunks(work, kept):
        yield outcomes


def _chunks(work: Work, kept: Checkpoint) -> Iterator[tuple[_Span, _Tables]]:
    """Yield the chunks in order, from the folder where they are done."""
    for start, stop in kept.ranges(len(work.exp_ids)):
        tables = kept.read(start, stop)
        if tables is None:
            tables = work.chunk(start, stop)
            kept.write(start, stop, *tables)
        yield (start, stop), tables


def _spread(
    client: Any, load: _Load, work: Work, kept: Checkpoint
) -> Iterator[tuple[_Span, _Tables]]:
    """Yield the chunks that are done, then the others as workers finish them."""
    lacking = []
    for span in kept.ranges(len(work.exp_ids)):
        tables = kept.read(*span)
        if tables is None:
            lacking.append(span)
        else:
            yield span, tables
    for span, result in on_cluster(client, _chunk, lacking, load):
        if isinstance(result, Exception):
            msg = f"experiments {span[0]:,} to {span[1] - 1:,}: their workers died ({result})"
            raise InjectionError(msg)
        kept.write(*span, *result)
        yield span, result


def _chunk(span: _Span, load: _Load) -> _Tables:
    model, inputs, faults, judge, settings = load
    return prepared(model, inputs, faults, judge, settings).chunk(*span)


def gathered(
    work: Work, kept: Checkpoint, chunks: list[tuple[pd.DataFrame, pd.DataFrame]]
) -> Injections:
    """Put the tables of a campaign together."""
    outcomes = pd.concat([tables[0] for tables in chunks], ignore_index=True)
    kept_trials = [tables[1] for tables in chunks if len(tables[1])]
    trials = pd.concat(kept_trials, ignore_index=True) if kept_trials else TRIALS.empty()
    faults = FAULTS.check(work.faults.assign(campaign_id=work.name))
    faults.attrs = {}
    return Injections(
        campaign=campaign_row(work, kept.created),
        faults=faults,
        outcomes=OUTCOMES.check(outcomes),
        trials=TRIALS.check(trials),
        parameters=PARAMETERS.check(work.parameters.assign(campaign_id=work.name)),
        quality=quality(work, len(kept.unproven)),
    )


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
    def of(cls, work: Work) -> Checkpoint:
        """Begin a campaign, or take up the one in the folder if it is the same."""
        now, own = pd.Timestamp.now("UTC").floor("s"), identity(work)
        order = (work.exp_ids, work.settings.keep_trials)
        # Measuring the chunk size runs experiments; a folder knows its own.
        if work.settings.folder is None:
            return cls(None, work.chunk_size, now, *order)
        folder = Path(work.settings.folder)
        head = folder / _HEAD
        if head.exists():
            # Chunks of another campaign must not be mixed in.
            stored = _same_campaign(head, own)
            # What a killed process left: of this version, and of earlier ones.
            for pattern in (".*.parquet-*-*", ".*.json-*-*", "*.tmp"):
                for unfinished in folder.glob(pattern):
                    unfinished.unlink()
            return cls(
                folder, int(stored["chunk_size"]), pd.Timestamp(stored["created"]), *order,
                has_sums=bool(stored.get("has_sums", False)),
            )  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        chunk_size = work.chunk_size
        stored = {
            "format": _FORMAT,
            "created": now.isoformat(),
            "chunk_size": chunk_size,
            "has_sums": True,
            **own,
        }
        text = json.dumps(stored, indent=1)
        write_whole(head, lambda file: file.write(text.encode()))
        return cls(folder, chunk_size, now, *order)

    def ranges(self, count: int) -> Iterator[tuple[int, int]]:
        """Yield the chunks: the first experiment, and the one after the last."""
        for start in range(0, count, self.chunk_size):
            yield start, min(start + self.chunk_size, count)

    def read(self, start: int, stop: int) -> tuple[pd.DataFrame, pd.DataFrame] | None:
        """Return a chunk that is done, or None.

        Raises
        ------
        InjectionError
            If its files are damaged, or are not what was written for these experiments.
        """
        if self.folder is None or not (path := self._path("outcomes", start, stop)).exists():
            return None
        sums = self._path("sums", start, stop, ending="json")
        # Killed between outcomes and check sums: the chunk is run again.
        if self.has_sums and not sums.exists():
            return None
        trials_path = self._path("trials", start, stop)
        if sums.exists():
            self._refuse_other_bytes(sums, (start, stop))
        else:
            # Folders of earlier versions have no check sums.
            self.unproven.append(start)
        table = _parquet(path)
        detected = table[[name for name in table if name not in OUTCOMES.columns]]
        trials = _parquet(trials_path) if trials_path.exists() else TRIALS.empty()
        if why := _misfit(table, trials, self.exp_ids[start:stop], keep_trials=self.keep_trials):
            raise _unusable(path, why)
        outcomes = pd.concat([OUTCOMES.cast(table), detected.astype("Int64")], axis=1)
        return outcomes, TRIALS.cast(trials)

    def _refuse_other_bytes(self, sums: Path, span: tuple[int, int]) -> None:
        """Compare the files of a chunk with the check sums that were written with them."""
        path = self._path("outcomes", *span)
        try:
            stored = json.loads(sums.read_text())
            wanted = {name: stored[name] for name in ("start", "stop", "outcomes", "trials")}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _unusable(path, f"its check sums, {sums.name}, are damaged") from error
        for name, position in zip(("start", "stop"), span, strict=True):
            if wanted[name] != position:
                raise _unusable(path, f"{sums.name} is of another chunk")
        for name in ("outcomes", "trials"):
            file = self._path(name, *span)
            if wanted[name] != _sum_of(file):
                state = "is missing" if not file.exists() else "is not the file that was written"
                raise _unusable(path, f"{file.name} {state}")

    def write(self, start: int, stop: int, outcomes: pd.DataFrame, trials: pd.DataFrame) -> None:
        """Keep a chunk."""
        if self.folder is None:
            return
        # In this order: a process killed in between leaves a chunk that is not taken for done.
        if len(trials):
            write_whole(self._path("trials", start, stop), trials.to_parquet)
        write_whole(self._path("outcomes", start, stop), outcomes.to_parquet)
        sums = {name: _sum_of(self._path(name, start, stop)) for name in ("outcomes", "trials")}
        text = json.dumps({"start": start, "stop": stop, **sums})
        write_whole(
            self._path("sums", start, stop, ending="json"), lambda file: file.write(text.encode())
        )

    def _path(self, name: str, start: int, stop: int, *, ending: str = "parquet") -> Path:
        assert self.folder is not None
        return self.folder / f"{name}-{start:010d}-{stop:010d}.{ending}"


def _same_campaign(head: Path, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Read the head of a folder and refuse another campaign's."""
    try:
        stored: dict[str, Any] = json.loads(head.read_text())
        # Through JSON like the stored head, where tuples have become lists.
        wanted = json.loads(json.dumps(identity))
        apart = [name for name in wanted if stored.get(name) != wanted[name]]
        if apart != [_FOLLOWS]:
            apart = [name for name in apart if name != _FOLLOWS]
        if stored["format"] != _FORMAT:
            apart = ["format"]
        pd.Timestamp(stored["created"]), int(stored["chunk_size"])
    except (ValueError, KeyError, TypeError) as error:
        msg = f"folder: {head} is not the head of a campaign ({error}); use an empty folder"
        raise InjectionError(msg) from error
    if apart:
        name = apart[0]
        msg = (
            f"folder: {head.parent} holds another campaign, which differs in {', '.join(apart)} "
            f"({name} there: {str(stored.get(name))[:60]}, here: {str(identity.get(name))[:60]}); "
            "use another folder, or the same arguments"
        )
        raise InjectionError(msg)
    return stored


def _misfit(
    outcomes: pd.DataFrame, trials: pd.DataFrame, exp_ids: Any, *, keep_trials: bool
) -> str:
    """Explain why a chunk is not that of these experiments; empty if it is."""
    if "exp_id" not in outcomes or not np.array_equal(outcomes["exp_id"], exp_ids):
        return f"it does not hold experiments {exp_ids[0]} to {exp_ids[-1]} once each"
    if not keep_trials:
        return ""
    if not {"exp_id", "input_id", "outcome"} <= set(trials.columns):
        return "its trials are missing columns"
    if set(trials["exp_id"]) != set(exp_ids.tolist()):
        return "its trials are missing, or of other experiments"
    sizes = trials.groupby("exp_id").size()
    if trials.duplicated(["exp_id", "input_id"]).any() or sizes.nunique() > 1:
        return "its trials are not one per experiment and input"
    counts = outcomes.set_index("exp_id").sort_index()
    for name in OUTCOME_NAMES:
        counted = (trials["outcome"] == name).groupby(trials["exp_id"]).sum()
        # A metric judges all inputs of an experiment together.
        alike = counts["input_count"].eq(sizes).fillna(value=False)
        if (alike & counts[f"{name}_count"].ne(counted).fillna(value=False)).any():
            return "its trials count other outcomes than its experiments"
    return ""


def _sum_of(path: Path) -> str | None:
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


def outcomes_of(outputs: Any, golden: Any, *, judge: Judge = _ARGMAX) -> npt.NDArray[np.object_]:
    """Judge outputs that are available already against those of the run without faults.

    Parameters
    ----------
    outputs
        Array or tensor, one row per input.
    golden
        The same without faults.
    judge
        When an output counts as wrong.

    Returns
    -------
    numpy.ndarray
        ``"masked"``, ``"benign"``, ``"sdc"`` or ``"due"`` per input. An output that is not
        finite is ``"due"``, whatever an argmax of it would be.

    Raises
    ------
    InjectionError
        If the criterion does not fit the outputs, or shapes differ.
    """
    faulty, clean = (torch().as_tensor(values) for values in (outputs, golden))
    measure = judge.golden(clean)
    if faulty.shape != clean.shape:
        msg = f"outputs: shape {tuple(faulty.shape)}, golden has {tuple(clean.shape)}"
        raise InjectionError(msg)
    codes = measure.outcomes(faulty, torch().arange(len(clean)))
    return np.array([OUTCOME_NAMES[code] for code in codes.tolist()], dtype=object)


_NUMBERS = {"exp_id": -1, "flip": -1, "elem": -1, "bit": -1}


def identity(work: Work) -> dict[str, Any]:
    """Return the settings that two runs of one campaign must share, ready for JSON."""
    settings = work.settings
    labels = settings.labels
    return {
        "campaign_id": work.name,
        "model_sha": _model(work.model),
        "model_text": hashlib.sha256(repr(work.model).encode()).hexdigest(),
        "decisions_sha": sha_of([("", work.golden.decisions)]),
        "inputs_sha": inputs_sha(batches(work.inputs)),
        "faults_sha": faults_sha(work.faults),
        "labels_sha": None if labels is None else sha_of([("", as_tensor(labels))]),
        "judge": asdict(work.judge),
        "engine": type(work.engine).__name__,
        "metric": metric_name(settings.metric),
        "keep_trials": settings.keep_trials,
        "detectors": sorted(settings.detectors),
        "mitigation": [
            hashlib.sha256(mitigation.described().encode()).hexdigest()
            for mitigation in settings.mitigations
        ],
    }


def _model(model: Any) -> str:
    """Return the hash of weights and of the types they are stored in."""
    kinds = [f"{name} {kept.layout.name}" for name, kept in sorted(storage(model).items())]
    text = "\n".join([sha_of(sorted(model.state_dict().items())), *kinds])
    return hashlib.sha256(text.encode()).hexdigest()


def faults_sha(faults: pd.DataFrame) -> str:
    """Return the sha256 of what faults do: places and effects, not what is said of them."""
    digest = hashlib.sha256()
    for name, missing in _NUMBERS.items():
        digest.update(faults[name].fillna(missing).to_numpy(dtype=np.int64).tobytes())
    for name in ("param", "direction"):
        codes, texts = pd.factorize(faults[name].astype(object).fillna(""))
        digest.update(codes.astype(np.int64).tobytes())
        digest.update("\n".join(map(str, texts)).encode())
    digest.update(faults["value_after"].to_numpy(dtype=np.float64).tobytes())
    return digest.hexdigest()


def campaign_row(work: Work, created: pd.Timestamp) -> pd.DataFrame:
    """Return the head of a campaign as table CAMPAIGN."""
    settings, design = work.settings, work.faults.attrs
    hit = sorted(set(work.faults["dtype"].dropna().astype(str)))
    mitigations = [mitigation.name for mitigation in settings.mitigations]
    is_rated = settings.metric is not None or work.golden_metric is not None
    judge = work.judge
    # The number that the criterion compares with.
    tolerance = judge.threshold if judge.criterion == "threshold" else judge.tolerance
    row = {
        "campaign_id": work.name,
        "tool": "workbench",
        "tool_version": workbench.__version__,
        "model_name": type(work.model).__name__,
        "model_sha": _model(work.model),
        "dataset": settings.dataset,
        "is_synthetic": settings.is_synthetic,
        "input_count": 1 if work.judge.criterion == "metric_drop" else len(work.golden),
        "inputs_sha": inputs_sha(batches(work.inputs)),
        "dtype": "+".join(hit) or None,
        "task": None,
        "criterion": judge.criterion,
        "tolerance": None if judge.criterion == "argmax" else tolerance,
        "masked_rule": getattr(work.engine, "masked_rule", None),
        "nan_policy": "apart",
        "fault_model": design.get("fault_model", _fault_model(work.faults)),
        "flip_count": design.get("flip_count", _flip_count(work.faults)),
        "bit_error_ratio": design.get("bit_error_ratio"),
        "mitigation": "+".join(mitigations) or None,
        "design": design.get("design", "other"),
        "seed": design.get("seed"),
        "golden_metric": work.golden_metric,
        "metric_name": (metric_name(settings.metric) or "accuracy") if is_rated else None,
        "created": created,
    }
    return CAMPAIGN.of([row])


def _flip_count(faults: pd.DataFrame) -> int | None:
    sizes = faults.groupby("exp_id").size()
    return int(sizes.iloc[0]) if sizes.nunique() == 1 and faults["bit"].notna().all() else None


def _fault_model(faults: pd.DataFrame) -> str:
    """Name the fault model as far as the rows tell it."""
    if faults["bit"].isna().all():
        return "value"
    return "sbf" if _flip_count(faults) == 1 else "other"


_UNPROVEN = "chunks without check sums, by an earlier version: only places and counts were checked"


def quality(work: Work, unproven: int = 0) -> pd.DataFrame:
    """List caveats to know before using the outcomes."""
    idle = int(work.faults["param"].isna().sum())
    rows = [*work.notes, ("noted", f"judged by the engine {type(work.engine).__name__}", 1)]
    if unproven:
        rows.append(("noted", _UNPROVEN, unproven))
    if idle:
        rows.append(("noted", "experiments that hit nothing, as drawn by bit-error ratio", idle))
    frame = pd.DataFrame(rows, columns=["finding", "what", "count"]).assign(
        source=work.name, where=None
    )
    return QUALITY.of(frame)
