"""Planned beside measured memory: made recordings whose categories are known, and laws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.load.traces.memory.test_snapshot import written
from workbench import analyze, load, simulate
from workbench.errors import WorkbenchError
from workbench.simulate import Frame, MemoryAllocator

TORCH = "/usr/lib/python3/site-packages/torch/"
STACKS = {
    "parameters": [Frame("__init__", TORCH + "nn/modules/linear.py", 106)],
    "forward": [Frame("forward", TORCH + "nn/modules/linear.py", 134)],
    "backward": [Frame("_engine_run_backward", TORCH + "autograd/graph.py", 829)],
    "optimizer": [Frame("_init_group", TORCH + "optim/adamw.py", 142)],
    "communication": [Frame("all_reduce", TORCH + "distributed/distributed_c10d.py", 9)],
    None: [],
}
CATEGORIES = ("parameters", "gradients", "optimizer", "activations")
SHAPE = analyze.ModelShape(
    layers=2, hidden=512, heads=8, kv_heads=8, ffn=2048, vocabulary=1000, gated=False
)
JOB = analyze.configurations(SHAPE, analyze.Layout(global_batch=1, sequence=128))
PLAN = analyze.memory_footprint(JOB).iloc[0]


class Job:
    """Steps of training that allocate on a made device, with the truth of what is held."""

    def __init__(self, sizes, scratch):
        self.allocator = MemoryAllocator(16 << 30)
        self.sizes, self.scratch = sizes, scratch
        self.held = dict.fromkeys((*CATEGORIES, "temporary"), 0)
        self.most = dict(self.held)

    def make(self, phase, category, size):
        self.held[category] += size
        if sum(self.held.values()) > sum(self.most.values()):
            self.most = dict(self.held)
        return category, size, self.allocator.alloc(size, STACKS[phase])

    def drop(self, made):
        category, size, address = made
        self.held[category] -= size
        self.allocator.free(address)

    def use(self, phase):
        self.drop(self.make(phase, "temporary", self.scratch[phase]))

    def train(self, steps=2):
        size = dict(zip(CATEGORIES, self.sizes, strict=True))
        self.make("parameters", "parameters", size["parameters"])
        for step in range(steps):
            self.use("forward")
            stored = self.make("forward", "activations", size["activations"])
            # Scratch of the loss, which is gone when the backward pass begins.
            self.use("forward")
            self.use("backward")
            gradients = self.make("backward", "gradients", size["gradients"])
            self.use("backward")
            self.use("communication")
            self.drop(stored)
            if step == 0:
                self.make("optimizer", "optimizer", size["optimizer"])
            self.use("optimizer")
            self.drop(gradients)
        return self

    def memory(self, folder):
        return load.memory(written(folder, self.allocator.snapshot())).memory


def scratch(**sizes):
    return {"forward": 512, "backward": 512, "optimizer": 512, "communication": 512} | sizes


def planned():
    return [int(PLAN[f"{name}_bytes"]) for name in CATEGORIES]


def by_category(table):
    return table.set_index("category")


def test_a_job_that_holds_what_was_planned_has_no_gap_although_phases_allocate_more(tmp_path):
    # Naive: what the forward pass made is activations, what the backward pass made gradients.
    job = Job(planned(), scratch(forward=300_000_000, backward=900_000_000)).train()
    memory = job.memory(tmp_path)
    by_phase = analyze.memory_peak(memory, by="phase").set_index("group")["size_bytes"]
    assert by_phase["backward"] == PLAN["gradients_bytes"] + 900_000_000
    table = by_category(analyze.footprint_errors(JOB, memory))
    assert table.loc[[*CATEGORIES], "gap_bytes"].tolist() == [0, 0, 0, 0]
    assert table.loc["temporary", "measured_bytes"] == 900_000_000
    assert table.loc["allocated", "gap_bytes"] == 900_000_000
    assert table.loc["unknown", "measured_bytes"] == 0
    peak = memory.iloc[int(memory["allocated_bytes"].argmax())]
    loose = peak["reserved_bytes"] - peak["allocated_bytes"]
    assert table.loc["fragmentation", "measured_bytes"] == loose


def test_gradients_in_16_bits_show_as_a_gap_of_half_of_them(tmp_path):
    sizes = planned()
    sizes[1] //= 2
    table = by_category(
        analyze.footprint_errors(JOB, Job(sizes, scratch()).train().memory(tmp_path))
    )
    assert table.loc["gradients", "gap_bytes"] == -(planned()[1] - sizes[1])
    assert table.loc["parameters", "gap_bytes"] == 0


def test_memory_without_a_stack_has_bounds_and_no_gap(tmp_path):
    job = Job(planned(), scratch())
    job.allocator.alloc(40_000_000)
    table = by_category(analyze.footprint_errors(JOB, job.train().memory(tmp_path)))
    assert table.loc["unknown", "measured_bytes"] == 40_000_000
    assert table.loc[[*CATEGORIES], "gap_bytes"].isna().all()
    assert table.loc["allocated", "gap_bytes"] > 40_000_000 - 1
    bounds = table.loc[[*CATEGORIES], "most_bytes"] - table.loc[[*CATEGORIES], "measured_bytes"]
    assert set(bounds) == {40_000_000}
    patient = analyze.footprint_errors(JOB, job.memory(tmp_path), most_unknown_share=0.5)
    assert by_category(patient).loc["parameters", "gap_bytes"] == 0


def test_a_recording_that_ends_within_a_phase_does_not_tell_what_the_phase_keeps(tmp_path):
    job = Job(planned(), scratch())
    job.make("parameters", "parameters", 1_000_000)
    job.make("forward", "activations", 5_000_000)
    table = by_category(analyze.footprint_errors(JOB, job.memory(tmp_path)))
    assert table.loc["unknown", "measured_bytes"] == 5_000_000
    assert table.loc["activations", "measured_bytes"] == 0
    assert table.loc["activations", "most_bytes"] == 5_000_000


def test_the_fullest_gpu_is_compared_and_other_input_is_refused(tmp_path):
    paths = []
    for rank, layers in enumerate((2, 5)):
        path = tmp_path / f"rank{rank}_snapshot.pickle"
        paths.append(simulate.memory_snapshot(path, seed=1, layers=layers))
    memory = load.memory(tmp_path).memory
    table = analyze.footprint_errors(JOB, memory)
    assert set(table["rank"]) == {1}
    assert by_category(table).loc["parameters", "measured_bytes"] == 5 * 9_437_184
    two = analyze.configurations(SHAPE, [analyze.Layout(global_batch=size) for size in (1, 2)])
    with pytest.raises(WorkbenchError, match="2 configurations, but one job was recorded"):
        analyze.footprint_errors(two, memory)
    host = memory.assign(device=memory["device"].cat.rename_categories({"GPU 0": "CPU"}))
    with pytest.raises(WorkbenchError, match=r"none of the [\d,]+ actions .* of a GPU"):
        analyze.footprint_errors(JOB, host)


SIZES = st.integers(1, 60_000_000)


@given(st.lists(SIZES, min_size=4, max_size=4), st.lists(SIZES, min_size=4, max_size=4))
def test_categories_are_those_the_job_knows_and_add_up_to_the_peak(
    tmp_path_factory, sizes, temporary
):
    phases = ("forward", "backward", "optimizer", "communication")
    job = Job(sizes, dict(zip(phases, temporary, strict=True))).train(3)
    memory = job.memory(tmp_path_factory.mktemp("m"))
    table = by_category(analyze.footprint_errors(JOB, memory, most_unknown_share=1.0))
    measured = table["measured_bytes"]
    assert measured[[*job.most]].to_dict() == job.most
    assert measured[[*job.most, "unknown"]].sum() == measured["allocated"]
    told = table.loc[[*CATEGORIES]]
    assert (told["gap_bytes"] + told["predicted_bytes"] == told["measured_bytes"]).all()
