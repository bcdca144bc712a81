"""Numbers printed elsewhere, recomputed."""

from __future__ import annotations

from workbench.tables._table import Column, Table

FIDELITY = Table(
    "fidelity",
    "One row per number printed elsewhere and computed here.",
    {
        "noun": Column("str", "what the claim is about, e.g. traces"),
        "claim": Column("str", "name of the claim"),
        "what": Column("str", "which of its numbers this is; empty for the claim as a whole"),
        "source": Column("str", "paper, table, page or project that printed the number"),
        "printed": Column("float64", "number as printed, in `unit`", nullable=True),
        "here": Column("float64", "number computed here, in `unit`", nullable=True),
        "tolerance": Column(
            "float64", "largest difference allowed, in `unit`", lower=0, nullable=True
        ),
        "unit": Column("str", "unit of the three numbers; empty for a plain number"),
        "verdict": Column(
            "category",
            "pass, short (misses a limit, and is known to), FAIL, or absent (a data set or package "
            "is not at hand)",
        ),
        "note": Column("str", "why a claim failed or how to get its data set; else empty"),
    },
)
