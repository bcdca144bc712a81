"""The last step of every vulnerability factor: names, rules and doubts put to the numbers."""

from __future__ import annotations

import pandas as pd

from workbench.analyze._pvf.groups import Groups
from workbench.analyze._pvf.rules import Rules
from workbench.tables import PVF


def finished(
    result: pd.DataFrame,
    found: Groups,
    doubts: list[list[str]],
    of_group: pd.DataFrame,
    rules: Rules,
) -> pd.DataFrame:
    """Put names, rules and doubts to the numbers; ``of_group`` has a campaign per group."""
    text = pd.Series([""]).dtype
    result = result.assign(
        group=pd.Series(found.labels, dtype=text),
        drawn_from=pd.Series(result["drawn_from"], dtype=text),
        level_share=rules.level_share,
        is_sure=[not each for each in doubts],
        doubt=pd.Series(["; ".join(each) for each in doubts], dtype=text),
        average=pd.Series(rules.average, index=result.index, dtype=text),
        nan_policy=pd.Series(rules.nan_policy, index=result.index, dtype=text),
    )
    for name in ("criterion", "fault_model"):
        values = of_group[name].astype(object)
        result[name] = pd.Series(values.where(values.notna(), None).to_numpy(), dtype=object)
    table = PVF.check(PVF.cast(result))
    keys = found.keys.reset_index(drop=True)
    table = table[[name for name in table if name not in keys]]
    return PVF.check(pd.concat([keys, table], axis=1))
