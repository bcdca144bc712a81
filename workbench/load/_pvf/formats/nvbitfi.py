"""Results of NVBitFI: faults in instructions of a GPU, injection by injection or summed up."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._pvf.columns import BAD_ROWS, REPEATED_ROWS, header_of, whole_text
from workbench.load._pvf.part import InjectionFile, InjectionPart, campaign, filled, stacked, stem
from workbench.tables import CAMPAIGN, FAULTS, OUTCOMES

TOOL = "NVBitFI"
NAME = "NVBitFI"
_MODELS = ("FLIP_SINGLE_BIT", "FLIP_TWO_BITS", "RANDOM_VALUE", "ZERO_VALUE")
_OURS = ("sbf", "mbf", "value", "value")
_TABLE = ("App", "IGID", "Injection Model")
# Categories 1 to 3 are masked, 4 and 5 DUE, 6 to 15 potential DUE, 16 to 18 SDC.
_MASKED, _DUE, _SDC, _CATEGORIES = 3, 15, 18, 19
_CERTAIN_DUE = 5
_WRITTEN = 18
_LINE = (
    r"(?P<count>\d+);(?P<kernel>[^;]*);(?P<kcount>[^;]*);(?P<iid>[^;]*);(?P<opid>[^;]*);"
    r"(?P<bid>[^:;]*):(?P<pc>[^:]*):(?P<opcode>[^:]*):(?P<tid>[^:]*):(?P<mask>[^:]*):"
    r"(?P<runtime>[^:]*):(?P<category>\d{1,2}):(?P<dmesg>[^:]*):?(?P<values>.*)"
)
# Bytes, and without names of groups: the first look at a file needs to know yes or no only.
_FIRST_LINE = re.compile(re.sub(r"\?P<\w+>", "", _LINE).encode())
_ROW = re.compile(rf"({'|'.join(_MODELS)})((?:\t *\d+){{{_WRITTEN}}})")
_ANY_ROW = re.compile(rf"({'|'.join(_MODELS)})\t")
_BFM = re.compile(r"\.bfm(\d)")
_BITS = 64
_POTENTIAL = "potential DUE (kernel error, message or Xid), counted as DUE"
_UNCATEGORISED = "uncategorised: not injected, or files of the run are missing"


def role(head: bytes, source: Source) -> str:  # noqa: ARG001 - the head tells
    """Recognise lines of injections, and the table of details."""
    if head.startswith(b"App\t") and tuple(header_of(head, "\t")[:3]) == _TABLE:
        return "details"
    return "lines" if _FIRST_LINE.match(head.split(b"\n", 1)[0]) else ""


def read(files: list[InjectionFile]) -> list[InjectionPart]:
    """Read lines of single injections; the table of details only where there are no lines."""
    lines = [file.source for file in files if file.role == "lines"]
    tables = [file.source for file in files if file.role == "details"]
    campaigns = [_read_lines(source) for source in lines]
    # A summary beside its single injections would count each of them twice.
    if not campaigns:
        return [_read_details(source) for source in tables]
    for source in tables:
        findings = Findings(source.label)
        findings.add("skipped by design", "a summary beside its single injections")
        campaigns[0].findings.append(findings)
    return campaigns


def _read_lines(source: Source) -> InjectionPart:
    findings = Findings(source.label)
    lines = pd.Series(whole_text(source, findings).decode().splitlines(), dtype=object)
    lines = lines[lines.str.strip() != ""]
    if (copies := lines.str.strip().duplicated()).any():
        findings.add("repaired", REPEATED_ROWS, int(copies.sum()))
        lines = lines[~copies]
    fields = lines.str.extract(rf"^\s*{_LINE}$")
    bad = fields["count"].isna() | ~pd.to_numeric(fields["category"]).between(1, _CATEGORIES)
    where = str(lines[bad].iloc[0])[:60] if bad.any() else None
    findings.add("dropped", BAD_ROWS, int(bad.sum()), where)
    fields = fields[~bad].reset_index(drop=True)
    if fields.empty:
        msg = f"{source.label}: no line reports an injection; the file is cut or of another tool"
        raise LoadError(msg)
    again = fields["count"].duplicated()
    findings.add("noted", "injection numbers that are there twice; all are kept", int(again.sum()))
    findings.add("read", "injections", len(fields))
    name = stem(source)
    bfm = _BFM.search(name)  # stands nowhere but in the name of the file
    number = int(bfm[1]) if bfm and int(bfm[1]) < len(_MODELS) else None
    text = "the fault model is not known: the file name has no .bfm"
    findings.add("noted", text, int(number is None))
    head = _head(name, number, input_count=1)
    exp = np.arange(len(fields))
    category = pd.to_numeric(fields["category"]).to_numpy(np.int64)
    outcomes = _outcomes(name, exp, category, findings)
    outcomes["time_s"] = pd.to_numeric(fields["runtime"], errors="coerce").clip(lower=0)
    is_flip = number is not None and _OURS[number] in ("sbf", "mbf")
    faults = _faults(name, fields, is_flip=is_flip)
    return InjectionPart(head, outcomes, faults, findings=[findings])


def _head(name: str, bfm: int | None, **more: Any) -> pd.DataFrame:
    model = None if bfm is None else _OURS[bfm]
    flips = {0: 1, 1: 2}.get(-1 if bfm is None else bfm)
    more |= {"fault_model": model, "flip_count": flips, "nan_policy": "as_is", "design": "other"}
    return campaign(campaign_id=name, tool=TOOL, **more)


def _outcomes(name: str, exp: np.ndarray, category: np.ndarray, findings: Findings) -> pd.DataFrame:
    """Add one input to each run; what the tool could not judge has an error and no counts."""
    is_due = (category > _MASKED) & (category <= _DUE)
    findings.add("assumed", _POTENTIAL, int((is_due & (category > _CERTAIN_DUE)).sum()))
    failed = category > _SDC
    columns = {
        "input_count": np.ones(len(exp)),
        "masked_count": category <= _MASKED,
        "benign_count": np.zeros(len(exp)),
        "sdc_count": (category > _DUE) & ~failed,
        "due_count": is_due,
    }
    counts = {n: pd.array(flags.astype("int64"), dtype="Int64") for n, flags in columns.items()}
    for counts_of in counts.values():
        counts_of[failed] = pd.NA
    error = pd.Series(_UNCATEGORISED, index=range(len(exp))).where(failed)
    told = {"campaign_id": name, "exp_id": exp, "error": error}
    return filled(OUTCOMES, {**told, **counts}, len(exp))


def _faults(name: str, fields: pd.DataFrame, *, is_flip: bool) -> pd.DataFrame:
    """Return one row per bit of the mask, or one without a bit where none was flipped.

    The mask of a random value is the value written, not what it flipped.
    """
    is_hex = fields["mask"].str.fullmatch(r"\s*0x[0-9a-fA-F]{1,16}\s*").fillna(value=False)
    is_hex &= is_flip
    masks = fields["mask"].where(is_hex, "0x0").map(lambda text: int(text, 16)).to_numpy(np.uint64)
    is_set = (masks[:, None] >> np.arange(_BITS, dtype=np.uint64)) & np.uint64(1) == 1
    # One row for a fault without bits, so that it stays among the faults.
    is_set[~is_set.any(axis=1), 0] = True
    row, bit = np.nonzero(is_set)
    is_flipped = masks[row] > 0
    values = fields["values"].str.extract(r"value_before(0x\w{1,16}).*?value_after(0x\w{1,16})")
    columns = {
        "campaign_id": name, "exp_id": row, "flip": pd.Series(row).groupby(row).cumcount(),
        "layer": fields["kernel"].astype("category").take(row), "kind": "activation",
        "index": (fields["opcode"] + " " + fields["pc"]).take(row),
        "bit": pd.Series(bit).where(is_flipped),
        "value_before": _hexadecimal(values[0]).take(row),
        "value_after": _hexadecimal(values[1]).take(row),
    }  # fmt: skip
    aligned = {
        key: value.reset_index(drop=True) if isinstance(value, pd.Series) else value
        for key, value in columns.items()
    }
    return filled(FAULTS, aligned, len(row))


def _hexadecimal(texts: pd.Series) -> pd.Series:
    is_number = texts.fillna("").str.fullmatch(r"0x[0-9a-fA-F]+")
    return texts.where(is_number).map(lambda text: int(text, 16), na_action="ignore").astype(float)


# The header names 19 columns above 18 counts, and some rows lack application, group and line end.
def _read_details(source: Source) -> InjectionPart:
    findings = Findings(source.label)
    text = whole_text(source, findings).decode()
    body = text.partition("\n")[2]
    heads, outcomes, faults = [], [], []
    app, group, end = "", "", 0
    for match in _ROW.finditer(body):
        cells = [cell.strip() for cell in body[end : match.start()].split("\t") if cell.strip()]
        # Later rows of a group leave out its name and that of the application: both are carried on.
        group = cells[-1] if cells else group
        app = cells[-2] if len(cells) > 1 else app
        end = match.end()
        counts = np.array([int(cell) for cell in match[2].split()])
        if not counts.sum():
            findings.add("skipped by design", "rows whose counts sum to 0: never run")
            continue
        bfm = _MODELS.index(match[1])
        name = f"{app}, {group}, {match[1]}"
        heads.append(_head(name, bfm, model_name=app or None, input_count=int(counts.sum())))
        outcomes.append(_summed(name, counts, findings))
        key = {"campaign_id": name, "exp_id": 0, "flip": 0, "kind": "activation"}
        faults.append(filled(FAULTS, key, 1))
    damaged = len(_ANY_ROW.findall(body)) - len(_ROW.findall(body))
    findings.add("dropped", BAD_ROWS, damaged)
    if not heads:
        msg = f"{source.label}: has a header and no row of {_WRITTEN} counts that was run"
        raise LoadError(msg)
    findings.add("read", "rows", len(heads))
    return InjectionPart(
        stacked(heads, CAMPAIGN), stacked(outcomes, OUTCOMES), stacked(faults, FAULTS),
        findings=[findings],
    )  # fmt: skip


def _summed(name: str, counts: np.ndarray, findings: Findings) -> pd.DataFrame:
    findings.add("assumed", _POTENTIAL, int(counts[_CERTAIN_DUE:_DUE].sum()))
    columns = {
        "campaign_id": name, "exp_id": 0, "input_count": int(counts.sum()),
        "masked_count": int(counts[:_MASKED].sum()), "benign_count": 0,
        "sdc_count": int(counts[_DUE:_SDC].sum()), "due_count": int(counts[_MASKED:_DUE].sum()),
    }  # fmt: skip
    return filled(OUTCOMES, columns, 1)
