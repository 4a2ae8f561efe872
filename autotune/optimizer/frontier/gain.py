"""How much hypervolume points would add to a front. Pure; less is better in every objective."""

import itertools
import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def improvement(points: Array, front: Array, reference: Array) -> Array:
    """Return the hypervolume that each point, on its own, adds to a front.

    Space is cut along the last objective where a point of the front begins to count; in each
    slab one objective less is left.

    Args:
        points: (points, objectives).
        front: (members, objectives); may have dominated members, or none.
        reference: Beyond which nothing counts: (objectives,).
    """
    if len(reference) == 1:
        best = min([float(reference[0]), *front[:, 0]])
        return np.maximum(best - points[:, 0], 0.0)
    counted = front[np.all(front < reference, axis=1)]
    edges = [-np.inf, *np.unique(counted[:, -1]), float(reference[-1])]
    gained = np.zeros(len(points))
    for low, high in itertools.pairwise(edges):
        height = np.maximum(high - np.maximum(points[:, -1], low), 0.0)
        reached = np.flatnonzero(height)
        if len(reached) == 0:
            continue
        beneath = counted[counted[:, -1] <= low][:, :-1]
        area = improvement(points[reached, :-1], beneath, reference[:-1])
        gained[reached] += height[reached] * area
    return gained


def hypervolume(front: Array, reference: Array) -> float:
    """Return the hypervolume of points."""
    total = 0.0
    for count in range(len(front)):
        total += float(improvement(front[count : count + 1], front[:count], reference)[0])
    return total


def is_beaten(points: Array) -> NDArray[np.bool_]:
    """Tell which points another is at least as good as in all objectives, and better in one."""
    no_worse = np.all(points[None, :, :] <= points[:, None, :], axis=2)
    better = np.any(points[None, :, :] < points[:, None, :], axis=2)
    return np.asarray(np.any(no_worse & better, axis=1))


def normal_cdf(values: Array) -> Array:
    """Return the standard normal distribution's function."""
    return np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in values])
