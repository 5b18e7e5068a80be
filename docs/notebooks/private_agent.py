# %% [markdown]
# # Train on a release, deploy on the truth
#
# The agent never sees the loads' true behaviour. It is trained in an environment that is built on a *release*, a
# noisy copy that protects every participant at ε = 1. Then it meets the true loads. Is it better than an agent that
# used no data at all?
#
# You need `pip install ".[plots,rl]"` in a clone. On Colab, clone the project first and put `%` before `pip`.

# %%
import gymnasium

import dp_ensemble_env

gymnasium.register_envs(dp_ensemble_env)
private = gymnasium.make(
    "dp_ensemble/Call-v1", privacy="adaptive:epsilon=1,participants=1000", release_seed=0
).unwrapped
print(private.release)

# %% [markdown]
# `release_seed=0` makes this page repeatable. To publish a release, draw it with a ledger and without a seed: anyone
# who knows the seed can remove the noise.
#
# Training reads the release as often as it likes. That costs no further privacy.

# %%
from dp_ensemble_env.agents import evaluate, make_agent

ppo = make_agent("ppo", private, steps=16_384, seed=0)
print(f"on the release: {evaluate(ppo, private, episodes=256).score:.0f}")

# %% [markdown]
# The score on the release is optimistic: the agent was trained there. The *deployed* score counts.

# %%
from dp_ensemble_env import scenarios
from dp_ensemble_env.experiments.deployment import deploy

found = deploy(ppo, private, scenarios.make("call"))
print(found)

# %% [markdown]
# For comparison, the exact plan for the same release:

# %%
import matplotlib.pyplot as plt

tilts = gymnasium.make("dp_ensemble/Call-tilt-v1", privacy=private.release).unwrapped
plan = deploy(make_agent("standard", tilts), tilts, scenarios.make("call"))
scores = {"without data": found.without_data, "private PPO": found.deployed, "private plan": plan.deployed}
figure, axes = plt.subplots(figsize=(5, 2), layout="constrained")
bars = axes.barh(list(scores), list(scores.values()))
axes.bar_label(bars, fmt="%.0f")
axes.invert_yaxis()
axes.axvline(100, color="0.6", ls="--")
axes.set(xlabel="score on the true behaviour (line: optimum)", xlim=(0, 112))
plt.show()

# %% [markdown]
# The page on privacy explains what ε covers. This is the ledger's record of the charge:

# %%
print(private.ledger.statement())
