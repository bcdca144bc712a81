"""What figures of swings, spectra and smoothing say: titles, marks and warnings of the smallest tables."""

import numpy as np
import pytest

from tests.power_series import cells
from workbench import analyze, plot
from workbench.analyze import GridSpec, SmoothingPlan

BAND = GridSpec("own", band_low_hz=0.1, band_high_hz=20, band_share=0.2)


def title(figure):
    return figure.layout.title.text.replace("<br>", " ")


def notes(figure):
    return (figure.layout.title.subtitle.text or "").replace("<br>", " ")


def said(figure):
    return [each.text for each in figure.layout.annotations]


@pytest.fixture(scope="module")
def wave():
    at = np.arange(1_024) * 2.0
    return cells(4e5 + 5e4 * np.sin(2 * np.pi * at / 16), period_s=2)


def test_the_spectrum_names_period_step_nyquist_sensor_and_verdict(wave):
    spectrum = analyze.power_spectrum(wave, averaging_s=2)
    check = analyze.grid_check(wave, BAND)
    peaks = analyze.power_peaks(spectrum)
    figure = plot.power_spectrum(spectrum, peaks=peaks, check=check, step_s=16)
    assert title(figure).startswith("Power repeats every 16 s (0.0625 Hz), ")
    assert title(figure).endswith("; 0.1-20 Hz: unknown (0.8 % of the band seen)")
    texts = " ".join(said(figure))
    for words in ("Nyquist 0.25 Hz: unseen beyond", "sensor -3 dB: 0.221 Hz", "one step = 16 s"):
        assert words in texts
    assert "at most 20 %<br><b>unknown</b>" in texts
    before = figure.data[1]
    assert before.name == "before the sensor's averaging"
    assert (np.asarray(before.y) >= np.asarray(figure.data[0].y)).all()


def test_an_unknown_sensor_is_told(wave):
    figure = plot.power_spectrum(analyze.power_spectrum(wave))
    assert "averaging in the sensor is not known" in notes(figure)
    assert title(figure) == "Power moves most at 0.0625 Hz"


def test_a_card_says_verdict_number_limit_and_margin_in_words(wave):
    spec = GridSpec(
        "own", ramp_up_w_per_s=1e5, ramp_down_w_per_s=1e3, ramp_window_s=4, band_low_hz=0.1,
        band_high_hz=20, band_share=0.2,
    )  # fmt: skip
    figure = plot.grid_check(analyze.grid_check(wave, spec))
    assert title(figure) == "own: 1 fail, 1 unknown, 1 pass of 3 requirements"
    texts = said(figure)
    assert any(
        text.startswith("<b>✕ fail</b>: 17.7 kW/s of 1 kW/s, 16.7 kW/s too much") for text in texts
    )
    assert any(text.startswith("<b>✓ pass</b>") and "kW/s left" in text for text in texts)
    assert any("? unknown" in text and "0.8 % of it can be seen" in text for text in texts)
    assert list(figure.layout.yaxis.ticktext) == [
        "ramp down over 4 s", "energy in 0.1-20 Hz", "ramp up over 4 s",
    ]  # fmt: skip


def test_smoothing_shows_the_store_or_else_all_of_the_power(wave):
    spec = GridSpec("own", range_w=5e4, range_window_s=2)
    smoothing = analyze.power_smoothing(wave, SmoothingPlan(storage_tau_s=60))
    summary = analyze.smoothing_summary(smoothing, spec=spec)
    figure = plot.power_smoothing(smoothing, summary=summary)
    assert title(figure).startswith("Swing 100 kW before, ")
    assert title(figure).endswith("grid: fail before, pass after")
    assert figure.layout.yaxis2.title.text == "charge [Wh]"
    floor = analyze.power_smoothing(wave, SmoothingPlan(floor_share=0.9))
    assert plot.power_smoothing(floor).layout.yaxis2.title.text == "power [kW]"
    limited = SmoothingPlan(storage_tau_s=60, storage_energy_j=1e7)
    shown = plot.power_smoothing(analyze.power_smoothing(wave, limited))
    assert shown.layout.yaxis2.title.text == "charge [%]"
    card = plot.smoothing_summary(summary)
    assert card.data[0].text[3].startswith("450 kW → ")
    assert "the storage moves" in notes(card)


def test_the_zoom_shows_the_widest_movement():
    power = [100.0] * 300
    power[200] = 10.0
    smoothing = analyze.power_smoothing(cells(power), SmoothingPlan(floor_share=0.5))
    measured = plot.power_smoothing(smoothing, zoom_s=20).data[0]
    assert min(measured.y) == 10
    assert len(measured.x) <= 21
