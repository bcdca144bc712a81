"""Energy by kind of kernel: known powers come back, and what cannot be told is refused."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from workbench import analyze, datasets, load, plot, simulate
from workbench.errors import WorkbenchError

MS = 1_000_000
TRUTH = {"compute": 420.0, "communication": 110.0, "memory": 160.0}


def gpu(start, dur, kind, **more):
    return {"start_ns": int(start), "dur_ns": int(dur), "kind": kind, "name": kind} | more


def job(make_events, seed=3, count=600, kinds=tuple(TRUTH), idle_ms=2):
    """Pieces of work of random length, one after the other, with pauses."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 12, count) * MS
    pauses = rng.integers(0, idle_ms * MS + 1, count)
    starts = np.cumsum(lengths + pauses) - lengths
    drawn = rng.choice(kinds, count)
    return make_events(*map(gpu, starts, lengths, drawn))


@pytest.fixture(scope="module")
def events(make_events):
    return job(make_events)


def by_kind(table):
    return table.set_index("kind")


@pytest.fixture(scope="module")
def rank(make_events):
    trace = load.traces(datasets.path("fleet-demo") / "traces", progress=False)
    return trace.events[trace.events["rank"] == 0]


def test_known_powers_come_back_within_their_intervals(rank):
    power = simulate.kernel_power(rank, TRUTH, average_s=0.005)
    table = by_kind(analyze.kernel_energy(rank, power, average_s=0.005))
    for kind, watts in (TRUTH | {"idle": 90.0}).items():
        assert table.loc[kind, "low_w"] <= watts <= table.loc[kind, "high_w"]
    assert table["is_sure"].all()


def test_a_short_kind_of_high_power_is_not_hidden_by_a_long_one_of_low_power(make_events):
    rng = np.random.default_rng(1)
    rows = []
    for number in range(400):
        start = number * 20 * MS
        rows.append(gpu(start, 15 * MS, "communication"))
        if rng.random() < 0.3:  # a twentieth of the time of the other
            rows.append(gpu(start + 15 * MS, 2 * MS, "compute"))
    events = make_events(*rows)
    power = simulate.kernel_power(events, {"communication": 30, "compute": 600}, average_s=0.005)
    table = by_kind(analyze.kernel_energy(events, power, average_s=0.005))
    busy = table["busy_s"]
    assert busy["compute"] < 0.06 * busy["communication"]
    # Splitting by time would give both the same power.
    assert table.loc["compute", "power_w"] == pytest.approx(600, rel=0.05)
    assert table.loc["communication", "power_w"] == pytest.approx(30, rel=0.05)


def test_kinds_in_fixed_proportion_are_refused_not_split(make_events):
    rows = []
    for number in range(1_500):
        start = number * 3 * MS + (number // 30) * 50 * MS
        rows += [gpu(start, 2 * MS, "compute"), gpu(start + 2 * MS, MS, "communication")]
    events = make_events(*rows)
    power = simulate.kernel_power(events, {"compute": 400, "communication": 100}, average_s=0.03)
    with pytest.raises(
        WorkbenchError, match=r"communication and compute cannot be separated: .* use a faster"
    ):
        analyze.kernel_energy(events, power, average_s=0.03)
    fast = simulate.kernel_power(events, {"compute": 400, "communication": 100}, average_s=0.001)
    table = by_kind(analyze.kernel_energy(events, fast, average_s=0.001))
    assert table.loc["compute", "power_w"] == pytest.approx(400, rel=0.05)


def test_a_gpu_that_is_never_idle_needs_its_idle_power(make_events):
    events = job(make_events, idle_ms=0)
    power = simulate.kernel_power(events, TRUTH, average_s=0.005, idle_w=75)
    with pytest.raises(WorkbenchError, match=r"idle cannot be separated.*or pass idle_w"):
        analyze.kernel_energy(events, power, average_s=0.005)
    table = by_kind(analyze.kernel_energy(events, power, average_s=0.005, idle_w=75))
    assert table.loc["compute", "power_w"] == pytest.approx(420, rel=0.02)
    assert table.loc["idle", "low_w"] == table.loc["idle", "high_w"] == 75


def test_a_slow_meter_a_wrong_averaging_and_a_wrong_clock_are_refused(events):
    power = simulate.kernel_power(events, TRUTH, average_s=0.005)
    slow = simulate.kernel_power(events, TRUTH, average_s=1.0)
    with pytest.raises(WorkbenchError, match="cannot tell 4 powers; at least 40 are needed"):
        analyze.kernel_energy(events, slow, average_s=1.0)
    with pytest.raises(WorkbenchError, match=r"readings do not average the 0\.001 s before"):
        analyze.kernel_energy(events, power, average_s=0.001)
    late = power.assign(time_ns=power["time_ns"] + 5 * MS)
    with pytest.raises(WorkbenchError, match=r"a clock of the meter ahead by 0\.005 s more"):
        analyze.kernel_energy(events, late, average_s=0.005)
    right = analyze.kernel_energy(events, late, average_s=0.005, clock_offset_s=0.005)
    pd.testing.assert_frame_equal(right, analyze.kernel_energy(events, power, average_s=0.005))
    apart = power.assign(time_ns=power["time_ns"] + 10**15)
    with pytest.raises(WorkbenchError, match=r"0 of them average 0\.005 s of the trace"):
        analyze.kernel_energy(events, apart, average_s=0.005)


def test_several_gpus_entities_and_wrong_options_are_refused(events, make_events):
    power = simulate.kernel_power(events, TRUTH)
    two = make_events(gpu(0, 5, "compute"), gpu(0, 5, "compute", rank=1))
    with pytest.raises(WorkbenchError, match="events are of 2 GPUs"):
        analyze.kernel_energy(two, power, average_s=0.02)
    both = pd.concat([power, power.assign(entity=pd.Categorical(["gpu1"] * len(power)))])
    both["entity"] = both["entity"].astype("category")
    with pytest.raises(WorkbenchError, match="power is of 2 entities"):
        analyze.kernel_energy(events, both, average_s=0.02)
    with pytest.raises(WorkbenchError, match="by must be"):
        analyze.kernel_energy(events, power, average_s=0.02, by="name")
    with pytest.raises(WorkbenchError, match="average_s must be above 0"):
        analyze.kernel_energy(events, power, average_s=0)


@pytest.mark.long
@given(
    st.lists(st.floats(0, 700), min_size=3, max_size=3),
    st.floats(0, 200),
    st.floats(0, 40),
    st.integers(0, 5),
)
def test_energies_add_up_to_what_was_measured(make_events, watts, idle_w, noise_w, seed):
    events = job(make_events, seed, count=150)
    truth = dict(zip(TRUTH, watts, strict=True))
    power = simulate.kernel_power(
        events, truth, idle_w=idle_w, average_s=0.005, noise_w=noise_w, seed=seed
    )
    try:
        table = analyze.kernel_energy(events, power, average_s=0.005)
    except WorkbenchError:
        assume(False)  # noise alone may look like that of another meter
    measured = float((power["power_w"] * 0.005).sum())
    assert table["energy_j"].sum() == pytest.approx(measured, rel=1e-6, abs=1e-6)
    known = table.dropna(subset=["power_w"])
    assert (known["low_w"] <= known["power_w"]).all()
    assert (known["power_w"] <= known["high_w"]).all()
    # Where idle power was fitted above 0, nothing is left over.
    if float(by_kind(table).loc["idle", "power_w"]) > 1e-6:
        rest = float(by_kind(table).loc["not explained", "energy_j"])
        assert abs(rest) <= 1e-6 * max(measured, 1)


def test_the_fit_equals_normal_equations_where_no_power_is_zero(events):
    # Shares nanosecond bin by bin, and an unconstrained solution by other means.
    power = simulate.kernel_power(events, TRUTH, average_s=0.005, noise_w=3)
    start = int(events["start_ns"].min())
    steps = np.arange(start, start + len(power) * 5 * MS, 10_000)
    columns = []
    for kind in sorted(TRUTH):
        rows = events[events["kind"] == kind]
        begun = np.searchsorted(np.sort(rows["start_ns"].to_numpy()), steps, side="right")
        ended = np.searchsorted(
            np.sort((rows["start_ns"] + rows["dur_ns"]).to_numpy()), steps, side="right"
        )
        columns.append((begun > ended).reshape(len(power), -1).mean(axis=1))
    design = np.column_stack([*columns, np.ones(len(power))])
    by_hand = np.linalg.lstsq(design, power["power_w"].to_numpy(), rcond=None)[0]
    table = analyze.kernel_energy(events, power, average_s=0.005)
    assert table["power_w"].to_numpy()[:4] == pytest.approx(by_hand, rel=0.01)


@pytest.mark.long
def test_intervals_hold_the_truth_about_as_often_as_they_say(make_events):
    held = []
    for seed in range(30):
        events = job(make_events, seed, count=200)
        power = simulate.kernel_power(events, TRUTH, average_s=0.005, noise_w=30, seed=seed)
        table = by_kind(analyze.kernel_energy(events, power, average_s=0.005))
        held += [
            table.loc[kind, "low_w"] <= watts <= table.loc[kind, "high_w"]
            for kind, watts in TRUTH.items()
        ]
    assert np.mean(held) >= 0.85  # of 90; at 95 % fewer than 77 happen once in ten thousand


def test_the_figure_names_the_kind_that_takes_most_and_what_is_not_sure(events):
    power = simulate.kernel_power(events, {"compute": 420.0}, average_s=0.005)
    table = analyze.kernel_energy(events, power, average_s=0.005)
    figure = plot.kernel_energy(table, source="made", synthetic=True)
    assert figure.layout.title.text.startswith("compute takes ")
    words = " ".join(note.text for note in figure.layout.annotations)
    assert "not sure" in words
    assert "SYNTHETIC" in figure.layout.title.subtitle.text


MODULES = {"attention": 120.0, "mlp": 480.0, "loss": 300.0}


def trained(make_events, seed=5, count=400, shares=(0.4, 0.5, 0.1), blocks=None):
    """Modules of a net that launch their kernels ahead of the GPU; attention runs longest."""
    rng = np.random.default_rng(seed)
    names = rng.choice([*MODULES], count, p=shares) if blocks is None else blocks
    longest = {"attention": 15, "mlp": 4, "loss": 4}
    lengths = np.array([rng.integers(1, longest[name] + 1) for name in names]) * MS
    pauses = rng.integers(0, 4 * MS, len(names))
    if blocks is not None:  # in layers the same work comes again and again
        lengths = np.array([3 * MS if name == "attention" else MS for name in names])
        pauses = np.where(np.array(names) == "loss", pauses, 0)
    starts = np.cumsum(lengths + pauses) - lengths + 5 * MS
    rows = []
    for at, name in enumerate(names):
        # The host is in the next modules while the GPU still works for the first.
        host = at * 10_000
        layer = f"nn.Module: {name}_{at % 3}" if name != "loss" else "loss"
        category = "user_annotation" if name == "loss" else "python_function"
        around = [("nn.Module: Net_0", "python_function")] if name != "loss" else []
        frames = [*around, (layer, category), (f"aten::{name}", "cpu_op")]
        rows += [
            {"name": label, "category": of, "start_ns": host + depth, "dur_ns": 9_000 - 2 * depth}
            for depth, (label, of) in enumerate(frames)
        ]
        rows.append({"id": at, "name": "cudaLaunchKernel", "category": "cuda_runtime",
                     "start_ns": host + 100, "dur_ns": 10})  # fmt: skip
        rows.append(gpu(starts[at], lengths[at], "compute", launch=at) | {"name": f"{name}_kernel"})
    return make_events(*rows)


def metered(events, average_s, truth=MODULES, **options):
    powers = {f"{name}_kernel": watts for name, watts in truth.items()}
    return simulate.kernel_power(events, powers, average_s=average_s, **options)


def test_the_module_that_runs_longest_is_not_the_one_that_takes_most_energy(make_events):
    events = trained(make_events)
    power = metered(events, 0.002)
    tree = analyze.model_tree(events, merged=True).set_index("name")["gpu_ns"]
    assert tree["attention"] > 2 * tree["mlp"]
    table = by_kind(analyze.kernel_energy(events, power, average_s=0.002, by="module"))
    assert table.loc["Net > mlp", "energy_j"] > table.loc["Net > attention", "energy_j"]
    paths = {"Net > attention": 120, "Net > mlp": 480, "loss": 300, "idle": 90}
    for path, watts in paths.items():
        assert table.loc[path, "low_w"] - 0.5 <= watts <= table.loc[path, "high_w"] + 0.5
        assert table.loc[path, "power_w"] == pytest.approx(watts, rel=0.05)
    operators = by_kind(analyze.kernel_energy(events, power, average_s=0.002, by="operator"))
    assert operators.loc["aten::mlp", "power_w"] == table.loc["Net > mlp", "power_w"]
    figure = plot.kernel_energy(table.reset_index(), source="made", synthetic=True)
    assert "mlp takes " in figure.layout.title.text


def test_modules_that_readings_cannot_tell_apart_count_in_the_one_around_them(make_events):
    rng = np.random.default_rng(2)
    drawn = [["attention", "mlp"] * 30 if rng.random() < 0.5 else ["loss"] * 60 for _ in range(60)]
    events = trained(make_events, blocks=[name for block in drawn for name in block])
    fast, slow = (
        analyze.kernel_energy(
            events, metered(events, average_s), average_s=average_s, by="module"
        )["kind"].tolist()
        for average_s in (0.002, 0.04)
    )  # fmt: skip
    assert fast == ["Net > attention", "Net > mlp", "loss", "idle", "not explained"]
    assert slow == ["Net", "loss", "idle", "not explained"]
    for by in ("module", "operator"):
        with pytest.raises(WorkbenchError, match=r"cannot tell \d powers|cannot be separated"):
            analyze.kernel_energy(events, metered(events, 1.0), average_s=1.0, by=by)


def test_work_without_modules_or_operators_is_refused_and_small_work_has_no_row(make_events):
    power = simulate.kernel_power(job(make_events), TRUTH, average_s=0.005)
    with pytest.raises(WorkbenchError, match=r"no module or annotated range was recorded"):
        analyze.kernel_energy(job(make_events), power, average_s=0.005, by="module")
    with pytest.raises(WorkbenchError, match=r"no operator was recorded around the launches"):
        analyze.kernel_energy(job(make_events), power, average_s=0.005, by="operator")
    events = trained(make_events, shares=(0.597, 0.4, 0.003))
    few = analyze.kernel_energy(events, metered(events, 0.002), average_s=0.002, by="module")
    assert "loss" not in set(few["kind"])


@pytest.mark.long
@given(st.lists(st.floats(0, 700), min_size=3, max_size=3), st.integers(0, 9))
def test_modules_add_up_to_the_energy_of_the_device_at_every_level(make_events, watts, seed):
    events = trained(make_events, seed, count=200)
    truth = dict(zip(MODULES, watts, strict=True))
    for average_s in (0.003, 0.03):
        power = metered(events, average_s, truth, seed=seed)
        measured = float((power["power_w"] * average_s).sum())
        for by in ("module", "operator"):
            try:
                table = analyze.kernel_energy(events, power, average_s=average_s, by=by)
            except WorkbenchError:
                continue  # too slow to tell
            assert table["energy_j"].sum() == pytest.approx(measured, rel=1e-6)
            work = table[~table["kind"].isin(["idle", "not explained"])]
            spans = events[events["kind"].notna()]["dur_ns"].sum() / 1e9
            assert work["busy_s"].sum() <= spans * (1 + 1e-9)


def test_powers_of_modules_equal_normal_equations_over_kernel_names(make_events):
    events = trained(make_events)
    power = metered(events, 0.002, noise_w=2)
    work = events[events["kind"].notna()]
    stamps = power["time_ns"].to_numpy()
    columns = []
    for name in MODULES:
        rows = work[work["name"] == f"{name}_kernel"]
        start, end = rows["start_ns"].to_numpy(), (rows["start_ns"] + rows["dur_ns"]).to_numpy()
        shared = np.minimum(end[:, None], stamps) - np.maximum(start[:, None], stamps - 2 * MS)
        columns.append(np.maximum(shared, 0).sum(axis=0) / (2 * MS))
    design = np.column_stack([*columns, np.ones(len(stamps))])
    by_hand = np.linalg.lstsq(design, power["power_w"].to_numpy(), rcond=None)[0]
    table = by_kind(analyze.kernel_energy(events, power, average_s=0.002, by="module"))
    rows = ["Net > attention", "Net > mlp", "loss", "idle"]
    assert table.loc[rows, "power_w"].to_numpy() == pytest.approx(by_hand, rel=1e-3)
