"""The codec keeps its bound for every float32, without a tolerance, and sends what it restores."""

import importlib.util
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from tests.analyze.communication.unpacking import unpacked
from workbench.analyze._communication.codec import HEADER, packed, quantized

ROOT = Path(__file__).resolve().parents[3]
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
BLOCKS = arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=8), elements=FINITE)
BOUNDS = st.one_of(st.just(0.0), st.floats(1e-45, 1e38), st.floats(1e-3, 1.0))
LARGEST = np.finfo(np.float32).max
TINY = np.float32(1e-45)


def block(*values):
    return np.array([values], dtype=np.float32)


def exact_error(values, restored):
    """Subtract as fractions, where nothing is rounded."""
    pairs = zip(values.ravel().tolist(), restored.ravel().tolist(), strict=True)
    return max(abs(Fraction(a) - Fraction(b)) for a, b in pairs)


@given(BLOCKS, BOUNDS)
def test_the_bound_holds_exactly_and_what_is_sent_is_what_is_restored(values, bound):
    done = quantized(values, bound)
    assert exact_error(values, done.restored) <= Fraction(bound)
    content = packed(done)
    np.testing.assert_array_equal(unpacked(content, values.shape, bound), done.restored)
    assert len(content) <= HEADER.size + values.nbytes


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-3, 0.02, 0.1, 0.3]))
def test_the_bound_holds_on_values_like_embeddings_and_nothing_is_escaped(seed, bound):
    generator = np.random.default_rng(seed)
    values = generator.normal(scale=0.3, size=(64, 32)).astype(np.float32)
    done = quantized(values, bound)
    assert done.escaped.size == 0
    assert exact_error(values, done.restored) <= Fraction(bound)


@pytest.mark.parametrize(
    ("values", "bound", "escaped"),
    [
        (block(0.5, 0.5, 0.5), 0.02, 0),  # between two bins of width 2 e, whose float32 miss e
        (block(0.02, -0.02, 0.06), 0.02, 0),
        (block(TINY, -TINY, 0), 0.02, 0),
        (block(TINY, 3 * TINY, 0), 1e-46, 0),  # finer than float32: rounds to the value itself
        (block(LARGEST, -LARGEST, 0.1), 0.02, 2),
        (block(LARGEST, -LARGEST), 1e38, 2),  # their bins are beyond float32
        (block(700, -700, 0.1) * 2, 0.02, 2),  # 35,000 bins: would wrap in 16 bits
        (block(1.0, 2.0, 0.0), 0.0, 2),
        (block(1.0, 2.0, 0.0), 5e-324, 2),
        (block(1.0, 2.0), 1e308, 2),  # the width of a bin is infinite
    ],
)
def test_at_the_edges_a_value_is_within_the_bound_or_sent_as_it_is(values, bound, escaped):
    done = quantized(values, bound)
    assert done.escaped.size == escaped
    assert exact_error(values, done.restored) <= Fraction(bound)
    np.testing.assert_array_equal(unpacked(packed(done), values.shape, bound), done.restored)


def test_values_beyond_8_bits_are_escaped_where_few_and_take_16_where_many():
    many = np.full((8, 32), 5.0, dtype=np.float32)
    few = np.zeros((8, 32), dtype=np.float32)
    few[0, 0] = 100.0
    assert quantized(many, 0.01).bins.dtype == np.int16
    assert quantized(few, 0.01).bins.dtype == np.int8
    assert quantized(few, 0.01).escaped.tolist() == [100.0]


EXCHANGE = """
import sys
import numpy as np, torch, torch.distributed as dist
from tests.analyze.communication.unpacking import unpacked
from workbench import datasets, load
from workbench.analyze._communication.codec import packed, quantized

rank, bound = int(sys.argv[1]), 0.02
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
outputs = load.embedding_outputs(datasets.path("compressed-exchange") / "outputs.npz")
# Five tables on each rank; each sends the other the rows of its half of the samples.
own = np.stack([a for i, a in enumerate(outputs.arrays.values()) if i % 2 == rank], axis=1)
halves = np.array_split(own, 2)
plain = torch.empty(2 * halves[rank].size)
dist.all_to_all_single(plain, torch.from_numpy(own.reshape(-1)))
blocks = [packed(quantized(half.reshape(len(half), -1), bound)) for half in halves]
sizes = torch.tensor([len(content) for content in blocks])
arriving = torch.empty_like(sizes)
dist.all_to_all_single(arriving, sizes)
content = torch.empty(int(arriving.sum()), dtype=torch.uint8)
sent = torch.frombuffer(bytearray(b"".join(blocks)), dtype=torch.uint8)
dist.all_to_all_single(content, sent, arriving.tolist(), sizes.tolist())
raw, start, received = content.numpy().tobytes(), 0, []
for length in arriving.tolist():
    shape = (len(halves[rank]), own[0].size)
    received.append(unpacked(raw[start : start + length], shape, bound).ravel())
    start += length
error = np.abs(np.concatenate(received).astype(np.float64) - plain.numpy()).max()
assert 0 < error <= bound, error
print("sent", plain.nbytes / len(raw), "times fewer bytes")
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_an_all_to_all_of_two_processes_gives_the_plain_tensors_within_the_bound(tmp_path):
    pytest.importorskip("torch")
    command = [sys.executable, "-c", EXCHANGE]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store")], cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    done = [rank.communicate(timeout=120) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], done
    assert all(float(out.split()[1]) > 5 for out, _ in done)


def test_the_accuracy_study_rounds_as_the_codec_does():
    torch = pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    spec = importlib.util.spec_from_file_location(
        "study", ROOT / "data" / "compressed-exchange" / "make.py"
    )
    study = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(study)
    values = torch.randn(64, 3, study.DIM, generator=torch.Generator().manual_seed(1))
    for kind, bound in study.CASES[1:]:
        sent = study.Model([2, 2, 2], kind, bound).sent(values).numpy()
        for at in range(3):
            table = np.ascontiguousarray(values[:, at].numpy())
            scale = float(np.sqrt((table.astype(np.float64) ** 2).mean()))
            own = quantized(table, bound * (scale if kind == "relative" else 1))
            # In float32 a value between two bins may fall into the other one.
            near = np.isclose(sent[:, at], own.restored, rtol=1e-5, atol=1e-6)
            assert near.mean() > 0.999
