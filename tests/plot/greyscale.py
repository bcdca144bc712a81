"""Figures as a reader without colour sees them: which series only their colour tells apart."""

import itertools
import re

# CIELAB lightness runs from 0 to 100; steps of 12 are told apart side by side, also in print.
LEAST_LIGHTNESS = 12


def lightness(colour):
    """Convert a colour to grey: its lightness L* in CIELAB, 0 for black and 100 for white."""
    if match := re.fullmatch(r"#([0-9a-fA-F]{6})", colour):
        red, green, blue = (int(match[1][at : at + 2], 16) for at in (0, 2, 4))
    else:
        red, green, blue = (float(n) for n in re.findall(r"[\d.]+", colour)[:3])
    linear = [
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in (red / 255, green / 255, blue / 255)
    ]
    luminance = sum(
        weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True)
    )
    return 116 * luminance ** (1 / 3) - 16 if luminance > 0.008856 else 903.3 * luminance


def alike_in_grey(figure):
    """List pairs of series, and of points in one, that differ in colour and in nothing else."""
    traces = [trace for trace in figure["data"] if trace.get("visible") is not False]
    looks = [(trace, look(trace), colours(trace)) for trace in traces]
    pairs = [
        (first.get("name", ""), second.get("name", ""), *some, *other)
        for (first, seen, some), (second, also, other) in itertools.combinations(looks, 2)
        if seen == also and len(some) == len(other) == 1 and not told(some, other)
    ]
    return pairs + [
        (trace.get("name", ""), "its points", *sorted(pair))
        for trace, seen, shades in looks
        if not seen[-1]
        for pair in itertools.combinations(sorted(shades), 2)
        if not told(*([shade] for shade in pair))
    ]


def told(some, other):
    (first,), (second,) = some, other
    return (
        first.lower() == second.lower()
        or abs(lightness(first) - lightness(second)) >= LEAST_LIGHTNESS
    )


def look(trace):
    """Collect what tells a trace apart without colour; the last says whether its points do."""
    marker, line = trace.get("marker", {}), trace.get("line", {})
    pattern = marker.get("pattern", trace.get("fillpattern", {})).get("shape")
    symbol = marker.get("symbol") if "markers" in trace.get("mode", "markers") else None
    drawn = (
        trace["type"], trace.get("xaxis"), trace.get("yaxis"), trace.get("mode"), str(pattern),
        str(symbol), line.get("dash", "solid"), line.get("width"), trace.get("fill"),
        outline(marker),
    )  # fmt: skip
    own = (pattern, symbol, trace.get("text"), trace.get("texttemplate"))
    # Points with names beside them, or with looks of their own, need no colour.
    return *drawn, any(isinstance(value, list) for value in own) or trace["type"] in NAMED


def outline(marker):
    """Give the colour around bars where it is another one than that inside."""
    edge = marker.get("line", {})
    drawn = edge.get("color") if edge.get("width") else None
    return "" if drawn == marker.get("color") else str(drawn)


NAMED = ("treemap", "icicle", "sunburst", "sankey", "table", "heatmap")


def colours(trace):
    """Collect the colours that a trace is drawn in; empty where a scale of shades tells values."""
    marker, line = trace.get("marker", {}), trace.get("line", {})
    shown = marker.get("color") or trace.get("fillcolor") or line.get("color")
    if "lines" in trace.get("mode", "") and line.get("color"):
        shown = line["color"]
    values = shown if isinstance(shown, list) else [shown]
    return {value for value in values if isinstance(value, str)}
