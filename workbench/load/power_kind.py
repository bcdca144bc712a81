"""Whether a file is power telemetry for sure, or may only be read as such if asked to."""

from __future__ import annotations

import re
from codecs import BOM_UTF8

import pyarrow as pa
import pyarrow.parquet as pq

from workbench.load._files import signatures
from workbench.load._files.archive import Source

_HEAD_BYTES = 1 << 16
_METRIC = re.compile(rb'^([A-Za-z_:][\w:]*)[{ ]|"__name__"\s*:\s*"([^"\n]+)"', re.MULTILINE)
_POWER_KEYS = re.compile(
    rb'"key": ?"(?:power_reading|power_measurement_\w+|conversion_eff|interconnect_power_est)"'
    rb"|^Total Power Usage: ",
    re.MULTILINE,
)


def is_power_log(source: Source, head: bytes) -> bool:
    """Return whether a file that begins like this surely holds power.

    The reader of plain tables takes any table of numbers over time, if it is given one. A file that
    somebody only came by needs a column or a cell that says power, or names things and counts their
    energy; a log of an MLPerf run, which is written like the power logs beside it, needs a reading;
    metrics of Prometheus need one of power or energy.
    """
    plain = head.removeprefix(BOM_UTF8)
    form = signatures.fitting(signatures.POWER_FORMATS, plain, source.label)
    name = "" if form is None else form.module.removeprefix("_power.formats.")
    if name == "mlperf":
        return bool(_POWER_KEYS.search(plain))
    if name == "table.reader":
        return _says_power(source, plain)
    if name == "prometheus":
        return _has_metric(source, plain)
    return form is not None


def _has_metric(source: Source, head: bytes) -> bool:
    from workbench.load._power.formats.prometheus_metrics import POWER_KINDS, meaning_of

    # Metrics lead a line of the text format; in the JSON of a query they are __name__.
    names = {
        (plain or quoted).decode("utf-8", "replace") for plain, quoted in _METRIC.findall(head)
    }
    meanings = filter(None, map(meaning_of, names))
    if any(meaning.kind in (*POWER_KINDS, "energy") for meaning in meanings):
        return True
    # Others may follow the first series of a long answer.
    is_cut = len(head) >= _HEAD_BYTES - len(BOM_UTF8)
    (xid,) = (form for form in signatures.FAILURE_FILES if form.module.endswith("prometheus_xid"))
    return is_cut and not xid.fits(head, source.label)


def _says_power(source: Source, head: bytes) -> bool:
    from workbench.load._power.formats.table.columns import has_unit
    from workbench.load._power.formats.table.layout import tells_power, time_column
    from workbench.load._power.formats.table.pieces import (
        PARQUET_MAGIC,
        decoded,
        flat_names,
        header_of,
        sample_of,
    )

    if head.startswith(PARQUET_MAGIC):
        names, is_stated = _parquet_names(source), False
    elif names := flat_names(decoded(head)):
        is_stated = False
    else:
        skipped, separator, names = header_of(decoded(head))
        rows = sample_of(decoded(head), skipped, separator, len(names))
        is_stated = any(has_unit(cell) for row in rows for cell in row)
    return tells_power(names) or (is_stated and time_column(names) is not None)


def _parquet_names(source: Source) -> list[str]:
    """Return the columns of a Parquet file; none of one that cannot be read without unpacking."""
    if source.member:
        return []
    try:
        return list(pq.read_schema(source.path).names)
    except (OSError, ValueError, pa.ArrowException):
        return []
