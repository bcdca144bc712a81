"""When an output is wrong: criteria, and the outcome of every input against the golden run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from workbench.errors import InjectionError
from workbench.inject._model import refuse_if, torch

Criterion = Literal["argmax", "threshold", "difference", "metric_drop"]
MASKED, BENIGN, SDC, DUE = range(4)


@dataclass(frozen=True)
class Judge:
    """The rule by which outputs are judged; the same for every experiment of a campaign.

    Parameters
    ----------
    criterion
        ``"argmax"``: another class is the largest; ``"threshold"``: the output is on the
        other side of ``threshold``; ``"difference"``: some output moved by more than
        ``tolerance``; ``"metric_drop"``: the quality of all outputs together fell by more
        than ``tolerance``, so an experiment is judged once and counts as one input.
    threshold
        Of ``"threshold"``, in the output's unit; a logit of 0 is a probability of 0.5.
    tolerance
        Of ``"difference"``, in the output's unit; of ``"metric_drop"``, in the metric's.
    mask_tolerance
        An output that moved by no more than this counts as masked; 0 asks for equality.
    """

    criterion: Criterion = "argmax"
    threshold: float = 0.0
    tolerance: float = 0.0
    mask_tolerance: float = 0.0

    def __post_init__(self) -> None:
        criteria = get_args(Criterion)
        refuse_if(
            self.criterion not in criteria, f"criterion={self.criterion!r} is not one of {criteria}"
        )
        refuse_if(
            math.isnan(self.threshold),
            "threshold must be a number, not NaN: nothing is on either side of it",
        )
        for name in ("tolerance", "mask_tolerance"):
            value = getattr(self, name)
            # Written as "not >=", so that NaN is refused, too.
            refuse_if(not value >= 0, f"{name} must be 0 or more, not {value!r}")

    def golden(self, outputs: Any, labels: Any = None) -> Golden:
        """Take the outputs of the fault-free run as the measure of all others."""
        outputs = self._checked(outputs)
        # Without this, every fault would look like one that ends in NaN.
        bad = torch().nonzero(~_rows(torch().isfinite(outputs)).all(1)).flatten().tolist()
        refuse_if(
            bad,
            f"the model gives outputs that are not finite without any fault: {len(bad)} of "
            f"{len(outputs)} inputs, first {bad[:3]}; there is nothing to compare with",
        )
        decisions = self.decisions(outputs)
        if labels is None or self.criterion == "metric_drop":
            return Golden(self, outputs, decisions, None, None)
        labels = as_tensor(labels)
        refuse_if(
            self.criterion == "difference" or labels.numel() != len(outputs),
            f"{labels.numel()} labels for {len(outputs)} inputs judged by {self.criterion!r}; "
            "labels need argmax or threshold, and one label per input",
        )
        labels = labels.to(decisions).flatten()
        return Golden(self, outputs, decisions, labels, decisions == labels)

    def _checked(self, outputs: Any) -> Any:
        """Return outputs without gradients, or say why the criterion does not fit them."""
        refuse_if(
            not isinstance(outputs, torch().Tensor),
            f"the model gives a {type(outputs).__name__}, not a tensor; wrap it in a module "
            "that returns the tensor to be judged",
        )
        shape = tuple(outputs.shape)
        refuse_if(
            outputs.ndim == 0 or len(outputs) == 0,
            f"the model gives an output of shape {shape}; one row per input is needed",
        )
        refuse_if(
            not outputs.dtype.is_floating_point,
            f"the model gives {outputs.dtype} outputs; give it logits or scores to be judged",
        )
        width = outputs[0].numel()
        refuse_if(
            self.criterion == "threshold" and width != 1,
            f"criterion 'threshold' judges one number per input, here are {width}; use 'argmax'",
        )
        refuse_if(
            self.criterion == "argmax" and (outputs.ndim != 2 or width < 2),
            f"criterion 'argmax' needs outputs of shape [inputs, classes], the model gives "
            f"{shape}; use 'threshold' for one number, 'difference' for others",
        )
        return outputs.detach()

    def decisions(self, outputs: Any) -> Any:
        """Return the decision per row: a class, a side, or nothing for a difference."""
        if self.criterion == "argmax":
            return outputs.argmax(1)
        if self.criterion == "threshold":
            return (outputs.flatten() > self.threshold).to(torch().int64)
        return outputs.new_zeros(len(outputs), dtype=torch().int64)


def as_tensor(labels: Any) -> Any:
    """Return labels as a tensor: of a tensor, a list, an array or a column."""
    if isinstance(labels, torch().Tensor):
        return labels
    try:
        return torch().as_tensor(np.array(labels))
    except (TypeError, ValueError) as error:
        msg = f"labels: {type(labels).__name__} of no numbers ({error}); give classes as numbers"
        raise InjectionError(msg) from error


def _rows(values: Any) -> Any:
    return values.reshape(len(values), -1)


@dataclass(frozen=True, eq=False)
class Golden:
    """The fault-free outputs, and what others are worth against them."""

    judge: Judge
    outputs: Any
    decisions: Any
    labels: Any
    is_right: Any

    def __len__(self) -> int:
        return len(self.outputs)

    def outcomes(self, outputs: Any, rows: Any, delta: Any = None) -> Any:
        """Judge faulty outputs of the golden rows ``rows``; uint8 codes, one per row.

        Tested in this order: not finite (DUE), equal (masked), same decision (benign),
        else SDC. So a NaN can never be right. ``delta``, the largest change of each row, is
        computed unless it is given.
        """
        if delta is None:
            golden = self.outputs[rows]
            refuse_if(
                outputs.shape != golden.shape,
                f"the output changed its shape under a fault: {tuple(outputs.shape)} instead of "
                f"{tuple(golden.shape)}; only a shape that does not depend on values can be judged",
            )
            delta = _rows((outputs - golden).abs()).amax(1)
        judge = self.judge
        if judge.criterion == "difference":
            # Negated, so that NaN counts as different.
            differs = ~(delta <= judge.tolerance)
        else:
            differs = judge.decisions(outputs) != self.decisions[rows]
        codes = torch().where(differs, SDC, BENIGN).to(torch().uint8)
        codes[delta <= judge.mask_tolerance] = MASKED
        # Last, for an infinite output can have the same decision, even an equal value.
        odd = (~torch().isfinite(delta)).nonzero().flatten()
        if len(odd):
            codes[odd[~_rows(torch().isfinite(outputs[odd])).all(1)]] = DUE
        return codes

    def beneficial(self, outputs: Any, rows: Any, codes: Any) -> Any:
        """Return which of the rows were wrong, and are right with the fault."""
        if self.labels is None:
            return torch().zeros(len(codes), dtype=torch().bool)
        right = self.judge.decisions(outputs) == self.labels[rows]
        return (codes == SDC) & right & ~self.is_right[rows]

    def margins(self, outputs: Any, rows: Any) -> Any:
        """Return how far each output is from another decision (0 or more; NaN where not finite)."""
        judge = self.judge
        if judge.criterion == "threshold":
            return (outputs.flatten() - judge.threshold).abs()
        if judge.criterion == "argmax":
            best = outputs.topk(2, dim=1).values
            return best[:, 0] - best[:, 1]
        delta = _rows((outputs - self.outputs[rows]).abs()).amax(1)
        return (delta - judge.tolerance).abs()
