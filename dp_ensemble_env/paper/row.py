"""Which row of the matrix the paper's Figures 4 to 6 are drawn for, by a rule that fits any data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.accounting.divergence import adjacent_row

FloatArray = NDArray[np.float64]
#: Adjacent rows differ by h/2 in two entries.
H = 0.03
#: A row qualifies only with entries so far above h/2 that its neighbour's stay clear of zero.
MARGIN = 0.001
#: Level 18 of 20 lies this far up from the lowest level to the highest.
PAPER_PLACE = 17 / 19
RULE = (
    "The paper takes row 18 of 20. A row qualifies if at least three of its successors are more likely than 0.016, so "
    "that any of them can give h/2 = 0.015 up and is not left with almost nothing. Of the rows that qualify, the one "
    "whose power is nearest to 17/19 of the way from the lowest level to the highest is taken, which is row 18 of 20 "
    "levels of equal width; of two equally near, the more visited. As in the paper the state itself gives 0.015 up to "
    "its upper neighbour, if both are among the row's three most likely successors; otherwise the most likely "
    "successor gives to the second."
)


@dataclass(frozen=True, eq=False)
class PickedRow:
    """A row with the two entries that move.

    Attributes
    ----------
    state : int
    row : ndarray of shape (n,)
    triple : tuple of int
        The three most likely successors, in order of power.
    down, up : int
        The entries that lose and gain h/2.
    note : str
        What differs from the paper, in a sentence; empty if nothing does.
    """

    state: int
    row: FloatArray
    triple: tuple[int, int, int]
    down: int
    up: int
    note: str = ""

    @property
    def successors(self) -> NDArray[np.int64]:
        """States that can follow."""
        return np.flatnonzero(self.row)

    @property
    def adjacent(self) -> FloatArray:
        """The neighbouring row."""
        return adjacent_row(self.row, self.down, self.up, H)

    @property
    def least(self) -> float:
        """Least of the two moved entries, before and after the move."""
        return float(min(self.row[self.up], self.row[self.down] - H / 2))

    @property
    def rest(self) -> float:
        """Mass of the entries that do not move."""
        return float(1.0 - self.row[self.up] - self.row[self.down])

    def adjacent_model(self, model: EnsembleModel) -> EnsembleModel:
        """Return the problem with this row replaced by its neighbour."""
        default = np.array(model.default)
        default[self.state] = self.adjacent
        return model.with_default(default)

    def on_triple(self, values: ArrayLike) -> FloatArray:
        """Keep the three most likely successors of (…, n) and rescale them to sum to one.

        A Dirichlet vector treated so is again a Dirichlet vector, with the same
        parameters for the three entries.
        """
        part = np.asarray(values, dtype=float)[..., list(self.triple)]
        total = part.sum(axis=-1, keepdims=True)
        shares: FloatArray = np.divide(part, total, out=np.full_like(part, np.nan), where=total > 0)
        return shares  # NaN is not drawn


def pick_row(default: ArrayLike, power_kw: ArrayLike, visits: ArrayLike | None = None) -> PickedRow | None:
    """Pick the row by `RULE`; None if no row qualifies."""
    matrix, power = np.asarray(default, dtype=float), np.asarray(power_kw, dtype=float)
    seen = np.zeros(len(power)) if visits is None else np.asarray(visits, dtype=float)
    fit = np.flatnonzero((matrix > H / 2 + MARGIN).sum(axis=1) >= 3)
    if not fit.size:
        return None
    wanted = power.min() + PAPER_PLACE * np.ptp(power)
    distance = np.round(np.abs(power[fit] - wanted) / max(np.ptp(power), 1e-12), 9)
    state = int(fit[np.lexsort((fit, -seen[fit], distance))[0]])
    row = matrix[state]
    likely = np.argsort(-row, kind="stable")[:3]
    notes = []
    if state != 17:
        notes.append(f"Row {state + 1} of {len(power)} takes the place of row 18.")
    if state in likely and state + 1 in likely:
        down, up = state, state + 1
    else:
        down, up = int(likely[0]), int(likely[1])
        missing = "the state itself" if state not in likely else "its upper neighbour"
        notes.append(
            f"Entry {down + 1} gives to entry {up + 1}, the two most likely ones, as {missing} is not among the three "
            "most likely successors."
        )
    count = int((row > 0).sum())
    if count != 3:
        notes.append(
            f"The row has {count} successors, not three: triangles show the three most likely ones, rescaled to sum to "
            "one; everything else uses the whole row."
        )
    triple = tuple(int(a) for a in sorted(likely, key=lambda a: (power[a], a)))
    return PickedRow(state, row.copy(), triple, down, up, " ".join(notes))  # type: ignore[arg-type]
