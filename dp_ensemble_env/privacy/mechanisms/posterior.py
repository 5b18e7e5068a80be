r"""Posterior sampling: one draw from the Dirichlet posterior of the participants' rows, with a prior large enough.

A participant adds at most one to the parameters of each row: its row's probabilities, trusted as far as the row
was seen. Row `b` is drawn from the Dirichlet posterior, :math:`\mathrm{Dir}(\alpha + \sum_i \omega_{ib} p_{ib})`,
in the form of independent Gamma variates, whose totals are released too. `accounting.calibrate` proves what that
costs: the prior α must be large, as a small parameter gives a participant away, and the larger the more
rows there are, since a participant may have been seen in all of them. The prior is known,
so it is subtracted again, and what is left is treated as the other mechanisms treat their noisy sums.

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

from dp_ensemble_env.privacy.accounting.calibrate import check_epsilon, posterior_prior
from dp_ensemble_env.privacy.accounting.divergence import check_delta
from dp_ensemble_env.privacy.accounting.losses import Losses, PosteriorLoss
from dp_ensemble_env.privacy.fleet import Fleet
from dp_ensemble_env.privacy.mechanisms.fleet_sums import (
    FleetEvent,
    FloatArray,
    Layout,
    OneQuery,
    normal_tail,
    shrink,
    shrink_rows,
    trusted_rows,
)
from dp_ensemble_env.privacy.mechanisms.noise import GRID, polya_urn
from dp_ensemble_env.tools.validation import check_positive

#: Balls of a published draw at most.
MOST_BALLS = 2**22
_prior = lru_cache(maxsize=64)(posterior_prior)


@dataclass(frozen=True, kw_only=True)
class PosteriorEvent(FleetEvent, type="posterior"):
    """A posterior draw: prior count of every cell, and of a published draw the balls and the known parameter."""

    prior: float
    balls: int = 0
    known: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.prior, "prior")

    def losses(self) -> Losses:
        """Return the loss of all rows that a participant may touch."""
        return Losses.of({PosteriorLoss(self.prior, self.touched): 1})

    def stream_key(self) -> dict[str, Any]:
        """Return what is hashed into the stream of a seeded draw; frozen, see `Event.stream_key`."""
        return {**super().stream_key(), "prior": self.prior}

    @property
    def headline(self) -> str:
        """The settings in a few words."""
        return f"prior={self.prior:.4g}"

    @classmethod
    def claims(cls, events: Sequence[PosteriorEvent], rows: str | int) -> tuple[str, list[str]]:
        """Name the prior and the unit of protection."""
        least = min(event.prior for event in events)
        urn = max(event.balls for event in events)
        terms = [*cls.terms(events), *([f"published by Pólya's urn, {urn} balls"] if urn else [])]
        return f" by posterior sampling with prior counts of {least:.4g}", terms


@dataclass(frozen=True)
class PosteriorMechanism(OneQuery):
    """Release one draw from the posterior of the participants' rows.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee of one draw.
    """

    name: ClassVar[str] = "posterior"
    epsilon: float
    delta: float = 1e-6

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)

    def describe(self, **about: Any) -> PosteriorEvent:
        """Return the event of a draw."""
        prior = _prior(float(self.epsilon), float(self.delta), about.get("rows", about["states"]))
        if about["seeding"] != "os-entropy":
            return PosteriorEvent(prior=prior, **about)
        cells = about.get("rows", about["states"]) * about["shape"][-1] if "shape" in about else about["states"] ** 2
        known = math.ceil(prior * cells)
        return PosteriorEvent(prior=prior, balls=min(MOST_BALLS, 32 * known), known=known, **about)

    def numbers(self, fleet: Fleet, layout: Layout, event: Any, rng: np.random.Generator) -> FloatArray:
        """Return the Gamma variates, of a published draw the balls that stand for them."""
        if event.balls:
            sums = trusted_rows(fleet, layout, grid=True).ravel()[layout.cells].astype(np.int64)
            prior = math.ceil(event.prior * GRID)
            balls = polya_urn([*(sums + prior).tolist(), event.known * GRID], GRID, event.balls)
            return np.asarray(balls[:-1] * (event.known / max(int(balls[-1]), 1)))
        return np.asarray(rng.standard_gamma(event.prior + trusted_rows(fleet, layout).ravel()[layout.cells]))

    def estimate(self, layout: Layout, noisy: FloatArray, event: Any) -> FloatArray:
        """Subtract the prior, and fall back on the guess where noise prevails."""
        sums = noisy - event.prior
        deviation = np.sqrt(np.maximum(noisy, event.prior))
        weight = layout.row_sums(sums)
        least = 3.0 * np.sqrt(layout.row_sums(deviation**2))
        if layout.several or np.median(weight / least) > 1.0:
            return self._estimate(layout, sums, deviation, weight, least)
        return layout.guess

    @staticmethod
    def _estimate(
        layout: Layout, sums: FloatArray, deviation: FloatArray, weight: FloatArray, least: FloatArray
    ) -> FloatArray:
        """Divide by the weights of the rows, at least three standard deviations, and fall back on the guess."""
        seen, weight = weight > least, np.maximum(weight, least)
        rows, error = sums / weight[layout.row_of], deviation / weight[layout.row_of]
        if not layout.several:
            return shrink(layout, rows.reshape(layout.guess.shape), error.reshape(layout.guess.shape), normal_tail)
        units = layout.units.ravel()[layout.cells]
        noise = np.sqrt(layout.row_sums((error / units) ** 2) / layout.row_sums(np.ones(len(rows))))
        return shrink_rows(layout, rows, noise, seen, normal_tail)
