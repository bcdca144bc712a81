"""What checking quantised products and embedding sums costs.

    python benchmarks/checksums.py [--rounds N]

Processor time of one thread, median of the rounds, after one that is not counted. The check is
not fused into the product: it is what a few lines of Python around the library cost. The table
goes to the screen and to ``benchmarks/results/checksums.md`` and ``.json``. Needs PyTorch.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks._measure import machine, one_thread, seconds
from benchmarks._table import RESULTS, Row, publish
from workbench.inject.protections.gemm_checksum import ChecksumBags, ChecksumGemm

SHAPES = ((32, 512, 512), (128, 512, 512), (150, 800, 3200), (32, 2048, 1024))
BAGS = (64, 100, 64)
TABLE_ROWS = 20_000
GEMM_TARGET, BAG_TARGET = 20.0, 26.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table; return 0 even if targets are missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    about = {**machine(), "torch": torch.__version__, "instructions": _instructions()}
    with one_thread():
        rows = [_gemm(shape, options.rounds) for shape in SHAPES]
        rows += [_gemm_and_sum(shape, options.rounds) for shape in SHAPES]
        rows.append(_bags(options.rounds))
    remarks = [
        f"Processor time of one thread, medians of {options.rounds} rounds. Overhead is the time "
        "with the check over that without, less one. Targets are the figures of arXiv:2103.00130, "
        "whose checks are fused into the product. A run on a busy machine says little.",
        "torch._int_mm multiplies 8-bit integers at speed only on processors with instructions "
        "for them (AVX512-VNNI); without them it is slow itself, and the check looks cheap, or "
        "negative where a padded width suits it better. "
        "The second rows take the product in floating point, as fast as the processor can, and "
        "add up and check its rows.",
    ]
    publish("checksums", rows, about, remarks, options.out)
    return 0


def _instructions() -> str:
    return str(torch.backends.cpu.get_cpu_capability())


def _row(what: str, bare: float, checked: float, target: float) -> Row:
    overhead = 100 * (checked / bare - 1)
    return Row(
        what,
        f"{1e3 * checked:.2f} ms",
        f"{1e3 * bare:.2f} ms unchecked",
        overhead,
        target,
        "%",
        smaller_is_better=True,
    )


def _operands(shape: tuple[int, int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    m, k, n = shape
    draws = torch.Generator().manual_seed(0)
    a = torch.randint(0, 128, (m, k), generator=draws, dtype=torch.int8)
    return a, torch.randint(-128, 128, (k, n), generator=draws, dtype=torch.int8)


def _gemm(shape: tuple[int, int, int], rounds: int) -> Row:
    """Compare torch's integer product with and without the checksum column and its check."""
    a, b = _operands(shape)
    gemm = ChecksumGemm(b)
    bare, checked = seconds(
        lambda: torch._int_mm(a, b),
        lambda: gemm.residuals(torch._int_mm(a, gemm.encoded)),
        rounds=rounds,
    )
    return _row(f"int8 product {' x '.join(map(str, shape))}, _int_mm", bare, checked, GEMM_TARGET)


def _gemm_and_sum(shape: tuple[int, int, int], rounds: int) -> Row:
    """Compare the same in float32, on operands converted before."""
    a, b = _operands(shape)
    gemm = ChecksumGemm(b)
    a_wide, b_wide, encoded = a.float(), b.float(), gemm.encoded.float()
    bare, checked = seconds(
        lambda: torch.mm(a_wide, b_wide).int(),
        lambda: gemm.residuals(torch.mm(a_wide, encoded).int()),
        rounds=rounds,
    )
    return _row(f"the same {' x '.join(map(str, shape))}, float32", bare, checked, GEMM_TARGET)


def _bags(rounds: int) -> Row:
    count, pooling, dim = BAGS
    draws = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 256, (TABLE_ROWS, dim), generator=draws, dtype=torch.uint8)
    scale, bias = torch.rand(2, TABLE_ROWS, generator=draws)
    bags = ChecksumBags(codes, scale, -bias)
    rows = torch.randint(0, TABLE_ROWS, (count, pooling), generator=draws)
    bare, checked = seconds(
        lambda: bags.sums(rows, codes[rows]), lambda: bags.run(rows), rounds=rounds
    )
    return _row(f"{count} bags of {pooling} rows of {dim}", bare, checked, BAG_TARGET)


if __name__ == "__main__":
    sys.exit(main())
