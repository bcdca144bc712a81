"""Which claims about narrow number types hold on this processor.

    python benchmarks/low_precision.py [--rounds N]

int8 and bfloat16 products against float32 (processor time of one thread, medians), the error
of quantisation, the rounding of bfloat16, and the gradients that narrow types lose. The table
goes to the screen and to ``benchmarks/results/low_precision.md`` and ``.json``. Needs PyTorch.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import torch
from torch.nn import functional

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks._measure import machine, one_thread, seconds
from benchmarks._table import RESULTS, Row, publish
from workbench import datasets, inject
from workbench.inject.models import LeNet
from workbench.inject.rounding import gradient_underflow

FBGEMM_TARGET = 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table; return 0 even if targets are missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    capability = str(torch.backends.cpu.get_cpu_capability())
    about = {**machine(), "torch": torch.__version__, "instructions": capability}
    published = pd.read_csv(datasets.path("published") / "low_precision.csv")
    with one_thread(), _fbgemm(), torch.no_grad():
        products = _products(published, options.rounds)
    rows = [*products, *_rounding(published), *_gradients()]
    publish("low_precision", rows, about, _remarks(products, capability), options.out)
    return 0


@contextmanager
def _fbgemm() -> Iterator[None]:
    """Have FBGEMM multiply what is quantised, where torch has it."""
    engine = torch.backends.quantized.engine
    if "fbgemm" in torch.backends.quantized.supported_engines:
        torch.backends.quantized.engine = "fbgemm"
    try:
        yield
    finally:
        torch.backends.quantized.engine = engine


def _products(published: pd.DataFrame, rounds: int) -> list[Row]:
    """Time linear layers in int8 (quantising the input each time) and bfloat16."""
    shapes = published[(published["dtype"] == "int8") & published["m"].notna()]
    rows, errors = [], []
    for shape in shapes.itertuples():
        pair, error = _product((int(shape.m), int(shape.n), int(shape.k)), shape.low, rounds)
        rows += pair
        errors.append(100 * error)
    worst = max(errors)
    what = "largest error of dynamic quantisation"
    return [*rows, Row(what, f"{worst:.2f} %", "about 1 %", worst, unit="%")]


def _product(shape: tuple[int, int, int], elsewhere: float, rounds: int) -> tuple[list[Row], float]:
    """Time one layer in three types; also give the relative error of int8."""
    m, n, k = shape
    draws = torch.Generator().manual_seed(0)
    x = torch.randn((m, k), generator=draws)
    weight = torch.randn((n, k), generator=draws) / k**0.5
    brain_x, brain_weight, packed = x.bfloat16(), weight.bfloat16(), _packed(weight)

    def wide() -> torch.Tensor:
        return functional.linear(x, weight)

    def quantised() -> torch.Tensor:
        return torch.ops.quantized.linear_dynamic(x, packed, True)

    def brain_float() -> torch.Tensor:
        return functional.linear(brain_x, brain_weight)

    taken, small, brain = seconds(wide, quantised, brain_float, rounds=rounds)
    there, what = f"{1e3 * taken:.3f} ms in fp32", f"product of m={m}, n={n}, k={k}"
    rows = [
        Row(
            f"int8 {what}",
            f"{1e3 * small:.3f} ms",
            there,
            taken / small,
            FBGEMM_TARGET,
            note=f"elsewhere {elsewhere:g}",
        ),
        Row(f"bf16 {what}", f"{1e3 * brain:.3f} ms", there, taken / brain),
    ]
    return rows, float((quantised() - wide()).norm() / wide().norm())


def _packed(weight: torch.Tensor) -> object:
    """Quantise a weight, one scale for all of it, as the library's dynamic layers do."""
    scale = float(weight.abs().max()) / 127
    with warnings.catch_warnings():
        # The quantised tensors of torch are deprecated; FBGEMM has no other door there.
        warnings.simplefilter("ignore")
        codes = torch.quantize_per_tensor(weight, scale, 0, torch.qint8)
    return torch.ops.quantized.linear_prepack(codes, None)


def _rounding(published: pd.DataFrame) -> list[Row]:
    """Compare the rounding of bfloat16 with what was found elsewhere."""
    found = inject.rounding_errors().set_index("rounding")
    printed = published.set_index("measure")["low"]
    rows = []
    for way in ("nearest even", "truncated"):
        for kind, column in (("largest", "max_error_ratio"), ("mean", "mean_error_ratio")):
            here = found.loc[way, column]
            there = printed[f"{kind} relative error, {way}"]
            what = f"bf16, {kind} relative error, {way}"
            rows.append(Row(what, f"{here:.5f}", f"{there:.5f}", here / there))
    plain = found.loc["nearest even"]
    differ = f"{int(plain['differ_count']):,} of {int(plain['value_count']):,}"
    rows.append(Row("bf16, nearest even by integers, otherwise than torch", differ, "0"))
    bare = found.loc["nearest even, no branch for NaN"]
    lost = f"{int(bare['nan_lost_count']):,} of {int(bare['nan_count']):,}"
    return [*rows, Row("bf16, NaN lost without a branch of their own", lost, "some")]


def _gradients() -> list[Row]:
    """Count the gradients lost by narrow types, at the start and at the end of training."""
    inputs, labels = inject.shipped_inputs("lenet")
    torch.manual_seed(0)
    rows = []
    for when, model in (("new", LeNet()), ("trained", inject.shipped_model("lenet"))):
        for row in gradient_underflow(model, inputs, labels).itertuples():
            if row.dtype in {"bf16", "fp16", "fp8-e5m2"}:
                scaled = "" if row.scale_ratio == 1 else f", scaled by {row.scale_ratio:g}"
                what = f"gradients of a {when} LeNet{scaled} that {row.dtype} turns into 0"
                faint = f"{row.subnormal_share:.1%} more lose digits"
                rows.append(Row(what, f"{row.lost_share:.2%}; {faint}", ""))
    return rows


def _remarks(rows: Sequence[Row], capability: str) -> list[str]:
    """Say which published claims hold here."""
    timed = [row for row in rows if row.met is not None]
    held = sum(bool(row.met) for row in timed)
    brain = [row for row in rows if row.what.startswith("bf16")]
    faster = sum(row.ratio is not None and row.ratio > 1 for row in brain)
    return [
        f"Processor with {capability}, one thread, medians of processor time. int8 is "
        "torch.ops.quantized.linear_dynamic with FBGEMM: weights packed before, inputs quantised "
        "in every call, to 7 bits as is the default, which doubles the error of 8. Figures from "
        "elsewhere are of a processor with AVX512-VNNI and BF16.",
        f"'More than 2x faster than fp32' (FBGEMM, arXiv:2101.05615) holds here for {held} of "
        f"{len(timed)} shapes; bfloat16 is faster than fp32 for {faster} of {len(brain)}.",
        "'fp16 needs loss scaling, bfloat16 does not' (arXiv:1905.12322) shows in the gradients "
        "that turn into 0, not in the accuracy of models as small as this.",
    ]


if __name__ == "__main__":
    sys.exit(main())
