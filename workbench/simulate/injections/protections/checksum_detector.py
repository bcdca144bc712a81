"""A detector for campaigns: the checksums that a quantised model would be guarded by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from workbench.errors import InjectionError
from workbench.simulate.injections._torch import torch
from workbench.simulate.injections.protections.embedding_bag_checksum import relative
from workbench.simulate.injections.protections.gemm_checksum import MODULUS

_CODE_MOST = 127
# One less than the modulus: only activations of 0 are multiples of it, so hide nothing.
_ACTIVATION_MOST = 126
_GRID = 1e-3


@dataclass(frozen=True, eq=False)
class _Encoded:
    """The checksum of one weight: per input for a linear layer, per row for a table."""

    scale: float
    sums: Any

    def codes(self, weight: Any) -> Any:
        """Give a weight, as it is now, as the int8 codes it is stored in."""
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
        """Say for each input of the last batch whether some check failed."""
        if self._alarm is None:
            msg = "the checksum detector has seen no batch; attach it and run the model first"
            raise InjectionError(msg)
        return self._alarm

    def _begin(self, _model: Any, args: Any, kwargs: Any) -> None:
        """Start anew with a batch."""
        given = [each for each in (*args, *kwargs.values()) if isinstance(each, torch().Tensor)]
        if not given:
            msg = "the checksum detector needs a model that is called with tensors"
            raise InjectionError(msg)
        self._alarm = torch().zeros(len(given[0]), dtype=torch().bool, device=given[0].device)

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
        off = (encoded.codes(module.weight).sum(0) - encoded.sums) % MODULUS
        if not bool(off.any()):
            return
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
            given = dict(zip(names, args, strict=False)) | kwargs
            expected = functional.embedding_bag(
                given["input"],
                sums,
                given.get("offsets"),
                mode="sum",
                per_sample_weights=given.get("per_sample_weights"),
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
    itself is left out. An activation that rounds to 0 hides the fault, which then changes the
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
        if not protect or any(f"{name}.".startswith(f"{part}.") for part in protect):
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
