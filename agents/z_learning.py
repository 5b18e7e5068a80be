r"""Z-learning: the native learner of linearly-solvable problems, from observed transitions alone.

**Equations.** The desirability :math:`z_t(b)` of level `b` at time `t` obeys a linear
equation under the default dynamics `P` (Theorem 1), and the optimal tilt is its
logarithm at the next time,

.. math:: z_t(b) = e^{U_t(b)/\gamma}\,E_{a\sim P[b]}[z_{t+1}(a)], \qquad
          \pi_t(a|b) \propto P[b,a]\,e^{\tau_t(a)}, \quad \tau_t(a) = \log z_{t+1}(a) + \text{const} .

Both explorations estimate the expectation by observed moves :math:`b \to a` at time `t`.

passive (Z1)
    nobody interferes (the zero action), so the move is a draw from `P`:
    :math:`z_t(b) \leftarrow (1-\eta) z_t(b) + \eta\, e^{U_t(b)/\gamma} z_{t+1}(a)`.
importance (Z2)
    the load is sent by the present greedy tilt :math:`\tau`, and the move is weighted by
    :math:`P[b,a]/\pi(a|b) = g\,e^{-\tau(a)}`, :math:`g = \sum_a P[b,a] e^{\tau(a)}`. With `g` known the
    weighted target is unbiased for every tilt, and constant when the tilt is optimal.

**The normaliser g from interaction only.** The divergence that the environment charges is
:math:`\mathrm{KL} = E_\pi[\tau] - \log g`, and `info` reports it as the discomfort,
:math:`\gamma\,\mathrm{KL}`, exactly. So :math:`\log g = E_\pi[\tau] - \mathrm{KL}` (Z3), the expectation being
estimated by the mean of :math:`\tau` over the visits of `(t, b)` in one batch of episodes, all of which play
the same tilt. This is unbiased for :math:`\log g`, not for `g`. Batches are therefore averaged in logs,
:math:`\log z \leftarrow (1-\eta)\log z + \eta \log y` (Z4), where an error of mean zero leaves no bias; `y` is the
mean of the weighted targets in the batch, almost constant once the tilt is nearly greedy.

**What the learner knows.** States and utilities as they are observed, the discomfort it is charged, its own
tilts; and the public side of the problem: :math:`\gamma`, the power levels (to fill gaps), the action scale
:math:`s_t`. Never the matrix. Transitions come from a batch of single-load environments like the one given.

**Starts.** Few uncontrolled loads reach the low levels that matter during an event. The environment lets the
caller choose the start (``reset(options={"state": ...})``), and the learner does so with ``exploring_starts``:
passive exploration always begins in levels drawn uniformly, importance exploration in its first batch only.

**Step.** :math:`\eta = c/(c + N)` with `N` the earlier visits of the pair (:math:`cm/(cm + N)` for `m` visits at
once): the first visit replaces the initial value, and larger `c` forgets stale bootstraps sooner. Each batch is
worked through backwards in time. Everything is kept as logarithms, since `z` spans e^-80 and less.

**Termination and convergence.** A sweep ends whenever the number of batches has doubled. The *change* of a sweep
is the mean of :math:`|\Delta \log z_t(b)|` over its visits, less the part that is common to all levels of a time
(which changes no policy); it is infinite while a tenth of the pairs visited were new. Because a sweep doubles the
data, the change does not vanish merely because the steps have become small. Learning ends when the change falls
below `tolerance` nats, or when the transitions are spent. Then held-out episodes are played with the greedy policy:
the table predicts the return :math:`\gamma \log z_0(s_0)`, and the *residual* is the mean of predicted less observed
returns. The agent is called converged if the last change was below `tolerance` and
:math:`|residual| \le 3\,s.e. + \gamma\,T\,tolerance`, as errors of that size may add up over the T decisions. The
held-out transitions are counted in the budget.

**Transitions needed.** On the campus event (20 levels, 18 decisions) and with the default settings, 20,000 observed
transitions sufficed for a score of 95 by importance exploration, and 50,000 by passive exploration, with each of a
hundred seeds (exact scores: mean 98.5, least 95.6; mean 97.9, least 95.9). The tests hold the learner to both.

**Gaps.** Pairs never visited get the value interpolated in power between the visited levels of the same time,
and that of the nearest visited level beyond them.

References: Todorov (2009), *Efficient computation of optimal actions*, PNAS 106(28).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from dp_ensemble_env.agents.base import FloatArray, Kind, ScheduleAgent, core_env
from dp_ensemble_env.envs.actions import action_scale
from dp_ensemble_env.envs.vector import EnsembleVectorEnv
from dp_ensemble_env.tools.compile import njit
from dp_ensemble_env.tools.validation import check_choice, check_count, check_in_range, check_positive

EXPLORATIONS = ("passive", "importance")
#: Arrays of the compiled updates: states and visits, and numbers.
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Experience:
    """A batch of whole episodes, all played with the same tilts.

    Attributes
    ----------
    states : ndarray of int of shape (episodes, T + 1)
    utility : ndarray of shape (episodes, T + 1)
        Dollars observed on arrival; zero at time 0, where nothing is paid.
    divergence : ndarray of shape (episodes, T)
        Discomfort charged for each move, in nats.
    tilt : ndarray of shape (T, n)
        Tilt played at each decision.
    """

    states: NDArray[np.int64]
    utility: FloatArray
    divergence: FloatArray
    tilt: FloatArray


@dataclass(frozen=True)
class Sweep:
    """State of the learning at the end of a sweep.

    Attributes
    ----------
    transitions : int
        Moves observed so far.
    change : float
        Mean change of log z over the sweep's visits, in nats.
    """

    transitions: int
    change: float


@dataclass(frozen=True, eq=False)
class Learned:
    """What Z-learning found.

    Attributes
    ----------
    log_z : ndarray of shape (T + 1, n)
        NaN where a pair was never visited. ``log_z[0]`` leaves out the utility of
        time 0, which no reward contains, so that it predicts the return / gamma.
    visits : ndarray of int of shape (T, n)
    tilt : ndarray of shape (T, n)
        Greedy tilt, inside the action box.
    transitions : int
        All moves observed, held-out ones included.
    sweeps : list of Sweep
    residual, standard_error : float
        Predicted less observed return of the held-out episodes, dollars per building.
    converged : bool
        See the module's termination rule.
    """

    log_z: FloatArray = field(repr=False)
    visits: NDArray[np.int64] = field(repr=False)
    tilt: FloatArray = field(repr=False)
    transitions: int
    sweeps: list[Sweep] = field(repr=False)
    residual: float
    standard_error: float
    converged: bool


# ------------------------------------------------------------------ updates
@njit(cache=True, nogil=True)
def passive_update(
    states: Ints, utility: Floats, log_z: Floats, visits: Ints, step_constant: float, penalty: float
) -> None:
    """Z1 for every move of a batch, the last moves first; changes `log_z` and `visits`."""
    episodes, horizon = states.shape[0], states.shape[1] - 1
    for i in range(episodes):
        log_z[horizon, states[i, horizon]] = utility[i, horizon] / penalty
    for t in range(horizon - 1, -1, -1):
        for i in range(episodes):
            b, a = states[i, t], states[i, t + 1]
            target = utility[i, t] / penalty + log_z[t + 1, a]
            if visits[t, b] == 0:
                log_z[t, b] = target
            else:
                eta = step_constant / (step_constant + visits[t, b])
                log_z[t, b] = np.logaddexp(np.log1p(-eta) + log_z[t, b], np.log(eta) + target)
            visits[t, b] += 1


@njit(cache=True, nogil=True)
def importance_update(
    states: Ints,
    utility: Floats,
    divergence: Floats,
    tilt: Floats,
    log_z: Floats,
    visits: Ints,
    step_constant: float,
    penalty: float,
) -> None:
    """Z2 to Z4 for a batch that played `tilt`, the last moves first; changes `log_z` and `visits`."""
    episodes, horizon, n = states.shape[0], states.shape[1] - 1, log_z.shape[1]
    count, mean_tilt, known, top, total = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for i in range(episodes):
        log_z[horizon, states[i, horizon]] = utility[i, horizon] / penalty
    for t in range(horizon - 1, -1, -1):
        count[:], mean_tilt[:], top[:], total[:] = 0.0, 0.0, -np.inf, 0.0
        for i in range(episodes):
            b, a = states[i, t], states[i, t + 1]
            count[b] += 1.0
            mean_tilt[b] += tilt[t, a]
            known[b] = utility[i, t] / penalty - divergence[i, t]  # the same at every visit of b
            top[b] = max(top[b], log_z[t + 1, a] - tilt[t, a])
        for i in range(episodes):
            b, a = states[i, t], states[i, t + 1]
            total[b] += np.exp(log_z[t + 1, a] - tilt[t, a] - top[b])  # Z2, without g
        for b in range(n):
            if count[b] > 0.0:
                # U / gamma + log g (Z3) + log of the mean weighted desirability
                target = known[b] + mean_tilt[b] / count[b] + top[b] + np.log(total[b] / count[b])
                weight = step_constant * count[b] / (step_constant * count[b] + visits[t, b])
                log_z[t, b] = target if visits[t, b] == 0 else (1.0 - weight) * log_z[t, b] + weight * target  # Z4
                visits[t, b] += int(count[b])


def fill_gaps(log_z: FloatArray, power_kw: FloatArray) -> FloatArray:
    """Give unvisited pairs the value interpolated in power at the same time (zero if all are unvisited)."""
    filled = np.zeros_like(log_z)
    order = np.argsort(power_kw)
    for t, row in enumerate(log_z):
        seen = order[~np.isnan(row[order])]
        if len(seen):
            filled[t] = np.where(np.isnan(row), np.interp(power_kw, power_kw[seen], row[seen]), row)
    return filled


def greedy_tilt(log_z: FloatArray, power_kw: FloatArray, scale: FloatArray) -> FloatArray:
    """Return the tilts log z_{t+1}, centred and clipped to ±`scale`, shape (T, n)."""
    tilt = fill_gaps(log_z, power_kw)[1:]
    tilt -= 0.5 * (tilt.max(axis=1, keepdims=True) + tilt.min(axis=1, keepdims=True))
    return np.clip(tilt, -scale[:, None], scale[:, None])


# ------------------------------------------------------------------ interaction
class Explorer:
    """Plays batches of single-load episodes and counts the transitions it observed."""

    def __init__(self, env: Any, episodes: int, seed: int) -> None:
        core = core_env(env)
        if core.action_mode != "tilt":
            raise ValueError(
                f"Z-learning steers by tilts, but the environment was made with action={core.action_mode!r}; make it "
                "with action='tilt'."
            )
        if not core.model.is_plain:
            raise ValueError(
                "Z-learning keeps one desirability for each time and level, so it learns on models whose loads choose "
                "their next level themselves: without nature, context or coupling. Train 'ppo' here instead."
            )
        # Only public parts of the model are read below; the matrix stays inside the environment.
        self.n, self.horizon = core.model.n_states, core.model.horizon
        self.penalty, self.power_kw = core.model.discomfort_penalty, core.model.power_kw
        self.scale = action_scale(core.model)
        self.episodes, self.transitions = episodes, 0
        moves, starts = np.random.SeedSequence(seed).spawn(2)
        self._seed: int | None = int(moves.generate_state(1)[0])
        self._starts = np.random.default_rng(starts)
        self._env = EnsembleVectorEnv(
            episodes,
            core.model,
            population="single",
            action="tilt",
            autoreset_mode=AutoresetMode.DISABLED,
            reward="dollars",
        )

    def play(self, tilt: FloatArray, exploring_starts: bool = False) -> Experience:
        """Play one batch with the tilts `tilt` (T, n)."""
        size, n, horizon = self.episodes, self.n, self.horizon
        options = {"state": self._starts.integers(n, size=size)} if exploring_starts else None
        observation, _ = self._env.reset(seed=self._seed, options=options)
        self._seed = None  # later batches continue the same streams
        states, utility = np.empty((size, horizon + 1), np.int64), np.zeros((size, horizon + 1))
        divergence = np.empty((size, horizon))
        states[:, 0] = observation[:, :n].argmax(axis=1)
        actions = tilt_actions(tilt, self.scale)
        for t in range(horizon):
            observation, _, _, _, info = self._env.step(np.tile(actions[t], (size, 1)))
            states[:, t + 1] = observation[:, :n].argmax(axis=1)
            utility[:, t + 1] = info["utility"]
            divergence[:, t] = info["discomfort"] / self.penalty
        self.transitions += size * horizon
        return Experience(states, utility, divergence, tilt)


def tilt_actions(tilt: FloatArray, scale: FloatArray) -> FloatArray:
    """Write tilts as actions: divided by the scale, zero where the scale is."""
    spread = np.broadcast_to(scale[:, None], tilt.shape)
    return np.clip(np.divide(tilt, spread, out=np.zeros_like(tilt), where=spread > 0), -1.0, 1.0)


# ------------------------------------------------------------------ learning
def learn(
    env: Any,
    transitions: int = 300_000,
    exploration: str = "importance",
    *,
    seed: int = 0,
    step_constant: float = 4.0,
    batch: int = 200,
    exploring_starts: bool = True,
    tolerance: float = 0.05,
    held_out: float = 0.1,
) -> Learned:
    """Learn the desirability of every level and time by Z-learning.

    Parameters
    ----------
    env : gymnasium.Env or VectorEnv
        An ensemble environment with tilt actions. Whatever its population, the
        learner watches single loads of it; with a release, they follow it.
    transitions : int
        Moves that may be observed, held-out ones included.
    exploration : {"importance", "passive"}
    seed : int
        Fixes moves and exploring starts, hence the result.
    step_constant : float
        `c` of the decaying step.
    batch : int
        Episodes side by side, between two updates of the greedy tilt; fewer if
        the budget is small.
    exploring_starts : bool
        Whether start levels may be chosen (see the module); else every episode
        starts as the environment would.
    tolerance : float
        Change in nats below which learning ends; 0 spends the whole budget.
    held_out : float
        Share of the budget kept for the final check.
    """
    check_choice(exploration, "exploration", EXPLORATIONS)
    step_constant = check_positive(step_constant, "step_constant")
    tolerance = check_in_range(tolerance, "tolerance", 0.0, np.inf)
    held_out = check_in_range(held_out, "held_out", 0.0, 0.9, open_low=True)
    horizon = core_env(env).model.horizon
    total = check_count(transitions, "transitions", 4 * horizon) // horizon
    size = min(check_count(batch, "batch"), total // 4)
    checks = max(1, round(held_out * (total // size)))
    explorer = Explorer(env, size, check_count(seed, "seed", 0))
    log_z, visits, sweeps = _learn(
        explorer, exploration, total // size - checks, step_constant, exploring_starts, tolerance
    )
    tilt = greedy_tilt(log_z, explorer.power_kw, explorer.scale)
    residual, error = _held_out_residual(explorer, log_z, tilt, checks)
    settled = bool(sweeps) and sweeps[-1].change < tolerance
    converged = settled and abs(residual) <= 3.0 * error + explorer.penalty * horizon * tolerance
    return Learned(log_z, visits, tilt, explorer.transitions, sweeps, residual, error, converged)


def _learn(
    explorer: Explorer, exploration: str, batches: int, step_constant: float, exploring_starts: bool, tolerance: float
) -> tuple[FloatArray, NDArray[np.int64], list[Sweep]]:
    """Work through batches until the termination rule applies."""
    n, horizon, penalty = explorer.n, explorer.horizon, explorer.penalty
    log_z, visits = np.full((horizon + 1, n), np.nan), np.zeros((horizon, n), np.int64)
    before, visited = log_z.copy(), visits.copy()
    sweeps: list[Sweep] = []
    for done in range(batches):
        if exploration == "passive" or done == 0:
            data = explorer.play(np.zeros((horizon, n)), exploring_starts)
        else:
            data = explorer.play(greedy_tilt(log_z, explorer.power_kw, explorer.scale))
        if exploration == "passive":
            passive_update(data.states, data.utility, log_z, visits, step_constant, penalty)
        else:
            importance_update(
                data.states, data.utility, data.divergence, data.tilt, log_z, visits, step_constant, penalty
            )
        if done & (done + 1) == 0:  # after 1, 2, 4, 8, … batches
            if done > 0:
                sweeps.append(Sweep(explorer.transitions, _change(before, log_z, visits - visited)))
                if sweeps[-1].change < tolerance:
                    break
            before, visited = log_z.copy(), visits.copy()
    return log_z, visits, sweeps


def _change(before: FloatArray, after: FloatArray, visits: NDArray[np.int64]) -> float:
    """Mean of |Δ log z| over the visits of a sweep, the common part of each time removed; infinite at new pairs."""
    if (np.isnan(before[:-1]) & (visits > 0)).mean(where=visits > 0) > 0.1:
        return float("inf")  # more than a tenth of the pairs were new
    known = (visits > 0) & ~np.isnan(before[:-1])
    weights = np.where(known, visits, 0).astype(float)
    delta = np.where(known, after[:-1] - before[:-1], 0.0)
    common = (weights * delta).sum(axis=1) / np.maximum(weights.sum(axis=1), 1.0)
    return float((weights * np.abs(delta - common[:, None])).sum() / weights.sum())


def _held_out_residual(explorer: Explorer, log_z: FloatArray, tilt: FloatArray, batches: int) -> tuple[float, float]:
    """Mean of predicted less observed returns under the greedy policy, and its standard error."""
    predicted = explorer.penalty * fill_gaps(log_z, explorer.power_kw)[0]
    parts = []
    for _ in range(batches):
        data = explorer.play(tilt)
        returns = data.utility.sum(axis=1) - explorer.penalty * data.divergence.sum(axis=1)
        parts.append(predicted[data.states[:, 0]] - returns)
    difference = np.concatenate(parts)
    if len(difference) < 2:
        return float(difference.mean()), float("inf")
    return float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(len(difference)))


class ZLearningAgent(ScheduleAgent):
    """Learns by Z-learning when it is made, then plays the greedy tilt.

    Parameters
    ----------
    env : gymnasium.Env or VectorEnv
        Where it learns (see `learn`) and will act.
    steps : int
        Transitions that may be observed.
    exploration, seed, step_constant, **settings
        See `learn`.

    Attributes
    ----------
    learned : Learned
    steps : int
        Transitions observed.
    """

    def __init__(
        self,
        env: Any,
        steps: int = 300_000,
        exploration: str = "importance",
        seed: int = 0,
        step_constant: float = 4.0,
        **settings: Any,
    ) -> None:
        self.learned = learn(env, steps, exploration, seed=seed, step_constant=step_constant, **settings)
        core, self.steps = core_env(env), self.learned.transitions
        private = core.release is not None
        privacy = "that of one release" if private else "none: it watched the true dynamics"
        actions = tilt_actions(self.learned.tilt, action_scale(core.model))
        super().__init__(actions, "z-learning", privacy, core.layout)


KINDS: dict[str, Kind] = {"z-learning": Kind(ZLearningAgent, learns=True)}
