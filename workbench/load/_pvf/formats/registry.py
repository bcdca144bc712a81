"""Readers of results of fault injection, in the order in which they are tried."""

from __future__ import annotations

from workbench.load._pvf.formats import nvbitfi, pytorch_alfi
from workbench.load._pvf.formats import own_tables as injection_tables
from workbench.load._pvf.part import InjectionFormat

FORMATS: tuple[InjectionFormat, ...] = (injection_tables, pytorch_alfi, nvbitfi)
