"""Guarantees that say what they mean.

A number ε is no guarantee until one knows which definition of privacy it belongs
to, which inputs count as adjacent, whom that protects, and what is assumed. A
`Guarantee` carries all of it and prints as one sentence:

>>> print(release_guarantee(k=50, h=0.03, omega=0.1, delta=1e-6, rows=20))  # doctest: +NORMALIZE_WHITESPACE
(12.16, 1e-06)-approximate differential privacy for one release of 20 rows at k=50: rows are adjacent when two of
their entries differ by at most h/2=0.015 each; protected is a change of that size in each of 20 rows; assumes a public
support and no entry of it below 0.1 before the draw; exact dominating pair, composed over rows.

The functions that compute the numbers live in `divergence` (one row, exact),
`theorem2` (the paper's bound) and `composition` (rows and repeated draws).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dp_ensemble_env.privacy.accounting.composition import RowGroup, composed_epsilon, renyi_epsilon
from dp_ensemble_env.privacy.accounting.divergence import (
    ENTRIES,
    Entries,
    check_delta,
    check_row_settings,
)
from dp_ensemble_env.privacy.accounting.theorem2 import theorem2_epsilon
from dp_ensemble_env.privacy.mechanisms.base import SEEDED
from dp_ensemble_env.tools.validation import check_choice, check_count

DEFINITION = "approximate differential privacy"
METHODS = ("exact", "theorem2", "renyi")


@dataclass(frozen=True)
class Guarantee:
    """What a release guarantees, to whom, and on which assumptions.

    Attributes
    ----------
    epsilon, delta : float
        The pair; ``epsilon`` is infinity where no bound holds for all inputs.
    k, omega, h : float
        Concentration, least entry of the mechanism's input, adjacency of that input.
    rows : int
        Rows composed (one unit's data may touch all of them).
    entries : {"two", "any"}
        How many entries of a row may differ between adjacent inputs.
    method : str
        How ε was computed.
    unit : str
        The unit of protection.
    seeded : bool
        Whether the draw could be repeated by someone who knows the seed.
    """

    epsilon: float
    delta: float
    k: float
    omega: float
    h: float
    rows: int = 1
    entries: Entries = "two"
    method: str = "exact dominating pair"
    unit: str = ""
    seeded: bool = False

    @property
    def definition(self) -> str:
        """The definition of privacy: approximate DP, which post-processing preserves (E11)."""
        return DEFINITION

    @property
    def adjacency(self) -> str:
        """Which inputs count as adjacent."""
        if self.entries == "two":
            return f"rows are adjacent when two of their entries differ by at most h/2={self.h / 2:.4g} each"
        return f"rows are adjacent when their entries differ by at most h={self.h:.4g} in total (L1 distance)"

    @property
    def protected(self) -> str:
        """The unit of protection."""
        each = "one row" if self.rows == 1 else f"each of {self.rows} rows"
        return self.unit or f"a change of that size in {each}"

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What has to hold for the guarantee to hold."""
        return ("a public support", f"no entry of it below {self.omega:.4g} before the draw")

    @property
    def finite(self) -> bool:
        """Whether there is a guarantee at all."""
        return math.isfinite(self.epsilon)

    def __str__(self) -> str:
        release = f"one release of {self.rows} row{'s' * (self.rows != 1)} at k={self.k:.6g}"
        warning = f" ({SEEDED})" if self.seeded else ""
        if not self.finite:
            return (
                f"No guarantee (epsilon = infinity at delta={self.delta:g}) for {release}: {_why_none(self)}{warning}."
            )
        composed = ", composed over rows" if self.rows > 1 else ""
        return (
            f"({self.epsilon:.4g}, {self.delta:g})-{self.definition} for {release}: {self.adjacency}; protected is "
            f"{self.protected}; assumes {' and '.join(self.assumptions)}; {self.method}{composed}{warning}."
        )


def _why_none(claim: Guarantee) -> str:
    if claim.omega == 0:
        return (
            "without a floor the smallest entry of the row decides, and an entry below h/2 has no adjacent row at all; "
            "set a floor"
        )
    return f"omega={claim.omega:g} is too small for h={claim.h:g} by this bound; raise the floor or shrink h"


def release_guarantee(
    k: float,
    h: float,
    omega: float,
    delta: float,
    rows: int = 1,
    *,
    entries: Entries = "two",
    method: str = "exact",
    unit: str = "",
) -> Guarantee:
    """State what one release of `rows` rows guarantees.

    Parameters
    ----------
    k, h, omega, delta : float
        Concentration, adjacency and least entry of the mechanism's input, and δ.
    rows : int, default 1
        Rows that one unit's data touch; they compose (E10).
    entries : {"two", "any"}
        Two entries, as in Definition 1, or any number (then by the Rényi bound).
    method : {"exact", "theorem2", "renyi"}
        The exact worst case composed as privacy-loss distributions; Theorem 2
        (one row, with omega_bar = omega and two protected entries); or Rényi.
    unit : str
        A sentence part that names the unit of protection.
    """
    check_row_settings(k, h, omega)
    check_delta(delta)
    rows = check_count(rows, "rows")
    check_choice(entries, "entries", ENTRIES)
    check_choice(method, "method", METHODS)
    groups = [RowGroup(k, omega, h, rows)]
    if method == "theorem2":
        if rows != 1 or entries != "two":
            raise ValueError("Theorem 2 bounds one row and two entries; use method='exact' to compose rows.")
        epsilon = theorem2_epsilon(k, h, omega, omega, 2, delta) if omega > 0 else math.inf
        name = "Theorem 2 (corrected)"
    elif method == "renyi" or entries == "any":
        epsilon = renyi_epsilon(delta, groups, entries)
        name = "Rényi bound"
    else:
        epsilon = composed_epsilon(delta, groups)
        name = "exact dominating pair"
    return Guarantee(epsilon, delta, k, omega, h, rows, entries, name, unit)
