"""Power that swings: steps, ramps, spectra, what a grid allows, and what smoothing would do."""

from __future__ import annotations

from workbench.tables._table import Column, Table

_TIME = "ns, on the clock of the totals"
_NYQUIST = "half of the sampling frequency: nothing above it can be seen"

POWER_SWINGS = Table(
    "power_swings",
    "One row per training step, or window of one step period: how far power moves inside it.",
    {
        "step": Column("Int64", "number of the step; missing for windows", nullable=True),
        "start_ns": Column("int64", f"start of the window; {_TIME}"),
        "end_ns": Column("int64", f"end of the window; {_TIME}"),
        "low_w": Column("float64", "5th percentile of its cells", lower=0, nullable=True),
        "high_w": Column("float64", "95th percentile of its cells", lower=0, nullable=True),
        "swing_w": Column("float64", "high_w - low_w", lower=0, nullable=True),
        "range_w": Column("float64", "largest cell - smallest", lower=0, nullable=True),
        "mean_w": Column("float64", "mean of its cells", lower=0, nullable=True),
        "cell_count": Column("int64", "known cells that begin in it", lower=0),
        "covered_share": Column("float64", "known cells / cells it should have", lower=0, upper=1),
    },
)

POWER_RAMPS = Table(
    "power_ramps",
    "One row per window and direction: the fastest change of power over that window.",
    {
        "window_s": Column("float64", "window that was asked for", lower=0),
        "measured_s": Column(
            "float64", "whole cells it was measured over; missing if it cannot be", nullable=True
        ),
        "direction": Column("str", "up or down"),
        "ramp_w_per_s": Column(
            "float64", "largest change / window, without its sign", lower=0, nullable=True
        ),
        "p99_w_per_s": Column(
            "float64", "what 99 % of all changes, both ways, stay below", lower=0, nullable=True
        ),
        "change_w": Column("float64", "the largest change, with its sign", nullable=True),
        "start_ns": Column("Int64", f"when it began; {_TIME}", nullable=True),
        "end_ns": Column("Int64", f"when it ended; {_TIME}", nullable=True),
        "covered_share": Column("float64", "windows with both ends known", lower=0, upper=1),
        "note": Column("str", "why there is no number, or what to mind"),
    },
)

POWER_EDGES = Table(
    "power_edges",
    "One row per rise or fall of at least a threshold within a window, in order of time.",
    {
        "start_ns": Column("int64", f"last turning point before it; {_TIME}"),
        "end_ns": Column("int64", f"first turning point after it; {_TIME}"),
        "direction": Column("str", "up or down"),
        "change_w": Column("float64", "power at its end - at its start"),
        "start_w": Column("float64", "power at its start", lower=0),
        "end_w": Column("float64", "power at its end", lower=0),
        "dur_s": Column("float64", "length", lower=0),
    },
)

POWER_SPECTRUM = Table(
    "power_spectrum",
    "One row per frequency above 0: how much of the movement of power is there.",
    {
        "frequency_hz": Column("float64", "middle of the bin", lower=0),
        "density_w2_per_hz": Column("float64", "power spectral density (Welch)", lower=0),
        "variance_share": Column("float64", "of the variance at f > 0", lower=0, upper=1),
        "sensor_ratio": Column(
            "float64",
            "amplitude left by averaging in the sensor; missing if that is not known",
            lower=0,
            upper=1,
            nullable=True,
        ),
        "nyquist_hz": Column("float64", _NYQUIST, lower=0),
        "half_power_hz": Column(
            "float64", "where averaging takes 3 dB: 0.443 / averaging time", nullable=True
        ),
        "segment_count": Column("int64", "overlapping segments averaged", lower=1),
        "covered_share": Column("float64", "cells used / cells there are", lower=0, upper=1),
        "filled_count": Column("int64", "missing cells interpolated", lower=0),
    },
)

POWER_PEAKS = Table(
    "power_peaks",
    "One row per peak of a spectrum, highest first.",
    {
        "frequency_hz": Column("float64", "of the highest bin", lower=0),
        "period_s": Column("float64", "1 / frequency_hz", lower=0),
        "density_w2_per_hz": Column("float64", "density there", lower=0),
        "variance_share": Column("float64", "of its bin and two on either side", lower=0, upper=1),
        "harmonic": Column("int64", "n, where it is n times the fundamental; else 1", lower=1),
        "fundamental_hz": Column("float64", "its fundamental; itself where harmonic is 1", lower=0),
        "resolution_hz": Column("float64", "distance of two bins", lower=0),
    },
)

BAND_SHARES = Table(
    "band_shares",
    "One row per band of frequencies: its share of the movement of power that can be seen.",
    {
        "low_hz": Column("float64", "lower end, not part of the band", lower=0),
        "high_hz": Column("float64", "upper end, part of the band", lower=0),
        "energy_share": Column(
            "float64",
            "of all energy at 0 < f <= Nyquist; missing if the band is above",
            lower=0,
            upper=1,
            nullable=True,
        ),
        "rms_w": Column("float64", "root mean square of the band", lower=0, nullable=True),
        "visible_share": Column("float64", "of the band's width below Nyquist", lower=0, upper=1),
        "nyquist_hz": Column("float64", _NYQUIST, lower=0),
        "covered_share": Column("float64", "cells used / cells there are", lower=0, upper=1),
    },
)

GRID_CHECK = Table(
    "grid_check",
    "One row per requirement of a grid: its limit, what was measured, and the verdict.",
    {
        "spec": Column("str", "name of the specification"),
        "requirement": Column("str", "what is limited, in words"),
        "limit": Column("float64", "the most that is allowed, in `unit`", lower=0),
        "measured": Column("float64", "in `unit`; missing if unseen", lower=0, nullable=True),
        "margin": Column("float64", "limit - measured, in `unit`", nullable=True),
        "unit": Column("str", "W/s, W or share"),
        "verdict": Column("str", "pass; fail; unknown (the meter cannot tell, so it is no pass)"),
        "why": Column("str", "what the verdict rests on"),
        "low_hz": Column("float64", "lower end of the band", lower=0, nullable=True),
        "high_hz": Column("float64", "upper end of the band", lower=0, nullable=True),
        "visible_share": Column(
            "float64", "of the requirement that the meter can see", lower=0, upper=1
        ),
        "covered_share": Column("float64", "of the time that is known", lower=0, upper=1),
    },
)

POWER_SMOOTHING = Table(
    "power_smoothing",
    "One row per cell of the totals: power before and after smoothing, and where it goes.",
    {
        "time_ns": Column("int64", f"start of the cell; {_TIME}"),
        "power_w": Column("float64", "as measured, short gaps interpolated", nullable=True),
        "load_w": Column("float64", "drawn by the machines, with ballast", nullable=True),
        "smoothed_w": Column("float64", "drawn from the grid", nullable=True),
        "ballast_w": Column("float64", "burnt on top: load above power", lower=0, nullable=True),
        "unmet_w": Column(
            "float64", "held back: power above load, which slows the job", lower=0, nullable=True
        ),
        "storage_w": Column("float64", "into the store; below 0 out of it", nullable=True),
        "stored_j": Column(
            "float64", "charge at the end of the cell; from 0 where it is unlimited", nullable=True
        ),
        "stored_share": Column(
            "float64", "of its capacity; missing if unlimited", lower=0, upper=1, nullable=True
        ),
        "lost_w": Column("float64", "lost in the store", lower=0, nullable=True),
        "is_filled": Column("bool", "whether the cell was missing and interpolated"),
        "meter_period_s": Column(
            "float64", "as in the totals", lower=0, nullable=True, optional=True
        ),
    },
)

SMOOTHING_SUMMARY = Table(
    "smoothing_summary",
    "Two rows: before and after smoothing. What it costs, what is left, what it needs.",
    {
        "version": Column("str", "before or after"),
        "mean_w": Column("float64", "mean", lower=0),
        "peak_w": Column("float64", "largest cell", lower=0),
        "swing_w": Column("float64", "99th - 1st percentile", lower=0),
        "deviation_w": Column("float64", "standard deviation", lower=0),
        "ramp_w_per_s": Column("float64", "fastest change between two cells", lower=0),
        "energy_j": Column("float64", "of all cells", lower=0),
        "energy_ratio": Column("float64", "energy_j / energy before", lower=0),
        "ballast_j": Column("float64", "burnt on top", lower=0),
        "unmet_j": Column("float64", "demand held back", lower=0),
        "lost_j": Column("float64", "lost in the store", lower=0),
        "stored_change_j": Column("float64", "charge at the end - at the start"),
        "storage_w": Column("float64", "most power in or out of the store", lower=0),
        "storage_j": Column("float64", "largest charge - smallest", lower=0),
        "verdict": Column("str", "worst verdict of the specification", nullable=True),
        "why": Column("str", "requirements by verdict", nullable=True),
        "covered_share": Column("float64", "cells used / cells there are", lower=0, upper=1),
    },
)

SMOOTHING_PLANS = Table(
    "smoothing_plans",
    "One row per way of smoothing, the power as measured first.",
    {"plan": Column("str", "as measured, or the name of the plan")}
    | {name: each for name, each in SMOOTHING_SUMMARY.columns.items() if name != "version"},
)
