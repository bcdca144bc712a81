"""The part of a model that a group's faults were drawn from: its name and its bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from workbench._shared.fixed_injections import FixedInjections
from workbench._shared.numbers import Flags
from workbench.analyze._pvf import groups as grouping
from workbench.analyze._pvf.groups import MEMBERS, OF_CAMPAIGN, Groups, Rules, groups
from workbench.analyze._pvf.injection_rows import KEY, located, together
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
        return " of ".join(filter(None, self))


_UNKNOWN = Words("part")


class Parts(NamedTuple):
    """The population of every group."""

    labels: list[str]
    """Of the groups, with the part of them that faults were drawn from."""
    drawn_from: list[str]
    """That part in words; empty where it is all of the group, or unknown."""
    bit_count: NDArray[np.float64]
    names: list[set[str]]
    """Tensors or layers drawn from, as averaged; empty for bits."""


def with_parts(
    injections: Injections | Sequence[Injections],
    table: pd.DataFrame,
    grouped: Groups,
    campaign: pd.DataFrame,
    rules: Rules,
) -> Groups:
    """Name the groups of a table by what their faults were drawn from."""
    return grouped._replace(labels=parts_of(injections, table, grouped, campaign, rules).labels)


def component_names(truth: ExhaustiveInjections) -> dict[str, str]:
    """Name every component of a truth by the part of it that was injected into."""
    table = cells(truth).assign(campaign_id=truth.campaign["campaign_id"].iloc[0])
    rules = Rules("bits", ("component",))
    grouped = groups(table, rules.by, truth.parameters)
    labels = parts_of(truth, table, grouped, truth.campaign, rules).labels
    return dict(zip(grouped.keys["component"], labels, strict=True))


def parts_of(
    injections: Injections | Sequence[Injections] | ExhaustiveInjections,
    table: pd.DataFrame,
    grouped: Groups,
    campaign: pd.DataFrame,
    rules: Rules,
) -> Parts:
    """Find out what the experiments of a table were drawn from, by group."""
    drawn = drawn_cells(injections, table)
    return parts(drawn, grouped, table["campaign_id"], campaign, rules)


def parts(
    drawn: Drawn, grouped: Groups, names: pd.Series, campaign: pd.DataFrame, rules: Rules
) -> Parts:
    """Compare what faults were drawn from with what each group holds.

    ``names`` is the campaign of every row that ``found`` groups.
    """
    cells_drawn = _with_campaign(drawn, campaign, rules.by)
    columns = [name for name in rules.by if name in cells_drawn and name != "flip_count"]
    home = pd.Series(np.arange(len(cells_drawn))).groupby(_texts(cells_drawn, columns)).indices
    pairs = pd.DataFrame({"group": grouped.code, "name": names.to_numpy(dtype=object)})
    of_group = pairs.drop_duplicates().groupby("group")["name"].agg(set)
    is_blind = bool(_NO_CELLS & set(rules.by))
    result = Parts([], [], np.full(len(grouped.labels), np.nan), [])
    # Whole cells of one draw need no words; of a map of bits that is every group of hundreds.
    cover, owner, count = (
        cells_drawn[name].to_numpy() for name in ("cover", "campaign_id", "drawn_count")
    )
    is_whole = (count == cells_drawn["element_count"]) & cells_drawn["is_known"] & (cover > 0)
    is_whole = is_whole.to_numpy(dtype=bool)
    for number, key in enumerate(_texts(grouped.keys, columns)):
        label, own_names = grouped.labels[number], of_group[number]
        own = np.asarray(home.get(key, []), dtype=np.intp)
        own = own[np.isin(owner[own], list(own_names))]
        if not len(own) or is_blind:
            of_campaigns = cells_drawn[cells_drawn["campaign_id"].isin(own_names)]
            words, bits = _of_bits(of_campaigns, label, rules.by), np.nan
        elif is_whole[own].all() and len({*zip(cover[own], owner[own], strict=True)}) == 1:
            words, bits = Words(), float(count[own].sum())
        else:
            words, bits = _words_and_bits(cells_drawn.iloc[own], label)
        result.labels.append(_label(label, words, rules.by))
        result.drawn_from.append(str(words))
        result.bit_count[number] = bits
        is_named = rules.average in MEMBERS
        result.names.append(_names(cells_drawn.iloc[own], rules) if is_named else set())
    return result


def _with_campaign(drawn: Drawn, campaign: pd.DataFrame, by: tuple[str, ...]) -> pd.DataFrame:
    model_cells = drawn.cells
    cover = np.zeros(len(model_cells), dtype=np.int64)
    is_known = np.ones(len(model_cells), dtype=bool)
    own = model_cells["campaign_id"].to_numpy(dtype=object)
    for name, mask in drawn.draws:
        if mask is None:
            is_known &= own != name
        else:
            cover += mask
    by_campaign = campaign.set_index("campaign_id")
    more = [name for name in by if name in OF_CAMPAIGN and name not in model_cells]
    return model_cells.assign(
        cover=cover,
        is_known=is_known,
        **{name: model_cells["campaign_id"].map(by_campaign[name]) for name in more},
    )


def _texts(frame: pd.DataFrame, columns: list[str]) -> NDArray[Any]:
    texts = np.full(len(frame), "", dtype=object)
    for name in columns:
        values = frame[name].astype(object)
        words = ["\x1f" if pd.isna(value) else f"{value}\x1f" for value in values]
        texts = texts + np.array(words, dtype=object)
    return texts


def _names(own_cells: pd.DataFrame, rules: Rules) -> set[str]:
    if own_cells["element_count"].isna().any():
        return set()
    is_drawn = (own_cells["cover"] > 0) | ~own_cells["is_known"]
    return set(own_cells.loc[is_drawn, MEMBERS[rules.average]])


def _words_and_bits(own_cells: pd.DataFrame, label: str) -> tuple[Words, float]:
    if not own_cells["is_known"].all():
        return _UNKNOWN, np.nan
    grouped = own_cells.groupby(["tensor", "bit"], sort=False)
    # The same cell in several campaigns is one part of the model.
    merged = grouped.first().assign(cover=grouped["cover"].sum()).reset_index()
    drawn = merged[merged["cover"] > 0]
    words = _words(merged, drawn)
    if drawn["cover"].nunique() > 1:
        msg = (
            f"group {label!r} mixes faults drawn from parts of it that overlap: some bits would "
            'count twice; tell the campaigns apart with by=(..., "campaign_id") or pass one of '
            "them, and join the phases of one design with analyze.pooled"
        )
        raise InjectionError(msg)
    return words, float(drawn["drawn_count"].sum(skipna=False))


def _of_bits(model_cells: pd.DataFrame, label: str, by: tuple[str, ...]) -> Words:
    drawn = model_cells[model_cells["cover"] > 0]
    if drawn.empty or not model_cells["is_known"].all() or "bit " in label:
        return Words()
    words = _words(model_cells, drawn)
    return words if not {*_PLACES, "param", "kind", *_NO_CELLS} & set(by) else Words(words.bits)


def _words(own_cells: pd.DataFrame, drawn: pd.DataFrame) -> Words:
    is_full = not (drawn["drawn_count"] < drawn["element_count"]).any()
    inside = own_cells[own_cells["tensor"].isin(drawn["tensor"])]
    bits = sorted(drawn["bit"].unique())
    if not is_full or len(drawn) < inside["bit"].isin(bits).sum():
        drawn_bits, every = drawn["drawn_count"].sum(), own_cells["element_count"].sum()
        return Words(f"{drawn_bits:,.0f} of the {every:,.0f} bits") if every > 0 else _UNKNOWN
    return Words(_ranges(bits) if len(drawn) < len(inside) else "", _tensors(own_cells, drawn))


def _ranges(bits: list[int]) -> str:
    """Write bits as ranges: bits 3, 28 to 30."""
    starts = [bit for bit in bits if bit - 1 not in bits]
    ends = [bit for bit in bits if bit + 1 not in bits]
    texts = [f"{a} to {b}" if b > a else f"{a}" for a, b in zip(starts, ends, strict=True)]
    return f"bit{'s' * (len(bits) > 1)} {', '.join(texts)}"


def _tensors(own_cells: pd.DataFrame, drawn: pd.DataFrame) -> str:
    """Name the tensors drawn from, by whole components or layers where they are that."""
    tensors = set(drawn["tensor"])
    if tensors == set(own_cells["tensor"]):
        return ""
    column = next(
        name
        for name in _PLACES
        if set(own_cells.loc[own_cells[name].isin(drawn[name].unique()), "tensor"]) == tensors
    )
    names = [str(name) for name in drawn[column].unique()]
    if len(names) > _SHOWN:
        return f"{len(names)} of {own_cells[column].nunique()} {_PLACES[column]}"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _label(label: str, words: Words, by: tuple[str, ...]) -> str:
    if not any(words):
        return label
    if not by:
        return str(words) if words.tensors else f"{words} of the model"
    if not {*_PLACES, "param", "kind", "bit", "bit_role"} & set(by):
        return f"{label}, {words}"
    if words.tensors and not {*_PLACES, "param", "kind"} & set(by):
        return " of ".join(filter(None, (words.bits, label, words.tensors)))
    return f"{words} of {label}"


_PLACE = ("component", "layer", "param", "kind", "dtype")
# Sums of weights agree to _CLOSE, planned numbers of experiments are whole to _WHOLE.
_CLOSE, _WHOLE = 1e-8, 1e-6
# Chance drops bits or tensors less often than this: they were not drawn from.
_CHANCE, _FIT = 1e-6, 1e-3
# Weights that hardly repeat are those of single experiments, not of draws.
_PER_DRAW = 2


class Drawn(NamedTuple):
    """The bits of the model, and the draws of each campaign."""

    cells: pd.DataFrame
    """One row per campaign, tensor and bit: ``_PLACE``, ``tensor``, ``bit``, ``bit_role``,
    ``element_count`` (missing where the model is not known), ``drawn_count`` (of them)."""
    draws: list[tuple[str, Flags | None]]
    """Campaign, and the cells drawn from; None where they cannot be told."""


def drawn_cells(
    injections: Injections | Sequence[Injections] | ExhaustiveInjections, judged: pd.DataFrame
) -> Drawn:
    """Find out from weights and places what every draw of ``given`` was made from.

    ``judged`` are the experiments used. The weights of a design add up to the bits it was drawn
    from; where they are not known or fit nothing, bits and tensors that chance would not have
    missed were not drawn from. A layer whose size fits is taken for drawn from as a whole, so few
    sites of tensors chosen one by one can be taken for those of a layer of the same size.
    """
    if isinstance(injections, ExhaustiveInjections):
        return _of_truth(injections, judged)
    made = injections.made if isinstance(injections, FixedInjections) else {}
    if judged is not made.get("experiments"):
        return _drawn(injections, judged)
    if "drawn" not in made:
        made["drawn"] = _drawn(injections, judged)
    drawn: Drawn = made["drawn"]
    return drawn


def _drawn(injections: Injections | Sequence[Injections], judged: pd.DataFrame) -> Drawn:
    people = together(injections, "parameters")
    faults = located(together(injections, "faults"), people)
    used = pd.MultiIndex.from_frame(faults[KEY]).isin(pd.MultiIndex.from_frame(judged[KEY]))
    param = faults["param"].astype(object)
    # Some tools number layers instead of naming tensors.
    tensor = param.where(param.notna(), faults["layer"].astype(object))
    faults = faults.assign(is_judged=used, tensor=tensor)
    tables, draws = [_cells(people.head(0)).assign(campaign_id="")], []
    for name, own_faults in faults.groupby("campaign_id", sort=False, observed=True):
        own = people[people["campaign_id"] == name]
        cells = (_cells(own) if len(own) else _hit_cells(own_faults)).assign(campaign_id=name)
        numbers = own_faults["exp_id"]
        is_complete = bool(numbers.min() == 0 and numbers.nunique() == numbers.max() + 1)
        masks = _masks(_Regions(cells, is_complete=is_complete), own_faults)
        draws += [(str(name), sum(map(len, tables)), mask) for mask in masks]
        tables.append(cells)
    every = pd.concat([table for table in tables if len(table)] or tables, ignore_index=True)
    return Drawn(every, [(name, _spread(mask, at, len(every))) for name, at, mask in draws])


def _spread(mask: Flags | None, at: int, size: int) -> Flags | None:
    if mask is None:
        return None
    wide = np.zeros(size, dtype=bool)
    wide[at : at + len(mask)] = mask
    return wide


def _of_truth(truth: ExhaustiveInjections, table: pd.DataFrame) -> Drawn:
    cells = _cells(truth.parameters)
    name = str(truth.campaign["campaign_id"].iloc[0])
    sites = table.groupby(["param", "bit"])["site_count"].sum()
    keys = pd.MultiIndex.from_arrays([cells["tensor"], cells["bit"]])
    count = sites.reindex(keys).fillna(0).to_numpy(dtype=float)
    return Drawn(cells.assign(campaign_id=name, drawn_count=count), [(name, count > 0)])


def _cells(people: pd.DataFrame) -> pd.DataFrame:
    people = people.drop_duplicates("param")
    width = people["bit_count"] // people["element_count"].clip(lower=1)
    return _by_bit(people.assign(tensor=people["param"]), width.to_numpy(dtype=np.int64))


# Without a table of parameters the tensors that were hit stand for the model.
def _hit_cells(faults: pd.DataFrame) -> pd.DataFrame:
    has_place = faults["bit"].notna() & faults["tensor"].notna()
    known_sites = faults[has_place].drop_duplicates(list(_PLACE))
    dtypes = known_sites["dtype"].astype(object)
    width = np.nan_to_num([grouping.bit_width(dtype) for dtype in dtypes])
    return _by_bit(known_sites.assign(element_count=np.nan), width.astype(np.int64))


def _by_bit(people: pd.DataFrame, width: NDArray[np.int64]) -> pd.DataFrame:
    cells = people.loc[people.index.repeat(width), [*_PLACE, "tensor", "element_count"]]
    cells = cells.astype(dict.fromkeys([*_PLACE, "tensor"], object)).reset_index(drop=True)
    bits = np.concatenate([np.arange(n) for n in width]) if len(width) else np.zeros(0)
    pairs = zip(cells["dtype"], bits.tolist(), strict=True)
    roles = np.array([grouping.bit_role(dtype, int(bit)) for dtype, bit in pairs], dtype=object)
    count = cells["element_count"].astype(float)
    return cells.assign(
        bit=bits.astype(np.int64), bit_role=roles, element_count=count, drawn_count=count
    )


def _masks(regions: _Regions, faults: pd.DataFrame) -> list[Flags | None]:
    """Return the cells of every draw of a campaign; those of its strata together."""
    one_draw = regions.of(faults)
    strata = pd.factorize(faults["stratum"])[0]
    weight = pd.factorize(faults["inclusion_weight"])[0]
    several = strata if strata.max() >= 0 else weight
    is_one = several.max() < 1 or (several.max() + 1) * _PER_DRAW > len(faults)
    if one_draw is not None or is_one:
        return [one_draw]
    masks = [regions.of(draw) for _, draw in faults.groupby(several, sort=False)]
    if any(mask is None for mask in masks):
        return [None]
    return [np.logical_or.reduce(masks)] if several is strata else masks  # type: ignore[arg-type]


class _Regions:
    def __init__(self, cells: pd.DataFrame, *, is_complete: bool) -> None:
        self._is_complete = is_complete
        elements = cells["element_count"]
        self._is_counted = bool(elements.notna().all())
        self._elements = elements.fillna(1.0).to_numpy()
        self._bit = cells["bit"].to_numpy()
        self._tensor = pd.Index(cells["tensor"].unique())
        self._tensor_code = self._tensor.get_indexer(cells["tensor"])
        alike = (*_PLACE, "tensor", "bit_role")
        self._code = {name: pd.factorize(cells[name], use_na_sentinel=False)[0] for name in alike}
        self._code["bit"] = self._bit
        self._component = cells["component"].astype(str).to_numpy(dtype=object)

    def of(self, faults: pd.DataFrame) -> Flags | None:
        """Return the cells that one draw was made from, or None if that cannot be told."""
        weight = faults.drop_duplicates("exp_id")["inclusion_weight"].to_numpy(dtype=float)
        # Without the sizes of the tensors no weight can be compared with anything.
        is_weighed = self._is_counted and not np.isnan(weight).any() and weight.sum() > 0
        used = faults[faults["is_judged"] & faults["tensor"].isin(self._tensor)]
        hit, count = self._hit(used), len(used.drop_duplicates(["tensor", "elem", "bit"]))
        if not hit.any():
            return self._without_places(faults, weight if is_weighed else None)
        masks = {mask.tobytes(): mask for mask in self._candidates(hit)}.values()
        likely = [mask for mask in masks if self._is_likely(mask, hit, count)]
        # The largest first: of sets that fit alike, faults were drawn from the whole.
        likely.sort(key=lambda mask: -float(self._elements[mask].sum()))
        if not is_weighed:
            # Nothing tells which of the other bits were drawn from, too.
            bits = self._alike("bit", hit)
            return next(m for m in likely if not (m & ~bits).any() or self._has_all_bits(m))
        sizes = [float(self._elements[mask].sum()) for mask in likely]
        chosen = _by_weight(sizes, weight, is_complete=self._is_complete)
        return None if chosen is None else likely[chosen]

    def _without_places(
        self, faults: pd.DataFrame, weight: NDArray[np.float64] | None
    ) -> Flags | None:
        """Return the cells of a draw that tells its components at most."""
        every = np.ones(len(self._bit), dtype=bool)
        if weight is None:
            return every
        hit = set(faults["component"].dropna().astype(str))
        masks = [every, np.isin(self._component, list(hit))]
        sizes = [float(self._elements[mask].sum()) for mask in masks]
        chosen = _by_weight(sizes, weight, is_complete=self._is_complete)
        return None if chosen is None else masks[chosen]

    # A value that replaces an element hits all its bits.
    def _hit(self, faults: pd.DataFrame) -> Flags:
        if faults.empty or not len(self._bit):
            return np.zeros(len(self._bit), dtype=bool)
        tensor = self._tensor.get_indexer(faults["tensor"])
        bit = faults["bit"].to_numpy(dtype=float, na_value=-1).astype(np.int64)
        width = int(self._bit.max()) + 1
        of_bit = np.isin(self._tensor_code * width + self._bit, (tensor * width + bit)[bit >= 0])
        return of_bit | np.isin(self._tensor_code, tensor[bit < 0])

    def _alike(self, column: str, hit: Flags) -> Flags:
        """Flag the cells that share the column with any that was hit."""
        code = self._code[column]
        seen = np.zeros(int(code.max()) + 1, dtype=bool)
        seen[code[hit]] = True
        return seen[code]

    def _has_all_bits(self, mask: Flags) -> bool:
        return bool((self._alike("tensor", mask) == mask).all())

    def _candidates(self, hit: Flags) -> Iterator[Flags]:
        """Yield the sets of cells that a pattern of tensors and a list of bits can mean."""
        every = np.ones(len(hit), dtype=bool)
        low, high = self._bit[hit].min(), self._bit[hit].max()
        span = (self._bit >= low) & (self._bit <= high)
        bits = [self._alike("bit", hit), self._alike("bit_role", hit), span, every]
        for tensors in (*(self._alike(name, hit) for name in (*_PLACE, "tensor")), every):
            yield from (tensors & bit_mask for bit_mask in bits)
        # Last, the very cells that were hit: tensors and bits chosen one by one.
        yield hit

    def _is_likely(self, mask: Flags, hit: Flags, count: int) -> bool:
        """Return whether chance explains the bits and tensors of ``mask`` that were not hit."""
        reached = mask & self._alike("bit", hit) & self._alike("tensor", hit)
        share = self._elements[reached].sum() / self._elements[mask].sum()
        sets = sum(
            _log_choices(len(np.unique(code[mask])), len(np.unique(code[hit])))
            for code in (self._code["bit"], self._code["tensor"])
        )
        return bool(share > 0 and count * np.log(share) + sets > np.log(_CHANCE))


def _by_weight(sizes: list[float], weight: NDArray[np.float64], *, is_complete: bool) -> int | None:
    """Return which set has the bits that the weights represent; None where none or two do."""
    total, mean_weight = float(weight.sum()), float(weight.mean())
    exact = [n for n, size in enumerate(sizes) if abs(size / total - 1) <= _CLOSE]
    if exact or (is_complete and abs(total - round(total)) <= _CLOSE * total):
        return exact[0] if len(exact) == 1 else None
    # The first experiments of a design, or some by chance: their weight is bits / all experiments.
    for number, size in enumerate(sizes):
        planned = size / mean_weight
        if abs(planned - round(planned)) <= _WHOLE and round(planned) >= len(weight):
            return number
    if is_complete:
        return None
    # Chance may explain that so many experiments were picked from a larger design.
    laws = [scipy.stats.poisson(size / mean_weight) for size in sizes]
    tails = (min(law.cdf(len(weight)), law.sf(len(weight) - 1)) for law in laws)
    return next((number for number, tail in enumerate(tails) if tail > _FIT), None)


def _log_choices(total: int, chosen: int) -> Any:
    return (
        scipy.special.gammaln(total + 1)
        - scipy.special.gammaln(chosen + 1)
        - scipy.special.gammaln(total - chosen + 1)
    )
