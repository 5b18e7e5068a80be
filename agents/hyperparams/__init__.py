r"""Tuned hyper-parameters of the learners, in the form of RL Baselines3 Zoo.

``HYPERPARAMS[algo][(population, action)]`` holds the keys that `rl_zoo3` knows
(``n_envs``, ``n_timesteps``, ``policy``, ``policy_kwargs``, ``noise_type``, ``"lin_0.001"`` for a
rate that falls linearly to zero, and the arguments of the algorithm), and three of
our own:

``clock``
    True gives policy and critic the time as one-hot code beside the occupancy
    (`dp_ensemble_env.agents.features.ClockFeatures`); the policy of `apg` has a table of actions by time and context.
``cosines``
    A learner of tilts chooses the weights of so many cosines over the states that a load may choose, slowest first,
    instead of one tilt for each of them (`cosine_basis`); 0 for tilts. What few loads do then moves along with what
    many do.
``bins``
    Number of prices that DQN chooses from (`gymnasium.wrappers.DiscretizeAction`).

They were found with `scripts/tuning.py`; ``docs/tuning.md`` gives the command of each
study and ``docs/tuning/`` its summary. They were tuned with rewards of order one; the
horizon is part of the task, so nothing is discounted.

`rl_zoo3` reads the same numbers, one algorithm and action mode at a time, though
without the native vector environment (``docs/libraries/rl_zoo3.md``)::

    python -m rl_zoo3.train --algo ppo --env dp_ensemble/Spot-v1 \
        --gym-packages dp_ensemble_env -conf dp_ensemble_env.agents.hyperparams.ppo_price
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import registry
from numpy.typing import NDArray
from scipy.fft import idct

from dp_ensemble_env import scenarios
from dp_ensemble_env.envs import actions
from dp_ensemble_env.envs.registration import environment_ids
from dp_ensemble_env.tools.validation import check_choice

MEAN_FIELD, SINGLE_LOAD = "mean-field", "single"
Settings = dict[str, Any]

#: One episode of the campus event, the natural length of a rollout.
HORIZON = 18
SMALL: Settings = {"net_arch": [64, 64]}
#: A linear policy: the optimal tilt depends on time alone, so one-hot time makes it linear. The critic is not.
LINEAR: Settings = {"net_arch": {"pi": [], "vf": [64, 64]}}

_ON_POLICY: Settings = {
    "policy": "MlpPolicy", "n_steps": HORIZON, "gamma": 1.0, "gae_lambda": 0.95,
}  # fmt: skip
_OFF_POLICY: Settings = {
    "policy": "MlpPolicy", "n_envs": 8, "n_timesteps": 20_000, "learning_rate": 1e-3, "gamma": 1.0,
    "buffer_size": 40_000, "batch_size": 256, "learning_starts": 720, "train_freq": 1, "gradient_steps": 2,
    "policy_kwargs": SMALL,
}  # fmt: skip
_SOFT: Settings = {"learning_rate": 2e-3, "gradient_steps": 1, "tau": 0.02, "ent_coef": 6e-4}
_PPO: Settings = {**_ON_POLICY, "n_epochs": 10}
#: Few cosines, linear in the one-hot time; noise of its own size for each decision.
_TILT_ON_POLICY: Settings = {
    "gae_lambda": 0.9, "clock": True, "cosines": 6, "use_sde": True, "policy_kwargs": {**LINEAR, "log_std_init": -2.5},
}  # fmt: skip
_TILT_OFF_POLICY: Settings = {
    **_OFF_POLICY, "n_envs": 16, "n_timesteps": 100_000, "buffer_size": 20_000, "gradient_steps": 4, "tau": 0.02,
    "clock": True, "cosines": 4, "policy_kwargs": {"net_arch": {"pi": [], "qf": [128, 128]}},
}  # fmt: skip
_TILT_SOFT: Settings = {
    "learning_rate": "lin_0.004", "learning_starts": 288, "ent_coef": 1e-5, "use_sde": True, "use_sde_at_warmup": True,
    "policy_kwargs": {**_TILT_OFF_POLICY["policy_kwargs"], "log_std_init": -3.0},
}  # fmt: skip
#: Exact gradients: ``n_envs`` episodes side by side make an update. No rollouts, no discount, no critic.
_GRADIENT: Settings = {
    "n_envs": 20, "n_timesteps": 200_000, "learning_rate": "lin_0.003", "max_grad_norm": 1.0, "clock": True,
    "policy_kwargs": SMALL,
}  # fmt: skip

HYPERPARAMS: dict[str, dict[tuple[str | int, str], Settings]] = {
    "ppo": {
        (MEAN_FIELD, "price"): {
            **_PPO, "n_envs": 16, "n_timesteps": 50_000, "batch_size": 72, "n_epochs": 20, "gae_lambda": 0.9,
            "learning_rate": "lin_0.0011", "policy_kwargs": {**SMALL, "log_std_init": -1.0},
        },
        (MEAN_FIELD, "tilt"): {
            **_PPO, **_TILT_ON_POLICY, "n_envs": 128, "n_timesteps": 1_000_000, "batch_size": 576,
            "learning_rate": "lin_0.003",
        },
        (SINGLE_LOAD, "price"): {
            **_PPO, "n_envs": 128, "n_timesteps": 200_000, "batch_size": 576, "learning_rate": "lin_0.003",
            "policy_kwargs": {**SMALL, "log_std_init": -1.0},
        },
    },
    "a2c": {
        (MEAN_FIELD, "price"): {
            **_ON_POLICY, "n_envs": 32, "n_timesteps": 100_000, "learning_rate": "lin_0.003", "use_rms_prop": False,
            "normalize_advantage": True, "policy_kwargs": {**SMALL, "log_std_init": -2.0},
        },
        (MEAN_FIELD, "tilt"): {
            **_ON_POLICY, **_TILT_ON_POLICY, "n_envs": 64, "n_timesteps": 1_000_000, "learning_rate": "lin_0.003",
            "use_rms_prop": False, "normalize_advantage": True,
        },
    },
    "trpo": {
        (MEAN_FIELD, "price"): {
            **_ON_POLICY, "n_envs": 32, "n_timesteps": 50_000, "batch_size": 144, "learning_rate": 2e-3,
            "n_critic_updates": 20, "target_kl": 0.05, "policy_kwargs": {**SMALL, "log_std_init": -2.0},
        },
        (MEAN_FIELD, "tilt"): {
            **_ON_POLICY, **_TILT_ON_POLICY, "n_envs": 64, "n_timesteps": 400_000, "batch_size": 288,
            "learning_rate": 2e-3, "n_critic_updates": 20, "target_kl": 0.05,
        },
    },
    "sac": {
        (MEAN_FIELD, "price"): {**_OFF_POLICY, **_SOFT},
        (MEAN_FIELD, "tilt"): {**_TILT_OFF_POLICY, **_TILT_SOFT},
    },
    "tqc": {
        (MEAN_FIELD, "price"): {**_OFF_POLICY, **_SOFT},
        (MEAN_FIELD, "tilt"): {**_TILT_OFF_POLICY, **_TILT_SOFT},
    },
    "td3": {
        (MEAN_FIELD, "price"): {
            **_OFF_POLICY, "learning_rate": 6.4e-3, "gradient_steps": 4, "noise_type": "normal", "noise_std": 0.22,
            "target_policy_noise": 0.02, "target_noise_clip": 0.05,
        },
        (MEAN_FIELD, "tilt"): {
            **_TILT_OFF_POLICY, "learning_rate": "lin_0.005", "learning_starts": 0, "policy_delay": 1,
            "noise_type": "normal", "noise_std": 0.15, "target_policy_noise": 0.0, "target_noise_clip": 0.0,
        },
    },
    "dqn": {
        (MEAN_FIELD, "price"): {
            **_OFF_POLICY, "n_envs": 4, "bins": 21, "exploration_fraction": 0.3, "exploration_final_eps": 0.05,
            "target_update_interval": 250,
        },
    },
    "apg": dict.fromkeys([(MEAN_FIELD, "price"), (MEAN_FIELD, "tilt")], _GRADIENT),
}  # fmt: skip

_WHOLE: Settings = {"n_envs": 20, "n_steps": 48, "batch_size": 240}  # a whole episode for each training instance


def _quiet(log_std: float) -> Settings:
    return {"policy_kwargs": {**SMALL, "log_std_init": log_std}}


#: What differs from these in a scenario, by algorithm, scenario and action mode; ``docs/tuning.md`` says why.
BY_SCENARIO: dict[str, dict[tuple[str, str], Settings]] = {
    "apg": {
        # A call is rare: hardly any entry of a table by time and context is ever visited.
        ("call", "tilt"): {"clock": False},
        # Nothing is drawn there, so that all episodes of an update are equal: few make more updates of the same budget.
        ("feeder", "tilt"): {"n_envs": 4},
        ("tracking", "tilt"): {"n_envs": 4},
    },
    # With a context λ is low: looking far, an advantage is mostly the luck of prices and weather. Without one it is 1
    # (in tracking it makes no difference): nothing is luck, and a critic that cannot tell the instances apart misleads.
    "ppo": {
        ("call", "price"): {
            "n_envs": 20, "n_steps": 64, "batch_size": 1280, "n_epochs": 10, "gae_lambda": 0.5,
            "learning_rate": "lin_0.00047", **_quiet(-3.0),
        },
        ("campus-day", "price"): {
            "n_envs": 40, "n_steps": 24, "batch_size": 480, "n_epochs": 10, "gae_lambda": 1.0,
            "learning_rate": "lin_0.003", **_quiet(-0.5),
        },
        ("feeder", "price"): {
            **_WHOLE, "n_envs": 40, "n_epochs": 10, "gae_lambda": 1.0, "learning_rate": "lin_0.0029", **_quiet(-2.5),
        },
        ("pool-pumps", "price"): {**_WHOLE, "gae_lambda": 0.5},
        ("spot", "price"): {
            **_WHOLE, "n_epochs": 5, "gae_lambda": 0.8, "learning_rate": "lin_0.00037", **_quiet(-1.5),
        },
        ("thermostats", "price"): {
            **_WHOLE, "n_envs": 40, "n_epochs": 10, "gae_lambda": 0.6, "learning_rate": "lin_0.00076", **_quiet(-1.25),
        },
        ("tracking", "price"): _WHOLE,
        ("vehicles", "price"): {**_WHOLE, "gae_lambda": 0.5},
    },
}  # fmt: skip

ALGORITHMS = tuple(HYPERPARAMS)


def hyperparameters(algo: str, population: str | int, action: str) -> Settings:
    """Return a copy of the settings of an algorithm for a population and action mode.

    Where nothing was tuned the nearest settings stand in: those of the campus event's
    mean field for other populations and scenarios, those of tilts for whole policies,
    those of prices for other action modes of few numbers.
    """
    check_choice(algo, "algo", ALGORITHMS)
    check_choice(action, "action", actions.names())
    table = HYPERPARAMS[algo]
    nearest = "tilt" if action in ("tilt", "policy") else "price"  # a mode of few numbers is explored like a price
    kind = SINGLE_LOAD if population == 1 else population
    for key in ((kind, action), (kind, nearest), (MEAN_FIELD, nearest)):
        if key in table:
            found = copy.deepcopy(table[key])  # Stable-Baselines3 writes into policy_kwargs
            if not actions.mode(action).tilt:
                found.pop("cosines", None)
            return found
    raise ValueError(f"{algo} chooses from a list of prices, so it works in price mode only; pass action='price'.")


def changes_for(algo: str, scenario: str, action: str, population: str | int = "mean-field") -> Settings:
    """Return what a scenario changes in the settings of an algorithm in the mean field; or nothing.

    A model does not know which scenario it comes from, so whoever trains by a scenario's name passes these on:
    `dp-ensemble train`, `suite` and `leaderboard` do.
    """
    if population != "mean-field":
        return {}
    return copy.deepcopy(BY_SCENARIO.get(algo, {}).get((scenario, action), {}))


@cache
def cosine_basis(cosines: int, decisions: int) -> NDArray[np.float32]:
    """Return the slowest orthonormal cosines over the decisions, one in each row (DCT, type II).

    The first is a constant, which moves nothing where all decisions compete.
    """
    basis: NDArray[np.float32] = idct(np.eye(cosines, decisions), axis=1, norm="ortho").astype(np.float32)
    return basis


def cosine_space(cosines: int, decisions: int) -> gymnasium.spaces.Box:
    """Return the box of weights: tilts whose root mean square is 1/2 or less need none beyond it."""
    bound = 0.5 * float(np.sqrt(decisions))
    return gymnasium.spaces.Box(-bound, bound, (min(cosines, decisions),), np.float32)


def tilts_of_weights(weights: NDArray[np.floating], decisions: int) -> NDArray[np.float32]:
    """Return the tilts (..., m), in the box of actions, that weights of the slowest cosines stand for."""
    basis = cosine_basis(weights.shape[-1], decisions)
    tilts: NDArray[np.float32] = np.clip(np.asarray(weights, np.float32) @ basis, -1.0, 1.0)
    return tilts


class CosineActions(gymnasium.ActionWrapper[Any, Any, Any]):
    """Weights of cosines, in an environment that takes tilts."""

    def __init__(self, env: gymnasium.Env[Any, Any], cosines: int) -> None:
        super().__init__(env)
        (self.decisions,) = env.action_space.shape  # type: ignore[misc]
        self.action_space = cosine_space(cosines, self.decisions)

    def action(self, action: Any) -> Any:
        """Return the tilts."""
        return tilts_of_weights(np.asarray(action), self.decisions)


# ------------------------------------------------------------------ rl_zoo3
class ZooSettings(Mapping[str, Settings]):
    """Settings by environment id, as `rl_zoo3` expects them; a module for each algorithm and action mode holds one.

    `rl_zoo3` writes into the settings it reads, and a second experiment of the same process reads them again: every
    access makes them anew.
    """

    def __init__(self, algo: str, action: str) -> None:
        self.algo, self.action = algo, action

    def __getitem__(self, env_id: str) -> Settings:
        if env_id not in set(self):
            raise KeyError(env_id)
        return zoo_settings(self.algo, registry[env_id].kwargs["scenario"], self.action)

    def __iter__(self) -> Iterator[str]:
        return (env_id for env_id in environment_ids() if registry[env_id].kwargs["action"] == self.action)

    def __len__(self) -> int:
        return len(list(iter(self)))


def zoo_settings(algo: str, scenario: str, action: str) -> Settings:
    """Translate our own keys into those of `rl_zoo3`."""
    settings = {**hyperparameters(algo, "mean-field", action), **changes_for(algo, scenario, action)}
    settings["env_wrapper"] = []
    if (bins := settings.pop("bins", None)) is not None:
        settings["env_wrapper"].append({"gymnasium.wrappers.DiscretizeAction": {"bins": bins}})
    if (cosines := settings.pop("cosines", None)) is not None:
        settings["env_wrapper"].append({f"{__name__}.CosineActions": {"cosines": cosines}})
    if settings.pop("clock", False):
        from dp_ensemble_env.agents.features import clock_kwargs
        from dp_ensemble_env.envs.tables import layout_of

        model = scenarios.make(scenario)
        clock = clock_kwargs(layout_of(model), model.coupling is not None)
        settings["policy_kwargs"] = {**settings["policy_kwargs"], **clock}
    return settings
