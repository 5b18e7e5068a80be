"""Behaviour, guesses, supports and fleets that tests of privacy share."""

from __future__ import annotations

import numpy as np

from dp_ensemble_env.privacy import Fleet
from dp_ensemble_env.privacy.mechanisms.fleet_sums import Layout
from dp_ensemble_env.privacy.mechanisms.public import PublicMechanism

SPECS = ("gaussian:epsilon=1", "laplace:epsilon=1", "posterior:epsilon=1")
#: Two times; rows of one, two and three successors.
MATRICES = np.array(
    [[[0.9, 0.1, 0.0], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]], [[0.0, 0.4, 0.6], [0.6, 0.2, 0.2], [0.5, 0.0, 0.5]]]
)
#: The guess for four levels.
WALK = PublicMechanism().release(np.eye(4)).matrix
#: Two times, two contexts, three states, two or four decisions; both times are alike in context 0.
WIDE, TALL = (2, 2, 3, 4), (2, 2, 3, 2)
CLASSES = np.array([[0, 1], [0, 2]])
GUESS = np.random.default_rng(0).dirichlet(np.ones(4), WIDE[:-1])
SUPPORT = np.ones(WIDE, dtype=bool)
SUPPORT[0, :, 0, 1:] = False  # two rows with one possible decision
SUPPORT[1, 1, 2, 2:] = False
INSIDE = np.where(SUPPORT, GUESS, 0.0) / np.where(SUPPORT, GUESS, 0.0).sum(axis=-1, keepdims=True)
#: Shape of what is released, terms of the draw, and classes.
CASES = {
    "every cell": (WIDE, {}, None),
    "a guess": (WIDE, {"guess": GUESS}, None),
    "a support": (WIDE, {"guess": INSIDE, "support": SUPPORT}, None),
    "classes": (TALL, {}, CLASSES),
    "one matrix": ((3, 2), {}, None),
}


def drawn_shape(shape, classes):
    return shape if classes is None else (int(classes.max()) + 1, *shape[-2:])


def empty_fleet(case: str) -> Fleet:
    shape, _, classes = CASES[case]
    return Fleet(np.zeros((0, *drawn_shape(shape, classes)), dtype=int), classes=classes)


def layout_of(case: str, norm: int) -> Layout:
    return Layout.of(empty_fleet(case), norm, **CASES[case][1])


def extremes(n: int) -> np.ndarray:
    """Participants who do all that the guess excludes, each in a single way."""
    counts = np.zeros((n + 2, n, n), dtype=int)
    counts[0, np.arange(n), n - 1 - np.arange(n)] = 10**6
    counts[1, 0, n - 1] = 1
    for shift in range(n):
        counts[shift + 2, np.arange(n), (np.arange(n) + shift) % n] = 5000
    return counts
