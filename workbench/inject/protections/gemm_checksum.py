"""A checksum that notices soft errors in a quantised matrix product."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from workbench.errors import InjectionError
from workbench.inject._model import refuse_if, torch, whole_number
from workbench.inject.designs.bits import as_masks
from workbench.tables import DETECTOR_TRIALS

# The largest prime in int8. It divides no power of two, so a single flipped bit never cancels.
MODULUS = 127
# CUDA kernels behind torch._int_mm take only widths that are multiples of 8.
_PADDED_TO = 8
# k products of int8 add up to at most k * 128**2: exact in int32, and in float32's 24-bit mantissa.
_LONGEST_SUM = 2**31 // 128**2
_EXACT_SUM = 2**24 // 128**2


class ChecksumGemm:
    """Multiplies by an int8 matrix B, and checks every row of the result.

    One more column of B holds what its rows add up to, modulo 127. One product with
    ``[B | checksum]`` gives the result and what its rows should add up to.

    Parameters
    ----------
    b
        int8 tensor [k x n], as it is now: later changes of ``encoded`` are what the check
        is there to notice.

    Attributes
    ----------
    encoded
        ``[B | checksum | zeros]``, int8, padded to a multiple of 8 columns.

    Raises
    ------
    InjectionError
        If ``b`` is not an int8 matrix, or k is so large that int32 could overflow.

    Notes
    -----
    s_k = (Σ_j B_kj) mod 127 fits int8; row m is sound if (Σ_j C_mj - C_m,s) mod 127 = 0, summed
    in int64. 127 divides no power of two, so every flip of one bit in C is noticed; one in row k
    of B is noticed on row m unless A_mk is a multiple of 127. Faults in A cannot be noticed:
    the check only says that the product fits its operands.

    References
    ----------
    Li et al.: Efficient Soft-Error Detection for Low-precision Deep Learning Recommendation
    Models. arXiv:2103.00130. The modulus is chosen here.
    """

    def __init__(self, b: Any) -> None:
        _refuse_matrix(b, "B")
        self.shape: tuple[int, int] = tuple(b.shape)
        rows, columns = self.shape
        if rows >= _LONGEST_SUM:
            msg = (
                f"B has {rows:,} rows; int32 sums of int8 products are exact below {_LONGEST_SUM:,}"
            )
            raise InjectionError(msg)
        width = -(-(columns + 1) // _PADDED_TO) * _PADDED_TO
        self.encoded = torch().zeros((rows, width), dtype=torch().int8, device=b.device)
        self.encoded[:, :columns] = b
        # torch's % takes the sign of the divisor, so a checksum is 0 .. 126 and fits int8.
        self.encoded[:, columns] = b.sum(1, dtype=torch().int64) % MODULUS

    def product(self, a: Any) -> Any:
        """Return A x [B | checksum | zeros] in int32, unchecked."""
        return int8_product(a, self.encoded)

    def residuals(self, product: Any) -> Any:
        """Return per row how far a product is from its checksum, modulo 127; 0 is sound."""
        columns = self.shape[1]
        total = product[:, :columns].sum(1, dtype=torch().int64)
        return (total - product[:, columns]) % MODULUS

    def run(self, a: Any) -> tuple[Any, Any]:
        """Multiply int8 A [m x k] by B.

        Returns
        -------
        tuple
            C, int32 [m x n]; whether the check of each row found an error, bool [m].
        """
        product = self.product(a)
        return product[:, : self.shape[1]], self.residuals(product) != 0


def _sizes(name: str, values: Any, count: int) -> tuple[int, ...]:
    fits = isinstance(values, tuple | list) and len(values) == count
    refuse_if(not fits, f"{name} must be {count} whole numbers, not {values!r}")
    return tuple(whole_number(f"{name}[{n}]", size, least=1) for n, size in enumerate(values))


def int8_product(a: Any, b: Any) -> Any:
    """Multiply int8 matrices into int32, exactly.

    Notes
    -----
    ``torch._int_mm`` is private, not for every device and shape, and slow on processors
    without 8-bit instructions. Elsewhere blocks of 1024 columns are multiplied in floating
    point: products of int8 add up to less than 2**24 there, so float32 holds them exactly.
    """
    _refuse_matrix(a, "A")
    fast = getattr(torch(), "_int_mm", None)
    if fast is not None and _has_byte_products(a):
        # It refuses shapes and devices that it has no kernel for.
        with contextlib.suppress(RuntimeError):
            return fast(a, b)
    exact = torch().float32 if a.device.type == "cpu" else torch().float64
    product = torch().zeros((len(a), b.shape[1]), dtype=torch().int32, device=a.device)
    for start in range(0, a.shape[1], _EXACT_SUM):
        block = slice(start, start + _EXACT_SUM)
        product += (a[:, block].to(exact) @ b[block].to(exact)).to(torch().int32)
    return product


def _has_byte_products(values: Any) -> bool:
    """Return whether the device multiplies bytes faster than floats."""
    if values.device.type != "cpu":
        return True
    return str(torch().backends.cpu.get_cpu_capability()).startswith("AVX512")


def _refuse_matrix(values: Any, name: str) -> None:
    if values.dtype != torch().int8 or values.ndim != 2:
        kind = f"{values.dtype} of shape {tuple(values.shape)}"
        msg = f"{name} is {kind}; the checksum is for int8 matrices"
        raise InjectionError(msg)


def gemm_checksum_trials(
    shape: tuple[int, int, int] = (32, 512, 512), *, count: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """Flip single bits around a checked int8 product, and run it as often without a fault.

    Parameters
    ----------
    shape
        (m, k, n): A is [m x k] with values 0 .. 127, B is [k x n] with values -128 .. 127.
    count
        Flips in B after its encoding; as many in C before its check; as many clean runs.
    seed
        Of operands and flips.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.DETECTOR_TRIALS`, one row per product; ``residual`` is the
        largest of its rows, modulo 127: every fault above 0 is noticed.

    Raises
    ------
    InjectionError
        If a size is not a whole number from 1.
    MissingExtraError
        If PyTorch is not installed.

    References
    ----------
    arXiv:2103.00130, see :class:`ChecksumGemm`.
    """
    m, k, n = _sizes("shape", shape, 3)
    count = whole_number("count", count, least=1)
    draws = np.random.default_rng(seed)
    b = torch().from_numpy(draws.integers(-128, 128, (k, n)).astype(np.int8))
    gemm = ChecksumGemm(b)
    rows: list[tuple[str, int | None, float, float]] = []
    for _ in range(count):
        a = torch().from_numpy(draws.integers(0, 128, (m, k)).astype(np.int8))
        golden = gemm.product(a)
        rows.append(("nothing", None, 0.0, _worst(gemm, golden)))
        position, bit = (int(draws.integers(k)), int(draws.integers(n))), int(draws.integers(8))
        _flip(gemm.encoded, position, bit)
        faulty = gemm.product(a)
        _flip(gemm.encoded, position, bit)
        # XOR is its own inverse: the second flip has restored B for the next trial.
        rows.append(("operand B", bit, _change(faulty, golden, n), _worst(gemm, faulty)))
        position, bit = (int(draws.integers(m)), int(draws.integers(n))), int(draws.integers(32))
        faulty = golden.clone()
        _flip(faulty, position, bit)
        rows.append(("output C", bit, _change(faulty, golden, n), _worst(gemm, faulty)))
    return trials("gemm_checksum", rows)


def trials(detector: str, rows: list[tuple[str, int | None, float, float]]) -> pd.DataFrame:
    """Return (place, bit, change of the output, residual) as the table of detector trials."""
    frame = pd.DataFrame(rows, columns=["place", "bit", "output_change", "residual"])
    frame["bit"] = frame["bit"].astype("Int16")
    frame["detector"] = detector
    frame["is_faulty"] = frame["bit"].notna().astype(bool)
    frame["is_effective"] = (frame["output_change"] > 0).astype(bool)
    return DETECTOR_TRIALS.check(frame[list(DETECTOR_TRIALS.columns)])


def _worst(gemm: ChecksumGemm, product: Any) -> float:
    return float(gemm.residuals(product).max())


def _change(faulty: Any, golden: Any, columns: int) -> float:
    """Return the largest change over the largest output."""
    golden = golden[:, :columns].double()
    most = float(golden.abs().max())
    return float((faulty[:, :columns].double() - golden).abs().max()) / (most or 1.0)


def _flip(values: Any, position: tuple[int, int], bit: int) -> None:
    values[position] ^= as_masks(1 << bit, values)


_CODE_MOST = 127
# One less than the modulus: only activations of 0 are multiples of it, so hide nothing.
_ACTIVATION_MOST = 126
# In int8 steps: far above the rounding of float32, far below half a step.
_GRID = 1e-3


@dataclass(frozen=True, eq=False)
class _Encoded:
    """The checksum of one weight: per input for a linear layer, per row for a table."""

    scale: float
    sums: Any

    def codes(self, weight: Any) -> Any:
        """Return a weight, as it is now, as the int8 codes it is stored in."""
        return (weight.detach() / self.scale).round().clamp(-_CODE_MOST - 1, _CODE_MOST).long()


class ChecksumDetector:
    """Checks linear layers and embedding tables of an int8 model while it runs.

    Checksums are taken when it is made, so make it from the healthy model.

    Attributes
    ----------
    protected
        Names of the weights it checks; biases, norms and convolutions are not among them.
    tolerance
        Of the checks of tables, relative; those of linear layers are exact.
    """

    def __init__(self, encoded: Mapping[str, _Encoded], tolerance: float) -> None:
        self._encoded = dict(encoded)
        self.tolerance = tolerance
        self.protected = tuple(f"{name}.weight" for name in encoded)
        self._alarm: Any = None

    def attach(self, model: Any) -> Callable[[], None]:
        """Put a check on every protected layer; give the function that takes them off."""
        undo = ExitStack()
        begin = model.register_forward_pre_hook(self._begin, with_kwargs=True)
        undo.callback(begin.remove)
        for name, encoded in self._encoded.items():
            module = model.get_submodule(name)
            look = self._linear if isinstance(module, torch().nn.Linear) else self._table
            hook = partial(look, name, encoded)
            undo.callback(module.register_forward_hook(hook, with_kwargs=True).remove)
        return undo.close

    def verdicts(self) -> Any:
        """Return for each input of the last batch whether some check failed."""
        if self._alarm is None:
            msg = "the checksum detector has seen no batch; attach it and run the model first"
            raise InjectionError(msg)
        return self._alarm

    def _begin(self, _model: Any, args: Any, kwargs: Any) -> None:
        tensors = [
            tensor for tensor in (*args, *kwargs.values()) if isinstance(tensor, torch().Tensor)
        ]
        if not tensors:
            msg = "the checksum detector needs a model that is called with tensors"
            raise InjectionError(msg)
        self._alarm = torch().zeros(len(tensors[0]), dtype=torch().bool, device=tensors[0].device)

    def _raise_alarm(self, name: str, failed: Any) -> None:
        """Note the inputs of failed checks; ``failed`` has one row per input, or one for all."""
        if len(failed) not in {1, len(self._alarm)}:
            msg = (
                f"layer {name!r} runs on {len(failed)} rows for {len(self._alarm)} inputs, so "
                "its alarms belong to no input; leave it out with protect="
            )
            raise InjectionError(msg)
        self._alarm |= failed.reshape(len(failed), -1).any(1)

    def _linear(self, name: str, encoded: _Encoded, *call: Any) -> None:
        """Check a product as an int8 one would be, with every input scaled by itself."""
        module, args, kwargs, _ = call
        x = args[0] if args else kwargs["input"]
        # A x (sums now - sums then) is the residual of the product, and 0 for healthy weights.
        off = (encoded.codes(module.weight).sum(0) - encoded.sums) % MODULUS
        if not bool(off.any()):
            return
        # One NaN would become the scale of its whole input and hide every other element.
        finite = torch().nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0)
        step = finite.abs().amax(-1, keepdim=True) / _ACTIVATION_MOST
        a = (finite / step.clamp(min=torch().finfo(x.dtype).tiny)).round().long()
        self._raise_alarm(name, ((a * off).sum(-1) % MODULUS) != 0)

    def _table(self, name: str, encoded: _Encoded, *call: Any) -> None:
        """Check looked-up rows by the sums they should have."""
        module, args, kwargs, output = call
        sums = (encoded.sums.to(output.dtype) * encoded.scale)[:, None]
        functional = torch().nn.functional
        if isinstance(module, torch().nn.Embedding):
            expected = functional.embedding(args[0] if args else kwargs["input"], sums)
        else:
            names = ("input", "offsets", "per_sample_weights")
            arguments = dict(zip(names, args, strict=False)) | kwargs
            expected = functional.embedding_bag(
                arguments["input"],
                sums,
                arguments.get("offsets"),
                mode="sum",
                per_sample_weights=arguments.get("per_sample_weights"),
                include_last_offset=module.include_last_offset,
                padding_idx=module.padding_idx,
            )
        residual = relative(output.sum(-1), expected[..., 0])
        self._raise_alarm(name, ~(residual <= self.tolerance))


def checksum_detector(
    model: Any, *, tolerance: float = 1e-6, protect: tuple[str, ...] = ()
) -> ChecksumDetector:
    """Make a detector of soft errors in the weights of an int8 model.

    Parameters
    ----------
    model
        The healthy model, with weights stored as int8 (``stored_as(model, "int8")``).
    tolerance
        Of the check of embedding tables: alarm if what a bag adds up to is further than this
        from its checksum, relative to max(1, checksum).
    protect
        Beginnings of the names of the modules to check; all that can be if empty.

    Returns
    -------
    ChecksumDetector
        For the detectors of a campaign.

    Raises
    ------
    InjectionError
        If no layer can be checked, or a weight is not stored as int8.

    Notes
    -----
    A linear layer is checked as a quantised product would be (:class:`ChecksumGemm`): row
    sums modulo 127, activations rounded to -126 .. 126 with one scale per input. Multiplying
    first and adding up then, or the other way round, gives the same integer, so the product
    itself is dropped. An activation that rounds to 0 hides the fault, which then changes the
    output little. Tables are checked as :class:`ChecksumBags` does, ``nn.Embedding`` too.

    References
    ----------
    Li et al.: Efficient Soft-Error Detection for Low-precision Deep Learning Recommendation
    Models. arXiv:2103.00130.
    """
    nn = torch().nn
    encoded = {}
    for name, module in model.named_modules():
        is_table = isinstance(module, nn.Embedding) or (
            isinstance(module, nn.EmbeddingBag) and module.mode == "sum"
        )
        if not (is_table or isinstance(module, nn.Linear)):
            continue
        if not protect or any(f"{name}.".startswith(f"{prefix}.") for prefix in protect):
            encoded[name] = _encode(name, module.weight.detach(), axis=1 if is_table else 0)
    if not encoded:
        where = f" under {list(protect)}" if protect else ""
        msg = f"no Linear, Embedding or EmbeddingBag (sum){where}; nothing can be checked"
        raise InjectionError(msg)
    return ChecksumDetector(encoded, tolerance)


def _encode(name: str, weight: Any, axis: int) -> _Encoded:
    """Take the checksum of a weight, or say that it is not stored as int8."""
    most = float(weight.abs().max())
    scale = most / _CODE_MOST if most > 0 else 1.0
    encoded = _Encoded(scale, None)
    codes = encoded.codes(weight)
    if float((weight / scale - codes).abs().max()) > _GRID:
        msg = (
            f"{name}.weight is not stored as int8: its values are no multiples of their largest "
            "/ 127; checksums are for stored_as(model, 'int8')"
        )
        raise InjectionError(msg)
    return _Encoded(scale, codes.sum(axis))


_ROWS, _CHUNK = 20_000, 256
_BITS, _HIGH_BITS = 8, 4


class ChecksumBags:
    """Adds up rows of a quantised table, and checks every sum by the sums of the rows.

    Parameters
    ----------
    codes
        uint8 tensor [rows x dim]; a value is code x scale + bias of its row.
    scale, bias
        float32 tensors [rows].

    Raises
    ------
    InjectionError
        If the shapes or types do not fit.

    Notes
    -----
    r = Σ_c code_c is stored for every row. The elements of a bag's sum, added up, must be
    Σ_l (r_l · scale_l + dim · bias_l) over its rows l. Both sides round, so the check needs
    a tolerance: alarm if |difference| > tolerance · max(1, |right side|).

    References
    ----------
    Li et al.: Efficient Soft-Error Detection for Low-precision Deep Learning Recommendation
    Models. arXiv:2103.00130.
    """

    def __init__(self, codes: Any, scale: Any, bias: Any) -> None:
        if codes.dtype != torch().uint8 or codes.ndim != 2:
            kind = f"{codes.dtype} of shape {tuple(codes.shape)}"
            msg = f"codes is {kind}; give a uint8 table [rows x dim]"
            raise InjectionError(msg)
        for name, vector in (("scale", scale), ("bias", bias)):
            if vector.shape != codes.shape[:1]:
                msg = f"{name} has shape {tuple(vector.shape)} for {len(codes)} rows; one per row"
                raise InjectionError(msg)
        self.codes, self.scale, self.bias = codes, scale.float(), bias.float()
        self.row_sums = codes.sum(1, dtype=torch().int32)

    def run(self, rows: Any, *, tolerance: float = 1e-6) -> tuple[Any, Any]:
        """Add up bags of rows [bags x rows per bag].

        Returns
        -------
        tuple
            Sums, float32 [bags x dim]; whether the check of each bag found an error, bool.
        """
        sums = self.sums(rows, self.codes[rows])
        return sums, ~(self.residuals(rows, sums) <= tolerance)

    def sums(self, rows: Any, codes: Any) -> Any:
        """Add up looked-up codes [bags x rows per bag x dim], scaled as their rows are."""
        return (codes.float() * self.scale[rows][..., None] + self.bias[rows][..., None]).sum(1)

    def residuals(self, rows: Any, sums: Any) -> Any:
        """Return per bag how far its sum is from the checksum, relative to max(1, |checksum|)."""
        dim = self.codes.shape[1]
        expected = self.row_sums[rows].float() * self.scale[rows] + dim * self.bias[rows]
        return relative(sums.sum(1), expected.sum(1))


def relative(sums: Any, expected: Any) -> Any:
    """Return |difference| over max(1, |expected|); infinite where it is not a number."""
    residual = (sums - expected).abs() / expected.abs().clamp(min=1)
    return torch().nan_to_num(residual, nan=float("inf"))


def embedding_bag_checksum_trials(
    shape: tuple[int, int] = (100, 64), *, count: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """Flip single bits of looked-up rows, and add up as many bags without a fault.

    Parameters
    ----------
    shape
        (rows per bag, dim) of a table of 20,000 rows; codes are uniform, scales 0.001 to
        0.003, biases -0.3 to 0.
    count
        Flips in the high nibble of a code; as many in the low one; as many clean bags.
    seed
        Of table, bags and flips.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.DETECTOR_TRIALS`, one row per bag. ``residual`` is
        |difference| / max(1, |checksum|), so any tolerance can be tried on it; ``place`` names
        the nibble: flips in the high one are those that matter.

    Raises
    ------
    InjectionError
        If a size is not a whole number from 1.
    MissingExtraError
        If PyTorch is not installed.

    References
    ----------
    arXiv:2103.00130, see :class:`ChecksumBags`.
    """
    pooling, dim = _sizes("shape", shape, 2)
    count = whole_number("count", count, least=1)
    draws = np.random.default_rng(seed)
    bags = ChecksumBags(
        torch().from_numpy(draws.integers(0, 256, (_ROWS, dim)).astype(np.uint8)),
        torch().from_numpy(draws.uniform(1e-3, 3e-3, _ROWS)),
        torch().from_numpy(draws.uniform(-0.3, 0, _ROWS)),
    )
    chunks = [
        _chunk(bags, draws, (min(_CHUNK, count - start), pooling), hit)
        for hit in ("nothing", "table row, high nibble", "table row, low nibble")
        for start in range(0, count, _CHUNK)
    ]
    return DETECTOR_TRIALS.check(pd.concat(chunks, ignore_index=True))


def _chunk(
    bags: ChecksumBags, draws: np.random.Generator, shape: tuple[int, int], where: str
) -> pd.DataFrame:
    """Try one chunk of bags, each with one flip or none."""
    count, pooling = shape
    rows = torch().from_numpy(draws.integers(0, _ROWS, shape))
    codes = bags.codes[rows]
    golden = bags.sums(rows, codes)
    bits: list[int | None] = [None] * count
    if where != "nothing":
        lowest = _BITS - _HIGH_BITS if "high" in where else 0
        flipped = draws.integers(lowest, lowest + _HIGH_BITS, count)
        hit = torch().from_numpy(draws.integers(0, pooling, count))
        column = torch().from_numpy(draws.integers(0, codes.shape[2], count))
        # A row that is in the bag twice is read twice, with the fault both times.
        mask = torch().zeros_like(codes)
        twice = rows == rows.gather(1, hit[:, None])
        bag, repeat = torch().nonzero(twice, as_tuple=True)
        mask[bag, repeat, column[bag]] = torch().from_numpy((1 << flipped).astype(np.uint8))[bag]
        codes = codes ^ mask
        bits = flipped.tolist()
    sums = bags.sums(rows, codes)
    residual = bags.residuals(rows, sums).double().tolist()
    change = (sums - golden).abs().amax(1) / golden.abs().amax(1)
    listed = zip(bits, change.double().tolist(), residual, strict=True)
    return trials("embedding_bag_checksum", [(where, *trial) for trial in listed])
