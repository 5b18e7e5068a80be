r"""Posterior sampling: one draw from the Dirichlet posterior of the participants' rows, with a prior large enough.

A participant adds at most one to the parameters of each row: its row's probabilities, trusted as far as the row was
seen. Row `b` is drawn from the Dirichlet posterior, :math:`\mathrm{Dir}(\alpha + \sum_i \omega_{ib} p_{ib})`, in the
form of independent Gamma variates, whose totals are released too. `accounting.calibrate` proves what that costs: the
prior α must be large, as a small parameter gives a participant away, and the larger the more rows there are, since a
participant may have been seen in all of them. The prior is known, so it is subtracted again, and what is left is
treated as the other mechanisms treat their noisy sums.

A published draw is made by Pólya's urn: contributions are cut off to multiples of 1/GRID, all cells and one more, whose
parameter :math:`c` is known, share one urn, and the balls of a cell over those of the known one, times :math:`c`, stand
for its Gamma variate. Their law is Multinomial(M, Dir(α, c)), a function of the Gamma variates and of one that depends
on no data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from dp_ensemble_env.privacy.accounting.calibrate import posterior_prior
from dp_ensemble_env.privacy.accounting.losses import Losses, PosteriorLoss
from dp_ensemble_env.privacy.fleet import Fleet
from dp_ensemble_env.privacy.mechanisms.fleet_sums import (
    EpsilonDelta,
    FleetEvent,
    Layout,
    OneQuery,
    shrink,
    shrink_rows,
)
from dp_ensemble_env.privacy.mechanisms.noise import GRID, FloatArray, normal_tail, on_grid, polya_urn

MOST_BALLS = 2**22  #: Balls of a published draw at most.
_prior = lru_cache(maxsize=64)(posterior_prior)


@dataclass(frozen=True, kw_only=True)
class PosteriorEvent(FleetEvent, type="posterior"):
    """A posterior draw: prior count of every cell, and of a published draw the balls and the known parameter."""

    noise: ClassVar[str] = "prior"
    prior: float
    balls: int = 0
    known: int = 0

    def losses(self) -> Losses:
        """Return the loss of all rows that a participant may touch."""
        return Losses.of({PosteriorLoss(self.prior, self.rows or self.states): 1})

    @classmethod
    def claims(cls, events: Sequence[PosteriorEvent], rows: str | int) -> tuple[str, list[str]]:
        """Name the prior and the unit of protection."""
        least, balls = min(event.prior for event in events), max(event.balls for event in events)
        terms = cls.terms(events, f"published by Pólya's urn, {balls} balls")
        return f" by posterior sampling with prior counts of {least:.4g}", terms


@dataclass(frozen=True)
class PosteriorMechanism(EpsilonDelta, OneQuery):
    """Release one draw from the posterior of the participants' rows; each is (epsilon, delta)-private."""

    name: ClassVar[str] = "posterior"

    def describe(self, **about: Any) -> PosteriorEvent:
        """Return the event of a draw."""
        states = about["states"]
        rows, m = about.get("rows", states), about.get("shape", (states,))[-1]
        prior = _prior(float(self.epsilon), float(self.delta), rows)
        if about["seeding"] != "os-entropy":
            return PosteriorEvent(prior=prior, **about)
        known = math.ceil(prior * rows * m)
        return PosteriorEvent(prior=prior, balls=min(MOST_BALLS, 32 * known), known=known, **about)

    def numbers(self, fleet: Fleet, layout: Layout, event: Any, rng: np.random.Generator) -> FloatArray:
        """Return the Gamma variates, or for a published draw the balls that represent them."""
        if event.balls:
            sums = trusted_rows(fleet, layout, grid=True).astype(np.int64)
            prior = math.ceil(event.prior * GRID)
            balls = polya_urn([*(sums + prior).tolist(), event.known * GRID], GRID, event.balls)
            return np.asarray(balls[:-1] * (event.known / max(int(balls[-1]), 1)))
        return np.asarray(rng.standard_gamma(event.prior + trusted_rows(fleet, layout)))

    def estimate(self, layout: Layout, noisy: FloatArray, event: Any) -> FloatArray:
        """Subtract the prior, divide by the weights of the rows, and use the guess where noise dominates."""
        sums, deviation = noisy - event.prior, np.sqrt(np.maximum(noisy, event.prior))
        weight, least = layout.row_sums(sums), 3.0 * np.sqrt(layout.row_sums(deviation**2))
        if not layout.several and np.median(weight / least) <= 1.0:
            return layout.guess
        seen, weight = weight > least, np.maximum(weight, least)[layout.row_of]
        rows, error = sums / weight, deviation / weight
        if not layout.several:
            return shrink(layout, rows, error, normal_tail)
        noise = np.sqrt(layout.row_sums((error / layout.units) ** 2) / layout.row_sums(np.ones(len(rows))))
        return shrink_rows(layout, rows, noise, seen, normal_tail)


def trusted_rows(fleet: Fleet, layout: Layout, *, grid: bool = False) -> FloatArray:
    """Return the sum of the participants' rows, (cells,), each at most one; `grid`: in whole multiples of 1 / GRID."""

    def summed() -> FloatArray:
        total = np.zeros(len(layout.cells))
        for counts in fleet.chunks(layout.cells):
            shares, trust = layout.shares(counts)
            some = shares * trust[:, layout.row_of]
            total += (on_grid(some) if grid else some).sum(axis=0)
        return total

    return fleet.remembered(("trusted rows", grid, layout.key), summed)
