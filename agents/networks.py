r"""Networks that learn from the model of their environment: by exact gradients (`apg`) or from the optimum (`cloning`).

They know the model of their environment: on a release that is post-processing. The trained policy is NumPy alone:
loading and playing it needs no torch, and its file holds no code.

**Analytic policy gradients.** The mean field is a smooth function of the actions, and `dp_ensemble_env.envs.functional`
computes it in PyTorch. So the gradient of a whole episode's return with respect to the weights of a network is known
exactly, given the contexts, which are sampled: no critic, no exploration noise, no likelihood ratios. An update plays
``n_envs`` episodes side by side and follows the gradient of their mean return (in units of the discomfort penalty) with
Adam. It trains in the mean field whatever the population; the policy then acts in the population itself.

Without a coupling the optimal tilt depends on the time and the context alone, and it may change at once when an event
begins; a network that sees the time as one number draws smooth curves through such steps. So with ``clock`` the policy
adds a *table* to the network: one action for each decision, and what each feature of the context adds to it then.

**Behaviour cloning.** The optimal plan plays each instance of the environment, in its action mode, and a network
imitates it by least squares. A signal cannot express every tilt, so there the plan plays the nearest signals.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from dp_ensemble_env.agents.base import FloatArray, Kind, core_env, privacy_of
from dp_ensemble_env.agents.learners import one_thread, population_of, schedule
from dp_ensemble_env.agents.loading import GradientPolicy, LearnedAgent, adding
from dp_ensemble_env.agents.plans import plain_tilts
from dp_ensemble_env.agents.runs import Watch
from dp_ensemble_env.control.returns import optimal_tilts
from dp_ensemble_env.envs import actions, functional
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.envs.tables import AHEAD
from dp_ensemble_env.envs.vector import EnsembleVectorEnv
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.tools.validation import option

#: The table learns at so many times the rate of the network: a step of Adam moves one entry by the rate, and all
#: weights of a network, each of which moves the action.
TABLE_RATE = 3.0
#: Of cloning: passes over the pairs, pairs of an update, width of the two layers, rate of Adam.
PASSES, BATCH, WIDTH, RATE = 20, 256, 64, 1e-3


# ------------------------------------------------------------------ analytic policy gradients
class Trainer:
    """The network, its optimizer and the environments that it is trained through.

    The `models` are taken in turn, one for each update; `total` are the steps of the whole training.
    """

    #: The policy's numbers are actions of the environment.
    codes = None

    def __init__(
        self, models: Sequence[EnsembleModel], action: str, settings: dict[str, Any], seed: int, total: int
    ) -> None:
        import torch

        made = [EnsembleEnv(model, "mean-field", action, reward="dollars") for model in models]
        self.params = [functional.make(env, backend="torch", dtype="float32") for env in made]
        self.settings, self.seed, self.total, self.steps = settings, seed, total, 0
        self.chunk = int(settings["n_envs"] * self.params[0].horizon)  # steps of an update
        self.rate = schedule(settings["learning_rate"])
        hidden = settings["policy_kwargs"].get("net_arch", [64, 64])
        sizes = [self.params[0].observation_size, *hidden, self.params[0].action_shape[0]]
        torch.manual_seed(seed)
        self.linear = [torch.nn.Linear(a, b) for a, b in pairwise(sizes)]
        with torch.no_grad():  # begin by leaving the loads alone, nearly
            self.linear[-1].weight.mul_(0.01)
            self.linear[-1].bias.zero_()
        self.weights = [weight for layer in self.linear for weight in layer.parameters()]
        groups = [{"params": list(self.weights), "times": 1.0}]
        self.table: Any = None
        if settings.get("clock"):
            shape = self.params[0].horizon, int(self.params[0].clock.shape[-1]) - AHEAD, sizes[-1]
            self.table = torch.zeros(shape, requires_grad=True)
            self.weights.append(self.table)
            groups.append({"params": [self.table], "times": TABLE_RATE})
        self.optimizer = torch.optim.Adam(groups)
        self.begin_segment()

    def begin_segment(self) -> None:
        """Seed the draws from (seed, steps), so that a run that is resumed here goes on as it would have."""
        import torch

        word = int(np.random.SeedSequence([self.seed, self.steps]).generate_state(1)[0])
        self.generator = torch.Generator().manual_seed(word)

    @property
    def policy(self) -> GradientPolicy:
        """The policy as it is now."""
        table = None if self.table is None else self.table.detach().numpy()
        return GradientPolicy([(x.weight.detach().numpy(), x.bias.detach().numpy()) for x in self.linear], table)

    def predict(self, *arguments: Any, **more: Any) -> tuple[NDArray[np.float32], Any]:
        """Act by the policy as it is now."""
        return self.policy.predict(*arguments, **more)

    def act(self, observation: Any) -> Any:
        """Return the action in PyTorch, inside the box.

        The gradient is that without the box: an action beyond its edge would have none, and never come back.
        """
        values = observation
        for layer in self.linear[:-1]:
            values = layer(values).tanh()
        action = self.linear[-1](values)
        if self.table is not None:
            action = adding(action, observation, self.table)
        return action + (action.clamp(-1.0, 1.0) - action).detach()

    def update(self) -> None:
        """Play episodes, and follow the gradient of their mean return."""
        import torch

        params = self.params[(self.steps // self.chunk) % len(self.params)]
        state, observation = functional.reset(params, self.generator, (self.settings["n_envs"],))
        total: Any = 0.0
        for _ in range(params.horizon):
            state, observation, reward, _, _ = functional.step(params, state, self.act(observation), self.generator)
            total = total + reward
        loss = -total.mean() / params.penalty
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.weights, self.settings["max_grad_norm"])
        rate = self.rate(1.0 - self.steps / self.total) if callable(self.rate) else self.rate
        for group in self.optimizer.param_groups:
            group["lr"] = group["times"] * rate
        self.optimizer.step()
        self.steps += self.chunk

    def learn(self, watch: Watch) -> None:
        """Update from where the record stands to the end or the target; score, save and reseed at every cut."""
        if not watch.record.curve:
            watch.cut(self.steps)
        while self.steps < self.total and not watch.reached:
            self.begin_segment()
            following = min(self.total, (self.steps // watch.interval + 1) * watch.interval)
            while self.steps < following:
                self.update()
                watch.progress(self.steps, self.total, watch.latest)
            watch.cut(self.steps)

    def checkpoint_state(self) -> dict[str, Any]:
        """Return everything that is needed to go on."""
        return {"weights": self.weights, "optimizer": self.optimizer.state_dict(), "steps": self.steps}

    def restore_state(self, state: dict[str, Any]) -> None:
        """Go back to where `checkpoint_state` was called."""
        import torch

        with torch.no_grad():
            for mine, kept in zip(self.weights, state["weights"], strict=True):
                mine.copy_(kept)
        self.optimizer.load_state_dict(state["optimizer"])
        self.steps = int(state["steps"])


# ------------------------------------------------------------------ behaviour cloning
def cloning(env: Any, steps: int = 20_000, seed: int = 0) -> LearnedAgent:
    """Play the expert for `steps` decisions, spread over the instances, and fit a network to them."""
    import torch

    core: Any = core_env(env)
    mode = actions.mode(core.action_mode)
    if mode.basis is None or mode.levels:
        asked = option("action", "signals", "tilt")
        raise ValueError(f"a clone chooses numbers, got {option('action', core.action_mode)}; pass {asked}.")
    share = max(1, steps // (core.model.horizon * len(core.models)))
    parts = [_played(model, core, share, seed + i * share) for i, model in enumerate(core.models)]
    seen, done = (torch.as_tensor(np.concatenate(part), dtype=torch.float32) for part in zip(*parts, strict=True))
    with one_thread():
        torch.manual_seed(seed)
        linear = [torch.nn.Linear(a, b) for a, b in pairwise((seen.shape[1], WIDTH, WIDTH, done.shape[1]))]
        network = torch.nn.Sequential(linear[0], torch.nn.Tanh(), linear[1], torch.nn.Tanh(), linear[2])
        optimizer = torch.optim.Adam(network.parameters(), RATE)
        for _ in range(PASSES):
            for rows in torch.split(torch.randperm(len(seen)), BATCH):  # type: ignore[no-untyped-call]
                optimizer.zero_grad()
                loss: Any = torch.nn.functional.mse_loss(network(seen[rows]), done[rows])
                loss.backward()
                optimizer.step()
    layers = [(layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in linear]
    privacy = privacy_of(core, "none: learned from the true dynamics")
    return LearnedAgent(GradientPolicy(layers), "cloning", privacy=privacy, steps=len(seen))


def _played(model: EnsembleModel, core: Any, episodes: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return the observations and actions of the expert in one instance."""
    mode, nats = actions.mode(core.action_mode), plain_tilts(model, optimal_tilts(model))
    fitted = actions.centred_actions(model, nats, False) if mode.tilt else actions.actions_of(mode, model, nats)
    numbers = fitted.reshape(model.horizon, model.n_contexts, -1)
    env = EnsembleVectorEnv(
        episodes, model=model, population=population_of(core), action=core.action_mode,
        autoreset_mode=AutoresetMode.DISABLED, ahead=core.layout.ahead,
    )  # fmt: skip
    observation, _ = env.reset(seed=seed)
    seen, done = [], []
    for t in range(model.horizon):
        action = numbers[t, env.context].astype(np.float32)
        seen.append(observation.copy())
        done.append(action)
        observation, *_ = env.step(action)
    return np.concatenate(seen), np.concatenate(done)


KINDS: dict[str, Kind] = {"cloning": Kind(cloning, learns=True)}
