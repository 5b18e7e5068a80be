r"""The exact expected return of one policy that is held throughout, and its gradient.

In policy mode an action is a matrix of decisions by state. Held for all times, and blind to the context, it gives
:math:`\pi_t[w, s, a] \propto e^{\theta[s, a]}` on the support of the behaviour at `(t, w)`. With :math:`q_t[w, a]` the
expected utility and return from the next time on and :math:`g = q - \gamma\log(\pi/P)`, the derivative of the return
by :math:`\theta[s, a]` is the sum over times and contexts of
:math:`\rho_t[w, s]\,\pi[w, s, a]\,(g[w, s, a] - \sum_b\pi[w, s, b]\,g[w, s, b])`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.experiments._tilting import coupling_cost
from dp_ensemble_env.model import EnsembleModel

FloatArray = NDArray[np.float64]


class HeldReturn:
    """The expected return of a policy given by numbers `theta` on the entries that are possible at some time.

    Parameters
    ----------
    model : EnsembleModel

    Attributes
    ----------
    entries : tuple of two ndarrays
        State and decision of each entry, row by row.
    mean : ndarray
        The behaviour in each entry, averaged over times and contexts.
    varies : bool
        Whether it differs between them: then no numbers do what leaving the loads alone does.
    """

    def __init__(self, model: EnsembleModel) -> None:
        behaviour, self._nature, self._context, self._utility = model.tables()
        self._model = model
        self.entries = s, a = np.nonzero((behaviour > 0).any(axis=(0, 1)))
        self._first = np.flatnonzero(np.diff(s, prepend=-1))  # where the rows begin
        self._possible = behaviour[:, :, s, a]  # (T, c, entries)
        self.mean: FloatArray = self._possible.mean(axis=(0, 1))
        self.varies = bool((self._possible != self._possible[:1, :1]).any())
        with np.errstate(divide="ignore"):
            self._log = np.log(self._possible)
        first = np.ones(1) if model.context is None else model.context.start
        self.start = np.outer(first, model.initial)

    def policy(self, theta: FloatArray, alone: NDArray[np.bool_] | None = None) -> FloatArray:
        """Return the probabilities (T, c, entries); rows of `alone` follow the default behaviour."""
        s, _ = self.entries
        weights = np.where(self._possible > 0, np.exp(theta - np.maximum.reduceat(theta, self._first)[s]), 0.0)
        total = np.add.reduceat(weights, self._first, axis=-1)[..., s]
        found = np.divide(weights, total, out=self._possible.copy(), where=total > 0)
        return found if alone is None else np.where(alone[s], self._possible, found)

    def __call__(self, theta: FloatArray, alone: NDArray[np.bool_] | None = None) -> tuple[float, FloatArray]:
        """Return the expected return and its derivative by `theta`."""
        policy = self.policy(theta, alone)
        rho = self._occupancy(policy)
        utility, extra = self._utility, 0.0
        if self._model.coupling is not None:  # a convex cost of the mean power acts as a price at its own slope
            power = (rho @ self._model.power_kw).sum(axis=1)
            cost, slope = coupling_cost(self._model.coupling, power)
            utility = utility - slope[:, None, None] * self._model.power_kw
            extra = float(slope[1:] @ power[1:]) - cost
        (s, a), penalty = self.entries, self._model.discomfort_penalty
        value, gradient = np.zeros_like(utility[0]), np.zeros(len(s))
        for t in range(self._model.horizon - 1, -1, -1):
            ahead = self._context[t] @ (utility[t + 1] + value)
            q = np.einsum("was,ws->wa", self._nature[t], ahead)[:, a]
            pi = policy[t]
            ratio = np.where(pi > 0, np.log(np.where(pi > 0, pi, 1.0)) - np.where(pi > 0, self._log[t], 0.0), 0.0)
            gain = q - penalty * ratio
            value = np.add.reduceat(pi * gain, self._first, axis=-1)
            gradient += (rho[t][:, s] * pi * (gain - value[:, s])).sum(axis=0)
        return float((self.start * value).sum()) + extra, gradient

    def _occupancy(self, policy: FloatArray) -> FloatArray:
        """Return the joint distribution of context and state, (T + 1, c, n)."""
        s, a = self.entries
        rho = np.zeros_like(self._utility)
        rho[0] = self.start
        into = np.arange(self._model.n_decisions) == a[:, None]  # (entries, m), to sum entries by decision
        for t in range(self._model.horizon):
            chosen = (rho[t][:, s] * policy[t]) @ into
            rho[t + 1] = self._context[t].T @ np.einsum("wa,was->ws", chosen, self._nature[t])
        return rho
