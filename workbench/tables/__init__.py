"""The tables that loaders return and analyses exchange.

Every frame that crosses a module boundary is one of the tables below. A table
is plain data: column names, dtypes, units, meaning and limits. It checks frames
(:meth:`Table.check`), makes empty ones (:meth:`Table.empty`) and writes its own
documentation (:meth:`Table.markdown`).

Four rules keep the tables readable:

* the unit is the last part of the column name (``start_ns``, ``power_w``);
* shares are fractions between 0 and 1 and end in ``_share``, never per cent;
* time stamps are UTC, durations are plain numbers with a unit suffix;
* missing is missing: columns that can lack a value have a nullable dtype
  (``Int64``, not ``int64`` with -1).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
