"""Results of pytorchALFI: decisions of the golden and of the faulty model, row beside row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._pvf import part
from workbench.load._pvf.checks import DUE, SDC, UNKNOWN, common, counted, fp32_roles
from workbench.load._pvf.columns import boolean, column, header_of, numbers, text, text_table
from workbench.load._pvf.part import InjectionFile, InjectionPart
from workbench.tables import FAULTS, TRIALS

TOOL = "pytorchALFI"
NAME = "pytorchALFI"
_GOLDEN = "orig output index - top5"
_GOLDEN_RESIL = "resil output index - top5"
_PROBABILITY = "orig output prob - top5"
_FAULTY = {"corr": "corr output index - top5", "resil_corr": "resil corr output index - top5"}
# The tool also writes a flag for NaN alone; this one covers infinities as well.
_FLAGS = {"corr": "nan_or_inf_flag_corr_model", "resil_corr": "nan_or_inf_flag_resil_corr_model"}
_ROW = ("file_path", "gnd_label")
_FILTER, _PLACES = "channel_in", ("channel_in", "channel_out", "3D channel", "height", "width")
_SITE = ("layer", *_PLACES, "bit")
_NOTHING = ("", "None", "nan", "-1", "-1.0")
_HIGHEST_BIT = 31
# Probabilities are written in per cent.
_PERCENT = 100.0
_MSB = "bits counted from the most significant, of a float32: bit = 31 - value"


def role(head: bytes, source: Source) -> str:  # noqa: ARG001 - the head tells
    names = set(header_of(head))
    if not names >= set(_ROW):
        return ""
    if names & set(_FAULTY.values()):
        return "corr"
    return "golden" if names & {_GOLDEN, _GOLDEN_RESIL} else ""


def read(files: list[InjectionFile]) -> list[InjectionPart]:
    """Read faulty outputs beside the golden ones of the same folder."""
    golden = [file.source for file in files if file.role == "golden"]
    campaigns = []
    for file in files:
        if file.role == "corr":
            campaigns += _read_pair(file.source, _golden_of(file.source, golden))
    if not campaigns:
        msg = (
            f"{golden[0].label}: golden outputs of pytorchALFI without faulty ones; give the "
            "file *_corr.csv of the same run as well"
        )
        raise LoadError(msg)
    return campaigns


def _golden_of(source: Source, golden: list[Source]) -> Source:
    beside = [run for run in golden if part.folder(run) == part.folder(source)] or golden
    if len(beside) > 1:
        own = part.stem(source).removesuffix("_corr")
        beside = [run for run in beside if part.stem(run).removesuffix("_golden") == own]
    if len(beside) != 1:
        msg = (
            f"{source.label}: faulty outputs of pytorchALFI need the golden ones of the same run "
            f"(*_golden.csv), and {len(golden)} files may be them; give one beside it"
        )
        raise LoadError(msg)
    return beside[0]


def _read_pair(source: Source, golden_source: Source) -> list[InjectionPart]:
    findings, notes = Findings(source.label), Findings(golden_source.label)
    corr, golden = text_table(source, findings), text_table(golden_source, notes)
    # Faulty outputs run through all images once per fault, in the order of the golden ones.
    row = np.arange(corr.num_rows) % golden.num_rows
    _check_rows(corr, golden, row, source, golden_source)
    if extra_rows := corr.num_rows % golden.num_rows:
        findings.add("truncated", "rows of a last run that does not cover all images", extra_rows)
    exp, sites = _experiments(corr, row, source, findings)
    campaigns: list[InjectionPart] = []
    for model, name in _FAULTY.items():
        if name not in corr.column_names:
            continue
        campaign_id = part.stem(source) if not campaigns else f"{part.stem(source)} (mitigated)"
        trials = _Trials(corr, golden, row, exp, source, golden_source, model)
        campaigns.append(trials.part(campaign_id, sites))
    campaigns[0].findings += [findings, notes]
    used = {*_ROW, *_SITE, *_FAULTY.values(), *_FLAGS.values(), _GOLDEN, _GOLDEN_RESIL}
    part.note_columns(findings, corr.column_names, used)
    part.note_columns(notes, golden.column_names, {*used, _PROBABILITY})
    return campaigns


def _check_rows(
    corr: pa.Table, golden: pa.Table, row: np.ndarray, source: Source, golden_source: Source
) -> None:
    for name in _ROW:
        faulty_cells = pd.Series(corr[name].to_pandas()).fillna("")
        golden_cells = pd.Series(golden[name].to_pandas()).fillna("").to_numpy()[row]
        if (bad := (faulty_cells != golden_cells).to_numpy()).any():
            at = int(bad.argmax())
            msg = (
                f"{source.label}: row {at + 1:,} is of {name} {faulty_cells.iloc[at]!r}, the "
                f"golden row is of {golden_cells[at]!r}; {golden_source.label} is of another "
                "run, as rows are joined by order"
            )
            raise LoadError(msg)


@dataclass(frozen=True)
class _Trials:
    corr: pa.Table
    golden: pa.Table
    row: np.ndarray
    exp: np.ndarray
    source: Source
    golden_source: Source
    model: str

    def part(self, campaign_id: str, sites: Row) -> InjectionPart:
        name = _GOLDEN
        if self.model == "resil_corr" and _GOLDEN_RESIL in self.golden.column_names:
            name = _GOLDEN_RESIL
        right = _first_number(self.golden, name, self.golden_source)
        golden = right[self.row]
        faulty = _first_number(self.corr, _FAULTY[self.model], self.source)
        label = numbers(self.corr, "gnd_label", self.source)
        due = self._flags()
        # The tool's own rate leaves out DUE and images that were wrong before, so it is not a PVF.
        codes = np.where(faulty != golden, SDC, UNKNOWN)
        if due is not None:
            codes = np.where(due, DUE, codes)
        beneficial = (codes == SDC) & (golden != label) & (faulty == label)
        outcomes_told = ("sdc",) if due is None else ("sdc", "due")
        outcomes = counted(
            campaign_id, self.exp, codes, outcomes=outcomes_told, beneficial=beneficial
        )
        head = part.campaign(
            campaign_id=campaign_id, tool=TOOL, task="classification", criterion="argmax",
            dtype="fp32", nan_policy="as_is" if due is None else "apart", design="other",
            fault_model=sites["model"], flip_count=sites["flips"], metric_name="accuracy",
            input_count=common(outcomes["input_count"]),
            mitigation="other" if self.model == "resil_corr" else None,
            golden_metric=float((golden == label)[: self.golden.num_rows].mean()),
        )  # fmt: skip
        trials = {
            "campaign_id": campaign_id, "exp_id": self.exp, "input_id": self.row,
            "outcome": part.outcome_categories(codes), "is_beneficial": beneficial,
            "golden_margin": self._margins(),
        }  # fmt: skip
        faults = {**sites["faults"], "campaign_id": campaign_id}
        count = len(sites["faults"]["exp_id"])
        return InjectionPart(
            head, outcomes, part.filled(FAULTS, faults, count),
            part.filled(TRIALS, trials, len(self.exp)), findings=[Findings(self.source.label)],
            is_counted_here=True, is_numbered_here=True,
        )  # fmt: skip

    def _flags(self) -> np.ndarray | None:
        name = _FLAGS[self.model]
        if name not in self.corr.column_names:
            return None
        cells = column(self.corr, name, self.source)
        flags = boolean(cells)
        if (lacking := np.asarray(flags.isna())).any():
            cells.refuse(lacking, "True or False (whether an output was finite)")
        return np.asarray(flags, np.bool_)

    def _margins(self) -> np.ndarray | None:
        if _PROBABILITY not in self.golden.column_names or self.model != "corr":
            return None
        texts = pd.Series(self.golden[_PROBABILITY].to_pandas())
        pairs = texts.str.extract(r"\[\s*([-+.\deE]+)[\s,]+([-+.\deE]+)")
        ends: np.ndarray = pairs.apply(pd.to_numeric, errors="coerce").to_numpy()
        margins: np.ndarray = ((ends[:, 0] - ends[:, 1]) / _PERCENT)[self.row]
        return margins


def _first_number(table: pa.Table, name: str, source: Source) -> np.ndarray:
    """Take the first of the classes that stand in a cell as ``[3 5 1 0 2]``."""
    texts = pd.Series(table[name].to_pandas())
    # Cells are printed numpy arrays, without commas: neither JSON nor a Python list.
    first = pd.to_numeric(texts.str.extract(r"^\D*?(\d+)")[0], errors="coerce")
    if (bad := first.isna().to_numpy()).any():
        column(table, name, source).refuse(bad, "lists of classes such as [3 5 1 0 2]")
    return first.to_numpy(np.int64)


def _experiments(
    corr: pa.Table, row: np.ndarray, source: Source, findings: Findings
) -> tuple[np.ndarray, Row]:
    if missing := [name for name in _SITE if name not in corr.column_names]:
        msg = f"{source.label}: no column {missing} of the place that was hit"
        raise LoadError(msg)
    cells = pd.DataFrame({name: text(column(corr, name, source)).fillna("") for name in _SITE})
    # A new experiment: another place is hit, or the images begin again.
    is_new = (cells != cells.shift()).any(axis=1).to_numpy() | (row == 0)
    exp = np.cumsum(is_new) - 1
    flips = _flips(cells[is_new].reset_index(drop=True), source)
    # In weight mode channel_in is the filter, the first dimension; activations leave it empty.
    is_weight = flips[_FILTER].ne("").any()
    names = _PLACES if is_weight else _PLACES[1:]
    index = pd.Series("", index=flips.index)
    for name in names:
        index += flips[name].map(lambda each: f", {each}" if each else "")
    bits = pd.to_numeric(flips["bit"], errors="coerce")
    is_bit = bits.notna() & (bits == np.floor(bits)) & bits.between(0, _HIGHEST_BIT)
    is_flip = bool(is_bit.all())
    findings.add("assumed", _MSB, len(flips) if is_flip else 0)
    remark = "faults that set a value: their column 'bit' holds no bit"
    findings.add("noted", remark, 0 if is_flip else len(flips))
    bit = _HIGHEST_BIT - bits if is_flip else bits * np.nan
    number = flips.groupby("exp").cumcount()
    per_experiment = number.max() + 1 if len(number) else 1
    model = ("sbf" if per_experiment == 1 else "mbf") if is_flip else "value"
    faults = {
        "exp_id": flips["exp"], "flip": number, "bit": bit, "bit_role": fp32_roles(bit),
        "layer": flips["layer"].where(flips["layer"] != ""), "dtype": "fp32",
        "index": ("(" + index.str.removeprefix(", ") + ")").where(index != ""),
        "kind": "weight" if is_weight else "activation",
    }  # fmt: skip
    return exp, {"faults": faults, "model": model, "flips": per_experiment}


# A cell holds one number, or a list of one number per flip.
def _flips(cells: pd.DataFrame, source: Source) -> pd.DataFrame:
    plain = cells.apply(lambda texts: texts.str.replace(r"array\(|[\[\]()']", "", regex=True))
    lists = plain.apply(lambda texts: texts.str.strip().str.split(r"[,\s]+", regex=True))
    sizes = lists.apply(lambda found: found.str.len())
    most = sizes.max(axis=1)
    if (bad := ((sizes != 1) & sizes.ne(most, axis=0)).any(axis=1)).any():
        first = cells[bad].iloc[0].to_dict()
        msg = f"{source.label}: lists of different lengths tell one fault: {first}"
        raise LoadError(msg)
    for name in lists:
        is_short = sizes[name] < most
        pairs = zip(lists[name][is_short], most[is_short], strict=True)
        repeats = [cell * int(count) for cell, count in pairs]
        lists.loc[is_short, name] = pd.Series(repeats, index=lists.index[is_short])
    numbered = lists.assign(exp=np.arange(len(lists)))
    flips: pd.DataFrame = numbered.explode(list(_SITE), ignore_index=True)
    for name in _SITE:
        texts = flips[name].astype(str)
        flips[name] = texts.str.removesuffix(".0").where(~texts.isin(_NOTHING), "")
    return flips
