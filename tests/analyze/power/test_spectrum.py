"""Spectra and bands: the real job first, then signals whose spectrum is known, then refusals."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims._power import band_shares
from claims._tables import BAND_SHARES
from tests.power_series import cells, mlperf_totals
from workbench import analyze
from workbench.errors import WorkbenchError
from workbench.tables import POWER_PEAKS, POWER_SPECTRUM

BANDS = [(0, 0.02), (0.02, 0.08), (0.08, 0.11), (0.11, 0.25)]


@pytest.fixture(scope="module")
def totals(real_data):
    return mlperf_totals(real_data("power-mlperf-gpt3-512gpu"))


def waves(*parts, count=2_048, period_s=1.0):
    time = np.arange(count) * period_s
    return cells(
        1e5 + sum(size * np.sin(2 * np.pi * hz * time) for hz, size in parts), period_s=period_s
    )


@pytest.mark.oracle
def test_the_step_of_a_real_job_is_the_highest_peak_and_its_harmonic_is_known_as_such(totals):
    spectrum = POWER_SPECTRUM.check(analyze.power_spectrum(totals, averaging_s=2))
    peaks = POWER_PEAKS.check(analyze.power_peaks(spectrum))
    width = peaks["resolution_hz"].iloc[0]
    assert peaks["frequency_hz"].iloc[0] == pytest.approx(0.0918, abs=width)
    second = peaks[peaks["harmonic"] == 2].iloc[0]
    assert second["frequency_hz"] == pytest.approx(0.1836, abs=width)
    assert second["fundamental_hz"] == peaks["frequency_hz"].iloc[0]
    assert spectrum["nyquist_hz"].iloc[0] == 0.25


@pytest.mark.oracle
def test_band_shares_of_a_real_job_are_the_published_ones(totals):
    shares = BAND_SHARES.check(band_shares(totals, BANDS))
    assert shares["energy_share"].tolist() == pytest.approx([0.113, 0.196, 0.541, 0.150], abs=0.01)


@given(st.integers(16, 240), st.floats(10, 1e4))
def test_a_sine_is_found_within_a_bin_with_its_energy(place, size):
    hz = place / 512
    spectrum = analyze.power_spectrum(waves((hz, size)))
    peaks = analyze.power_peaks(spectrum)
    assert peaks["frequency_hz"].iloc[0] == pytest.approx(hz, abs=peaks["resolution_hz"].iloc[0])
    energy = spectrum["density_w2_per_hz"].sum() * peaks["resolution_hz"].iloc[0]
    assert energy == pytest.approx(size**2 / 2, rel=0.02)


@given(st.lists(st.floats(0.001, 0.499), min_size=1, max_size=6, unique=True))
def test_bands_that_tile_all_frequencies_hold_all_energy(cuts):
    rng = np.random.default_rng(3)
    edges = [0, *sorted(cuts), 0.5]
    bands = list(itertools.pairwise(edges))
    shares = band_shares(cells(rng.uniform(1e3, 2e3, 300)), bands)
    assert shares["energy_share"].sum() == pytest.approx(1)
    whole = band_shares(cells(rng.uniform(1e3, 2e3, 300)), [(0, 0.5)])
    assert whole["energy_share"].iloc[0] == pytest.approx(1)


def test_the_root_mean_square_of_a_band_is_that_of_the_sine_in_it():
    shares = band_shares(waves((0.1, 2_000)), [(0.05, 0.15)])
    assert shares["rms_w"].iloc[0] == pytest.approx(2_000 / np.sqrt(2), rel=0.01)


def test_a_band_above_nyquist_is_missing_and_one_across_it_is_seen_in_part():
    shares = band_shares(waves((0.1, 5), period_s=2), [(0.1, 20), (1, 2)])
    assert shares["visible_share"].tolist() == pytest.approx([0.15 / 19.9, 0])
    assert shares["energy_share"].isna().tolist() == [False, True]


def test_the_response_of_the_sensor_is_half_of_the_power_where_it_says():
    spectrum = analyze.power_spectrum(waves((0.1, 5), period_s=0.1), averaging_s=1)
    half = spectrum["half_power_hz"].iloc[0]
    assert half == pytest.approx(0.443, abs=0.001)
    near = spectrum.iloc[(spectrum["frequency_hz"] - half).abs().argmin()]
    assert near["sensor_ratio"] ** 2 == pytest.approx(0.5, abs=0.05)
    assert analyze.power_spectrum(waves((0.1, 5)))["sensor_ratio"].isna().all()
    instants = analyze.power_spectrum(waves((0.1, 5)), averaging_s=0)
    assert set(instants["sensor_ratio"]) == {1.0}
    assert instants["half_power_hz"].isna().all()


def test_short_gaps_are_interpolated_and_long_ones_cut_and_both_are_told():
    totals = waves((0.1, 100), count=400)
    totals.loc[[100, 101], "power_w"] = np.nan
    totals.loc[300:309, "power_w"] = np.nan
    spectrum = analyze.power_spectrum(totals)
    assert spectrum["filled_count"].iloc[0] == 2
    assert spectrum["covered_share"].iloc[0] == pytest.approx(0.75)
    strict = analyze.power_spectrum(totals, longest_gap_cells=0)
    assert strict["covered_share"].iloc[0] == pytest.approx(198 / 400)


def test_peaks_that_are_no_multiples_are_no_harmonics():
    peaks = analyze.power_peaks(analyze.power_spectrum(waves((0.05, 900), (0.117, 500))))
    assert peaks["harmonic"].tolist()[:2] == [1, 1]
    matched = analyze.power_peaks(analyze.power_spectrum(waves((0.05, 900), (0.15, 500))))
    assert matched["harmonic"].tolist()[:2] == [1, 3]


def test_constant_power_has_no_peaks_and_no_energy_to_share():
    totals = cells([5.0] * 64)
    assert analyze.power_peaks(analyze.power_spectrum(totals)).empty
    assert band_shares(totals, [(0, 0.5)])["energy_share"].tolist() == [0]


def test_the_rounding_of_constant_power_is_no_movement():
    readings = pd.DataFrame({"time_ns": np.arange(600) * 2_000_000_000 + 1_700_000_000 * 10**9})
    parts = [readings.assign(entity=f"node{n:02}", power_w=6_800.3 + 0.7 * n) for n in range(8)]
    power = pd.concat(parts, ignore_index=True).astype({"entity": "category"})
    totals = analyze.power_totals(analyze.power_grid(power, period_s=2))
    assert totals["power_w"].nunique() == 1
    # A total of another source may hold what sums of floating-point numbers leave.
    noise = np.random.default_rng(1).normal(0, 1e-9, len(totals))
    totals = totals.assign(power_w=totals["power_w"] + noise)
    assert band_shares(totals, [(0, 0.1)])["energy_share"].item() == 0
    assert analyze.power_spectrum(totals)["variance_share"].max() == 0
    spec = analyze.GridSpec("band", band_low_hz=0, band_high_hz=0.1, band_share=0.2)
    assert analyze.grid_check(totals, spec)["verdict"].item() == "pass"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: analyze.power_spectrum(cells([1.0] * 9)), "longest segment .* has 9 of 9 cells"),
        (lambda: analyze.power_spectrum(cells([1.0] * 99), segment_cells=3), "16 or more"),
        (lambda: analyze.power_spectrum(cells([1.0] * 99), averaging_s=-1), "averaging_s"),
        (
            lambda: analyze.power_spectrum(cells([1.0] * 99), longest_gap_cells=-1),
            "longest_gap_cells",
        ),
        (lambda: band_shares(cells([1.0] * 99), []), "bands is empty"),
        (lambda: band_shares(cells([1.0] * 99), [(0.2, 0.1)]), "is empty; its lower end"),
        (lambda: band_shares(cells([1.0] * 99), [(0.2,)]), "a pair of frequencies"),
        (
            lambda: analyze.power_peaks(analyze.power_spectrum(cells([1.0] * 99)), peaks=0),
            "peaks must be",
        ),
    ],
)
def test_what_has_no_spectrum_is_refused_in_words(call, message):
    with pytest.raises(WorkbenchError, match=message):
        call()
