"""Readers of results of fault injection, in the order in which they are tried."""

from __future__ import annotations

from workbench.load._pvf.formats import (
    enpheeph,
    golden_transformer,
    goldeneye,
    nvbitfi,
    pytorch_alfi,
    sfi_advanced_models,
    tensorfi2,
)
from workbench.load._pvf.formats import own_tables as injection_tables
from workbench.load._pvf.part import InjectionFormat

FORMATS: tuple[InjectionFormat, ...] = (
    injection_tables, sfi_advanced_models, pytorch_alfi, goldeneye, enpheeph, golden_transformer,
    tensorfi2, nvbitfi,
)  # fmt: skip
