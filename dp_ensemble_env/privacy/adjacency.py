r"""Adjacency from data: what one participant can change in the default matrix.

Row `b` of the matrix is estimated from :math:`N_b` transitions seen from state
`b`, :math:`p = C_b / N_b`. If one participant owns at most `c` of them, taking
these away gives :math:`q = (C_b - r)/(N_b - c)` and

.. math::

    p - q = \frac{c}{N_b - c}\left(\frac{r}{c} - p\right), \qquad
    \|p - q\|_1 \le \frac{2c}{N_b - c}\left(1 - \frac{c}{N_b}\right) = \frac{2c}{N_b} = h_b ,

because :math:`p \ge r/N_b` entry by entry. Taking a participant away moves *every*
entry of the row a little, not two of them, so the guarantee that goes with this
adjacency is the one for ``entries="any"`` (see `divergence`).

**The limit of the aggregate-power chain** (E14). A chain estimated from the *sum* of
all buildings' power has no transitions that belong to one participant: a single
building shifts the aggregate at every reading and can move any number of
transitions from one state to another, and the level edges too. Then `c` is the
whole record and nothing smaller than the matrix is protected: a guarantee with
``h = 0.03`` protects *a change of 0.03 in a row*, not a building. To protect
participants, estimate the chain from individual trajectories with
`chain_from_devices`, which clips what one device contributes.

The counts :math:`N_b` are data too. A statement with :math:`h_b = 2c/N_b` holds for all data
sets with at least :math:`N_b` transitions from `b`; publish :math:`h_b` only if such a
lower bound may be public.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.tools.validation import as_float_array, check_count, state_list

#: Said wherever a chain of aggregate power meets a privacy statement.
AGGREGATE_LIMIT = (
    "the chain describes aggregate power, where one building can move many transitions at once: h protects a change of "
    "that size in a row, not a participant"
)
COUNTS_LIMIT = (
    "h from counts holds if no participant owns more transitions than stated; of a chain of aggregate power one "
    "building takes part in all of them"
)
COUNTS_ARE_DATA = "h was computed from the private counts: publish it only if the counts may be public"


@dataclass(frozen=True, eq=False)
class Adjacency:
    """How far one participant can move each row.

    Attributes
    ----------
    h : ndarray of shape (n,)
        L1 distance between the rows with and without the participant, at most 2.
    observations : ndarray of shape (n,)
        Transitions seen from each state. Private, like the counts.
    transitions_per_participant : ndarray of shape (n,)
        The most transitions of one participant out of each state.
    rows_touched : int or None
        The most rows one participant contributes to, if that was limited.
    source : {"counts", "devices"}
        Whether the counts are known to come from individual, clipped devices.
    """

    h: NDArray[np.float64]
    observations: NDArray[np.int64] = field(repr=False)
    transitions_per_participant: NDArray[np.float64] = field(repr=False)
    rows_touched: int | None = None
    source: str = "counts"

    @property
    def thin(self) -> tuple[int, ...]:
        """Rows too thinly observed to protect anyone: one participant may own half of what was seen, or all."""
        return tuple(int(row) for row in np.flatnonzero(self.h >= 1.0))

    def __str__(self) -> str:
        text = (
            f"one participant ({self.transitions_per_participant.max():g} transitions per row at most) moves a row by "
            f"h = {self.h.min():.3g} to {self.h.max():.3g} (row {int(np.argmax(self.h))}); {COUNTS_ARE_DATA}"
        )
        if self.thin:
            seen = ", ".join(f"row {b} ({int(self.observations[b])} seen)" for b in self.thin[:6])
            more = f" and {len(self.thin) - 6} more" if len(self.thin) > 6 else ""
            text += f"; too thinly observed to protect anyone: {seen}{more}"
        return text


def adjacency_from_counts(counts: ArrayLike, transitions_per_participant: float | ArrayLike) -> Adjacency:
    """Return h per row, :math:`h_b = 2c/N_b`, and the rows too thinly observed to protect anyone.

    Parameters
    ----------
    counts : array_like of shape (n, m)
        Transitions observed, ``counts[b, a]`` from `b` to `a`, or decisions `a` taken in row `b`.
    transitions_per_participant : float or array_like of shape (n,)
        The most transitions that one participant contributes out of a state.

    Warnings
    --------
    For a chain of *aggregate* power no such number exists: one building takes
    part in every transition (E14, see the top of this module). Use
    `chain_from_devices` where individual trajectories are at hand.

    Examples
    --------
    >>> adjacency = adjacency_from_counts([[90, 10], [1, 2]], transitions_per_participant=2)
    >>> adjacency.h.round(3).tolist(), adjacency.thin
    ([0.04, 1.333], (1,))
    """
    table = as_float_array(counts, "counts", 2)
    if (table < 0).any() or (table != np.round(table)).any():
        row = int(np.argwhere((table < 0) | (table != np.round(table)))[0][0])
        raise ValueError(f"row {row} of counts holds a number that is no count; pass whole numbers, none negative.")
    owned = as_float_array(transitions_per_participant, "transitions_per_participant", (0, 1))
    if owned.ndim == 1 and owned.shape != (len(table),):
        raise ValueError(f"transitions_per_participant needs {len(table)} values, one per row, got {owned.shape}.")
    if (owned <= 0).any():
        raise ValueError("transitions_per_participant must be positive; a participant without transitions needs none.")
    seen = table.sum(axis=1)
    owned = np.broadcast_to(owned, seen.shape).astype(float)
    with np.errstate(divide="ignore"):
        h = np.minimum(2.0, np.where(seen > 0, 2.0 * owned / seen, 2.0))  # E14
    return Adjacency(h, seen.astype(np.int64), owned.copy())


@dataclass(frozen=True, eq=False)
class DeviceChain:
    """A chain estimated from individual trajectories, each device's contribution clipped.

    Attributes
    ----------
    default : ndarray of shape (n, n)
    counts : ndarray of shape (n, n)
        Transitions kept after clipping.
    adjacency : Adjacency
        Removing any one device moves row `b` by at most ``adjacency.h[b]``.
    support : ndarray of bool of shape (n, n)
    dropped : int
        Transitions that clipping left out.
    """

    default: NDArray[np.float64] = field(repr=False)
    counts: NDArray[np.int64] = field(repr=False)
    adjacency: Adjacency
    support: NDArray[np.bool_] = field(repr=False)
    dropped: int = 0


def chain_from_devices(
    trajectories: Sequence[ArrayLike],
    n_states: int,
    clip: int,
    *,
    max_rows: int | None = None,
    support: ArrayLike | None = None,
) -> DeviceChain:
    """Estimate the default matrix from devices' own trajectories, with clipped contributions.

    Parameters
    ----------
    trajectories : sequence of array_like of int
        The states of one device each, in time order; -1 marks a gap, across
        which no transition is counted.
    n_states : int
        Number of states. Their edges must not come from the same data, or be public.
    clip : int
        At most this many transitions of one device are kept out of each state: its earliest.
    max_rows : int, optional
        At most this many states of one device contribute: the first it visits.
        A unit then touches that many rows only, and so many compose.
    support : array_like of bool of shape (n, n), optional
        Public support. A row with no observations is uniform on it, and a
        transition outside it is dropped. By default every transition is possible.

    Examples
    --------
    >>> chain = chain_from_devices([[0, 1, 0, 1, 1], [0, 0, 1, 0, 0]], n_states=2, clip=1)
    >>> chain.counts.tolist(), chain.adjacency.h.tolist(), chain.dropped
    ([[1, 1], [2, 0]], [1.0, 1.0], 4)
    """
    n = check_count(n_states, "n_states", 2)
    clip = check_count(clip, "clip")
    most = n if max_rows is None else check_count(max_rows, "max_rows")
    allowed = np.ones((n, n), dtype=bool) if support is None else np.asarray(support)
    if allowed.shape != (n, n) or allowed.dtype != bool or not allowed.any(axis=1).all():
        raise ValueError(f"support must be a boolean ({n}, {n}) array with at least one successor in every row.")
    counts = np.zeros((n, n), dtype=np.int64)
    total = 0
    for index, trajectory in enumerate(trajectories):
        states = check_states(trajectory, index, n)
        kept, seen = clipped_transitions(states, n, clip, most, allowed)
        counts += kept
        total += seen
    seen_from = counts.sum(axis=1, keepdims=True)
    uniform = allowed / allowed.sum(axis=1, keepdims=True)
    default = np.where(seen_from > 0, counts / np.maximum(seen_from, 1), uniform)
    measured = adjacency_from_counts(counts, clip)
    adjacency = replace(measured, rows_touched=min(most, n), source="devices")
    return DeviceChain(default, counts, adjacency, allowed, int(total - counts.sum()))


def clipped_transitions(
    states: NDArray[np.int64], n: int, clip: int, max_rows: int, support: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], int]:
    """Count one device's transitions, at most `clip` out of each of its first `max_rows` states.

    What is kept depends on this device alone, so removing another changes nothing here.
    """
    kept = np.zeros((n, n), dtype=np.int64)
    origin, target = states[:-1], states[1:]
    valid = (origin >= 0) & (target >= 0)
    rows: dict[int, int] = {}
    for b, a in zip(origin[valid].tolist(), target[valid].tolist(), strict=True):
        if not support[b, a] or (b not in rows and len(rows) >= max_rows) or rows.get(b, 0) >= clip:
            continue
        rows[b] = rows.get(b, 0) + 1
        kept[b, a] += 1
    return kept, int(valid.sum())


def check_states(trajectory: Any, index: int, n: int) -> NDArray[np.int64]:
    """Return one participant's states as integers, refusing what are none."""
    states = np.asarray(trajectory)
    if states.ndim != 1 or (states.size and states.dtype.kind not in "iu"):
        raise ValueError(f"trajectory {index} must be a list of integer states (-1 for a gap), one per time.")
    bad = np.flatnonzero((states < -1) | (states >= n))
    if bad.size:
        raise ValueError(
            f"trajectory {index} is in state {int(states[bad[0]])} at time {int(bad[0])}, but the states are "
            f"0 … {n - 1} ({state_list(bad)} are the times at fault)."
        )
    return states.astype(np.int64)
