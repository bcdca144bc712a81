"""Releases of the software: a factor from half of their public jobs, judged on the other half."""

import numpy as np
import pytest

from workbench import analyze
from workbench.errors import PerformanceModelError


@pytest.mark.parametrize(("release", "share"), [("26.06", 0.71), ("26.08", 0.73)])
def test_a_release_is_told_by_half_of_its_jobs_and_judged_on_the_others(release, share):
    """Mixtures of experts became faster by a quarter; the naive reading keeps the older times."""
    public = analyze.public_iterations()
    own = public[public["source"].str.contains(f"NeMo {release} ") & (public["expert_count"] > 1)]
    before = analyze.assumed_model().predict(own)
    after = analyze.assumed_model(release=release).predict(own)
    ratio = (own["dur_ns"].to_numpy() / before["dur_ns"]).to_numpy()
    factor = float(np.median(ratio[::2]))
    np.testing.assert_allclose(after["dur_ns"] / before["dur_ns"], factor, rtol=1e-6)
    assert factor == pytest.approx(share, abs=0.01)
    unseen = np.abs(factor / ratio[1::2] - 1)
    (text,) = set(after["error_class"])
    assert f"fitted on {len(ratio[::2])} of its public jobs: {len(unseen)} others" in text
    assert f"{np.median(unseen):.0%} in the median" in text
    assert np.median(unseen) < np.median(np.abs(1 / ratio - 1))


def test_without_a_release_the_error_is_of_rows_without_a_part_and_newer_software_is_named():
    public = analyze.public_iterations()
    routed = public[public["model"] == "Qwen 3 235B-A22B"]
    (text,) = set(analyze.assumed_model().predict(routed)["error_class"])
    seen = public["model"].isin(["Qwen 3 30B-A3B", "GPT OSS 120B"])
    assert f"{int(((public['expert_count'] > 1) & ~seen).sum())} public jobs were off by" in text
    assert "NeMo 26.08 took 0.73 of the time: assumed_model(release='26.08')" in text
    with pytest.raises(PerformanceModelError, match=r"release='27.01': no public job ran it"):
        analyze.assumed_model(release="27.01")
