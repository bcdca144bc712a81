"""Which readers there are for results of fault injection, in the order they are asked."""

from __future__ import annotations

from typing import cast

from workbench.load import injection_tables, sfi_advanced_models
from workbench.load._injection_part import InjectionFormat

FORMATS = tuple(cast(InjectionFormat, each) for each in (injection_tables, sfi_advanced_models))
