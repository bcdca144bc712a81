"""Whether a point lies among those that a model was fitted on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_SLACK = 1e-9


@dataclass(frozen=True)
class Hull:
    """Half spaces whose intersection holds all points: the convex hull, or the box around it."""

    normals: NDArray[np.float64]
    offsets: NDArray[np.float64]

    @staticmethod
    def of(points: NDArray[np.float64]) -> Hull:
        """Make the hull of some points; where they lie in a plane, the box around them."""
        from scipy.spatial import ConvexHull, QhullError

        unit = np.eye(points.shape[1])
        normals = np.vstack([unit, -unit])
        offsets = -np.concatenate([points.max(axis=0), -points.min(axis=0)])
        try:
            equations = ConvexHull(points).equations
        except (QhullError, ValueError):
            return Hull(normals, offsets)
        return Hull(
            np.vstack([normals, equations[:, :-1]]), np.concatenate([offsets, equations[:, -1]])
        )

    def holds(self, points: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Say for each point whether it is inside."""
        beyond = points @ self.normals.T + self.offsets > _SLACK
        return np.asarray(~beyond.any(axis=1), dtype=np.bool_)
