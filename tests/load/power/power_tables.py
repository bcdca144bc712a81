"""What tests of plain tables of power share."""

SECOND = 10**9
START = 1_700_000_000


def watts(part):
    """Return the powers by entity, in the order of the file."""
    by = part.readings.groupby("entity", observed=True)["power_w"]
    return {str(name): values.tolist() for name, values in by}


def said(part, finding):
    frame = part.findings.frame()
    return frame.loc[frame["finding"] == finding, "what"].tolist()
