r"""Adjacency from data: what one participant can change in the default matrix.

Row `b` of the matrix is estimated from :math:`N_b` transitions seen from state `b`, :math:`p = C_b / N_b`. If one
participant owns at most `c` of them, taking these away gives :math:`q = (C_b - r)/(N_b - c)` and

.. math::

    p - q = \frac{c}{N_b - c}\left(\frac{r}{c} - p\right), \qquad
    \|p - q\|_1 \le \frac{2c}{N_b - c}\left(1 - \frac{c}{N_b}\right) = \frac{2c}{N_b} = h_b ,

because :math:`p \ge r/N_b` entry by entry. Removing a participant changes *every* entry of the row a little, not only
two, so this adjacency needs the guarantee for ``entries="any"`` (see `divergence`).

**The limit of the aggregate-power chain** (E14). In a chain estimated from the *sum* of all buildings' power, a single
building may move any number of transitions, and the level edges too. So a guarantee with ``h = 0.03`` protects *a
change of 0.03 in a row*, not a building. To protect participants, pool individual trajectories with `Fleet.chain`.

The counts :math:`N_b` are data too. A statement with :math:`h_b = 2c/N_b` holds for all data sets with at least
:math:`N_b` transitions from `b`; publish :math:`h_b` only if such a lower bound may be public.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.tools.validation import as_float_array

#: Said wherever a chain of aggregate power meets a privacy statement.
AGGREGATE_LIMIT = (
    "the chain describes aggregate power, where one building can move many transitions at once: h protects a change of "
    "that size in a row, not a participant"
)
COUNTS_LIMIT = (
    "h from counts holds if no participant owns more transitions than stated; of a chain of aggregate power one "
    "building takes part in all of them"
)
#: Where h comes from, and what that assumes.
H_SOURCES = {"stated": [AGGREGATE_LIMIT], "counts": [COUNTS_LIMIT], "devices": []}
COUNTS_ARE_DATA = "h was computed from the private counts: publish it only if the counts may be public"


class NeighboringRelation(enum.Enum):
    """Which data sets count as neighbours; a release hides which of two neighbours it was drawn from."""

    ADD_OR_REMOVE_ONE = "add or remove one participant"  #: With everything that it ever contributed.
    REPLACE_ONE = "replace one participant"  #: Twice the ε of `ADD_OR_REMOVE_ONE` covers it.
    CHANGE_ROWS = "change rows by h"  #: The adjacency of the paper; no participant is named.


@dataclass(frozen=True, eq=False)
class Adjacency:
    """The largest change of each row by one participant."""

    h: NDArray[np.float64]  #: L1 distance of each row with and without the participant, at most 2.
    source: str = "counts"
    """``"devices"`` if the counts are known to come from individual, clipped devices, else ``"counts"``."""


def adjacency_from_counts(counts: ArrayLike, transitions_per_participant: float | ArrayLike) -> Adjacency:
    r"""Return h per row, :math:`h_b = 2c/N_b`; at 1 and more a row is too thinly observed to protect anyone.

    `counts` has the shape (n, m): transitions observed from `b` to `a`, or decisions `a` taken in row `b`. The
    largest contribution of one participant out of a state is one number or one per row; for a chain of *aggregate*
    power no such number exists (E14, see the top of this module).
    """
    table = as_float_array(counts, "counts", 2)
    if (wrong := (table < 0) | (table != np.round(table))).any():
        row = int(np.argwhere(wrong)[0][0])
        raise ValueError(f"row {row} of counts holds a number that is not a count; pass non-negative whole numbers.")
    owned = as_float_array(transitions_per_participant, "transitions_per_participant", (0, 1))
    if owned.ndim == 1 and owned.shape != (len(table),):
        raise ValueError(f"transitions_per_participant needs {len(table)} values, one per row, got {owned.shape}.")
    if (owned <= 0).any():
        raise ValueError("transitions_per_participant must be positive; a participant without transitions needs none.")
    seen = table.sum(axis=1)
    owned = np.broadcast_to(owned, seen.shape).astype(float)
    with np.errstate(divide="ignore"):
        h = np.minimum(2.0, np.where(seen > 0, 2.0 * owned / seen, 2.0))  # E14
    return Adjacency(h)


@dataclass(frozen=True, eq=False)
class DeviceChain:
    """A chain estimated from individual trajectories, each contribution clipped; see `Fleet.chain`."""

    default: NDArray[np.float64] = field(repr=False)
    counts: NDArray[np.int64] = field(repr=False)  #: Transitions kept after clipping.
    adjacency: Adjacency  #: Removing any one device moves row `b` by at most ``adjacency.h[b]``.
    support: NDArray[np.bool_] = field(repr=False)
