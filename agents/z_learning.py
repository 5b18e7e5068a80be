r"""Z-learning: the native learner of linearly-solvable problems, from observed transitions alone.

**Equations.** The desirability :math:`z_t(b)` of level `b` at time `t` obeys a linear equation under the default
dynamics `P` (Theorem 1), and the optimal tilt is its logarithm at the next time,

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

**The normaliser g from interaction only.** The divergence that the environment charges is :math:`\mathrm{KL} =
E_\pi[\tau] - \log g`, and `info` reports it as the discomfort, :math:`\gamma\,\mathrm{KL}`, exactly. So :math:`\log g =
E_\pi[\tau] - \mathrm{KL}` (Z3), the expectation being estimated by the mean of :math:`\tau` over the visits of `(t, b)`
in one batch of episodes, all of which play the same tilt. This is unbiased for :math:`\log g`, not for `g`. Batches are
therefore averaged in logs, :math:`\log z \leftarrow (1-\eta)\log z + \eta \log y` (Z4), where an error of mean zero
leaves no bias; `y` is the mean of the weighted targets in the batch, almost constant once the tilt is nearly greedy.

**What the learner knows.** States and utilities as they are observed, the discomfort it is charged, its own
tilts; and the public side of the problem: :math:`\gamma`, the power levels (to fill gaps), the action scale
:math:`s_t`. Never the matrix. Transitions come from a batch of single-load environments like the one given.

**Starts.** Few uncontrolled loads reach the low levels that matter during an event. The environment lets the
caller choose the start (``reset(options={"state": ...})``), and the learner does so:
passive exploration always begins in levels drawn uniformly, importance exploration in its first batch only.

**Step.** :math:`\eta = c/(c + N)` with `N` the earlier visits of the pair (:math:`cm/(cm + N)` for `m` visits at
once): the first visit replaces the initial value, and larger `c` forgets stale bootstraps sooner. Each batch is
worked through backwards in time. Everything is kept as logarithms, since `z` spans e^-80 and less.

**Termination and convergence.** A sweep ends whenever the number of batches has doubled. The *change* of a sweep is the
mean of :math:`|\Delta \log z_t(b)|` over its visits, less the part that is common to all levels of a time (which
changes no policy). Learning ends when the change falls below `tolerance` nats, or when the transitions are spent. Then
held-out episodes, which count in the budget, are played with the greedy policy: the table predicts the return
:math:`\gamma \log z_0(s_0)`, and the *residual* is the mean of predicted less observed returns. The agent has converged
if the last change was below `tolerance` and :math:`|residual| \le 3\,s.e. + \gamma\,T\,tolerance`.

References: Todorov (2009), *Efficient computation of optimal actions*, PNAS 106(28).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from dp_ensemble_env.agents.base import FloatArray, Kind, ScheduleAgent, core_env, privacy_of
from dp_ensemble_env.envs.actions import TILT, action_scale, actions_of
from dp_ensemble_env.envs.vector import EnsembleVectorEnv
from dp_ensemble_env.tools.compile import njit
from dp_ensemble_env.tools.validation import check_choice, check_count, check_in_range, check_positive, option

EXPLORATIONS = ("passive", "importance")
#: Share of the transitions that is kept for the final check.
HELD_OUT = 0.1
IntArray = NDArray[np.int64]


class Experience(NamedTuple):
    """A batch of whole episodes."""

    states: IntArray  # (episodes, T + 1)
    utility: FloatArray  # (episodes, T + 1), dollars observed on arrival; zero at time 0, where nothing is paid
    divergence: FloatArray  # (episodes, T), discomfort charged for each move, in nats


class Sweep(NamedTuple):
    """State of the learning at the end of a sweep: moves observed so far, mean change of log z over the visits."""

    transitions: int
    change: float


class Learned(NamedTuple):
    """What Z-learning found."""

    log_z: FloatArray
    """(T + 1, n), NaN where a pair was never visited. ``log_z[0]`` leaves out the utility of time 0, which no reward
    contains, so that it predicts the return / gamma."""
    visits: IntArray  # (T, n)
    tilt: FloatArray  # (T, n), greedy, inside the action box
    transitions: int  # all moves observed, held-out ones included
    sweeps: list[Sweep]
    residual: float  # predicted less observed return of the held-out episodes, dollars per load
    standard_error: float
    converged: bool  # see the termination rule


# ------------------------------------------------------------------ updates
@njit(cache=True, nogil=True)
def passive_update(
    states: IntArray, utility: FloatArray, log_z: FloatArray, visits: IntArray, step_constant: float, penalty: float
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
    states: IntArray,
    utility: FloatArray,
    divergence: FloatArray,
    tilt: FloatArray,
    log_z: FloatArray,
    visits: IntArray,
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
    """Interpolate unvisited pairs in power between visited ones of the same time; beyond them the nearest one's value.

    A time without any gets zeros.
    """
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
                f"Z-learning steers by tilts, but the environment was made with {option('action', core.action_mode)}; "
                f"make it with {option('action', 'tilt')}."
            )
        if not core.model.is_plain or len(core.models) > 1:
            raise ValueError(
                "Z-learning keeps one desirability for each time and level, so it learns on one model whose loads "
                "choose their next level themselves: without nature, context or coupling. Train 'ppo' here instead."
            )
        # Only public parts of the model are read below; the matrix stays inside the environment.
        self.n, self.horizon = core.model.n_states, core.model.horizon
        self.penalty, self.power_kw = core.model.discomfort_penalty, core.model.power_kw
        self.scale, self.actions_of = action_scale(core.model), partial(actions_of, TILT, core.model)
        self.episodes, self.transitions = episodes, 0
        moves, starts = np.random.SeedSequence(seed).spawn(2)
        self._seed: int | None = int(moves.generate_state(1)[0])
        self._starts = np.random.default_rng(starts)
        self._env = EnsembleVectorEnv(
            episodes, core.model, population="single", action="tilt", autoreset_mode=AutoresetMode.DISABLED,
            reward="dollars",
        )  # fmt: skip

    def play(self, tilt: FloatArray, exploring_starts: bool = False) -> Experience:
        """Play one batch with the tilts `tilt` (T, n)."""
        size, n, horizon = self.episodes, self.n, self.horizon
        options = {"state": self._starts.integers(n, size=size)} if exploring_starts else None
        observation, _ = self._env.reset(seed=self._seed, options=options)
        self._seed = None  # later batches continue the same streams
        states, utility = np.empty((size, horizon + 1), np.int64), np.zeros((size, horizon + 1))
        divergence = np.empty((size, horizon))
        states[:, 0] = observation[:, :n].argmax(axis=1)
        for t, action in enumerate(self.actions_of(tilt)):
            observation, _, _, _, info = self._env.step(np.tile(action, (size, 1)))
            states[:, t + 1] = observation[:, :n].argmax(axis=1)
            utility[:, t + 1] = info["utility"]
            divergence[:, t] = info["discomfort"] / self.penalty
        self.transitions += size * horizon
        return Experience(states, utility, divergence)


# ------------------------------------------------------------------ learning
def learn(
    env: Any,
    transitions: int = 300_000,
    exploration: str = "importance",
    *,
    seed: int = 0,
    step_constant: float = 4.0,
    batch: int = 200,
    tolerance: float = 0.05,
) -> Learned:
    """Learn the desirability of every level and time by Z-learning.

    Whatever the population of `env`, which has tilt actions, the learner watches single loads of it; with a release,
    they follow it. `transitions` are the moves that may be observed, the last tenth of which is kept for the final
    check. `batch` episodes are played side by side between two updates of the greedy tilt, fewer if the budget is
    small. `step_constant` is the `c` of the decaying step; learning ends below a change of `tolerance` nats, and 0
    spends the whole budget. `seed` fixes moves and exploring starts, hence the result.
    """
    passive = check_choice(exploration, "exploration", EXPLORATIONS) == "passive"
    step_constant = check_positive(step_constant, "step_constant")
    tolerance = check_in_range(tolerance, "tolerance", 0.0, np.inf)
    horizon = core_env(env).model.horizon
    total = check_count(transitions, "transitions", 4 * horizon) // horizon
    size = min(check_count(batch, "batch"), total // 4)
    checks = max(1, round(HELD_OUT * (total // size)))
    explorer = Explorer(env, size, check_count(seed, "seed", 0))
    n, penalty, power = explorer.n, explorer.penalty, explorer.power_kw
    log_z, visits = np.full((horizon + 1, n), np.nan), np.zeros((horizon, n), np.int64)
    before, visited = log_z.copy(), visits.copy()
    sweeps: list[Sweep] = []
    for done in range(total // size - checks):
        blind = passive or done == 0
        tilt = np.zeros((horizon, n)) if blind else greedy_tilt(log_z, power, explorer.scale)
        data = explorer.play(tilt, exploring_starts=blind)
        if passive:
            passive_update(data.states, data.utility, log_z, visits, step_constant, penalty)
        else:
            importance_update(*data, tilt, log_z, visits, step_constant, penalty)
        if done & (done + 1) == 0:  # after 1, 2, 4, 8, … batches
            if done > 0:
                sweeps.append(Sweep(explorer.transitions, _change(before, log_z, visits - visited)))
                if sweeps[-1].change < tolerance:
                    break
            before, visited = log_z.copy(), visits.copy()
    tilt = greedy_tilt(log_z, power, explorer.scale)
    residual, error = _held_out_residual(explorer, log_z, tilt, checks)
    settled = bool(sweeps) and sweeps[-1].change < tolerance
    converged = settled and abs(residual) <= 3.0 * error + penalty * horizon * tolerance
    return Learned(log_z, visits, tilt, explorer.transitions, sweeps, residual, error, converged)


def _change(before: FloatArray, after: FloatArray, visits: IntArray) -> float:
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
    error = difference.std(ddof=1) / np.sqrt(len(difference)) if len(difference) > 1 else np.inf
    return float(difference.mean()), float(error)


class ZLearningAgent(ScheduleAgent):
    """Learns by Z-learning when it is made, from at most so many steps; then plays the greedy tilt. See `learn`."""

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
        privacy = privacy_of(core, "none: it watched the true dynamics")
        super().__init__(actions_of(TILT, core.model, self.learned.tilt), "z-learning", privacy, core.layout)


KINDS: dict[str, Kind] = {"z-learning": Kind(ZLearningAgent, learns=True)}
