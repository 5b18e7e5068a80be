# %% [markdown]
# # A first agent
#
# Steer 100 buildings through a four-hour demand-response event, first with a rule, then with a trained PPO, and
# compare both with the exact optimum.
#
# You need the library with its learners: `pip install ".[plots,rl]"` in a clone. On Colab, clone the project first
# and put `%` before `pip`.

# %%
import gymnasium
import numpy as np

import dp_ensemble_env

gymnasium.register_envs(dp_ensemble_env)
env = gymnasium.make("dp_ensemble/CampusEvent-price-v1")
print("observation", env.observation_space.shape, "action", env.action_space.shape)
observation, info = env.reset(seed=0)
print(
    f"{info['power_kw']:.0f} kW a building at the start; highest achievable return {info['optimal_return']:.0f} dollars"
)

# %% [markdown]
# The observation holds the share of the buildings at each of 20 power levels, the time that is left, and four
# prices. The action is one number: a *virtual price* between −1 and 1 that makes high power levels less attractive.
# **Zero always means: leave the loads alone.**
#
# ## Your own agent
#
# An agent is any object with Stable-Baselines3's method `predict`. This agent sheds power whenever it is expensive.


# %%
class Rule:
    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        price_now = np.asarray(observation)[..., 21:22]  # between 0 and 1
        return np.where(price_now > 0.5, 0.2, 0.0).astype(np.float32), state


# %% [markdown]
# `evaluate` scores it: 0 is the uncontrolled ensemble, 100 the exact optimum. Without chance, as here, the score is
# exact.

# %%
from dp_ensemble_env.agents import evaluate, make_agent

scores = {"rule": evaluate(Rule(), env)}
for name in ("uncontrolled", "best-price"):  # built in; best-price is the best action that never changes
    scores[name] = evaluate(make_agent(name, env), env)
for name, outcome in scores.items():
    print(f"{name:12} {outcome.score:6.1f}")

# %% [markdown]
# ## A learner
#
# `make_agent("ppo", ...)` trains Stable-Baselines3's PPO with settings that were tuned for these environments. Six
# thousand steps take a few seconds.

# %%
scores["ppo"] = evaluate(make_agent("ppo", env, steps=6_000, seed=0), env)
print(f"ppo, 6,000 steps: {scores['ppo'].score:.0f}")

# %% [markdown]
# The whole episode, in kilowatts of all buildings together:

# %%
import matplotlib.pyplot as plt

tilts = gymnasium.make("dp_ensemble/CampusEvent-tilt-v1")  # one price cannot express the optimum, a tilt can
scores["optimum"] = evaluate(make_agent("standard", tilts), tilts)
figure, axes = plt.subplots(figsize=(6, 3.5))
for name in ("uncontrolled", "rule", "ppo", "optimum"):
    axes.plot(scores[name].power_kw / 1000, label=f"{name} ({scores[name].score:.0f})")
axes.set(xlabel="quarter hours", ylabel="power, MW (axis starts above 0)", xticks=range(0, 20, 4))
axes.legend()
plt.show()

# %% [markdown]
# Next: a scenario in which a fixed schedule fails, such as `dp_ensemble/Spot-v1`, and the command line:
# `dp-ensemble train --help`.
