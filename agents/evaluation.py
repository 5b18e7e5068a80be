r"""How good is an agent? Exactly if it is a schedule, else with seeded episodes and standard errors.

**Score.** With :math:`R` the agent's mean return, :math:`R_0` that of the uncontrolled ensemble and :math:`R^*` the
optimum, :math:`100\,(R - R_0)/(R^* - R_0)`: 0 is uncontrolled, 100 optimal. Both ends are known exactly for the
environment the agent is evaluated in.

**Schedules.** An agent that can say its actions for every time and context (``schedule(model)``, as `ScheduleAgent`
has it) is a policy of the model, and its return follows from the recursion: nothing is played, in any action mode
and, since the loads do not notice each other, for any number of loads. The actions count as the environment takes them,
clipped to the box. Only the cost of a coupling is not linear in the loads: a finite population is played there.

**Mean field.** Without contexts the environment is deterministic, so one episode of any agent from each start state,
weighted by the model's initial distribution, is the whole truth; the standard error is zero.

**Contexts.** Prices or weather that move by themselves make even the mean field random. Episodes are seeded, and each
is compared with what the uncontrolled ensemble and the optimal policy earn on average *from its own start and along its
own contexts*, so the luck of the contexts cancels. With a coupling a finite population plays both references, too,
with the same seeds.

**Finite populations.** Each return is compared with the two exact values *of its own start state*:
:math:`100\,\overline{(R_i - R_0(s_i))}/\overline{(R^*(s_i) - R_0(s_i))}`, with the standard error of a ratio.

**A release for each episode.** With ``redraw="episode"`` the agent is played on the first 16 releases of the
environment's sequence, and each return is compared with the two exact values *of its own release*. With
``instance=None`` the instances take the place of the releases.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray
from scipy.special import rel_entr

from dp_ensemble_env.agents.base import Agent, Core, FloatArray, ScheduleAgent, core_env
from dp_ensemble_env.agents.learners import population_of
from dp_ensemble_env.agents.plans import on_support
from dp_ensemble_env.control.policies import solve_standard, tilted_policy
from dp_ensemble_env.control.returns import mean_power, path_returns, policy_return, shares
from dp_ensemble_env.envs import actions
from dp_ensemble_env.envs.tables import Layout
from dp_ensemble_env.envs.vector import EnsembleVectorEnv
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.score import Outcome, Returns, start_values, summarise
from dp_ensemble_env.tools.validation import check_count, option

__all__ = ["Outcome", "evaluate", "scheduled_policy"]

#: Episodes that run side by side.
_BATCH = 1024
#: Episodes by default: of a finite population, and of a mean field whose contexts are random.
EPISODES, PATHS = 2000, 512
#: Releases that an environment which draws one for each episode is evaluated on.
RELEASES = 16


def evaluate(agent: Agent, env: Any, episodes: int | None = None, seed: int = 0) -> Outcome:
    """Evaluate an agent in a copy of `env`.

    Parameters
    ----------
    agent : Agent
        An object with Stable-Baselines3's ``predict``, which is called with ``deterministic=True``.
    env : gymnasium.Env or VectorEnv
        The copy has its model (the release, if it has one), population and action mode. With ``redraw="episode"`` the
        agent plays the first 16 releases of the sequence; new draws are charged to the ledger. With several instances
        each gets an equal share of the episodes.
    episodes : int, optional
        Number of episodes: by default 2,000 for a finite population and 512 for a mean field with contexts. Any other
        mean field takes one episode from each start state; a schedule needs none.
    seed : int
        Episode `i` is seeded with ``seed + i``.
    """
    core = core_env(env)
    seed = check_count(seed, "seed", 0)
    chance = core.population is not None or core.model.context is not None or core.redraw != "never"
    if episodes is not None and chance:
        episodes = check_count(episodes, "episodes", 2)
    usual = PATHS if core.population is None else EPISODES
    player, total = _Player(agent, core, seed), usual if episodes is None else episodes
    if core.redraw == "episode" or len(core.models) > 1:
        played = player.play_several(total)
    else:
        played = player.play(core.model, total)
    loads, weights = core.model.loads, played.returns.weights
    return summarise(
        core.model,
        returns=played.returns,
        discomfort=float(weights @ played.discomfort),
        power_kw=loads * (weights @ played.power),
        uncontrolled_kw=loads * (weights @ played.uncontrolled),
        episodes=played.episodes,
        exact=played.exact,
        privacy=getattr(agent, "privacy", "that of the environment it was trained in"),
    )


def scheduled_policy(agent: Any, model: EnsembleModel, action: str) -> FloatArray | None:
    """Return the policy (T, [c,] n, m) that an agent plays in a model; None if it is no schedule by time and context.

    An agent has a policy if it has ``schedule(model)``, which returns its actions (T, c, ...) in the action mode, or
    None.
    """
    plan = agent.schedule(model) if hasattr(agent, "schedule") else None
    if plan is None:
        return None
    mode, numbers = actions.mode(action), np.asarray(plan)
    expected = (model.horizon, model.n_contexts, *mode.shape(model))
    if numbers.shape != expected:
        raise ValueError(
            f"the agent's schedule has shape {numbers.shape} where {option('action', action)} takes (T, c, ...) = "
            f"{expected}; make the agent for this environment."
        )
    if mode.levels:
        numbers = mode.choices[numbers][..., None]
    numbers = np.clip(numbers, mode.low, 1.0, dtype=float)
    if model.context is None:
        numbers = numbers[:, 0]
    if mode.basis is None:
        return on_support(numbers, model)
    return tilted_policy(model, actions.tilts_of(mode, model, numbers))


class _Played(NamedTuple):
    """One row for each episode, release or instance: its return with the two references, discomfort and power."""

    returns: Returns
    discomfort: FloatArray
    power: FloatArray
    uncontrolled: FloatArray
    episodes: int
    exact: bool


class _Runs(NamedTuple):
    """One row per episode."""

    returns: FloatArray
    discomfort: FloatArray
    power: FloatArray  # (episodes, T + 1), kW per load
    uncontrolled: FloatArray  # the same, expected
    start: FloatArray  # (episodes, n), shares of the loads
    contexts: NDArray[np.int64]  # (episodes, T + 1)


class _Player:
    """Plays models with the population and the action mode of an environment."""

    def __init__(self, agent: Agent, core: Core, seed: int) -> None:
        self.agent, self.core, self.seed = agent, core, seed

    def play_several(self, total: int) -> _Played:
        """Play on each release or instance, each return compared with what is exact for its own; one row for each."""
        core = self.core
        models = core.models if core.redraw == "never" else list(core.released_models(min(RELEASES, total)))
        share = max(1, total // len(models))
        parts = [self.play(model, share, j * share) for j, model in enumerate(models)]
        columns = [(*part.returns[:3], part.discomfort, part.power, part.uncontrolled) for part in parts]
        means = [[part.returns.weights @ x for x in values] for part, values in zip(parts, columns, strict=True)]
        achieved, idle, best, discomfort, power, uncontrolled = map(np.array, zip(*means, strict=True))
        returns = Returns(achieved, idle, best, np.full(len(models), 1.0 / len(models)))
        exact = core.redraw == "never" and all(part.exact for part in parts)  # all instances, but only some releases
        return _Played(returns, discomfort, power, uncontrolled, sum(part.episodes for part in parts), exact)

    def play(self, model: EnsembleModel, episodes: int, first: int = 0) -> _Played:
        """Score a schedule exactly, and everything else along episodes that are paired with both references."""
        core, alone = self.core, model.coupling is None or self.core.population is None
        if alone and (plan := scheduled_policy(self.agent, model, core.action_mode)) is not None:
            return _expected(model, plan)
        exact, states = core.population is None and model.context is None, None
        weights = np.full(1 if exact else episodes, 1.0 / (1 if exact else episodes))
        if exact and not model.spread_start:
            states, weights = np.arange(model.n_states), model.initial

        def played(agent: Agent, mode: str) -> _Runs:
            parts = []
            for done in range(0, len(weights), _BATCH):
                batch = slice(done, min(done + _BATCH, len(weights)))
                parts.append(self._run(agent, model, mode, batch, first, states))
            return _Runs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

        runs = played(self.agent, core.action_mode)
        policies = model.default_policy, solve_standard(model).policy
        if alone:
            idle, best = (path_returns(model, policy, runs.contexts, runs.start) for policy in policies)
        else:
            idle, best = (played(_exactly(policy, core.layout), "policy").returns for policy in policies)
        returns = Returns(runs.returns, idle, best, weights)
        return _Played(returns, runs.discomfort, runs.power, runs.uncontrolled, len(weights), exact)

    def _run(
        self, agent: Agent, model: EnsembleModel, mode: str, batch: slice, first: int, states: NDArray[np.int64] | None
    ) -> _Runs:
        """Play some episodes side by side, in the environment's action mode or another."""
        core, count = self.core, batch.stop - batch.start
        env = EnsembleVectorEnv(
            count, model=model, population=population_of(core), action=mode,
            autoreset_mode=AutoresetMode.DISABLED, reward="dollars", ahead=core.layout.ahead,
        )  # fmt: skip
        options = None if states is None else {"state": states[batch]}
        observation, info = env.reset(seed=self.seed + first + batch.start, options=options)
        start, contexts = env.occupancy, np.empty((count, model.horizon + 1), np.int64)
        power, returns, discomfort = np.empty(contexts.shape), np.zeros(count), np.zeros(count)
        contexts[:, 0], power[:, 0] = env.context, info["power_kw"]
        hidden, begins = None, np.ones(count, dtype=bool)
        for t in range(1, model.horizon + 1):
            action, hidden = agent.predict(observation, state=hidden, episode_start=begins, deterministic=True)
            observation, reward, _, _, info = env.step(np.asarray(action))
            begins = np.zeros(count, dtype=bool)
            returns += reward
            discomfort += info["discomfort"]
            contexts[:, t], power[:, t] = env.context, info["power_kw"]
        return _Runs(returns, discomfort, power, env.default_power_kw, start, contexts)


def _exactly(policy: FloatArray, layout: Layout) -> ScheduleAgent:
    """Make the agent that plays a policy in policy mode with all its digits."""
    agent = ScheduleAgent(policy, "policy", "unknown", layout, by_context=policy.ndim == 4)
    agent.dtype = np.float64
    return agent


def _expected(model: EnsembleModel, policy: FloatArray) -> _Played:
    followed, idle = (shares(model, one) for one in (policy, model.default_policy))
    divergence = rel_entr(policy, model.default_policy).sum(axis=-1)
    discomfort = model.discomfort_penalty * (followed[:-1] * divergence).sum()
    returns = Returns(*(np.array([x]) for x in (policy_return(model, policy), *start_values(model), 1.0)))
    power, uncontrolled = (mean_power(model, rho)[None] for rho in (followed, idle))
    return _Played(returns, np.array([discomfort]), power, uncontrolled, episodes=0, exact=True)
