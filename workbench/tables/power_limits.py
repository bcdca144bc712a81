"""Tables of limits on power: capping, feeds, ramps and grid specifications."""

from __future__ import annotations

from workbench.tables.table import Column, Table

# When power was capped, how it shows, and what it cost.

_ENTITY = "what was capped, as in `power_states`: node001/gpu3"
_EVIDENCE = (
    "what tells: clock reasons; violation counter; power at limit (capping is likely, not "
    "certain); none (the telemetry cannot tell)"
)

CAPPING_EVENTS = Table(
    "capping_events",
    "One row per stretch in which one device was held back by power, in order of start.",
    {
        "entity": Column("str", _ENTITY),
        "start_ns": Column("int64", "start, halfway to the reading before; clock of the load"),
        "end_ns": Column("int64", "end, halfway to the reading after; clock of the load"),
        "duration_s": Column("float64", "end - start", lower=0),
        "uncertain_s": Column(
            "float64", "start and end may each be wrong by so much, from the sampling", lower=0
        ),
        "evidence": Column("str", _EVIDENCE),
        "reason": Column(
            "str", "power cap (0x4), power brake (0x80), both; not told without clock reasons"
        ),
        "reading_count": Column("int64", "capped readings", lower=1),
        "limit_w": Column("float64", "median limit in force", lower=0, nullable=True),
        "power_w": Column("float64", "median power", lower=0, nullable=True),
        "power_to_limit_ratio": Column("float64", "power / limit", lower=0, nullable=True),
        "clock_mhz": Column("float64", "median clock", lower=0, nullable=True),
        "uncapped_clock_mhz": Column(
            "float64", "median clock of the device under load, uncapped", lower=0, nullable=True
        ),
        "clock_loss_ratio": Column(
            "float64", "1 - clock / uncapped clock; below 0 if faster", upper=1, nullable=True
        ),
        "held_back_s": Column(
            "float64", "increase of the violation counter", lower=0, nullable=True
        ),
        "is_cut": Column("bool", "whether it starts or ends at a gap, or with the log"),
    },
)

CAPPED_SHARE = Table(
    "capped_share",
    "One row per device: how much of its time was capped, and how much is known at all.",
    {
        "entity": Column("str", _ENTITY),
        "evidence": Column("str", _EVIDENCE),
        "event_count": Column("int64", "stretches of capping", lower=0),
        "capped_s": Column("float64", "time that was capped", lower=0),
        "known_s": Column("float64", "time that readings tell of", lower=0),
        "capped_share": Column(
            "float64", "capped_s / known_s; missing if nothing is known",
            lower=0, upper=1, nullable=True,
        ),
        "covered_share": Column(
            "float64", "known_s / time from the first to the last reading of any device",
            lower=0, upper=1,
        ),
    },
)  # fmt: skip

CAPPING_COST = Table(
    "capping_cost",
    "One row per attempt of a job: what capped steps took beyond steps that were not capped.",
    {
        "attempt": Column("int32", "run of the job, from 1", lower=1),
        "capped_step_count": Column("int64", "steps during which any device was capped", lower=0),
        "uncapped_step_count": Column("int64", "steps to compare with", lower=0),
        "left_out_step_count": Column(
            "int64",
            "first steps of the attempt, steps far longer than their like, and steps at the "
            "uncertain end of an event",
            lower=0,
        ),
        "capped_median_s": Column("float64", "median capped step", lower=0, nullable=True),
        "uncapped_median_s": Column("float64", "median uncapped step", lower=0, nullable=True),
        "cost_s": Column(
            "float64", "sum over capped steps of duration - uncapped median", nullable=True
        ),
        "low_cost_s": Column("float64", "lower end of its bootstrap interval", nullable=True),
        "high_cost_s": Column("float64", "upper end of its bootstrap interval", nullable=True),
        "local_cost_s": Column(
            "float64", "the same against the nearest uncapped steps on either side, the slower",
            nullable=True,
        ),
        "cost_ratio": Column("float64", "cost / time of all steps kept", nullable=True),
        "doubt": Column("str", "why the cost may not be that of capping; empty if nothing speaks"),
    },
)  # fmt: skip

CAPPING_BLAME = Table(
    "capping_blame",
    "One row per device that was capped: which steps it was capped in, and decided.",
    {
        "entity": Column("str", _ENTITY),
        "event_count": Column("int64", "stretches of capping", lower=0),
        "capped_step_count": Column("int64", "steps during which it was capped", lower=0),
        "blamed_step_count": Column(
            "int64", "of these, steps in which no other device was held back more", lower=0
        ),
        "blamed_share": Column(
            "float64", "blamed steps / all capped steps of the job", lower=0, upper=1
        ),
        "blamed_s": Column(
            "float64", "what the blamed steps took beyond the median uncapped step", nullable=True
        ),
        "clock_loss_ratio": Column(
            "float64", "median clock loss in its events", upper=1, nullable=True
        ),
        "doubt": Column("str", "why the blame may be wrong; empty if nothing speaks"),
    },
)

# What a power limit costs and buys: curves, knees, and how many GPUs a site can feed.

_TRUST = (
    "how far the number can be trusted: printed (in the source), reported (by somebody else, of "
    "the source), calculated (from numbers of the other two)"
)
_GPU = "product, as the sweep or the source names it"
_JOB = "what ran: the network, or the product as a whole"
_CONFIGURATION = "setting of the job; 'median of n' where several are one curve"

POWER_CURVE = Table(
    "power_curve",
    "One row per configuration and power limit, in order of the limit; ratios are against the "
    "largest limit of the configuration.",
    {
        "gpu": Column("str", _GPU),
        "job": Column("str", _JOB),
        "configuration": Column("str", _CONFIGURATION),
        "configuration_count": Column("int64", "configurations behind the row", lower=1),
        "limit_w": Column("float64", "power limit of one GPU", lower=0),
        "power_w": Column("float64", "mean power of one GPU", lower=0, nullable=True),
        "speed_ratio": Column("float64", "speed against the largest limit", lower=0),
        "energy_ratio": Column(
            "float64", "energy of the same work against the largest limit", lower=0, nullable=True
        ),
        "saving_ratio": Column("float64", "1 - energy_ratio", upper=1, nullable=True),
        "basis": Column("str", "measured, published, derived, interpolated or extrapolated"),
        "is_extrapolated": Column("bool", "outside the limits that were measured or published"),
        "doubt": Column("str", "why the number is in doubt; empty if it is not"),
        "source": Column("str", "file, or publication"),
    },
)

POWER_KNEES = Table(
    "power_knees",
    "One row per GPU and job: limits that stand out on its curve; medians over configurations.",
    {
        "gpu": Column("str", _GPU),
        "job": Column("str", _JOB),
        "configuration_count": Column("int64", "curves behind the row", lower=1),
        "largest_limit_w": Column("float64", "largest limit", lower=0),
        "least_energy_limit_w": Column(
            "float64", "limit at which the work costs least energy", lower=0, nullable=True
        ),
        "saving_ratio": Column(
            "float64", "energy saved there against the largest limit", upper=1, nullable=True
        ),
        "speed_loss_ratio": Column(
            "float64", "speed lost there; below 0 if it was faster", upper=1, nullable=True
        ),
        "time_increase_ratio": Column(
            "float64", "time added there, which is more than the speed lost", nullable=True
        ),
        "kept_speed_share": Column("float64", "speed that had to be kept", lower=0, upper=1),
        "kept_speed_limit_w": Column("float64", "smallest limit that keeps it", lower=0),
        "edp_limit_w": Column("float64", "limit of least energy x time", lower=0, nullable=True),
        "ed2p_limit_w": Column(
            "float64", "limit of least energy x time x time", lower=0, nullable=True
        ),
        "knee_limit_w": Column(
            "float64", "limit where the curve bends most", lower=0, nullable=True
        ),
        "per_watt_limit_w": Column("float64", "limit of most speed per watt of limit", lower=0),
        "doubt": Column("str", "why the row is in doubt; empty if it is not"),
    },
)

PROVISIONING = Table(
    "provisioning",
    "One row per curve and power limit: how many GPUs a site feeds, and what they do together.",
    {
        "gpu": Column("str", _GPU),
        "job": Column("str", _JOB),
        "configuration": Column("str", _CONFIGURATION),
        "limit_w": Column("float64", "power limit of one GPU", lower=0),
        "gpu_count": Column("int64", "GPUs that the site feeds at that limit", lower=0),
        "speed_ratio": Column("float64", "speed of one GPU against the largest limit", lower=0),
        "throughput_ratio": Column(
            "float64", "of all GPUs, in GPUs that run at the largest limit", lower=0
        ),
        "reference_limit_w": Column("float64", "limit that is compared with", lower=0),
        "gain_ratio": Column(
            "float64", "throughput / throughput at the reference limit - 1", lower=-1
        ),
        "site_w": Column("float64", "power of the site if every GPU draws its limit", lower=0),
        "energy_ratio": Column(
            "float64",
            "site energy of the same work / at the reference limit",
            lower=0,
            nullable=True,
        ),
        "is_best": Column("bool", "whether no other row of the curve has more throughput"),
        "basis": Column("str", "measured, published, derived, interpolated or extrapolated"),
        "is_extrapolated": Column("bool", "outside the limits that were measured or published"),
        "doubt": Column("str", "why the number is in doubt; empty if it is not"),
        "source": Column("str", "file, or publication"),
    },
)

PUBLISHED_GAINS = Table(
    "published_gains",
    "One row per throughput gain that others published for a lower limit at the same site power.",
    {
        "gpu": Column("str", _GPU),
        "limit_w": Column("float64", "power limit of one GPU", lower=0),
        "reference_limit_w": Column("float64", "limit that was compared with", lower=0),
        "gain_ratio": Column("float64", "gain in throughput; 0.09 is 9 % more", lower=-1),
        "low_gain_ratio": Column("float64", "least gain that rounds to what was printed", lower=-1),
        "high_gain_ratio": Column("float64", "most gain that rounds to what was printed", lower=-1),
        "trust": Column("str", _TRUST),
        "source": Column("str", "publication, and who reported it"),
    },
)

PROVISIONING_FACTS = Table(
    "provisioning_facts",
    "One row per published number about sites and their power.",
    {
        "quantity": Column("str", "what it is"),
        "value": Column("float64", "number, in the unit of the row"),
        "unit": Column("str", "W, 1 (a count or ratio)"),
        "trust": Column("str", _TRUST),
        "source": Column("str", "publication, and who reported it"),
    },
)

# Power that swings: steps, ramps, spectra, what a grid allows, and what smoothing would do.

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
        "window_s": Column("float64", "window that was requested", lower=0),
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
    "One row per frequency above 0: how much of the AC component of power is there.",
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
    "One row per band of frequencies: its share of the AC component of power that can be seen.",
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
