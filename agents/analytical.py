"""The closed-form policies as agents.

A policy is played through the environment's ``encode_policy``. The ``policy``
action mode plays every policy exactly; ``tilt`` plays those that are tilts of
the default, the standard policy among them; others are refused there with a
sentence that says so.

Each policy may be solved on the environment's own matrix or on a release of it
(``release=``), and says in `privacy` what that means: a policy solved on the true
matrix is a deterministic function of it and protects nobody, whatever noise it
expects; one solved on a release costs nothing beyond the release.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.agents.base import Core, Factory, FloatArray, ScheduleAgent, core_env
from dp_ensemble_env.control.policies import POLICIES, as_tilt, solve_policy, solve_standard, tilted_policy
from dp_ensemble_env.envs.actions import centred_actions
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.release import Release


class PolicyAgent(ScheduleAgent):
    """Plays a policy of shape (T, n, m), or (T, c, n, m) where there is a context.

    Parameters
    ----------
    env : gymnasium.Env
        Where it will act.
    policy : ndarray
    name, privacy : str
        See `ScheduleAgent`.
    actions : ndarray, optional
        The actions that realise the policy, if they are known already.
    """

    def __init__(
        self,
        env: Any,
        policy: FloatArray,
        name: str = "policy",
        privacy: str = "unknown",
        actions: NDArray[Any] | None = None,
    ) -> None:
        core = core_env(env)
        context, expected = core.model.context, core.model.default_policy.shape
        if np.shape(policy) != expected:
            axes = "(T, n, n)" if core.model.is_plain else "(T, n, m)" if context is None else "(T, c, n, m)"
            raise ValueError(
                f"policy has shape {np.shape(policy)}, the environment needs {axes} = "
                f"({', '.join(map(str, expected))})."
            )
        self.policy = policy
        if actions is None:
            actions = np.stack([_encoded(core, policy[t], t) for t in range(core.model.horizon)])
        super().__init__(actions, name, privacy, context, by_context=context is not None)


def _encoded(core: Core, policy_t: FloatArray, t: int) -> NDArray[Any]:
    """Return the action of a step, or one for each context."""
    if policy_t.ndim == 2:
        return core.encode_policy(policy_t, t)
    return np.stack([core.encode_policy(rows, t, context=w) for w, rows in enumerate(policy_t)])


def analytical(
    env: Any,
    name: str,
    k: float | None = None,
    release: Release | None = None,
    samples: int = 1000,
    seed: int | None = 0,
) -> PolicyAgent:
    """Solve one of the closed-form policies and return the agent that plays it.

    Parameters
    ----------
    env : gymnasium.Env
        Where it will act.
    name : str
        One of `dp_ensemble_env.control.policies.POLICIES`.
    k : float, optional
        Concentration of the noise that the policy expects. By default that of
        the release, or of the environment's release.
    release : Release, optional
        Solve on this private matrix instead of the environment's own. The plan is
        then deployed as it is in the policy mode, without the moves that the loads
        never make, and as a tilt of their behaviour elsewhere (the standard policy).
    samples : int
        Draws of the sampled average.
    seed : int, optional
        Seed of these draws; None takes the operating system's entropy.
    """
    core = core_env(env)
    model = core.model if release is None else core.model.with_default(release.matrix)
    source = release or core.release
    if k is None and name != "standard":
        k = source.k if source is not None else None
    settings: dict[str, Any] = {"samples": samples, "rng": seed} if name == "average-sampled" else {}
    privacy = privacy_label(core, name, release, samples)
    if name == "standard" and core.action_mode == "tilt" and not core.model.is_plain:
        tilts = solve_standard(model).tilt  # no need to read them off the policy again
        actions = centred_actions(core.model, tilts, strict=release is None)
        return PolicyAgent(env, tilted_policy(core.model, tilts), name, privacy, actions)
    if release is not None and name == "standard" and core.action_mode != "policy":
        policy = as_tilt(release, core.model)  # the plan's attraction of each level, on the loads' own behaviour
    else:
        policy = solve_policy(model, name, k, **settings)
        if release is not None:
            policy = on_support(policy, core.model)
    return PolicyAgent(env, policy, name, privacy)


def on_support(policy: FloatArray, model: EnsembleModel) -> FloatArray:
    """Leave out the moves that the model's loads never make; a row of which nothing is left is the default's."""
    kept = np.where(model.default_policy > 0, policy, 0.0)
    total = kept.sum(axis=-1, keepdims=True)
    masked: FloatArray = np.where(total > 0, kept / np.where(total > 0, total, 1.0), model.default_policy)
    return masked


def privacy_label(core: Core, name: str, release: Release | None, samples: int) -> str:
    """Say what the policy reveals of the private matrix."""
    if release is not None or core.release is not None:
        return "that of one release"
    if name == "average-sampled":
        return f"that of {samples:,} releases together"
    expects = "" if name == "standard" else "noise-aware, not private: "
    return f"{expects or 'none: '}computed from the true matrix"


FACTORIES: dict[str, Factory] = {name: functools.partial(analytical, name=name) for name in POLICIES}
FACTORIES["average"] = FACTORIES["average-sampled"]
