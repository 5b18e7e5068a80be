r"""Posterior sampling: one draw from the Dirichlet posterior of the participants' rows, with a prior large enough.

A participant adds at most one to the parameters of each row: its row's probabilities, trusted as far as the row
was seen. Row `b` is drawn from the Dirichlet posterior, :math:`\mathrm{Dir}(\alpha + \sum_i \omega_{ib} p_{ib})`,
in the form of independent Gamma variates, whose totals are released too. `calibration` proves what that
costs: the prior α must be large, as a small parameter gives a participant away. The prior is known,
so it is subtracted again, and what is left is treated as the other mechanisms treat their noisy sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dp_ensemble_env._validation import check_count, check_positive
from dp_ensemble_env.lsmdp import log_probabilities
from dp_ensemble_env.privacy.accounting.divergence import check_delta
from dp_ensemble_env.privacy.calibration import posterior_prior
from dp_ensemble_env.privacy.mechanisms.base import Event, Permit, Release, Seeding
from dp_ensemble_env.privacy.mechanisms.participants import (
    LAZY_WALK,
    NO_SUPPORT,
    UNIT,
    FleetMechanism,
    FloatArray,
    Layout,
    name_of,
    normal_tail,
    require_fleet,
    shrink,
    trusted_rows,
)

_prior = lru_cache(maxsize=64)(posterior_prior)


@dataclass(frozen=True, kw_only=True)
class PosteriorEvent(Event, type="posterior"):
    """A posterior draw: prior count of every cell, and the number of rows that a participant touches."""

    prior: float
    states: int
    guess: str = LAZY_WALK

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.prior, "prior")
        check_count(self.states, "states", 2)

    @property
    def headline(self) -> str:
        """The settings in a few words."""
        return f"prior={self.prior:.4g}"

    @classmethod
    def claims(cls, events: Sequence[PosteriorEvent], rows: str | int) -> tuple[str, list[str]]:
        """Name the prior and the unit of protection."""
        least = min(event.prior for event in events)
        terms = [UNIT, NO_SUPPORT, "drawn by NumPy in floating point, not by OpenDP"]
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
        self, data: Any, *, seeding: Seeding = "os-entropy", guess: ArrayLike | None = None, **terms: Any
    ) -> PosteriorEvent:
        """Describe a draw from a fleet, of which only the number of levels is looked at."""
        n = require_fleet(data, self.name).n_states
        prior = _prior(float(self.epsilon), float(self.delta), n)
        return PosteriorEvent(prior=prior, states=n, guess=name_of(guess), seeding=seeding)

    def draw(self, data: Any, permit: Permit, *, guess: ArrayLike | None = None, **terms: Any) -> Release:
        """Draw one release; see `GaussianMechanism.draw`."""
        layout = Layout.of(require_fleet(data, self.name), 2, guess)
        drawn = self.noisy(data, permit, guess)
        prior = self.event(data, seeding=permit.event.seeding, guess=guess).prior
        sums = drawn - prior
        deviation = np.sqrt(np.maximum(drawn, prior))
        weight = sums.sum(axis=1, keepdims=True)
        least = 3.0 * np.sqrt((deviation**2).sum(axis=1, keepdims=True))
        matrix = layout.guess
        if np.median(weight / least) > 1.0:
            weight = np.maximum(weight, least)
            matrix = shrink(layout, sums / weight, deviation / weight, normal_tail)
        return Release(np.minimum(log_probabilities(matrix), 0.0), permit.event)

    def noisy(self, data: Any, permit: Permit, guess: ArrayLike | None = None) -> FloatArray:
        """Return the Gamma variates, which the guarantee is about; a release is made of them alone."""
        fleet = require_fleet(data, self.name)
        event = self.event(fleet, seeding=permit.event.seeding, guess=guess)
        permit.covers(event)
        return permit.rng.standard_gamma(event.prior + trusted_rows(fleet))
