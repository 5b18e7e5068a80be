"""The sum of all charges, and what still fits into a budget.

A charge is the event of a draw. Equal ones are counted, so a thousand redraws are one convolution power and not a
thousand convolutions; how many more of the same fit is found once by bisection.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dp_ensemble_env.privacy.accounting.losses import Rows, losses, total_epsilon
from dp_ensemble_env.privacy.mechanisms.base import Event, PostProcessing


@dataclass
class Account:
    """What was charged, in order and in sum.

    Attributes
    ----------
    rows : {"sequential", "parallel"} or int
        How rows compose, unless a call says otherwise.
    budget : (epsilon, delta) or None
    log : list of (label, charge, number of equal draws in a row)
    charges : dict
        How often each different charge was made.
    """

    rows: Rows = "sequential"
    budget: tuple[float, float] | None = None
    log: list[tuple[str, Event, int]] = field(default_factory=list)
    charges: dict[Event, int] = field(default_factory=dict)
    _known: dict[Event, tuple[int, int | None]] = field(default_factory=dict, repr=False)  # totals: fit, do not

    def epsilon(self, delta: float, rows: Rows | None = None) -> float:
        """Return the ε at `delta` of all charges; infinity where no guarantee holds for all inputs."""
        return _total(delta, self.rows if rows is None else rows, self.charges)

    def excess(self, charge: Event, times: int) -> str | None:
        """Say by how much the budget would be exceeded; None if it would not. Cheap when a charge repeats."""
        if self.budget is None or isinstance(charge, PostProcessing):
            return None
        wanted = self.charges.get(charge, 0) + times
        fits, fails = self._known.get(charge, (0, None))
        if wanted <= fits:
            return None
        if fails is None and self._fits(charge, 2 * wanted):
            self._known[charge] = (2 * wanted, None)
            return None
        if (fails is None or wanted < fails) and self._fits(charge, wanted):
            low, high = wanted, 2 * wanted if fails is None else fails
            while high - low > 1:  # the last number of such draws that fits, found once
                middle = (low + high) // 2
                low, high = (middle, high) if self._fits(charge, middle) else (low, middle)
            self._known[charge] = (low, high)
            return None
        epsilon = _total(self.budget[1], self.rows, {**self.charges, charge: wanted})
        return (
            f"would bring the total to epsilon={epsilon:.4g} at delta={self.budget[1]:g}, above the budget of "
            f"{self.budget[0]:g}; {charge.remedy}."
        )

    def _fits(self, charge: Event, total: int) -> bool:
        assert self.budget is not None
        return _total(self.budget[1], self.rows, {**self.charges, charge: total}) <= self.budget[0]

    def add(self, label: str, charge: Event, times: int) -> None:
        """Count an entry."""
        if not isinstance(
            charge, PostProcessing
        ):  # what is known to fit for one charge holds while the others stand still
            self._known = {charge: self._known[charge]} if charge in self._known else {}
        self.charges[charge] = self.charges.get(charge, 0) + times
        if self.log and self.log[-1][:2] == (label, charge):
            self.log[-1] = (label, charge, self.log[-1][2] + times)
        else:
            self.log.append((label, charge, times))


def _total(delta: float, rows: Rows, charges: dict[Event, int]) -> float:
    counted = [(loss, number * times) for event, times in charges.items() for loss, number in losses(event, rows)]
    return total_epsilon(delta, counted)
