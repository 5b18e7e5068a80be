r"""Analytic policy gradients: a neural policy trained by exact gradients of its return.

The mean field is a smooth function of the actions, and `dp_ensemble_env.envs.functional` computes it in PyTorch. So the
gradient of a whole episode's return with respect to the weights of a network is known exactly, given the contexts,
which are sampled: no critic, no exploration noise, no likelihood ratios. An update plays ``n_envs`` episodes side by
side and follows the gradient of their mean return (in units of the discomfort penalty) with Adam.

Without a coupling the optimal tilt depends on the time and the context alone, and it may change at once when an event
begins. A network that sees the time as one number draws smooth curves through such steps. So with ``clock`` the policy
adds a *table* to what the network says: one action for each decision, and what each feature of the context adds to it
at that time. The network keeps what depends on the loads and, if there are several instances, on what differs between
them.

The learner knows the model of the environment it is made for, as the analytical agents do: on a release that is
post-processing. It trains in the mean field whatever the population; the policy then acts in the population itself. The
number of environment steps is episodes times horizon, as for all learners.

The trained policy is NumPy alone: loading and playing it needs no torch, and its file holds no code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.agents.learners import schedule
from dp_ensemble_env.agents.runs import Watch
from dp_ensemble_env.envs import functional
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.envs.tables import AHEAD
from dp_ensemble_env.model import EnsembleModel

Layers = list[tuple[NDArray[np.float32], NDArray[np.float32]]]
NAME = "apg"
#: The table learns at so many times the rate of the network: a step of Adam moves one entry by the rate, and all
#: weights of a network, each of which moves the action.
TABLE_RATE = 3.0
#: Its name in a file, beside the layers.
TABLE = "table"


class GradientPolicy:
    """A network with ``tanh`` between its layers that maps observations to actions, in NumPy.

    A layer is a weight of shape (outputs, inputs), as PyTorch has it, and a bias. A table (T, 1 + f, outputs) holds
    what is added at each decision: an action, and one for each feature of the context.
    """

    def __init__(self, layers: Layers, table: NDArray[np.float32] | None = None) -> None:
        self.layers, self.table = layers, table

    def __repr__(self) -> str:
        sizes = [self.layers[0][0].shape[1], *(len(bias) for _, bias in self.layers)]
        clock = "" if self.table is None else f", a table of {len(self.table)} decisions"
        return f"GradientPolicy({' - '.join(map(str, sizes))}{clock})"

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[np.float32], Any]:
        """Return the action and the hidden state, as `stable_baselines3` does; there is no noise to leave out."""
        values = seen = np.asarray(observation, dtype=np.float32)
        for weight, bias in self.layers[:-1]:
            values = np.tanh(values @ weight.T + bias)
        weight, bias = self.layers[-1]
        action = values @ weight.T + bias
        if self.table is not None:
            action = adding(action, seen, self.table)
        return np.clip(action, -1.0, 1.0, dtype=np.float32), state

    @property
    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Weights and biases by name, for a file."""
        found = {f"{i}.{part}": pair["wb".index(part)] for i, pair in enumerate(self.layers) for part in "wb"}
        return found if self.table is None else {**found, TABLE: self.table}

    @classmethod
    def of(cls, path: Any, arrays: Mapping[str, NDArray[Any]]) -> GradientPolicy:
        """Return the policy of a file's arrays."""
        table, count = arrays.get(TABLE), len(arrays) // 2
        if count == 0 or set(arrays) - {TABLE} != {f"{i}.{part}" for i in range(count) for part in "wb"}:
            raise ValueError(f"{path} holds no policy of apg: its weights have other names.")
        layers = [(arrays[f"{i}.w"], arrays[f"{i}.b"]) for i in range(count)]
        fits = all(w.ndim == 2 and b.shape == w.shape[:1] for w, b in layers)
        if not fits or any(lower[1].shape != upper[0].shape[1:] for lower, upper in pairwise(layers)):
            raise ValueError(f"{path} holds no policy of apg: its layers do not fit each other.")
        if table is not None:
            inputs, outputs = layers[0][0].shape[1], len(layers[-1][1])
            fits = table.ndim == 3 and table.shape[2] == outputs and min(table.shape[:2]) > 0
            if not fits or table.shape[1] + AHEAD > inputs:
                raise ValueError(f"{path} holds no policy of apg: its table does not fit its layers.")
        return cls(layers, table)


def adding(action: Any, observation: Any, table: Any) -> Any:
    """Return the actions plus what a table adds at observations (..., n + 1 + AHEAD + f), in NumPy or PyTorch.

    The part of the horizon that is left stands before what is known ahead and the features of the context; what no
    environment shows is taken for the first or the last decision.
    """
    horizon, shown, width = table.shape[0], table.shape[1] - 1, observation.shape[-1]
    left, features = observation[..., width - 1 - AHEAD - shown], observation[..., width - shown :]
    number = (horizon * (1.0 - left)).round().clip(0, horizon - 1)
    if isinstance(number, (np.ndarray, np.generic)):
        rows = table[np.nan_to_num(number).astype(np.intp)]
    else:
        rows = table[number.nan_to_num().long()]
    return action + rows[..., 0, :] + (features[..., None, :] @ rows[..., 1:, :])[..., 0, :]


# ------------------------------------------------------------------ training
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
