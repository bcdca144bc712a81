"""Packing as an integer program: exact, and slow enough to be a demonstration."""

from __future__ import annotations

import numpy as np

from workbench.analyze._imbalance.packers import Floats, Ints, Packed, joined, windows
from workbench.errors import WorkbenchError

_GAP = 0.005


def solved(pieces: Packed, *, context: int, count: int, slack: float, limit_s: float) -> Packed:
    """Assign the pieces of every window to sequences so that the largest sum of squares is least.

    Pieces are not cut again; sequences may exceed the context by the slack. With none the
    lengths of a window must fill every sequence exactly, a subset-sum problem that solvers do
    not finish. A window that is not finished in time keeps the best assignment found.
    """
    out: list[Packed] = []
    unproven = 0
    for at, rows in enumerate(windows(pieces.micro_batch // count)):
        if pieces.length[rows].sum() < count * context:
            break
        place, proven = _assigned(pieces.length[rows] / context, count, slack, limit_s)
        unproven += not proven
        out.append(
            Packed(
                pieces.number[rows], pieces.start[rows], pieces.length[rows],
                at * count + place, pieces.arrived[rows],
            )
        )  # fmt: skip
    packed = joined(out)
    packed.notes.append(f"sequences up to {1 + slack:g} of the context")
    if unproven:
        packed.notes.append(
            f"{unproven} of {len(out)} windows stopped after {limit_s:g} s at the best found"
        )
    return packed


def _assigned(ratio: Floats, count: int, slack: float, limit_s: float) -> tuple[Ints, bool]:
    """Solve one window: binary x[i, j] = piece i in sequence j, and the largest sum of squares."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_matrix, hstack, identity, kron

    size = len(ratio)
    each_once = hstack(
        [kron(identity(size), np.ones((1, count))), csr_matrix((size, 1))], format="csr"
    )
    per_sequence = kron(ratio[None, :], identity(count))
    fits = hstack([per_sequence, csr_matrix((count, 1))], format="csr")
    squares = kron(ratio[None, :] ** 2, identity(count))
    bounded = hstack([squares, -np.ones((count, 1))], format="csr")
    result = milp(
        c=np.append(np.zeros(size * count), 1.0),
        constraints=[
            LinearConstraint(each_once, 1, 1),
            LinearConstraint(fits, -np.inf, 1 + slack),
            LinearConstraint(bounded, -np.inf, 0),
        ],
        integrality=np.append(np.ones(size * count), 0),
        bounds=Bounds(0, np.append(np.ones(size * count), np.inf)),
        options={"time_limit": limit_s, "mip_rel_gap": _GAP},
    )
    if result.x is None:
        msg = (
            f"the solver found no way to put {size} pieces into {count} sequences in "
            f"{limit_s:g} s; give it more time or more slack, or take the greedy packer"
        )
        raise WorkbenchError(msg)
    return result.x[:-1].reshape(size, count).argmax(axis=1).astype(np.int64), result.status == 0
