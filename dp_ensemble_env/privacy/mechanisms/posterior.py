r"""Posterior sampling: one draw from the Dirichlet posterior of the participants' rows, with a prior large enough.

A participant adds at most one to the parameters of each row: its row's probabilities, trusted as far as the row
was seen. Row `b` is drawn from the Dirichlet posterior, :math:`\mathrm{Dir}(\alpha + \sum_i \omega_{ib} p_{ib})`,
in the form of independent Gamma variates, whose totals are released too. `calibration` proves what that
costs: the prior α must be large, as a small parameter gives a participant away, and the larger the more
rows there are, since a participant may have been seen in all of them. The prior is known,
so it is subtracted again, and what is left is treated as the other mechanisms treat their noisy sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dp_ensemble_env.control.lsmdp import log_probabilities
from dp_ensemble_env.privacy.accounting.divergence import check_delta
from dp_ensemble_env.privacy.calibration import posterior_prior
from dp_ensemble_env.privacy.mechanisms.base import Permit, Release, Seeding
from dp_ensemble_env.privacy.mechanisms.estimates import normal_tail, shrink, shrink_rows
from dp_ensemble_env.privacy.mechanisms.participants import (
    FleetEvent,
    FleetMechanism,
    FloatArray,
    Layout,
    require_fleet,
    trusted_rows,
)
from dp_ensemble_env.tools.validation import check_positive

_prior = lru_cache(maxsize=64)(posterior_prior)


@dataclass(frozen=True, kw_only=True)
class PosteriorEvent(FleetEvent, type="posterior"):
    """A posterior draw: prior count of every cell, and the number of rows that a participant touches."""

    prior: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.prior, "prior")

    @property
    def headline(self) -> str:
        """The settings in a few words."""
        return f"prior={self.prior:.4g}"

    @classmethod
    def claims(cls, events: Sequence[PosteriorEvent], rows: str | int) -> tuple[str, list[str]]:
        """Name the prior and the unit of protection."""
        least = min(event.prior for event in events)
        terms = [*cls.terms(events), "drawn by NumPy in floating point, not by OpenDP"]
        return f" by posterior sampling with prior counts of {least:.4g}", terms


@dataclass(frozen=True)
class PosteriorMechanism(FleetMechanism):
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
        check_positive(self.epsilon, "epsilon")
        check_delta(self.delta)

    def event(
        self,
        data: Any,
        *,
        seeding: Seeding = "os-entropy",
        guess: ArrayLike | None = None,
        support: ArrayLike | None = None,
        **terms: Any,
    ) -> PosteriorEvent:
        """Describe a draw from a fleet, of which only the shape is looked at."""
        about = self.about(require_fleet(data, self.name), guess, support)
        prior = _prior(float(self.epsilon), float(self.delta), about.get("rows", about["states"]))
        return PosteriorEvent(prior=prior, **about, seeding=seeding)

    def draw(
        self,
        data: Any,
        permit: Permit,
        *,
        guess: ArrayLike | None = None,
        support: ArrayLike | None = None,
        **terms: Any,
    ) -> Release:
        """Draw one release; see `GaussianMechanism.draw`."""
        fleet = require_fleet(data, self.name)
        layout = Layout.of(fleet, 2, guess, support)
        drawn = self.noisy(data, permit, guess, support)
        prior = self.event(data, seeding=permit.event.seeding, guess=guess, support=support).prior
        sums = drawn - prior
        deviation = np.sqrt(np.maximum(drawn, prior))
        weight = layout.row_sums(sums)
        least = 3.0 * np.sqrt(layout.row_sums(deviation**2))
        matrix = layout.guess
        if layout.several or np.median(weight / least) > 1.0:
            matrix = self._estimate(layout, sums, deviation, weight, least)
        return Release(fleet.spread(np.minimum(log_probabilities(matrix), 0.0)), permit.event)

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

    def noisy(
        self, data: Any, permit: Permit, guess: ArrayLike | None = None, support: ArrayLike | None = None
    ) -> FloatArray:
        """Return the Gamma variates, which the guarantee is about; a release is made of them alone."""
        fleet = require_fleet(data, self.name)
        event = self.event(fleet, seeding=permit.event.seeding, guess=guess, support=support)
        permit.covers(event)
        layout = Layout.of(fleet, 2, guess, support)
        return permit.rng.standard_gamma(event.prior + trusted_rows(fleet, layout).ravel()[layout.cells])
