"""What a group's faults were drawn from: its name and its bits are those of that part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._pvf.drawn import Drawn, drawn_cells
from workbench.analyze._pvf.groups import Groups, groups
from workbench.analyze._pvf.rules import MEMBERS, OF_CAMPAIGN, Rules
from workbench.analyze._pvf.truth_cells import cells
from workbench.errors import InjectionError
from workbench.tables import ExhaustiveInjections, Injections

_PLACES = {"component": "components", "layer": "layers", "tensor": "tensors"}
_NO_CELLS = {"direction", "stratum"}
_SHOWN = 3


class Words(NamedTuple):
    """The part of a group that faults were drawn from; empty if it is all of the group."""

    bits: str = ""
    tensors: str = ""

    def __str__(self) -> str:
        """Join both."""
        return " of ".join(filter(None, self))


_UNKNOWN = Words("part")


class Parts(NamedTuple):
    """What every group stands for."""

    labels: list[str]
    """Of the groups, with the part of them that faults were drawn from."""
    drawn_from: list[str]
    """That part in words; empty where it is all of the group, or nothing tells."""
    bit_count: NDArray[np.float64]
    names: list[set[str]]
    """Tensors or layers drawn from, as averaged; empty for bits."""


def with_parts(
    given: Injections | Sequence[Injections],
    table: pd.DataFrame,
    found: Groups,
    campaign: pd.DataFrame,
    rules: Rules,
) -> Groups:
    """Name the groups of a table by what their faults were drawn from."""
    drawn = drawn_cells(given, table)
    return found._replace(labels=parts(drawn, found, table["campaign_id"], campaign, rules).labels)


def component_names(truth: ExhaustiveInjections) -> dict[str, str]:
    """Name every component of a truth by the part of it that was injected into."""
    table = cells(truth).assign(campaign_id=truth.campaign["campaign_id"].iloc[0])
    found = groups(table, ("component",), truth.parameters)
    rules = Rules("bits", ("component",))
    drawn = drawn_cells(truth, table)
    labels = parts(drawn, found, table["campaign_id"], truth.campaign, rules).labels
    return dict(zip(found.keys["component"], labels, strict=True))


def parts(
    drawn: Drawn, found: Groups, names: pd.Series, campaign: pd.DataFrame, rules: Rules
) -> Parts:
    """Compare what faults were drawn from with what each group holds.

    ``names`` is the campaign of every row that ``found`` groups.

    Raises
    ------
    InjectionError
        If some bits of a group were drawn from by more campaigns than others.
    """
    places = _with_campaign(drawn, campaign, rules.by)
    told = [name for name in rules.by if name in places and name != "flip_count"]
    home = pd.Series(np.arange(len(places))).groupby(_texts(places, told)).indices
    pairs = pd.DataFrame({"group": found.code, "name": names.to_numpy(dtype=object)})
    of_group = pairs.drop_duplicates().groupby("group")["name"].agg(set)
    is_blind = bool(_NO_CELLS & set(rules.by))
    result = Parts([], [], np.full(len(found.labels), np.nan), [])
    for number, key in enumerate(_texts(found.keys, told)):
        label = found.labels[number]
        part = places.iloc[home.get(key, [])]
        part = part[part["campaign_id"].isin(of_group[number])]
        if part.empty or is_blind:
            mine = places[places["campaign_id"].isin(of_group[number])]
            words, bits = _of_bits(mine, label, rules.by), np.nan
        else:
            words, bits = _words_and_bits(part, label)
        result.labels.append(_label(label, words, rules.by))
        result.drawn_from.append(str(words))
        result.bit_count[number] = bits
        result.names.append(_names(part, rules))
    return result


def _with_campaign(drawn: Drawn, campaign: pd.DataFrame, by: tuple[str, ...]) -> pd.DataFrame:
    """Add to the cells how often they were drawn from, and the columns grouped by."""
    places = drawn.cells
    cover, is_known = np.zeros(len(places), dtype=np.int64), np.ones(len(places), dtype=bool)
    own = places["campaign_id"].to_numpy(dtype=object)
    for name, mask in drawn.draws:
        if mask is None:
            is_known &= own != name
        else:
            cover += mask
    known = campaign.set_index("campaign_id")
    more = [name for name in by if name in OF_CAMPAIGN and name not in places]
    return places.assign(
        cover=cover,
        is_known=is_known,
        **{name: places["campaign_id"].map(known[name]) for name in more},
    )


def _texts(frame: pd.DataFrame, columns: list[str]) -> NDArray[Any]:
    """Give one text per row that tells the groups apart."""
    texts = np.full(len(frame), "", dtype=object)
    for name in columns:
        values = frame[name].astype(object)
        words = ["\x1f" if pd.isna(value) else f"{value}\x1f" for value in values]
        texts = texts + np.array(words, dtype=object)
    return texts


def _names(part: pd.DataFrame, rules: Rules) -> set[str]:
    """Name the tensors or layers that the mean of a group runs over."""
    column = MEMBERS.get(rules.average)
    if column is None or part["element_count"].isna().any():
        return set()
    return set(part.loc[(part["cover"] > 0) | ~part["is_known"], column])


def _words_and_bits(part: pd.DataFrame, label: str) -> tuple[Words, float]:
    """Give the part of a group in words, and its bits."""
    if not part["is_known"].all():
        return _UNKNOWN, np.nan
    is_whole = (part["drawn_count"] == part["element_count"]).all() and part["cover"].min() > 0
    if is_whole and part["cover"].nunique() == 1 and part["campaign_id"].nunique() == 1:
        return Words(), float(part["drawn_count"].sum())
    grouped = part.groupby(["tensor", "bit"], sort=False)
    each = grouped.first().assign(cover=grouped["cover"].sum()).reset_index()
    drawn = each[each["cover"] > 0]
    words = _words(each, drawn)
    if drawn["cover"].nunique() > 1:
        msg = (
            f"group {label!r} mixes faults drawn from parts of it that overlap: some bits would "
            'count twice; tell the campaigns apart with by=(..., "campaign_id") or pass one of '
            "them, and join the phases of one design with analyze.pooled"
        )
        raise InjectionError(msg)
    return words, float(drawn["drawn_count"].sum(skipna=False))


def _of_bits(places: pd.DataFrame, label: str, by: tuple[str, ...]) -> Words:
    """Say which bits a group was drawn from whose tensors are not known."""
    drawn = places[places["cover"] > 0]
    if drawn.empty or not places["is_known"].all() or "bit " in label:
        return Words()
    words = _words(places, drawn)
    return words if not {*_PLACES, "param", "kind", *_NO_CELLS} & set(by) else Words(words.bits)


def _words(whole: pd.DataFrame, drawn: pd.DataFrame) -> Words:
    """Say which of the cells were drawn from."""
    is_full = not (drawn["drawn_count"] < drawn["element_count"]).any()
    inside = whole[whole["tensor"].isin(drawn["tensor"])]
    bits = sorted(drawn["bit"].unique())
    if not is_full or len(drawn) < inside["bit"].isin(bits).sum():
        some, every = drawn["drawn_count"].sum(), whole["element_count"].sum()
        return Words(f"{some:,.0f} of the {every:,.0f} bits") if every > 0 else _UNKNOWN
    return Words(_ranges(bits) if len(drawn) < len(inside) else "", _tensors(whole, drawn))


def _ranges(bits: list[int]) -> str:
    """Write bits as ranges: bits 3, 28 to 30."""
    starts = [bit for bit in bits if bit - 1 not in bits]
    ends = [bit for bit in bits if bit + 1 not in bits]
    texts = [f"{a} to {b}" if b > a else f"{a}" for a, b in zip(starts, ends, strict=True)]
    return f"bit{'s' * (len(bits) > 1)} {', '.join(texts)}"


def _tensors(whole: pd.DataFrame, drawn: pd.DataFrame) -> str:
    """Name the tensors drawn from, by whole components or layers where they are that."""
    mine = set(drawn["tensor"])
    if mine == set(whole["tensor"]):
        return ""
    column = next(
        name
        for name in _PLACES
        if set(whole.loc[whole[name].isin(drawn[name].unique()), "tensor"]) == mine
    )
    names = [str(name) for name in drawn[column].unique()]
    if len(names) > _SHOWN:
        return f"{len(names)} of {whole[column].nunique()} {_PLACES[column]}"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _label(label: str, words: Words, by: tuple[str, ...]) -> str:
    """Put the part in front of the name of the group."""
    if not any(words):
        return label
    if not by:
        return str(words) if words.tensors else f"{words} of the model"
    if not {*_PLACES, "param", "kind", "bit", "bit_role"} & set(by):
        return f"{label}, {words}"
    if words.tensors and not {*_PLACES, "param", "kind"} & set(by):
        return " of ".join(filter(None, (words.bits, label, words.tensors)))
    return f"{words} of {label}"
